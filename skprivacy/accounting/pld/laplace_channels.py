"""Channels that cover every arg-max of votes with Laplace noise.

The unit is the scale of the noise, in which one vote is ``h``. K(x, y) says which of X, Y and 0 is
the largest, for Laplace variables X and Y around x and y. A neighbour has K(x - h, y + h).
Section "Laplace noise" of "The cost of a noisy arg-max" in the documentation proves that the lists
below suffice. Away from the kinks of the density the laws are exponentials, hence mixtures of a few
laws. Near the kinks a Laplace law is, up to a factor, a mixture of the laws around two lattice
points.
"""

from __future__ import annotations

import math

import numpy as np

from .channels import Channels
from .pairs import Array

__all__ = ["laplace_argmax_channels", "randomized_response_channel"]

_CELLS = 12  # cells of the lattice per h
_WIDE_CELLS = 4  # the same for channels with two outcomes, which are far from the maximum
_TANGENT_POINTS = (np.arange(41) / 8) ** 2  # beyond h: points of the tangents that replace a curve


def laplace_argmax_channels(h: float) -> Channels:
    """Return channels of three outcomes, in both orders of P and Q.

    Let (x, y) be the means under P. By Lemma 1 of the documentation every channel is a mixture of
    five kinds: 0 <= x <= h and -h <= y; the same with P and Q exchanged; two classes without a
    third; one class against a threshold; and a channel with P = Q.
    """
    parts = [
        _near_lattice(h),
        _ahead_corners(h),
        _level_lattice(h),
        _level_corners(h),
        _threshold_lattice(h),
        _tail_limit(h),
    ]
    p, q, slack = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    loss = np.log(p) - np.log(q)
    factor = np.exp(slack)
    both = np.concatenate([p, q], axis=1) * np.r_[factor, factor]
    return Channels.from_losses(
        both, np.concatenate([loss, -loss], axis=1) + 2 * np.r_[slack, slack]
    )


def randomized_response_channel(h: float) -> Channels:
    """Return randomised response with losses -2h and 2h, which dominates any one query."""
    p = 1 / (1 + math.exp(-2 * h))
    return Channels(np.array([[p], [math.exp(-2 * h) * p]]), np.array([[-2 * h], [2 * h]]))


Part = tuple[Array, Array, Array]  # P and Q of shape (3, n_channels), the slack of ln P and ln Q


def _near_lattice(h: float) -> Part:
    """Return the lattice over 0 <= x <= h, -h <= y <= h (Lemma 2)."""
    x, y = np.meshgrid(np.linspace(0, h, _CELLS + 1), np.linspace(-h, h, 2 * _CELLS + 1))
    return _with_slack(*_neighbour_laws(x.ravel(), y.ravel(), h), 2 * _slack(h / _CELLS))


def _ahead_corners(h: float) -> Part:
    """Return corners around 0 <= x <= h, h <= y, where laws are e^-y times linear (Lemma 3)."""
    y, more = _corners(h)  # Lemma 3 of "The cost of a noisy arg-max"
    x, y = np.meshgrid(np.linspace(0, h, _CELLS + 1), y)
    p, q = _neighbour_laws(x.ravel(), y.ravel(), h)
    more = np.repeat(more, _CELLS + 1)
    return _with_slack(
        _scale_departure(p, 1, more), _scale_departure(q, 1, more), _slack(h / _CELLS)
    )


def _level_lattice(h: float) -> Part:
    """Return the lattice of two classes at most h apart, half-way between P and Q."""
    gap = np.linspace(-h, h, 2 * _WIDE_CELLS + 1)
    p, q = (_three_outcomes(_prob_ahead(gap + t), _prob_ahead(-gap - t)) for t in (h, -h))
    return _with_slack(p, q, _slack(h / _WIDE_CELLS))


def _level_corners(h: float) -> Part:
    """Return corners around two classes more than h apart, half-way between P and Q."""
    gap, more = _corners(h)
    behind, behind_after = (more * _prob_ahead(-gap - t) for t in (h, -h))
    return _with_slack(
        _three_outcomes(1 - behind, behind), _three_outcomes(1 - behind_after, behind_after), 0.0
    )


