"""Channels that cover every noisy arg-max query and threshold test, with Gaussian or Laplace noise.

A channel is a pair of laws (P, Q) on a few outcomes. P and Q are the laws of the answer for two
neighbours that move one vote, which is ``h`` in units of the noise. "How the supremum is taken" in
the documentation page "The cost of a noisy arg-max" has the proofs.

**Laplace noise.** The unit is the scale of the noise. K(x, y) says which of X, Y and 0 is the
largest, for Laplace variables X and Y around x and y. A neighbour has K(x - h, y + h). Section
"Laplace noise" of the same page proves that these channels suffice. Away from the kinks of the
density the laws are exponentials, hence mixtures of a few laws. Near the kinks a Laplace law is, up
to a factor, a mixture of the laws around two lattice points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from .pairs import Array, GaussianPair

_SLACK = 2.0**-30  # added to ln P and ln Q, for noise on a grid, ties and rounding
_REACH = 8.3  # standard deviations beyond which a normal law has less than 1e-16
_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(12)
_FINE, _ROUGH = (0.001, 0.04), (0.02, 0.06)  # variances of the public shifts of D and of S
_LOW = -1.7  # lowest S on the fine lattice
_OFF = 1e-6  # relative to h: error of the law of the public shifts, see three_way
_MARGIN = 4.2  # standard deviations of the shifts by which a lattice exceeds what it covers
_CELLS = 12  # cells of the lattice per h
_WIDE_CELLS = 4  # the same for channels with two outcomes, which are far from the maximum
_TANGENT_POINTS = (np.arange(41) / 8) ** 2  # beyond h: points of the tangents that replace a curve
Part = tuple[Array, Array, Array]  # P and Q of shape (3, n_channels), the slack of ln P and ln Q


@dataclass(frozen=True)
class Channels:
    """Several channels, rounded up, as arrays of shape (n_outcomes, n_channels)."""

    p: Array  # probabilities under P
    shift: Array  # ln(Q/P)

    @staticmethod
    def from_laws(p: Array, q: Array, slack: float = 0.0) -> Channels:
        """Return channels whose ``p`` and ``q`` are accurate to a factor e^(+-slack)."""
        return Channels.from_losses(p, np.log(p / q), slack)

    @staticmethod
    def from_losses(p: Array, loss: Array, slack: float = 0.0) -> Channels:
        """Return channels from losses ln(P/Q), accurate to +-2 slack."""
        slack += _SLACK
        return Channels(p * math.exp(slack), -loss - 2 * slack)


def max_shift_in_steps(mu: float, step: float) -> int:
    """Return a bound, in steps, on the losses of the channels below."""
    return math.ceil((9 * mu + mu**2) / step) + 4


def gaussian_channel(t: float, step: float, slack: float = 0.0) -> Channels:
    """Return N(t, 1) from N(0, 1) as one channel, with its losses split onto a grid."""
    edges = _edges(t, step)
    mass = _make_atoms(t, edges)
    mass[0] += GaussianPair(1 / t).masses(edges)[0][0]  # rounds these losses up
    return Channels.from_losses(mass[:, None], edges[:, None], slack)


def far_shift_channel(h: float, step: float) -> Channels:
    """Return the channel in which D is public, for public shifts beyond :func:`argmax_channels`.

    After the shift D has a variance below 1, and the law of the shift has the same error factor as
    on the lattice.
    """
    return gaussian_channel(math.sqrt(2 / (1 - _ROUGH[0])) * h, step, slack=4.1 * _OFF * h)


def censored_channels(t: float, lowest: float, step: float, side: int) -> tuple[Channels, Channels]:
    """Return N(t, 1) against N(0, 1), with its values seen in one tail only, as two channels.

    The tail starts at a distance of ``-lowest`` from the midpoint t / 2, up to the grid of losses:
    low losses if ``side`` is -1, high losses if it is 1. The first channel has one outcome, "not
    seen". The second channel has the values that are seen.
    """
    edges = _edges(t, step)
    if side < 0:
        cut = math.ceil(t * lowest / step) * step
        seen = edges[edges < cut + step / 2]
    else:
        cut = math.floor(-t * lowest / step) * step
        seen = edges[edges > cut - step / 2]
    p, q = (float(ndtr(side * (cut / t + sign * t / 2))) for sign in (-1, 1))
    mass = _make_atoms(t, seen)
    if side < 0:
        mass[0] += GaussianPair(1 / t).masses(seen)[0][0]
    unseen = Channels.from_laws(np.array([[p]]), np.array([[q]]))
    return unseen, Channels.from_losses(mass[:, None], seen[:, None])


def threshold_channels(t: float) -> Channels:
    """Return corners around all threshold tests of N(t, 1) against N(0, 1).

    The points (Phi(u), Phi(u - t)) form a convex curve. Its tangents at a grid of u form a polygon
    below it, whose corners are the channels. Any test is a mixture of corners and of tests with
    P = Q. The corner between u_0 and u_1 has the weighted mean of Phi(u), with weights e^(tu), and
    the weighted mean of Phi(u - t), with weights e^(-tu).
    """
    inner, outer = np.arange(-2.0, 2.0, 1 / 16), np.arange(2.0, 8.51, 1 / 8)
    ends = t / 2 + np.r_[-outer[::-1], inner[1:], outer]
    half = np.diff(ends) / 2
    u = ends[:-1] + half + half * _LEGENDRE_NODES[:, None]

    def mean(values: Array, slope: float) -> Array:
        weights = _LEGENDRE_WEIGHTS[:, None] * np.exp(slope * (u - ends[:-1]))
        average: Array = (weights * values).sum(axis=0) / weights.sum(axis=0)
        return average

    p = np.array([mean(ndtr(u), t), mean(ndtr(-u), t)])
    q = np.array([mean(ndtr(u - t), -t), mean(ndtr(t - u), -t)])
    return Channels.from_laws(p, q)


def argmax_channels(h: float, lowest: float, highest: float, wide: float) -> tuple[Channels, float]:
    """Return channels around all arg-maxima of X, Y and 0, and a probability that they miss.

    They cover the channels whose means of X and Y are at least ``lowest`` and whose mean of
    S = (X + Y) / sqrt(2) is at most ``highest``. Let D = (X - Y) / sqrt(2). S is normal, has the
    same law under P and Q, and is independent of D. X wins if D > max(0, -S), Y if D < -max(0, -S).

    A normal number of variance 1 is a normal number of variance 1 - v plus a public shift on a grid
    of spacing d, whose law is the normal law of variance v restricted to the grid. By Poisson's
    summation formula the density has an error factor within (1 +- e) / (1 -+ e),
    e = 2 sum_j exp(-2 pi^2 j^2 v (1 - v) / d^2). So all channels are mixtures of the channels on
    the grid, which have a little less noise.

    There are two grids of S and D. The fine grid serves |D| <= ``wide`` and S >= _LOW, where the
    losses are largest. The rough grid serves the rest, by channels with still less noise.
    """
    bottom, off = math.sqrt(2) * lowest, _OFF * h
    laws, missed = [], []
    for variances in (_FINE, _ROUGH):
        d_step, s_step = steps = _choose_steps(variances, off)
        d_margin, s_margin = margins = [_MARGIN * math.sqrt(v) for v in variances]
        first, last = (bottom - s_margin) / s_step, (highest + s_margin) / s_step
        widest = math.ceil((highest - bottom + d_margin) / d_step)
        s = s_step * np.arange(math.floor(first), math.ceil(last) + 1)
        d = d_step * np.arange(-widest, widest + 1)
        rows, size = s[:, None], np.abs(d)
        near = rows - size >= bottom - s_margin - d_margin
        if variances is _FINE:
            near &= (size <= wide + d_margin) & (rows >= _LOW - s_margin)
        else:  # all points whose shifts may leave the fine lattice's range
            near &= (size > wide - d_margin) | (rows < _LOW + s_margin)
        both = [_gaussian_argmax_law(s, d + side * h / math.sqrt(2), variances) for side in (1, -1)]
        laws.append([law[:, near] for law in both])
        missed.append(2 * sum(map(_bound_margin_excess, margins, variances, steps)))
    p, q = np.concatenate(laws, axis=-1)
    return Channels.from_laws(p, q, slack=4.1 * off), max(missed)


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


def _edges(t: float, step: float) -> Array:
    ends = math.ceil((_REACH * t + t**2 / 2) / step)
    return np.arange(-ends, ends + 1) * step


def _make_atoms(t: float, edges: Array) -> Array:
    """Return the P-masses of N(t, 1) from N(0, 1) within ``edges``, moved onto the edges.

    The mass of a cell is split between its two ends such that its P- and Q-mass are preserved.
    """
    p, q = GaussianPair(1 / t).masses(edges)
    inner = p[1:-1]
    step = edges[1] - edges[0]
    up = (inner - q[1:-1] * np.exp(edges[:-1])) / -math.expm1(-step)
    up = np.clip(up + 1e-10 * inner, 0.0, inner)
    mass: Array = np.r_[0.0, up] + np.r_[inner - up, 0.0]
    return mass


def _choose_steps(variances: tuple[float, float], off: float) -> list[float]:
    """Return lattice spacings at which the e of :func:`argmax_channels` is at most ``off``."""
    return [math.sqrt(2 * math.pi**2 * v * (1 - v) / math.log(2.1 / off)) for v in variances]


def _bound_margin_excess(margin: float, variance: float, step: float) -> float:
    """Bound the probability that a public shift exceeds the margin on one side."""
    width = math.sqrt(variance)
    first = step / width * math.exp(-(margin**2) / (2 * variance)) / math.sqrt(2 * math.pi)
    return 1.001 * (first + float(ndtr(-margin / width)))


def _gaussian_argmax_law(s: Array, d: Array, variances: tuple[float, float]) -> Array:
    """Return the probabilities that X, Y and 0 win, of shape (3, len(s), len(d))."""
    d_width, s_width = (math.sqrt(1 - v) for v in variances)
    nodes, weights = np.polynomial.legendre.leggauss(160)
    u = 7.0 * (nodes - 1)  # nodes for S below zero; above it the sign of D decides
    z = (u - s[:, None]) / s_width
    density = 7.0 * weights * np.exp(-(z**2) / 2) / (s_width * math.sqrt(2 * math.pi))
    above = ndtr(s / s_width)[:, None]
    x, y = (
        above * ndtr(sign * d / d_width) + density @ ndtr((sign * d + u[:, None]) / d_width)
        for sign in (1, -1)
    )
    ends = [(sign * u[:, None] - np.abs(d)) / d_width for sign in (-1, 1)]
    other = density @ (ndtr(ends[0]) - ndtr(ends[1]))
    return np.array([x, y, other])


def _near_lattice(h: float) -> Part:
    """Return the lattice over 0 <= x <= h, -h <= y <= h (Lemma 2)."""
    x, y = np.meshgrid(np.linspace(0, h, _CELLS + 1), np.linspace(-h, h, 2 * _CELLS + 1))
    return _with_slack(*_neighbour_laws(x.ravel(), y.ravel(), h), 2 * _bound_error(h / _CELLS))


def _ahead_corners(h: float) -> Part:
    """Return corners around 0 <= x <= h, h <= y, where laws are e^-y times linear (Lemma 3)."""
    y, more = _find_corners(h)  # Lemma 3 of "The cost of a noisy arg-max"
    x, y = np.meshgrid(np.linspace(0, h, _CELLS + 1), y)
    p, q = _neighbour_laws(x.ravel(), y.ravel(), h)
    more = np.repeat(more, _CELLS + 1)
    return _with_slack(
        _scale_departure(p, 1, more), _scale_departure(q, 1, more), _bound_error(h / _CELLS)
    )


def _level_lattice(h: float) -> Part:
    """Return the lattice of two classes at most h apart, half-way between P and Q."""
    gap = np.linspace(-h, h, 2 * _WIDE_CELLS + 1)
    p, q = (_three_outcomes(_prob_ahead(gap + t), _prob_ahead(-gap - t)) for t in (h, -h))
    return _with_slack(p, q, _bound_error(h / _WIDE_CELLS))


def _level_corners(h: float) -> Part:
    """Return corners around two classes more than h apart, half-way between P and Q."""
    gap, more = _find_corners(h)
    behind, behind_after = (more * _prob_ahead(-gap - t) for t in (h, -h))
    return _with_slack(
        _three_outcomes(1 - behind, behind), _three_outcomes(1 - behind_after, behind_after), 0.0
    )


def _threshold_lattice(h: float) -> Part:
    """Return the lattice of one class against a threshold."""
    y = np.linspace(-h, 0, _WIDE_CELLS + 1)
    p, q = (_three_outcomes(_prob_positive(mean), _prob_positive(-mean)) for mean in (y, y + h))
    return _with_slack(p, q, _bound_error(h / _WIDE_CELLS))


def _tail_limit(h: float) -> Part:
    """Return the limit of channels far ahead: one outcome is rare and has the largest loss."""
    rare = np.array([math.exp(-_TANGENT_POINTS[-1]) / 4])
    rarer = rare * math.exp(-2 * h)
    return _with_slack(_three_outcomes(rare, 1 - rare), _three_outcomes(rarer, 1 - rarer), 0.0)


def _with_slack(p: Array, q: Array, slack: float) -> Part:
    return p, q, np.full(p.shape[1], slack)


def _bound_error(cell: float) -> float:
    """Bound the error of ln P of a mixture over both ends of a cell (factors of Lemma 2)."""
    # Lemma 2: r <= 1 - 1 / cosh(d / 2), and the factors 1 - r and 1 + r (2 e^d - 1)
    rest = 1 - 1 / math.cosh(cell / 2)
    return max(-math.log1p(-rest), math.log1p(rest * (2 * math.exp(cell) - 1)))


def _find_corners(h: float) -> tuple[Array, Array]:
    """Return the corners y of the tangents, and the factors of their departure from the limit.

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
