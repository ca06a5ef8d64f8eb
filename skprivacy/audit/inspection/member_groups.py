"""Membership of whole groups: joined scores, group sizes and the claim for groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..._groups import Groups, check_order
from ..._validation import num_samples
from ...attacks import AttackResult
from ...attacks.group_scores import JOINS, separate_groups
from .claims import NO_CLAIM, Claim


@dataclass(frozen=True)
class MemberGroups:
    """Groups of the members' records and of the non-members' records; no group is in both."""

    inside: Groups
    outside: Groups

    @classmethod
    def from_pair(cls, groups: Any, n_train: int, n_test: int) -> MemberGroups:
        """Return the groups from a pair (groups of members, groups of non-members)."""
        lengths = (n_train, n_test)
        fits = isinstance(groups, (tuple, list)) and len(groups) == 2
        if not fits or tuple(map(np.size, groups)) != lengths:
            raise ValueError(
                "groups must be a pair (groups of members, groups of non-members), with one value "
                f"for each of the {n_train} and {n_test} records."
            )
        member_groups = cls(*separate_groups(*groups))
        if min(member_groups.inside.n, member_groups.outside.n) < 2:
            raise ValueError(
                f"groups must have at least 2 values of {member_groups.unit} on each side; got "
                f"{member_groups.inside.n} and {member_groups.outside.n}. Pass the records of more."
            )
        return member_groups

    @classmethod
    def from_records(cls, groups: Any, X_in: Any, X_out: Any) -> MemberGroups:
        """Return the groups of a pair, in the order of the records."""
        member_groups = cls.from_pair(groups, num_samples(X_in), num_samples(X_out))
        for column, X in zip(groups, (X_in, X_out), strict=True):
            check_order(column, X)
        return member_groups

    @property
    def unit(self) -> str:
        """Name of the groups' column."""
        return self.inside.unit

    @property
    def all_groups(self) -> Groups:
        """The groups of all records, members first."""
        codes = np.r_[self.inside.codes, self.inside.n + self.outside.codes]
        return Groups(codes, self.inside.n + self.outside.n, self.unit)

    def group_values(self, by: str, values: tuple[Any, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the value of each group; raise ValueError if a group's records have several."""
        of_groups, n_several = [], 0
        for groups, found in zip((self.inside, self.outside), values, strict=True):
            first = found[np.unique(groups.codes, return_index=True)[1]]
            n_several += len(np.unique(groups.codes[found != first[groups.codes]]))
            of_groups.append(first)
        if n_several:
            raise ValueError(
                f"subgroups by {by!r} differ within {n_several} values of {self.unit}, which are "
                "attacked as a whole. Pass subgroups that are equal in all records of each "
                f"{self.unit}, or leave subgroups out."
            )
        return of_groups[0], of_groups[1]

    def select(
        self, rows_in: NDArray[Any], rows_out: NDArray[Any]
    ) -> tuple[MemberGroups, tuple[NDArray[Any], NDArray[Any]]]:
        """Return the groups of some records, and their earlier numbers."""
        chosen, earlier = [], []
        for groups, rows in ((self.inside, rows_in), (self.outside, rows_out)):
            codes, numbers = pd.factorize(groups.codes[rows])
            chosen.append(Groups(codes.astype(np.int64), len(numbers), groups.unit))
            earlier.append(numbers)
        return MemberGroups(*chosen), (earlier[0], earlier[1])

    def join_results(self, result: AttackResult) -> list[AttackResult]:
        """Return the results of an attack for groups, one per way of joining scores."""
        codes, n_in = pd.Series(self.all_groups.codes, name=self.unit), len(self.inside.codes)
        return [result.join_groups(codes[:n_in], codes[n_in:], how) for how in JOINS]


def claim_for_groups(member_groups: MemberGroups | None, claim: Claim) -> Claim:
    """Return the claim for groups, if there are any; none if the guarantee has another unit."""
    guarantee = claim.guarantee
    if member_groups is None or guarantee is None or guarantee.unit == member_groups.unit:
        return claim
    protects = "single records" if guarantee.unit == "record" else f"values of {guarantee.unit}"
    return replace(
        claim,
        guarantee=None,
        charged=None,  # already named in the reason, and not the cost of a search
        reason=f"{NO_CLAIM} for {member_groups.unit}: {guarantee!r} is about {protects}",
    )
