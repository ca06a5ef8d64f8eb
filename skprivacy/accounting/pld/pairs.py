"""Dominating pairs (Zhu, Dong and Wang 2022, arXiv:2106.08567, Definition 7).

A pair of distributions (P, Q) dominates an event if, for every epsilon, no two neighbouring data
sets have a larger hockey-stick divergence than (P, Q). Products of dominating pairs dominate
adaptive compositions (Theorem 10), so an accountant needs only the distributions of the loss
ln(P/Q) under P and under Q. :func:`pair_from_curve` builds a pair from points on a privacy curve.
Start reading at :class:`Pair`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
Array = NDArray[Any]
_MAX_SKETCH_POINTS = 20_000
MOST_ATOMS = 200_000
WORK_PER_ATOM = 500  # a Renyi divergence at 217 orders, and a sketch at 100 tilts


class Pair(ABC):
    """Privacy loss ln(P/Q) of one dominating pair."""

    infinity: float = 0.0  # probability under P of an infinite loss
    gap: float = 0.0  # all losses are multiples of this number; 0 if there is none

    @property
    def max_loss(self) -> float:
        """Largest finite loss."""
        return math.inf

    @property
    def loose(self) -> bool:
        """True if the pair is known not to be tight, so that other accountants may be tighter."""
        return False

    @abstractmethod
    def masses(self, edges: Array) -> tuple[Array, Array]:
        """Return P- and Q-masses of the finite loss in (-inf, e_0], (e_0, e_1], ..., (e_n, inf)."""

    @abstractmethod
    def span(self, tail: float) -> tuple[float, float]:
        """Return two losses beyond each of which P has a mass of at most about ``tail``."""

    @abstractmethod
    def sketch(self) -> tuple[Array, Array, Array]:
        """Return losses with their P- and Q-weights, which only plan a grid: not a bound."""


def pair_from_curve(epsilons: Floats, deltas: Floats) -> AtomPair:
    """Return a symmetric pair whose privacy curve lies above the one through the points.

    A privacy curve is convex in e^epsilon, so it lies below the lower convex hull of points above
    it. Zhu, Dong and Wang (2022) show which functions are the curve of a pair.
    """
    x = np.exp(np.r_[-epsilons[::-1], epsilons])
    # The curve at -epsilon follows from symmetry: 1 - e^-epsilon (1 - delta(epsilon)).
    below = 1 - np.exp(-epsilons) * (1 - deltas)
    corners = _lower_hull(np.r_[0.0, x], np.r_[1.0, below[::-1], deltas])
    at, height = np.r_[0.0, x][corners], np.r_[1.0, below[::-1], deltas][corners]
    # The Q-mass at a corner is the change of slope there, and its P-mass e^loss times that.
    slopes = np.r_[np.diff(height) / np.diff(at), 0.0]
    after = at > 1
    q = np.maximum(np.diff(slopes)[after[1:]], 0.0)  # rounding
    p, losses = q * at[after], np.log(at[after])
    infinity = float(height[-1])
    middle = max(0.0, 1 - infinity - float(p.sum() + q.sum()))
    return AtomPair(
        tuple(np.r_[-losses[::-1], 0.0, losses]),
        tuple(np.r_[q[::-1], middle, p]),
        tuple(np.r_[p[::-1], middle, q]),
        infinity,
        loose=True,
    )


def normal_cells(u: Array) -> Array:
    """Return the normal masses of the cells between sorted edges, accurate in both tails."""
    tail = ndtr(-np.abs(u))
    left, right = np.r_[0.0, tail], np.r_[tail, 0.0]
    # ``tail`` is the mass on the far side of an edge, so it loses no digits in either tail.
    below = np.r_[True, u <= 0]  # is the left edge of the cell on the negative side?
    above = np.r_[u > 0, True]
    one_sided = np.where(below, right - left, left - right)
    cells: Array = np.where(below & above, 1 - left - right, one_sided)
    return cells


def sketch_points(centres: list[float], width: float) -> Array:
    """Return points, a third of ``width`` apart, for a sketch of normal densities of that width."""
    low, high = centres[0] - 12 * width, centres[-1] + 12 * width
    half = 1.5 * (high - low) / width
    if half < _MAX_SKETCH_POINTS:
        return np.linspace(low, high, 2 * int(half) + 1)
    # The densities are far apart: no points lie between them.
    return np.concatenate([np.linspace(c - 12 * width, c + 12 * width, 73) for c in centres])


@dataclass(frozen=True)
class GaussianPair(Pair):
    """N(1, z^2) from N(0, z^2), a symmetric pair: swapping P and Q changes nothing."""

    z: float
    loose: bool = False  # it dominates another mechanism, but not tightly

    def masses(self, edges: Array) -> tuple[Array, Array]:
        shift = 1 / (2 * self.z)
        return normal_cells(edges * self.z - shift), normal_cells(edges * self.z + shift)

    def span(self, tail: float) -> tuple[float, float]:
        mean, reach = 1 / (2 * self.z**2), -ndtri(tail) / self.z
        return mean - reach, mean + reach

    def sketch(self) -> tuple[Array, Array, Array]:
        z = self.z
        loss = sketch_points([-1 / (2 * z**2), 1 / (2 * z**2)], 1 / z)
        p = np.exp(-((loss * z - 1 / (2 * z)) ** 2) / 2)
        q = np.exp(-((loss * z + 1 / (2 * z)) ** 2) / 2)
        return loss, p / p.sum(), q / q.sum()


@dataclass(frozen=True)
class AtomPair(Pair):
    """Finitely many sorted losses with masses under P and Q; the rest of P has infinite loss."""

    losses: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    infinity: float = 0.0
    gap: float = 0.0
    unbounded: bool = False  # the losses were truncated where P underflows
    loose: bool = False

    @property
    def max_loss(self) -> float:
        return math.inf if self.unbounded else self.losses[-1]

    def masses(self, edges: Array) -> tuple[Array, Array]:
        cell = np.searchsorted(edges, self.losses, side="left")
        size = len(edges) + 1
        return np.bincount(cell, self.p, size), np.bincount(cell, self.q, size)

    def span(self, tail: float) -> tuple[float, float]:
        return self.losses[0], self.losses[-1]

    def sketch(self) -> tuple[Array, Array, Array]:
        return np.array(self.losses), np.array(self.p), np.array(self.q)


@dataclass(frozen=True)
class SlopePair(Pair):
    """Losses in [-t, t] with densities proportional to e^(loss/2) under P, e^(-loss/2) under Q.

    Without ``atoms`` this is logistic noise shifted by t scales, and also the envelope of all
    mechanisms whose loss has a range of t, such as the exponential mechanism. With ``atoms`` it is
    Laplace noise: half of P lies at loss t.

    One coordinate shifted by t dominates any number of coordinates shifted by t in total (L1). Let
    b(eps, t) = 1 - delta(eps). The overlap of a product is at least b(e1, t1) b(e2, t2) for every
    e1 + e2 = eps. Laplace: b = e^((eps-t)/2) is multiplicative, so equality holds. Logistic: b =
    e^((eps-t)/2) (1 + a) with a = 2 / (coth((t+eps)/4) + coth((t-eps)/4)). Along eps = r t, a is
    concave in t with a(0) = 0, hence subadditive, so (1 + a1)(1 + a2) >= 1 + a.
    """

    t: float
    atoms: bool = False
    loose: bool = False  # an envelope is attained by one release, not by compositions

    @property
    def max_loss(self) -> float:
        return self.t

    def masses(self, edges: Array) -> tuple[Array, Array]:
        inside = np.clip(edges, -self.t, self.t)
        left, right = np.r_[-self.t, inside], np.r_[inside, self.t]
        weight = 0.5 if self.atoms else -1 / math.expm1(-self.t)
        share = -weight * np.expm1((left - right) / 2)
        p, q = np.exp((right - self.t) / 2) * share, np.exp(-(left + self.t) / 2) * share
        if self.atoms:
            cells = np.searchsorted(edges, [-self.t, self.t], side="left")
            far = math.exp(-self.t) / 2
            np.add.at(p, cells, [far, 0.5])
            np.add.at(q, cells, [0.5, far])
        return p, q

    def span(self, tail: float) -> tuple[float, float]:
        return -self.t, self.t

    def sketch(self) -> tuple[Array, Array, Array]:
        edges = np.linspace(-self.t, self.t, 401)
        middle = np.r_[-self.t, (edges[1:] + edges[:-1]) / 2, self.t]
        p, q = self.masses(edges)
        return middle, p, q


@dataclass(frozen=True)
class MixedPair(Pair):
    """Mixture of pairs: one pair, chosen with the given probabilities and a public choice.

    Outcomes of different parts are distinguishable, so masses and hockey-stick divergences are the
    weighted means over the parts.
    """

    weights: tuple[float, ...]
    parts: tuple[Pair, ...]

    # Constants of other pairs are properties here, which mypy reports as a clash.
    @property
    def infinity(self) -> float:  # type: ignore[override]
        return math.fsum(
            w * part.infinity for w, part in zip(self.weights, self.parts, strict=True)
        )

    @property
    def gap(self) -> float:  # type: ignore[override]
        gaps = {part.gap for part in self.parts}
        return gaps.pop() if len(gaps) == 1 else 0.0

    @property
    def max_loss(self) -> float:
        return max(part.max_loss for part in self.parts)

    @property
    def loose(self) -> bool:
        return any(part.loose for part in self.parts)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        each = [part.masses(edges) for part in self.parts]
        weights = np.array(self.weights)
        return weights @ np.array([p for p, _ in each]), weights @ np.array([q for _, q in each])

    def span(self, tail: float) -> tuple[float, float]:
        lows, highs = zip(*(part.span(tail) for part in self.parts), strict=True)
        return min(lows), max(highs)

    def sketch(self) -> tuple[Array, Array, Array]:
        each = [part.sketch() for part in self.parts]
        loss = np.concatenate([loss for loss, _, _ in each])
        p = np.concatenate([w * s[1] for w, s in zip(self.weights, each, strict=True)])
        q = np.concatenate([w * s[2] for w, s in zip(self.weights, each, strict=True)])
        order = np.argsort(loss, kind="stable")
        return loss[order], p[order], q[order]


def symmetric_pairs(pair: Pair) -> tuple[Pair, Pair]:
    """Return a symmetric pair twice: for removing a record and for adding one."""
    return pair, pair


def pure_pair(epsilon: float, delta: float = 0.0) -> AtomPair:
    """Return the pair of randomised response, the worst (epsilon, delta)-DP mechanism."""
    # Kairouz, Oh and Viswanath 2015: randomised response that fails with probability delta
    high = 1 / (1 + math.exp(-epsilon))
    low = math.exp(-epsilon) * high
    losses, masses = ((-epsilon, epsilon), (low, high)) if epsilon else ((0.0,), (1.0,))
    finite = tuple((1 - delta) * m for m in masses)
    return AtomPair(losses, finite, finite[::-1], delta, gap=epsilon)


def _lower_hull(x: Floats, y: Floats) -> list[int]:
    """Return the indices of the corners of the lower convex hull, for sorted ``x``."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return corners
