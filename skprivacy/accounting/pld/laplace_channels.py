"""Channels that cover all that one arg-max of votes with Laplace noise may be.

The unit is the noise's scale, and ``h`` one vote in it. K(x, y) tells which of X, Y and 0 is the
largest, X and Y being Laplace variables around x and y; a neighbour turns it into K(x - h, y + h).
Why the lists below are enough is proved in "The cost of a noisy arg-max" in the documentation: away
from the kinks of the density the laws are exponentials, hence mixtures of few; near them a Laplace
law is, but for a factor, a mixture of those around two points of a lattice.
"""

from __future__ import annotations

import math

import numpy as np

from .channels import Channels
from .pairs import Array

__all__ = ["laplace_argmax", "randomised_response"]

_CELLS = 12  # of the lattice, per h
_WIDE_CELLS = 4  # where two outcomes alone are possible: far from the worst
_NODES = (np.arange(41) / 8) ** 2  # beyond h, where curves are replaced by their tangents


def laplace_argmax(h: float) -> Channels:
    """Return channels of three outcomes, together with those in which P and Q are exchanged.

    With (x, y) for the means under P, all channels are mixtures of those with 0 <= x <= h and
    -h <= y, those with P and Q exchanged, two classes without a third, one class against a
    threshold, and a channel that tells nothing.
    """
    parts = [_near(h), _ahead(h), _level(h), _level_ahead(h), _single(h), _tail(h)]
    p, q, slack = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    loss = np.log(p) - np.log(q)
    factor = np.exp(slack)
    both = np.concatenate([p, q], axis=1) * np.r_[factor, factor]
    return Channels.lossy(both, np.concatenate([loss, -loss], axis=1) + 2 * np.r_[slack, slack])


def randomised_response(h: float) -> Channels:
    """Return what dominates any one query: all its losses are between -2h and 2h."""
    p = 1 / (1 + math.exp(-2 * h))
    return Channels(np.array([[p], [math.exp(-2 * h) * p]]), np.array([[-2 * h], [2 * h]]))


Part = tuple[Array, Array, Array]  # P and Q of shape (3, n_channels), the slack of ln P and ln Q


def _near(h: float) -> Part:
    """Return the lattice over 0 <= x <= h, -h <= y <= h."""
    x, y = np.meshgrid(np.linspace(0, h, _CELLS + 1), np.linspace(-h, h, 2 * _CELLS + 1))
    return _part(*_around(x.ravel(), y.ravel(), h), 2 * _slack(h / _CELLS))


def _ahead(h: float) -> Part:
    """Return corners around 0 <= x <= h, h <= y: e^-y times a linear function, at every x."""
    y, more = _corners(h)
    x, y = np.meshgrid(np.linspace(0, h, _CELLS + 1), y)
    p, q = _around(x.ravel(), y.ravel(), h)
    more = np.repeat(more, _CELLS + 1)
    return _part(_further(p, 1, more), _further(q, 1, more), _slack(h / _CELLS))


def _level(h: float) -> Part:
    """Return the lattice of two classes alone, half-way between P and Q at most h apart."""
    gap = np.linspace(-h, h, 2 * _WIDE_CELLS + 1)
    p, q = (_two(_ahead_by(gap + t), _ahead_by(-gap - t)) for t in (h, -h))
    return _part(p, q, _slack(h / _WIDE_CELLS))


def _level_ahead(h: float) -> Part:
    """Return corners around two classes, half-way between P and Q more than h apart."""
    gap, more = _corners(h)
    behind, behind_after = (more * _ahead_by(-gap - t) for t in (h, -h))
    return _part(_two(1 - behind, behind), _two(1 - behind_after, behind_after), 0.0)


def _single(h: float) -> Part:
    """Return the lattice of one class against a threshold."""
    y = np.linspace(-h, 0, _WIDE_CELLS + 1)
    p, q = (_two(_above(mean), _above(-mean)) for mean in (y, y + h))
    return _part(p, q, _slack(h / _WIDE_CELLS))


def _tail(h: float) -> Part:
    """Return the limit of channels far ahead: one outcome is rare, and its loss as large as any."""
    rare = np.array([math.exp(-_NODES[-1]) / 4])
    rarer = rare * math.exp(-2 * h)
    return _part(_two(rare, 1 - rare), _two(rarer, 1 - rarer), 0.0)


def _part(p: Array, q: Array, slack: float) -> Part:
    return p, q, np.full(p.shape[1], slack)


def _slack(cell: float) -> float:
    """Return how far ln of a mixture over both ends of a cell may be off, inside it."""
    rest = 1 - 1 / math.cosh(cell / 2)
    return max(-math.log1p(-rest), math.log1p(rest * (2 * math.exp(cell) - 1)))


def _corners(h: float) -> tuple[Array, Array]:
    """Return places, and factors by which the departure from the limit there is increased.

    Tangents of e^-y (u + y v) at y_0 and y_0 + d meet where its departure from 0, at y_0 - 1 +
    d / (1 - e^-d), is larger by about e^(d^2/8). The ends of the curve are corners as well.
    """
    y = h + _NODES
    d = np.diff(y)
    meet = y[:-1] - 1 - d / np.expm1(-d)
    more = -np.expm1(-d) / d * np.exp(meet - y[:-1])
    return np.r_[y[0], meet, y[-1]], np.r_[1.0, more, 1.0]


def _further(law: Array, sure: int, more: Array) -> Array:
    """Return laws whose departure from a sure outcome is ``more`` times as large."""
    rest = more * law
    rest[sure] = 0.0
    rest[sure] = 1 - rest.sum(axis=0)
    return rest


def _two(one: Array, other: Array) -> Array:
    """Return two outcomes as three: one of them is split, which tells nothing."""
    return np.array([one, other / 2, other / 2])


def _around(x: Array, y: Array, h: float) -> tuple[Array, Array]:
    return _arg_max(x, y), _arg_max(x - h, y + h)


def _arg_max(x: Array, y: Array) -> Array:
    """Return the probabilities that X, Y and 0 are the largest."""
    return np.array([_wins(x, y), _wins(y, x), _above(-x) * _above(-y)])


def _wins(x: Array, y: Array) -> Array:
    """Return the probability that X exceeds Y and 0.

    If x < 0 then X is positive with probability e^x / 2, and is an exponential variable then;
    else X exceeds Y, but not where X < 0 and Y is still smaller.
    """
    up, down = np.maximum(y, 0.0), np.exp(np.minimum(y, 0.0))
    exceeded = np.where(y > 0, np.exp(-up) * (up / 2 + 0.75), 1 - down / 4)
    smaller = np.where(y >= 0, np.exp(-up) / 4, 1 - down * (0.75 - np.minimum(y, 0.0) / 2))
    low = np.exp(np.minimum(x, 0.0)) / 2 * exceeded
    return np.where(x <= 0, low, _ahead_by(x - y) - np.exp(-np.maximum(x, 0.0)) / 2 * smaller)


def _above(mean: Array) -> Array:
    """Return the probability that a Laplace variable around ``mean`` is positive."""
    tail = np.exp(-np.abs(mean)) / 2
    return np.where(mean < 0, tail, 1 - tail)


def _ahead_by(gap: Array) -> Array:
    """Return the probability that X exceeds Y, whose mean is ``gap`` lower."""
    tail = (2 + np.abs(gap)) * np.exp(-np.abs(gap)) / 4
    return np.where(gap < 0, tail, 1 - tail)
