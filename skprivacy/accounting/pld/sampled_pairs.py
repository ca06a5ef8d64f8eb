"""Dominating pairs of Poisson samples (Zhu, Dong and Wang 2022, Theorem 11).

:class:`MixedGaussians` is the pair of a group, whose number of sampled records is random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from .pairs import Array, Pair, normal_cells, sketch_points

_REACH = 39.0  # standard deviations beyond which a normal law has no mass in floats
_AT_ONCE = 1 << 18  # points times shifts in one array
_PER_DEVIATION, _MOST_POINTS = 32, 200_000


@dataclass(frozen=True)
class Removed(Pair):
    """(1-q) Q + q P from Q: a Poisson sample with or without the record; ``base`` is symmetric."""

    base: Pair
    q: float

    @property
    def loose(self) -> bool:
        return self.base.loose

    @property
    def max_loss(self) -> float:
        top = self.base.max_loss
        return top if math.isinf(top) else float(_mix_loss(np.array(top), self.q))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        # Zhu, Dong and Wang 2022, Theorem 11: removing
        p, q = self.base.masses(_unmix_loss(edges, self.q))
        return (1 - self.q) * q + self.q * p, q

    def span(self, tail: float) -> tuple[float, float]:
        top = self.base.span(min(tail / self.q, 0.5))[1]
        under_q = -self.base.span(tail)[0], -self.base.span(tail)[1]
        low, high = _mix_loss(np.array([under_q[1], max(under_q[0], top)]), self.q)
        return float(low), float(high)

    def sketch(self) -> tuple[Array, Array, Array]:
        loss, p, q = self.base.sketch()
        return _mix_loss(loss, self.q), (1 - self.q) * q + self.q * p, q


@dataclass(frozen=True)
class Added(Pair):
    """Q from (1-q) Q + q P, the other direction of :class:`Removed`, of a symmetric ``base``."""

    base: Pair
    q: float

    @property
    def loose(self) -> bool:
        return self.base.loose

    @property
    def max_loss(self) -> float:
        # As the base loss tends to -infinity, the loss increases to its limit -ln(1 - q).
        bottom = -self.base.max_loss
        if self.q == 1:
            return self.base.max_loss
        return (
            float(-_mix_loss(np.array(bottom), self.q))
            if math.isfinite(bottom)
            else -math.log1p(-self.q)
        )

    def masses(self, edges: Array) -> tuple[Array, Array]:
        # Zhu, Dong and Wang 2022, Theorem 11: adding
        p, q = self.base.masses(-_unmix_loss(-edges, self.q))
        return p, (1 - self.q) * p + self.q * q

    def span(self, tail: float) -> tuple[float, float]:
        low, high = self.base.span(tail)
        low, high = -_mix_loss(np.array([-low, -high]), self.q)
        return float(low), float(high)

    def sketch(self) -> tuple[Array, Array, Array]:
        loss, p, q = self.base.sketch()
        return -_mix_loss(-loss, self.q), p, (1 - self.q) * p + self.q * q


@dataclass(frozen=True)
class ReplacedGaussian(Pair):
    """(1-q) N(0, z^2) + q N(1, z^2) from (1-q) N(0, z^2) + q N(-1, z^2).

    It dominates a Poisson-sampled Gaussian in which a record's contribution u, of norm at most 1,
    is replaced by another such contribution v, in any dimension. For alpha >= 1 the divergence is

        q E[(1 - alpha A - beta B)_+],   beta = (alpha - 1) (1 - q) / q,

    over x ~ N(u, z^2 I), with A and B the likelihood ratios of N(v) and N(0) to N(u). ln A and
    ln B are jointly normal with the covariance [[|u-v|^2, <u-v,u>], [<u-v,u>, |u|^2]] / z^2, and
    E A = E B = 1. The function (1 - alpha A - beta B)_+ is convex in alpha A + beta B, so all its
    second derivatives in (A, B) are nonnegative. By Gaussian interpolation its mean then increases
    with every entry of the covariance. No entry exceeds its value at u = 1, v = -1, namely 4, 2 and
    1. For alpha < 1 swap P and Q: the pair is symmetric.
    """

    z: float
    q: float

    def _point(self, loss: Array) -> Array:
        """Return x / z at which the loss, which increases with x, has the given value."""
        # With y = e^(x/z^2) and c = e^(-1/(2 z^2)): q c y^2 + (1-q)(1-E) y - q c E = 0, E = e^loss.
        # With v = ln y - loss/2 that is 2 q c sinh(v) = (1-q) 2 sinh(loss/2).
        loss = np.asarray(loss, dtype=float)
        size = np.abs(loss)
        with np.errstate(divide="ignore"):
            log_ratio = np.log((1 - self.q) / self.q) + 1 / (2 * self.z**2)
            big = log_ratio + size / 2 + np.log(-np.expm1(-size))
        v = np.sign(loss) * np.where(big > 100, big, np.arcsinh(np.exp(np.minimum(big, 100)) / 2))
        point: Array = (loss / 2 + v) * self.z
        return point

    def _mixture_cells(self, point: Array, sign: int) -> Array:
        centre, side = normal_cells(point), normal_cells(point - sign / self.z)
        return (1 - self.q) * centre + self.q * side

    def masses(self, edges: Array) -> tuple[Array, Array]:
        point = self._point(edges)
        return self._mixture_cells(point, 1), self._mixture_cells(point, -1)

    def _loss(self, x: Array) -> Array:
        up = _mix_loss((2 * x - 1) / (2 * self.z**2), self.q)
        return up - _mix_loss((-2 * x - 1) / (2 * self.z**2), self.q)

    def span(self, tail: float) -> tuple[float, float]:
        reach = 1 - self.z * ndtri(tail)
        low, high = self._loss(np.array([-reach, reach]))
        return float(low), float(high)

    def sketch(self) -> tuple[Array, Array, Array]:
        x = sketch_points([-1.0, 0.0, 1.0], self.z)
        centre = np.exp(-((x / self.z) ** 2) / 2)
        p = (1 - self.q) * centre + self.q * np.exp(-(((x - 1) / self.z) ** 2) / 2)
        q = (1 - self.q) * centre + self.q * np.exp(-(((x + 1) / self.z) ** 2) / 2)
        return self._loss(x), p / p.sum(), q / q.sum()


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


def _mix_loss(loss: Array, q: float) -> Array:
    """Return ln(1 - q + q e^loss), the loss of (1-q) Q + q P from Q."""
    with np.errstate(over="ignore"):
        small = np.log1p(q * np.expm1(np.minimum(loss, 50)))
    return np.where(loss > 50, np.logaddexp(math.log1p(-q), math.log(q) + loss), small)


def _unmix_loss(loss: Array, q: float) -> Array:
    """Return the inverse of :func:`_mix_loss`; -infinity below its range."""
    loss = np.asarray(loss, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inside = np.log1p(np.maximum(np.expm1(np.minimum(loss, 50)) / q, -1))
        far = loss - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, 50)))
    return np.where(loss > 50, far, inside)
