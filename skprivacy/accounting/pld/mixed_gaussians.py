"""Dominating pair of two mixtures of Gaussians, for a random number of contributions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from .pairs import Array, Pair, normal_cells, sketch_points

__all__ = ["MixedGaussians"]

_REACH = 39.0  # standard deviations beyond which a normal law has no mass in floats
_AT_ONCE = 1 << 18  # points times shifts in one array
_PER_DEVIATION, _MOST_POINTS = 32, 200_000


@dataclass(frozen=True)
class MixedGaussians(Pair):
    """sum_j w_j N(a_j, z^2) from sum_j w_j N(b_j, z^2), with all a_j >= 0 >= b_j.

    The loss increases with x, so a cell of losses is an interval of x. Its ends are found
    numerically. An error d of x changes the hockey-stick divergence by order d^2 only, since the
    event {loss > epsilon} maximises it: an error of 1e-10 has no effect in floats.
    """

    z: float  # standard deviation of the noise
    weights: tuple[float, ...]  # probabilities that add up to 1
    up: tuple[float, ...]  # shifts a_j
    down: tuple[float, ...]  # shifts b_j

    @property
    def max_loss(self) -> float:
        """Finite only if P is N(0, z^2), and Q is N(0, z^2) with positive probability."""
        stays = math.fsum(w for w, c in zip(self.weights, self.down, strict=True) if c == 0)
        return math.inf if any(self.up) or stays == 0 else -math.log(stays)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        x = self._point(np.asarray(edges, dtype=float))
        return self._cells(x, self.up), self._cells(x, self.down)

    def _cells(self, x: Array, shifts: tuple[float, ...]) -> Array:
        parts = zip(self.weights, shifts, strict=True)
        if not any(shifts):
            return normal_cells(x / self.z)
        cells: Array = sum(
            (w * normal_cells((x - c) / self.z) for w, c in parts), np.zeros(len(x) + 1)
        )
        return cells

    def _log_ratio(self, x: Array, shifts: tuple[float, ...]) -> tuple[Array, Array]:
        """Return the log-density relative to N(0, z^2) and its derivative."""
        if not any(shifts):
            return np.zeros(len(x)), np.zeros(len(x))
        c = np.array(shifts)
        terms = (np.outer(x, c) - c**2 / 2) / self.z**2 + np.log(self.weights)
        top = terms.max(axis=1, keepdims=True)
        share = np.exp(terms - top)
        total = share.sum(axis=1)
        return top[:, 0] + np.log(total), share @ c / total / self.z**2

    def _loss(self, x: Array) -> tuple[Array, Array]:
        """Return the loss and its derivative at points in any order."""
        loss, slope = np.empty(len(x)), np.empty(len(x))
        size = max(1, _AT_ONCE // len(self.weights))
        for start in range(0, len(x), size):
            some = slice(start, start + size)
            p, dp = self._log_ratio(x[some], self.up)
            q, dq = self._log_ratio(x[some], self.down)
            loss[some], slope[some] = p - q, dp - dq
        return loss, slope

    def _point(self, loss: Array) -> Array:
        """Return the x at which the loss has the given values; infinite beyond all mass."""
        low, high = min(self.down) - _REACH * self.z, max(self.up) + _REACH * self.z
        count = min(_MOST_POINTS, math.ceil(_PER_DEVIATION * (high - low) / self.z))
        grid = np.linspace(low, high, count)
        at = np.maximum.accumulate(self._loss(grid)[0])
        point = np.where(loss <= at[0], -np.inf, np.inf)
        inside = np.flatnonzero((loss > at[0]) & (loss < at[-1]))
        if inside.size:
            point[inside] = self._solve_by_newton(loss[inside], grid, at)
        return point

    def _solve_by_newton(self, loss: Array, grid: Array, at: Array) -> Array:
        """Solve by Newton's method, with bisection wherever a step would leave the bracket."""
        cell = np.searchsorted(at, loss, side="left")
        left, right = grid[cell - 1].copy(), grid[cell].copy()
        x = np.clip(np.interp(loss, at, grid), left, right)
        for _ in range(50):
            found, slope = self._loss(x)
            below = found < loss
            left, right = np.where(below, x, left), np.where(below, right, x)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = x + (loss - found) / slope
            inside = (left < step) & (step < right)
            new = np.where(inside, step, (left + right) / 2)
            done = np.abs(new - x) <= 1e-11 * self.z
            x = new
            if done.all():
                break
        return x

    def span(self, tail: float) -> tuple[float, float]:
        share = np.minimum(tail / len(self.weights) / np.array(self.weights), 0.5)
        ups = np.array(self.up)
        above = np.where(share < 0.5, ups - self.z * ndtri(share), 0.0)
        ends = np.array([min(self.up) + self.z * ndtri(tail), above.max()])
        low, high = self._loss(ends)[0]
        return float(low), float(high)

    def sketch(self) -> tuple[Array, Array, Array]:
        x = sketch_points(sorted({*self.up, *self.down}), self.z)
        loss, _ = self._loss(x)
        logs = -((x / self.z) ** 2) / 2
        p, q = (np.exp(logs + self._log_ratio(x, c)[0]) for c in (self.up, self.down))
        return loss, p / p.sum(), q / q.sum()
