"""Membership attacks on a model with known members, each compared with a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from .._sklearn import num_samples, safe_indexing
from ..attacks import AttackResult, MembershipAttack
from ..attacks._answers import targets_as_array
from ..attacks._people import connected_units
from ..attacks._records import as_records, concat, fingerprints
from ._people import MemberGroups
from .claims import Claim
from .finding import AttackFinding

__all__ = ["Records", "concat_records", "run_attacks"]

Records = tuple[Any, Any, Any, Any]  # X_train, y_train, X_test, y_test


def run_attacks(
    attacks: Sequence[MembershipAttack],
    records: Records,
    claim: Claim,
    alpha: float,
    *,
    people: MemberGroups | None = None,
    verbose: int = 0,
) -> tuple[AttackFinding, ...]:
    """Run attacks that have a target, and a pool if they need one; on groups, if there are any.

    Each result gets an equal share of the error probability (Bonferroni), because the verdict
    takes the strongest of them.
    """
    results: list[AttackResult] = []
    for attack in tqdm(attacks, disable=not verbose, desc="attacks", unit="attack"):
        run = _of_known_members if attack._needs_members else _of_unknown_members
        results += run(attack, records, people)
    share = alpha / len(results)  # Bonferroni
    return tuple(AttackFinding.of(result, claim.guarantee, alpha, share) for result in results)


def concat_records(records: Records) -> tuple[Any, NDArray[Any]]:
    """Return members and non-members as one sample, with their targets."""
    X_train, y_train, X_test, y_test = records
    targets = (
        targets_as_array(y_train, num_samples(X_train)),
        targets_as_array(y_test, num_samples(X_test)),
    )
    return concat(as_records(X_train), as_records(X_test)), np.concatenate(targets)


def _of_unknown_members(
    attack: MembershipAttack, records: Records, people: MemberGroups | None
) -> list[AttackResult]:
    result = attack.fit(*concat_records(records)).evaluate(*records)
    return [result] if people is None else people.join_results(result)


def _of_known_members(
    attack: MembershipAttack, records: Records, people: MemberGroups | None
) -> list[AttackResult]:
    """Train an attack on one half of the members and non-members, and evaluate it on the other.

    Exchanging the halves and joining both results would use all records. But the two attack models
    and the records that they are evaluated on would then depend on each other, and intervals for
    independent records would be too narrow. Equal records, and records of one group, are kept in
    one half.
    """
    X, y = concat_records(records)
    n_in = num_samples(records[0])
    member = np.arange(len(y)) < n_in
    prints = fingerprints(X)
    known = prints % np.uint64(2) == 0
    if people is not None:
        rows = np.unique(prints, return_inverse=True)[1]
        known = connected_units(rows, people.all_groups) % 2 == 0
    parts = [
        np.flatnonzero(half & group) for half in (known, ~known) for group in (member, ~member)
    ]
    if min(map(len, parts)) < 2:
        raise ValueError(
            f"{type(attack).__name__} is trained on one half of the records and evaluated on the "
            f"other, but there are {int(member.sum())} members and {int((~member).sum())} "
            "non-members, too few distinct ones; expected dozens. Pass more records."
        )
    learned = np.flatnonzero(known)
    attack.fit(safe_indexing(X, learned), y[learned], member[learned])
    inside, outside = parts[2:]
    result = attack.evaluate(
        safe_indexing(X, inside), y[inside], safe_indexing(X, outside), y[outside]
    )
    return (
        [result] if people is None else people.select(inside, outside - n_in).join_results(result)
    )
