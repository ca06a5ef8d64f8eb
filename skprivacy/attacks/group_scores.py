"""Groups of records in attacks: which records are halved together, and one score per group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .._groups import Groups, check_groups, group_labels

JOINS = ("sum", "max")
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
