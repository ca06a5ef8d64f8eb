"""Generator of tables in which people have several records, from a table of single records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import Bunch

from .._input_data import check_consistent_length, column_or_1d
from .._validation import check_random_state, is_number, whole

_COPY_NOISE = 0.1  # of a column's standard deviation, and share of other values drawn anew
Ints = NDArray[np.int64]


def make_grouped_table(
    X: Any,
    y: Any,
    *,
    rows: str = "nearest",
    n_groups: int | None = None,
    max_group_size: int = 50,
    exponent: float = 1.75,
    random_state: Any = None,
) -> Bunch:
    """Make a table of people with several records each from a public table of single records.

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_records, n_features)
        A public table: the result contains its records.
    y : array-like of shape (n_records,)
        The target.
    rows : {"nearest", "copies", "random"}, default="nearest"
        Similarity of a person's records. "nearest": a record and its nearest unused neighbours.
        "copies": a record and noisy copies of it. Noise of a tenth of the column's standard
        deviation is added to numbers, and a tenth of other values are drawn anew. "random":
        arbitrary records.
    n_groups : int, default=None
        Number of people. ``None`` adds people until they have as many records as the table.
    max_group_size : int, default=50
        Largest number of records per person.
    exponent : float, default=1.75
        A person has m records with a probability in proportion to m ** -exponent (Zipf).
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    Bunch
        ``data`` in the form of ``X``, ``target`` an array, and ``groups``, a Series named "person",
        all in random order. With "nearest" and "random" each record occurs at most once.

    Raises
    ------
    ValueError
        If a parameter is invalid, or the people need more records than the table has.

    Examples
    --------
    >>> from skprivacy.datasets import load_demo, make_grouped_table
    >>> X, y = load_demo(return_X_y=True)
    >>> people = make_grouped_table(X, y, random_state=0)
    >>> people.data.shape, people.groups.nunique(), int(people.groups.value_counts().max())
    ((1797, 64), 455, 48)
    """
    if not isinstance(rows, str) or rows not in _METHODS:
        raise ValueError(f"rows={rows!r} must be one of {tuple(_METHODS)}.")
    whole("max_group_size", max_group_size)
    if n_groups is not None:
        whole("n_groups", n_groups)
    if not (is_number(exponent) and exponent >= 0):
        raise ValueError(f"exponent={exponent!r} must be a number >= 0.")
    try:
        table, target = pd.DataFrame(X), column_or_1d(y)
        check_consistent_length(table, target)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X and y must be a table and a target for each row: {error}") from error
    if table.empty:
        raise ValueError(f"X has shape {table.shape}; expected records.")
    rng = check_random_state(random_state)
    sizes = _draw_sizes(len(table), n_groups, int(max_group_size), float(exponent), rng)
    person = np.repeat(np.arange(len(sizes)), sizes)
    taken, made = _METHODS[rows](table, sizes, rng)
    order = rng.permutation(len(person))
    data = made.iloc[order].reset_index(drop=True)
    return Bunch(
        data=data if isinstance(X, pd.DataFrame) else data.to_numpy(),
        target=target[taken][order],
        groups=pd.Series(rng.permutation(len(sizes))[person[order]], name="person"),
    )


def _draw_sizes(
    n: int, n_groups: int | None, max_group_size: int, exponent: float, rng: Any
) -> Ints:
    """Draw how many records each person has."""
    if n_groups is not None and n_groups > n:
        raise ValueError(f"n_groups={n_groups} is more than the {n} records of the table.")
    max_group_size = min(max_group_size, n)
    weights = np.arange(1, max_group_size + 1) ** -exponent
    count = n if n_groups is None else int(n_groups)
    sizes = rng.choice(np.arange(1, max_group_size + 1), count, p=weights / weights.sum())
    if n_groups is None:
        sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), n)) + 1]
        sizes[-1] -= sizes.sum() - n
    elif sizes.sum() > n:
        raise ValueError(
            f"n_groups={n_groups} need {sizes.sum()} records, and the table has {n}. Use fewer "
            "people, a smaller most, or a larger exponent."
        )
    return np.asarray(sizes, np.int64)


def _pick_random(table: pd.DataFrame, sizes: Ints, rng: Any) -> tuple[Ints, pd.DataFrame]:
    taken = rng.permutation(len(table))[: sizes.sum()]
    return taken, table.iloc[taken]


def _pick_nearest(table: pd.DataFrame, sizes: Ints, rng: Any) -> tuple[Ints, pd.DataFrame]:
    """Assign nearest records, largest people first, while close neighbours are still free."""
    order = rng.permutation(len(table))
    points = _table_to_points(table)[order]
    squares = (points**2).sum(axis=1)
    free = np.ones(len(order), dtype=bool)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    taken = np.empty(sizes.sum(), np.int64)
    for person in np.argsort(-sizes, kind="stable"):
        size, first = sizes[person], int(free.argmax())
        chosen = np.array([first])
        if size > 1:  # the first free record and its nearest free neighbours
            distances = np.where(free, squares - 2 * (points @ points[first]), np.inf)
            distances[first] = -np.inf
            chosen = np.argpartition(distances, size - 1)[:size]
        taken[starts[person] : starts[person + 1]] = order[chosen]
        free[chosen] = False
        if 2 * free.sum() < len(free):  # drop used records from the search
            order, points, squares = order[free], points[free], squares[free]
            free = np.ones(len(order), dtype=bool)
    return taken, table.iloc[taken]


def _make_copies(table: pd.DataFrame, sizes: Ints, rng: Any) -> tuple[Ints, pd.DataFrame]:
    taken = np.repeat(rng.permutation(len(table))[: len(sizes)], sizes)
    original = np.r_[True, np.diff(np.repeat(np.arange(len(sizes)), sizes)) > 0]
    made = table.iloc[taken].copy()
    for place in range(table.shape[1]):
        column = table.iloc[:, place]
        if pd.api.types.is_numeric_dtype(column.dtype) and column.dtype != bool:
            values = made.iloc[:, place].to_numpy(dtype=float)
            other = values + rng.normal(0.0, _COPY_NOISE * column.std(), len(taken))
            other = np.clip(other, column.min(), column.max())
            if column.dtype.kind in "iu":
                other = np.rint(other)
            changed = np.where(original, values, other).astype(column.dtype)
        else:
            drawn = column.to_numpy()[rng.randint(len(table), size=len(taken))]
            anew = ~original & (rng.uniform(size=len(taken)) < _COPY_NOISE)
            changed = np.where(anew, drawn, made.iloc[:, place].to_numpy())
        made.isetitem(place, pd.Series(changed, index=made.index).astype(column.dtype))
    return taken, made


def _table_to_points(table: pd.DataFrame) -> NDArray[np.float32]:
    """Return records as points: standardised numbers, and one-hot columns of other values."""
    number = [pd.api.types.is_numeric_dtype(dtype) for dtype in table.dtypes]
    numbers = table.loc[:, number].to_numpy(dtype=float)
    spread = numbers.std(axis=0)
    parts = [(numbers - numbers.mean(axis=0)) / np.where(spread > 0, spread, 1.0)]
    others = table.loc[:, [not is_number for is_number in number]]
    if others.shape[1]:
        parts.append(pd.get_dummies(others.astype(str)).to_numpy(dtype=float))
    return np.hstack(parts).astype(np.float32)


_Made = tuple[Ints, pd.DataFrame]
_METHODS: dict[str, Callable[[pd.DataFrame, Ints, Any], _Made]] = {
    "nearest": _pick_nearest,
    "copies": _make_copies,
    "random": _pick_random,
}
