"""Groups of records in attacks: which records are halved together, and one score per group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .._groups import Groups, check_groups, group_labels

JOINS = ("sum", "max")
REDRAWS = 20  # of a half, until both halves have two classes
Float64Array = NDArray[np.float64]


def connected_units(rows: NDArray[np.intp], groups: Groups) -> NDArray[np.intp]:
    """Return each record's connected component of groups and equal rows, which stays in one half.

    Otherwise a model trained on a copy of a record would count as not trained on it.
    """
    n = groups.n
    edges = np.ones(len(rows), dtype=bool), (groups.codes, n + rows)
    size = n + int(rows.max()) + 1
    _, part = connected_components(sparse.coo_matrix(edges, (size, size)), directed=False)
    units = np.unique(part[groups.codes], return_inverse=True)[1]
    largest = int(np.bincount(units).max())
    if n > 1 and 2 * largest > len(units) and largest > groups.sizes().max():
        raise ValueError(
            f"{largest} of {len(units)} records are connected by equal rows of different values of "
            f"{groups.unit!r}, so they cannot be halved. Drop the rows that several values share, "
            "or leave groups out to attack single records."
        )
    return units


def complementary_halves(
    groups: NDArray[np.intp], y: NDArray[Any] | None, n_shadows: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw complementary halves of the groups; with ``y``, each half has at least two classes."""
    n_groups = int(groups.max()) + 1
    masks = np.zeros((n_shadows, n_groups), dtype=bool)
    for pair in range(0, n_shadows, 2):
        for _ in range(REDRAWS):
            half = np.zeros(n_groups, dtype=bool)
            half[rng.permutation(n_groups)[: n_groups // 2]] = True
            taken = half[groups]
            if y is None or min(len(np.unique(y[taken])), len(np.unique(y[~taken]))) > 1:
                break
        else:
            raise ValueError(
                f"y has a class that is too rare: after {REDRAWS} random draws, one half still had "
                "a single class. Pass more records of that class."
            )
        masks[pair], masks[pair + 1] = half, ~half
    return masks


def separate_groups(groups_in: Any, groups_out: Any) -> tuple[Groups, Groups]:
    """Return the groups of members and of non-members; ValueError if a group is in both."""
    inside, outside = (check_groups(g, np.arange(len(g))) for g in (groups_in, groups_out))
    if inside.unit != outside.unit:
        raise ValueError(
            f"groups are named {inside.unit!r} for members and {outside.unit!r} for non-members. "
            "Give both the same name."
        )
    # compared as text, since one file may have been read as numbers and the other as text
    shared = set(group_labels(inside.names)) & set(group_labels(outside.names))
    if shared:
        raise ValueError(
            f"{len(shared)} values of {inside.unit} are among both members and non-members. Split "
            "by group, not by record, as GroupShuffleSplit does."
        )
    return inside, outside


def join_group_scores(
    scores: Float64Array, groups: Groups, how: str, centre: float
) -> Float64Array:
    """Return one score per group: the maximum, or the sum of ``scores - centre``.

    Without ``centre``, the score of an uninformative record, a sum would mostly count records.
    """
    if how == "max":
        best = np.full(groups.n, -np.inf)
        np.maximum.at(best, groups.codes, scores)
        return best
    total: Float64Array = np.bincount(groups.codes, scores - centre, groups.n).astype(float)
    return total
