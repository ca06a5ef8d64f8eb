"""How far a decision is from changing, told by labels alone and within a number of queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Oracle", "decision_distance"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
HALVINGS = 10
STEPS = 6
TRIES = 5
PASSES = 3


class Oracle:
    """Answers whether a record's label changes, and counts; beyond the budget it asks nothing."""

    def __init__(self, changed: Callable[[Rows, Floats], Mask], n_records: int, budget: int):
        self.used = np.zeros(n_records, dtype=int)
        self.budget = budget
        self._changed = changed

    def __call__(self, rows: Rows, points: Floats, *, reserve: int = 0) -> Mask:
        """Return False for records of which fewer than ``reserve + 1`` queries are left."""
        answer = np.zeros(len(rows), dtype=bool)
        may = self.used[rows] + reserve < self.budget
        if may.any():
            self.used[rows[may]] += 1
            answer[may] = self._changed(rows[may], points[may])
        return answer


def decision_distance(
    oracle: Oracle,
    matrix: Floats,
    goals: Iterable[Floats],
    continuous: Mask,
    scale: Floats,
    rng: np.random.Generator,
) -> Floats:
    """Return the distance of each record from a near point with another label.

    From a point with another label, discrete features are taken back while the label stays
    changed; those left count 1 each. Then the point moves along the decision boundary towards the
    record (HopSkipJump): a binary search to the boundary, the direction of the boundary from the
    labels of random points around, a step, and so on. A record whose label no goal changes gets
    the distance of the farthest goal tried.

    Parameters
    ----------
    oracle : Oracle
    matrix : ndarray of shape (n_records, n_features)
    goals : iterable of ndarray of shape (n_records, n_features)
        Points that probably have other labels, tried in turn.
    continuous : bool ndarray of shape (n_features,)
    scale : ndarray of shape (n_features,)
        Unit of each continuous feature.
    rng : Generator
        Draws the same for every record.
    """
    point, found = _start(oracle, matrix, goals, continuous)
    if not continuous.all():
        # continuous features, if any, get the other half of the queries
        reserve = oracle.budget // 2 if continuous.any() else 0
        _take_back(oracle, matrix, point, found, np.flatnonzero(~continuous), rng, reserve)
    if continuous.any():
        spent = 1 + TRIES + (0 if continuous.all() else oracle.budget // 2)
        _hop(oracle, matrix, point, found, continuous, scale, oracle.budget - spent, rng)
    straight = np.linalg.norm(((point - matrix) / scale)[:, continuous], axis=1)
    flips = _differ(point, matrix)[:, ~continuous].sum(axis=1)
    return np.sqrt(np.nan_to_num(straight) ** 2 + flips)


def _start(
    oracle: Oracle, matrix: Floats, goals: Iterable[Floats], continuous: Mask
) -> tuple[Floats, Rows]:
    point, found = matrix.copy(), np.zeros(len(matrix), dtype=bool)
    for _, goal in zip(range(TRIES), goals, strict=False):
        rows = np.flatnonzero(~found)
        # a missing number has no distance from a known one
        missing = continuous & (np.isnan(matrix[rows]) | np.isnan(goal[rows]))
        point[rows] = np.where(missing, matrix[rows], goal[rows])
        found[rows] = oracle(rows, point[rows])
    return point, np.flatnonzero(found)


def _take_back(
    oracle: Oracle,
    matrix: Floats,
    point: Floats,
    found: Rows,
    columns: Rows,
    rng: np.random.Generator,
    reserve: int,
) -> None:
    """Take discrete changes back, as many at once as the label bears, then one by one."""
    order = rng.permutation(columns)
    kept, lost = np.zeros(len(found), dtype=int), np.full(len(found), len(order) + 1)
    for _ in range(int(np.ceil(np.log2(len(order) + 1)))):
        middle = (kept + lost) // 2
        trial = _with_own(point[found], matrix[found], order, middle)
        open_ = lost - kept > 1
        stays = np.zeros(len(found), dtype=bool)
        stays[open_] = oracle(found[open_], trial[open_], reserve=reserve)
        kept, lost = np.where(stays, middle, kept), np.where(stays | ~open_, lost, middle)
    point[found] = _with_own(point[found], matrix[found], order, kept)
    # again from the start, because a change taken back may free one that was needed before
    for column in np.tile(order, PASSES):
        rows = found[_differ(point[found, column], matrix[found, column])]
        trial = point[rows]
        trial[:, column] = matrix[rows, column]
        stays = oracle(rows, trial, reserve=reserve)
        point[rows[stays], column] = matrix[rows[stays], column]


def _with_own(point: Floats, matrix: Floats, order: Rows, count: NDArray[np.int_]) -> Floats:
    """Give each point the record's own values in the first ``count`` columns of ``order``."""
    place = np.full(point.shape[1], len(order) + 1)
    place[order] = np.arange(len(order))
    return np.where(place < count[:, None], matrix, point)


def _hop(
    oracle: Oracle,
    matrix: Floats,
    point: Floats,
    rows: Rows,
    continuous: Mask,
    scale: Floats,
    queries: int,
    rng: np.random.Generator,
) -> None:
    """Move along the boundary, towards the record."""
    unit = np.where(continuous, scale, 0.0)
    n_continuous = int(continuous.sum())
    n_rounds = min(8, max(0, (queries - HALVINGS) // (HALVINGS + STEPS + 30)))
    _to_boundary(oracle, matrix, point, rows, continuous)
    for turn in range(1, n_rounds + 1):
        n_directions = (queries - HALVINGS) // n_rounds - HALVINGS - STEPS
        away = np.nan_to_num((point[rows] - matrix[rows]) / scale)[:, continuous]
        distance = np.linalg.norm(away, axis=1)[:, None]
        reach = distance * max(1 / n_continuous, 0.01)
        votes = np.zeros((len(rows), point.shape[1]))
        total, plain = np.zeros((len(rows), 1)), np.zeros(point.shape[1])
        for _ in range(n_directions):
            direction = rng.normal(size=point.shape[1]) * continuous
            direction /= np.linalg.norm(direction)
            sign = 2.0 * oracle(rows, point[rows] + reach * direction * unit)[:, None] - 1
            votes, total, plain = votes + sign * direction, total + sign, plain + direction
        # labels of one kind only say nothing beyond their mean
        mean = total / n_directions
        way = votes - np.where(np.abs(mean) < 1, mean, 0.0) * plain
        way /= np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-12)
        step, waiting = distance / np.sqrt(turn), np.arange(len(rows))
        for _ in range(STEPS):
            trial = point[rows[waiting]] + step[waiting] * way[waiting] * unit
            changed = oracle(rows[waiting], trial)
            point[rows[waiting[changed]]] = trial[changed]
            waiting, step = waiting[~changed], step / 2
        _to_boundary(oracle, matrix, point, rows, continuous)


def _to_boundary(
    oracle: Oracle, matrix: Floats, point: Floats, rows: Rows, continuous: Mask
) -> None:
    """Bring points straight towards the records, as near as the label stays changed."""
    inside, outside = np.zeros(len(rows)), np.ones(len(rows))
    away = np.where(continuous, point[rows] - matrix[rows], 0.0)
    own = point[rows] - away
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        changed = oracle(rows, own + middle[:, None] * away)
        inside, outside = np.where(changed, inside, middle), np.where(changed, middle, outside)
    point[rows] = own + outside[:, None] * away


def _differ(one: Floats, other: Floats) -> Mask:
    return (one != other) & ~(np.isnan(one) & np.isnan(other))
