"""Distance to the decision boundary from labels, with a query budget: HopSkipJump (Chen 2020)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Oracle", "decision_distance"]

Float64Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
HALVINGS = 10
STEPS = 6
TRIES = 5
PASSES = 3


class Oracle:
    """Query whether a record's label changes, up to a budget of queries per record."""

    def __init__(self, changed: Callable[[Rows, Float64Array], Mask], n_records: int, budget: int):
        self.used = np.zeros(n_records, dtype=int)
        self.budget = budget
        self._changed = changed

    def __call__(self, rows: Rows, points: Float64Array, *, reserve: int = 0) -> Mask:
        """Query the records; False for records with fewer than ``reserve + 1`` queries left."""
        answer = np.zeros(len(rows), dtype=bool)
        may = self.used[rows] + reserve < self.budget
        if may.any():
            self.used[rows[may]] += 1
            answer[may] = self._changed(rows[may], points[may])
        return answer


def decision_distance(
    oracle: Oracle,
    matrix: Float64Array,
    goals: Iterable[Float64Array],
    continuous: Mask,
    scale: Float64Array,
    rng: np.random.Generator,
) -> Float64Array:
    """Return the distance of each record to a nearby point with another label.

    The search starts from one of ``goals``, points that probably have another label. Discrete
    features are reset to the record's values while the label stays changed; each one left counts 1.
    Then the point moves along the decision boundary towards the record (HopSkipJump). A record
    whose label no goal changes gets the distance of the last goal tried.
    """
    point, found = _find_start(oracle, matrix, goals, continuous)
    if not continuous.all():
        # continuous features, if any, use the other half of the queries
        reserve = oracle.budget // 2 if continuous.any() else 0
        _reset_discrete(oracle, matrix, point, found, np.flatnonzero(~continuous), rng, reserve)
    if continuous.any():
        spent = 1 + TRIES + (0 if continuous.all() else oracle.budget // 2)
        _hop_skip_jump(oracle, matrix, point, found, continuous, scale, oracle.budget - spent, rng)
    straight = np.linalg.norm(((point - matrix) / scale)[:, continuous], axis=1)
    flips = _differ(point, matrix)[:, ~continuous].sum(axis=1)
    return np.sqrt(np.nan_to_num(straight) ** 2 + flips)


def _find_start(
    oracle: Oracle, matrix: Float64Array, goals: Iterable[Float64Array], continuous: Mask
) -> tuple[Float64Array, Rows]:
    point, found = matrix.copy(), np.zeros(len(matrix), dtype=bool)
    for _, goal in zip(range(TRIES), goals, strict=False):
        rows = np.flatnonzero(~found)
        # a missing number has no distance from a known one
        missing = continuous & (np.isnan(matrix[rows]) | np.isnan(goal[rows]))
        point[rows] = np.where(missing, matrix[rows], goal[rows])
        found[rows] = oracle(rows, point[rows])
    return point, np.flatnonzero(found)


def _reset_discrete(
    oracle: Oracle,
    matrix: Float64Array,
    point: Float64Array,
    found: Rows,
    columns: Rows,
    rng: np.random.Generator,
    reserve: int,
) -> None:
    """Reset discrete features while the label stays changed: many at once, then one by one."""
    order = rng.permutation(columns)
    kept, lost = np.zeros(len(found), dtype=int), np.full(len(found), len(order) + 1)
    for _ in range(int(np.ceil(np.log2(len(order) + 1)))):
        middle = (kept + lost) // 2
        trial = _reset_first(point[found], matrix[found], order, middle)
        open_ = lost - kept > 1
        stays = np.zeros(len(found), dtype=bool)
        stays[open_] = oracle(found[open_], trial[open_], reserve=reserve)
        kept, lost = np.where(stays, middle, kept), np.where(stays | ~open_, lost, middle)
    point[found] = _reset_first(point[found], matrix[found], order, kept)
    # several passes, because one reset may make another possible that was not before
    for column in np.tile(order, PASSES):
        rows = found[_differ(point[found, column], matrix[found, column])]
        trial = point[rows]
        trial[:, column] = matrix[rows, column]
        stays = oracle(rows, trial, reserve=reserve)
        point[rows[stays], column] = matrix[rows[stays], column]


def _reset_first(
    point: Float64Array, matrix: Float64Array, order: Rows, count: NDArray[np.int_]
) -> Float64Array:
    """Reset each point to the record's values in the first ``count`` columns of ``order``."""
    position = np.full(point.shape[1], len(order) + 1)
    position[order] = np.arange(len(order))
    return np.where(position < count[:, None], matrix, point)


def _hop_skip_jump(
    oracle: Oracle,
    matrix: Float64Array,
    point: Float64Array,
    rows: Rows,
    continuous: Mask,
    scale: Float64Array,
    queries: int,
    rng: np.random.Generator,
) -> None:
    """Move points along the decision boundary towards the records, by HopSkipJump."""
    unit = np.where(continuous, scale, 0.0)
    n_continuous = int(continuous.sum())
    n_rounds = min(8, max(0, (queries - HALVINGS) // (HALVINGS + STEPS + 30)))
    _bisect_to_boundary(oracle, matrix, point, rows, continuous)
    for turn in range(1, n_rounds + 1):
        n_directions = (queries - HALVINGS) // n_rounds - HALVINGS - STEPS
        away = np.nan_to_num((point[rows] - matrix[rows]) / scale)[:, continuous]
        distance = np.linalg.norm(away, axis=1)[:, None]
        reach = distance * max(1 / n_continuous, 0.01)
        votes = np.zeros((len(rows), point.shape[1]))
        total, plain = np.zeros((len(rows), 1)), np.zeros(point.shape[1])
        # Chen et al. 2020: Monte Carlo estimate of the boundary's gradient direction
        for _ in range(n_directions):
            direction = rng.normal(size=point.shape[1]) * continuous
            direction /= np.linalg.norm(direction)
            sign = 2.0 * oracle(rows, point[rows] + reach * direction * unit)[:, None] - 1
            votes, total, plain = votes + sign * direction, total + sign, plain + direction
        # Chen et al. 2020: subtract the mean label as a baseline, unless all labels agree
        mean = total / n_directions
        way = votes - np.where(np.abs(mean) < 1, mean, 0.0) * plain
        way /= np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-12)
        # Chen et al. 2020: geometric progression of the step size, halved until the label changes
        step, waiting = distance / np.sqrt(turn), np.arange(len(rows))
        for _ in range(STEPS):
            trial = point[rows[waiting]] + step[waiting] * way[waiting] * unit
            changed = oracle(rows[waiting], trial)
            point[rows[waiting[changed]]] = trial[changed]
            waiting, step = waiting[~changed], step / 2
        _bisect_to_boundary(oracle, matrix, point, rows, continuous)


def _bisect_to_boundary(
    oracle: Oracle, matrix: Float64Array, point: Float64Array, rows: Rows, continuous: Mask
) -> None:
    """Move points straight to the records, as near as the label stays changed (binary search)."""
    inside, outside = np.zeros(len(rows)), np.ones(len(rows))
    away = np.where(continuous, point[rows] - matrix[rows], 0.0)
    start = point[rows] - away
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        changed = oracle(rows, start + middle[:, None] * away)
        inside, outside = np.where(changed, inside, middle), np.where(changed, middle, outside)
    point[rows] = start + outside[:, None] * away


def _differ(one: Float64Array, other: Float64Array) -> Mask:
    return (one != other) & ~(np.isnan(one) & np.isnan(other))
