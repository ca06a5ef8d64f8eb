"""Dominating pairs: two distributions whose privacy loss is the worst that an event allows.

A pair (P, Q) dominates an event if, for every epsilon, no two neighbouring data sets have a larger
hockey-stick divergence than (P, Q). Products of dominating pairs dominate adaptive compositions
(Zhu, Dong, Wang 2022, arXiv:2106.08567), so that all that an accountant needs of an event is the
joint behaviour of the loss ln(P/Q) under P and under Q.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Array = NDArray[Any]

_MANY = 20_000
MOST_ATOMS = 200_000

__all__ = [
    "MOST_ATOMS",
    "Added",
    "AtomPair",
    "GaussianPair",
    "LooseGaussianPair",
    "MixedPair",
    "Pair",
    "Removed",
    "ReplacedGaussian",
    "SlopePair",
    "both",
    "pure_pair",
]


class Pair(ABC):
    """The privacy loss of one dominating pair."""

    infinity: float = 0.0  # the probability under P that the loss is infinite
    gap: float = 0.0  # a number of which all losses are multiples, if there is one

    @property
    def max_loss(self) -> float:
        """The largest finite loss."""
        return math.inf

    @property
    def loose(self) -> bool:
        """Whether it is known to be worse than what it dominates, so that others see further."""
        return False

    @abstractmethod
    def masses(self, edges: Array) -> tuple[Array, Array]:
        """Return P- and Q-mass of the finite loss in (-inf, e_0], (e_0, e_1], ..., (e_n, inf)."""

    @abstractmethod
    def span(self, tail: float) -> tuple[float, float]:
        """Return losses beyond which P has at most about ``tail`` on either side."""

    @abstractmethod
    def sketch(self) -> tuple[Array, Array, Array]:
        """Return losses with their P- and Q-weights: good for planning, not for a guarantee."""


def _normal_cells(u: Array) -> Array:
    """Return the normal masses of the cells between sorted edges, accurate in both tails."""
    tail = ndtr(-np.abs(u))
    left, right = np.r_[0.0, tail], np.r_[tail, 0.0]
    below = np.r_[True, u <= 0]  # is the left edge of the cell on the negative side?
    above = np.r_[u > 0, True]
    one_sided = np.where(below, right - left, left - right)
    cells: Array = np.where(below & above, 1 - left - right, one_sided)
    return cells


def _around(centres: list[float], width: float) -> Array:
    """Return points for a sketch of normal densities of standard deviation ``width``.

    They are a third of it apart. Where that would be too many, with little noise, the densities
    stand far apart, and what lies between them is left out.
    """
    low, high = centres[0] - 12 * width, centres[-1] + 12 * width
    half = 1.5 * (high - low) / width
    if half < _MANY:
        return np.linspace(low, high, 2 * int(half) + 1)
    return np.concatenate([np.linspace(c - 12 * width, c + 12 * width, 73) for c in centres])


@dataclass(frozen=True)
class GaussianPair(Pair):
    """N(1, z^2) from N(0, z^2); swapping the two changes nothing."""

    z: float

    def masses(self, edges: Array) -> tuple[Array, Array]:
        shift = 1 / (2 * self.z)
        return _normal_cells(edges * self.z - shift), _normal_cells(edges * self.z + shift)

    def span(self, tail: float) -> tuple[float, float]:
        mean, reach = 1 / (2 * self.z**2), -ndtri(tail) / self.z
        return mean - reach, mean + reach

    def sketch(self) -> tuple[Array, Array, Array]:
        z = self.z
        loss = _around([-1 / (2 * z**2), 1 / (2 * z**2)], 1 / z)
        p = np.exp(-((loss * z - 1 / (2 * z)) ** 2) / 2)
        q = np.exp(-((loss * z + 1 / (2 * z)) ** 2) / 2)
        return loss, p / p.sum(), q / q.sum()


@dataclass(frozen=True)
class LooseGaussianPair(GaussianPair):
    """A Gaussian pair that dominates another mechanism, but not tightly."""

    @property
    def loose(self) -> bool:
        return True


@dataclass(frozen=True)
class AtomPair(Pair):
    """Finitely many losses, sorted, with their masses under P and Q; the rest of P is infinite."""

    losses: tuple[float, ...]
    p: tuple[float, ...]
    q: tuple[float, ...]
    infinity: float = 0.0
    gap: float = 0.0
    unbounded: bool = False  # the losses were cut where P is below every double
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
    """Losses in [-t, t] whose density rises as e^(loss/2) under P and falls so under Q.

    With ``atoms`` false it is logistic noise moved by t of its scales, and also the envelope of all
    mechanisms whose loss has a range of t (the exponential mechanism). With ``atoms`` true it is
    Laplace noise: half of P lies at t itself.

    Notes
    -----
    One coordinate moved by t dominates any number of coordinates moved by t in total (L1). With
    b(eps, t) = 1 - delta(eps), the overlap of a product is at least b(e1, t1) b(e2, t2) for every
    e1 + e2 = eps. Laplace: b = e^((eps-t)/2) is multiplicative, so equality holds. Logistic:
    b = e^((eps-t)/2) (1 + a), a = 2 / (coth((t+eps)/4) + coth((t-eps)/4)); along eps = r t, a is
    concave in t with a(0) = 0, hence subadditive, and (1 + a1)(1 + a2) >= 1 + a.
    """

    t: float
    atoms: bool = False

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
    """One of several pairs, with the given probabilities, together with which one it is.

    The outcomes of different parts are told apart, so that masses and hockey-stick divergences are
    means of those of the parts.
    """

    weights: tuple[float, ...]
    parts: tuple[Pair, ...]

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


def _mixed(loss: Array, q: float) -> Array:
    """Return ln(1 - q + q e^loss)."""
    with np.errstate(over="ignore"):
        small = np.log1p(q * np.expm1(np.minimum(loss, 50)))
    return np.where(loss > 50, np.logaddexp(math.log1p(-q), math.log(q) + loss), small)


def _unmixed(loss: Array, q: float) -> Array:
    """Return the inverse of :func:`_mixed`; -infinity below its range."""
    loss = np.asarray(loss, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inside = np.log1p(np.maximum(np.expm1(np.minimum(loss, 50)) / q, -1))
        far = loss - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, 50)))
    return np.where(loss > 50, far, inside)


@dataclass(frozen=True)
class Removed(Pair):
    """(1-q) Q + q P from Q: a Poisson sample that may hold the record, from one that cannot.

    ``base`` must be symmetric: swapping its P and Q negates the loss and changes nothing else.
    """

    base: Pair
    q: float

    @property
    def loose(self) -> bool:
        return self.base.loose

    @property
    def max_loss(self) -> float:
        top = self.base.max_loss
        return top if math.isinf(top) else float(_mixed(np.array(top), self.q))

    def masses(self, edges: Array) -> tuple[Array, Array]:
        p, q = self.base.masses(_unmixed(edges, self.q))
        return (1 - self.q) * q + self.q * p, q

    def span(self, tail: float) -> tuple[float, float]:
        top = self.base.span(min(tail / self.q, 0.5))[1]
        under_q = -self.base.span(tail)[0], -self.base.span(tail)[1]
        low, high = _mixed(np.array([under_q[1], max(under_q[0], top)]), self.q)
        return float(low), float(high)

    def sketch(self) -> tuple[Array, Array, Array]:
        loss, p, q = self.base.sketch()
        return _mixed(loss, self.q), (1 - self.q) * q + self.q * p, q


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
        # The loss of the best case, -ln(1 - q), is approached but never passed.
        bottom = -self.base.max_loss
        if self.q == 1:
            return self.base.max_loss
        return (
            float(-_mixed(np.array(bottom), self.q))
            if math.isfinite(bottom)
            else -math.log1p(-self.q)
        )

    def masses(self, edges: Array) -> tuple[Array, Array]:
        p, q = self.base.masses(-_unmixed(-edges, self.q))
        return p, (1 - self.q) * p + self.q * q

    def span(self, tail: float) -> tuple[float, float]:
        low, high = self.base.span(tail)
        low, high = -_mixed(np.array([-low, -high]), self.q)
        return float(low), float(high)

    def sketch(self) -> tuple[Array, Array, Array]:
        loss, p, q = self.base.sketch()
        return -_mixed(-loss, self.q), p, (1 - self.q) * p + self.q * q


@dataclass(frozen=True)
class ReplacedGaussian(Pair):
    """(1-q) N(0, z^2) + q N(1, z^2) from (1-q) N(0, z^2) + q N(-1, z^2).

    Notes
    -----
    It dominates a Poisson-sampled Gaussian in which a record's contribution u, of norm at most 1,
    is replaced by another such contribution v, in any dimension. For alpha >= 1 the divergence is

        q E[(1 - alpha A - beta B)_+],   beta = (alpha - 1) (1 - q) / q,

    over x ~ N(u, z^2 I), with A and B the likelihood ratios of N(v) and N(0) to N(u). ln A and
    ln B are jointly normal, E A = E B = 1, and their covariance is
    [[|u-v|^2, <u-v,u>], [<u-v,u>, |u|^2]] / z^2. The function (1 - alpha A - beta B)_+ is convex in
    alpha A + beta B, so all its second derivatives in (A, B) are nonnegative, and by Gaussian
    interpolation its mean rises with every entry of the covariance. No entry is above its value at
    u = 1, v = -1, namely 4, 2 and 1. For alpha < 1 swap P and Q: the pair is its own mirror image.
    """

    z: float
    q: float

    def _point(self, loss: Array) -> Array:
        """Return x / z at which the loss, which rises with x, has the given value."""
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

    def _mix(self, point: Array, sign: int) -> Array:
        centre, side = _normal_cells(point), _normal_cells(point - sign / self.z)
        return (1 - self.q) * centre + self.q * side

    def masses(self, edges: Array) -> tuple[Array, Array]:
        point = self._point(edges)
        return self._mix(point, 1), self._mix(point, -1)

    def _loss(self, x: Array) -> Array:
        up = _mixed((2 * x - 1) / (2 * self.z**2), self.q)
        return up - _mixed((-2 * x - 1) / (2 * self.z**2), self.q)

    def span(self, tail: float) -> tuple[float, float]:
        reach = 1 - self.z * ndtri(tail)
        low, high = self._loss(np.array([-reach, reach]))
        return float(low), float(high)

    def sketch(self) -> tuple[Array, Array, Array]:
        x = _around([-1.0, 0.0, 1.0], self.z)
        centre = np.exp(-((x / self.z) ** 2) / 2)
        p = (1 - self.q) * centre + self.q * np.exp(-(((x - 1) / self.z) ** 2) / 2)
        q = (1 - self.q) * centre + self.q * np.exp(-(((x + 1) / self.z) ** 2) / 2)
        return self._loss(x), p / p.sum(), q / q.sum()


def both(pair: Pair) -> tuple[Pair, Pair]:
    """Return a pair for removing a record and for adding one, if it serves for both."""
    return pair, pair


def pure_pair(epsilon: float, delta: float = 0.0) -> AtomPair:
    """Return the pair of randomised response, the worst of all that is (epsilon, delta)-DP."""
    high = 1 / (1 + math.exp(-epsilon))
    low = math.exp(-epsilon) * high
    losses, masses = ((-epsilon, epsilon), (low, high)) if epsilon else ((0.0,), (1.0,))
    finite = tuple((1 - delta) * m for m in masses)
    return AtomPair(losses, finite, finite[::-1], delta, gap=epsilon)
