"""People in attacks: who is parted from whom, and all records of one joined into one score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .._groups import Groups, as_text, check_groups

__all__ = ["JOINS", "hanging_together", "join", "parted"]

JOINS = ("sum", "max")
Float64Array = NDArray[np.float64]


def hanging_together(rows: NDArray[np.intp], people: Groups) -> NDArray[np.intp]:
    """Return for each record the number of those who are halved together.

    They are people who share a row, directly or through others: were they parted, a model would
    count as not trained on a record of which it has a copy.

    Parameters
    ----------
    rows : ndarray of shape (n_records,)
        The number of each record's distinct row.
    people : Groups

    Raises
    ------
    ValueError
        If most of the records hang together.
    """
    n = people.n
    edges = np.ones(len(rows), dtype=bool), (people.codes, n + rows)
    size = n + int(rows.max()) + 1
    _, part = connected_components(sparse.coo_matrix(edges, (size, size)), directed=False)
    units = np.unique(part[people.codes], return_inverse=True)[1]
    largest = int(np.bincount(units).max())
    if n > 1 and 2 * largest > len(units) and largest > people.sizes().max():
        raise ValueError(
            f"{largest} of {len(units)} records hang together by equal rows of different values of "
            f"{people.unit!r}, so that they cannot be halved. Drop the rows that several have, or "
            "leave groups out to attack single records."
        )
    return units


def parted(groups_in: Any, groups_out: Any) -> tuple[Groups, Groups]:
    """Return the people of members and of non-members, nobody of whom is among both.

    Parameters
    ----------
    groups_in, groups_out : array-like of shape (n_in,) and (n_out,)

    Raises
    ------
    ValueError
        If a value is in both, or the names differ.
    """
    inside, outside = (check_groups(g, np.arange(len(g))) for g in (groups_in, groups_out))
    if inside.unit != outside.unit:
        raise ValueError(
            f"groups are named {inside.unit!r} for members and {outside.unit!r} for non-members. "
            "Give both the name of what they are."
        )
    # As text: the one file may have been read as numbers, and the other one as text.
    shared = set(as_text(inside.names)) & set(as_text(outside.names))
    if shared:
        raise ValueError(
            f"{len(shared)} values of {inside.unit} are among members and non-members alike, so "
            "they are neither. Divide people, not records, as GroupShuffleSplit does."
        )
    return inside, outside


def join(scores: Float64Array, groups: Groups, how: str, centre: float) -> Float64Array:
    """Return one score for each group, of shape (n_groups,): higher means member.

    Parameters
    ----------
    scores : ndarray of shape (n_records,)
    groups : Groups
        Whose records they are.
    how : {"sum", "max"}
        The sum of scores above ``centre``: of log-likelihood ratios, that of independent records
        together. Or the best record.
    centre : float
        The score of a record that tells nothing. Without it a sum would mostly count records.
    """
    if how == "max":
        best = np.full(groups.n, -np.inf)
        np.maximum.at(best, groups.codes, scores)
        return best
    total: Float64Array = np.bincount(groups.codes, scores - centre, groups.n).astype(float)
    return total
