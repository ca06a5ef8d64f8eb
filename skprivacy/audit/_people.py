"""People in an audit: members are people, and so is whoever a claim is held against."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._groups import Groups
from ..attacks import AttackResult
from ..attacks._people import JOINS, parted
from .claims import NO_CLAIM, Claim

__all__ = ["People", "claim_for"]


@dataclass(frozen=True)
class People:
    """Whose record each member's and each non-member's is.

    Parameters
    ----------
    inside, outside : Groups
        Nobody is in both.
    """

    inside: Groups
    outside: Groups

    @classmethod
    def of(cls, groups: Any, n_train: int, n_test: int) -> People:
        """Return the people of a pair: the groups of members, and those of non-members."""
        lengths = (n_train, n_test)
        fits = isinstance(groups, (tuple, list)) and len(groups) == 2
        if not fits or tuple(map(np.size, groups)) != lengths:
            raise ValueError(
                "groups must be a pair, as (groups of members, groups of non-members), with a "
                f"value for each of the {n_train} and {n_test} records."
            )
        people = cls(*parted(*groups))
        if min(people.inside.n, people.outside.n) < 2:
            raise ValueError(
                f"groups must have at least 2 values of {people.unit} on each side; got "
                f"{people.inside.n} and {people.outside.n}. Pass the records of more."
            )
        return people

    @property
    def unit(self) -> str:
        """What they are called."""
        return self.inside.unit

    @property
    def together(self) -> Groups:
        """The people of all records, the members' first."""
        codes = np.r_[self.inside.codes, self.inside.n + self.outside.codes]
        return Groups(codes, self.inside.n + self.outside.n, self.unit)

    def divided(self, by: str, values: tuple[Any, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the value of each person among members and non-members, from those of records.

        Raises
        ------
        ValueError
            If somebody's records have several: who has all of them has no one group.
        """
        of_people, n_several = [], 0
        for groups, found in zip((self.inside, self.outside), values, strict=True):
            first = found[np.unique(groups.codes, return_index=True)[1]]
            n_several += len(np.unique(groups.codes[found != first[groups.codes]]))
            of_people.append(first)
        if n_several:
            raise ValueError(
                f"subgroups by {by!r} part the records of {n_several} values of {self.unit}, who "
                "are attacked with all of their records. Pass what is the same in all records of "
                f"each {self.unit}, or leave out subgroups."
            )
        return of_people[0], of_people[1]

    def part(self, rows_in: NDArray[Any], rows_out: NDArray[Any]) -> People:
        """Return the people of some records."""
        return People(_of(self.inside, rows_in), _of(self.outside, rows_out))

    def joined(self, result: AttackResult) -> list[AttackResult]:
        """Return what an attack on records tells of people, in each way of joining their scores."""
        whose, n_in = pd.Series(self.together.codes, name=self.unit), len(self.inside.codes)
        return [result.joined(whose[:n_in], whose[n_in:], how) for how in JOINS]

    def sharing(self, shared: NDArray[np.bool_]) -> int:
        """Return how many non-members have a record among some of the non-members' records."""
        return len(np.unique(self.outside.codes[shared]))


def claim_for(people: People, claim: Claim) -> Claim:
    """Return the claim for people: none if what is guaranteed is about something else."""
    guarantee = claim.guarantee
    if guarantee is None or guarantee.unit == people.unit:
        return claim
    protects = "single records" if guarantee.unit == "record" else f"values of {guarantee.unit}"
    return replace(
        claim,
        guarantee=None,
        charged=None,  # the reason says what it is, and it is no cost of a search
        reason=f"{NO_CLAIM} for {people.unit}: {guarantee!r} is about {protects}",
    )


def _of(groups: Groups, rows: NDArray[Any]) -> Groups:
    codes = pd.factorize(groups.codes[rows])[0]
    return Groups(codes.astype(np.int64), int(codes.max(initial=-1)) + 1, groups.unit)