def _threshold_lattice(h: float) -> Part:
    """Return the lattice of one class against a threshold."""
    y = np.linspace(-h, 0, _WIDE_CELLS + 1)
    p, q = (_three_outcomes(_prob_positive(mean), _prob_positive(-mean)) for mean in (y, y + h))
    return _with_slack(p, q, _slack(h / _WIDE_CELLS))


def _tail_limit(h: float) -> Part:
    """Return the limit of channels far ahead: one outcome is rare and has the largest loss."""
    rare = np.array([math.exp(-_TANGENT_POINTS[-1]) / 4])
    rarer = rare * math.exp(-2 * h)
    return _with_slack(_three_outcomes(rare, 1 - rare), _three_outcomes(rarer, 1 - rarer), 0.0)


def _with_slack(p: Array, q: Array, slack: float) -> Part:
    return p, q, np.full(p.shape[1], slack)


def _slack(cell: float) -> float:
    """Bound the error of ln P of a mixture over both ends of a cell (factors of Lemma 2)."""
    # Lemma 2: r <= 1 - 1 / cosh(d / 2), and the factors 1 - r and 1 + r (2 e^d - 1)
    rest = 1 - 1 / math.cosh(cell / 2)
    return max(-math.log1p(-rest), math.log1p(rest * (2 * math.exp(cell) - 1)))


def _corners(h: float) -> tuple[Array, Array]:
    """Return points y, and factors by which the departure from the limit grows there.

    The tangents of e^-y (u + y v) at y_0 and y_0 + d meet at y_0 - 1 + d / (1 - e^-d), where the
    departure from 0 is larger by about e^(d^2/8). The ends of the curve are corners as well.
    """
    y = h + _TANGENT_POINTS
    d = np.diff(y)
    meet = y[:-1] - 1 - d / np.expm1(-d)
    more = -np.expm1(-d) / d * np.exp(meet - y[:-1])
    return np.r_[y[0], meet, y[-1]], np.r_[1.0, more, 1.0]


def _scale_departure(law: Array, sure: int, more: Array) -> Array:
    """Multiply the departure of laws from a sure outcome by ``more``."""
    rest = more * law
    rest[sure] = 0.0
    rest[sure] = 1 - rest.sum(axis=0)
    return rest


def _three_outcomes(one: Array, other: Array) -> Array:
    """Return two outcomes as three by splitting one, which reveals nothing."""
    return np.array([one, other / 2, other / 2])


def _neighbour_laws(x: Array, y: Array, h: float) -> tuple[Array, Array]:
    """Return the laws of K(x, y) and of its neighbour K(x - h, y + h)."""
    return _winner_probabilities(x, y), _winner_probabilities(x - h, y + h)


def _winner_probabilities(x: Array, y: Array) -> Array:
    """Return the probabilities that X, Y and 0 are the largest."""
    return np.array([_prob_wins(x, y), _prob_wins(y, x), _prob_positive(-x) * _prob_positive(-y)])


def _prob_wins(x: Array, y: Array) -> Array:
    """Return the probability that X exceeds Y and 0.

    If x < 0, X is positive with probability e^x / 2, and is then an exponential variable. Else the
    result is the probability that X exceeds Y, less the part where X < 0 and Y is smaller still.
    """
    up, down = np.maximum(y, 0.0), np.exp(np.minimum(y, 0.0))
    exceeded = np.where(y > 0, np.exp(-up) * (up / 2 + 0.75), 1 - down / 4)
    smaller = np.where(y >= 0, np.exp(-up) / 4, 1 - down * (0.75 - np.minimum(y, 0.0) / 2))
    low = np.exp(np.minimum(x, 0.0)) / 2 * exceeded
    return np.where(x <= 0, low, _prob_ahead(x - y) - np.exp(-np.maximum(x, 0.0)) / 2 * smaller)


def _prob_positive(mean: Array) -> Array:
    """Return the probability that a Laplace variable around ``mean`` is positive."""
    tail = np.exp(-np.abs(mean)) / 2
    return np.where(mean < 0, tail, 1 - tail)


def _prob_ahead(gap: Array) -> Array:
    """Return the probability that X exceeds Y, whose mean is ``gap`` lower."""
    tail = (2 + np.abs(gap)) * np.exp(-np.abs(gap)) / 4
    return np.where(gap < 0, tail, 1 - tail)
