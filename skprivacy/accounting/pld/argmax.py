"""The privacy curve of a block of noisy arg-max queries of which only the winners are released.

The theorems and their proofs are in "The cost of a noisy arg-max" in the documentation. Let V_0 be
(1 - gamma)_+ and V_t(gamma) the supremum, over all channels (P, Q) that one query may be, of
sum_o P(o) V_{t-1}(gamma Q(o) / P(o)). Then V_T is the privacy curve of T adaptive queries.

**Never below the truth.** V_t is held at the points of a grid of ln gamma, and read off chords,
which lie above a convex function. The supremum is over finitely many channels of which every other
one is a garbling, or a garbling of a public mixture; nothing is left out because it looks small.
What is rarer than 1e-15, rounding and ties are added to V.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.sparse import csr_array
from scipy.special import log_ndtr, ndtr

from .channels import Channels, binary, censored, gaussian, shift, shifted_far, three_way
from .curve import pair_of_curve
from .laplace_channels import laplace_argmax, randomised_response
from .pairs import Array, AtomPair

__all__ = ["LONGEST", "argmax_curve", "argmax_pair", "is_covered"]

LONGEST = 1024  # queries of one block; more are composed of several blocks
COVERED = (1e-4, 1.0)  # votes per noise for which the recursion is done
_LARGEST = 16.0  # deviations between neighbours, of all queries together, for which it is done

_POINTS = 16  # of the grid of ln gamma, per h
_RARE = 1e-14  # what all outcomes left out have together, in one query
_ROUNDING = 1 + 1e-12  # of all that is done in one query
_ALONE = 2.7  # mean of S, in units of the noise, from which on other classes hardly ever win
_BEHIND = -2.5  # mean of X or Y up to which that class hardly ever wins
_AT_ONCE = 256  # points of the grid
_FAR, _FARTHEST = 7.0, 12.0  # standard deviations: of the recursion, and of Gaussian noise beyond

# What is far from the worst is worked out at one point in so many. Which channels are far is told
# by their Renyi divergences of some orders 1 + tilt / h, relative to the largest: after t queries V
# falls no faster than e^(-tilt / h) does. A chord over n points costs up to about _CHORD n^2 of a
# query's divergence, and more while V is sharp.
_SELDOM = 8
_FEW = 512  # points of the grid: all are worked out
_EVERY = (16, 8, 4, 2)
_CHORD, _SHARP = 0.0012, 16
_TILTS = np.array([0.05, 0.25, 0.5, 1.0])


def gaussian_curve(mu: float, losses: Array) -> Array:
    """Return delta of N(mu, 1) from N(0, 1) at each epsilon, rounded up."""
    up = ndtr(mu / 2 - losses / mu)
    # e^x Phi is taken off in logarithms: its factors overflow where their product does not.
    log_phi = log_ndtr(-mu / 2 - losses / mu)
    curve: Array = np.maximum(up - np.exp(losses + log_phi), 0.0)
    curve += 4e-16 * (4 + losses - log_phi) * up
    return curve


@dataclass(frozen=True)
class _Grid:
    """Points ``i * step`` of ln gamma for i >= 0; the other half follows from symmetry."""

    step: float
    size: int
    pad: int

    @property
    def losses(self) -> Array:
        return self.step * np.arange(self.size)

    def extended(self, v: Array) -> Array:
        """Return ``v`` with ``pad`` points more on both sides.

        H_gamma(P, Q) = 1 - gamma + gamma H_{1/gamma}(Q, P), and all suprema are over families that
        are closed under exchange of P and Q. To the right a falling function is held constant.
        """
        losses = self.losses[self.pad : 0 : -1]
        mirrored = -np.expm1(-losses) + np.exp(-losses) * v[self.pad : 0 : -1]
        constant = np.full(self.pad + self.size - len(v), v[-1])
        return np.concatenate([mirrored, v, constant])

    def filter(self, channels: Channels) -> csr_array:
        """Return weights of the points from ``-pad`` to ``pad`` around gamma, a row per channel."""
        place = np.floor(channels.shift / self.step)
        share = np.expm1(channels.shift - place * self.step) / math.expm1(self.step)
        column = place.astype(int) + self.pad
        row = np.broadcast_to(np.arange(column.shape[1]), column.shape)
        weights = np.concatenate([channels.p * (1 - share), channels.p * share], axis=None)
        places = np.concatenate([row, row], axis=None), np.concatenate([column, column + 1], None)
        return csr_array((weights, places), shape=(column.shape[1], 2 * self.pad + 1))


def _worst(grid: _Grid, filters: csr_array, v: Array, points: int, every: int = 1) -> Array:
    """Return the largest of the filtered ``v``, extended, at the first ``points`` of the grid.

    With ``every`` above 1 it is worked out at one point in so many, and read off chords between:
    it is convex as well.
    """
    windows = sliding_window_view(v, 2 * grid.pad + 1)[: points + every - 1 : every]
    worst = np.empty(len(windows))
    for start in range(0, len(windows), _AT_ONCE):
        here = np.ascontiguousarray(windows[start : start + _AT_ONCE].T)
        worst[start : start + _AT_ONCE] = (filters @ here).max(axis=0)
    if every == 1:
        return worst
    gamma = np.exp(grid.losses[: points + every - 1])
    chords: Array = np.interp(gamma[:points], gamma[::every], worst)
    return chords


Query = Callable[[Array, int, int], Array]  # of V before the t-th query, how many points, and t


def _threshold_query(h: float, grid: _Grid) -> Query:
    """Return one step of the recursion for tests of one noisy number against a threshold."""
    over = grid.filter(binary(h))
    return lambda v, points, t: _worst(grid, over, grid.extended(v), points)


def _argmax_query(h: float, grid: _Grid) -> Query:
    """Return one step of the recursion for arg-maxima: the worst of the parts of the cover."""
    apart = math.sqrt(2) * h
    full, one = (grid.filter(gaussian(t, grid.step)) for t in (apart, h))
    far = grid.filter(shifted_far(h, grid.step))
    over = grid.filter(binary(h))
    behind = [tuple(map(grid.filter, censored(h, _BEHIND, grid.step, side))) for side in (-1, 1)]
    rarely = float(ndtr(-_ALONE))

    @lru_cache(maxsize=1)
    def parts(t: int) -> tuple[list[tuple[csr_array, int]], list[tuple[csr_array, int]], float]:
        lattice, missed = three_way(h, _BEHIND, _ALONE, wide=1.25 + _tilt(t))
        winner, near = (
            [(grid.filter(part), every) for part, every in _by_information(channels, h, t)]
            for channels in (binary(apart), lattice)
        )
        return winner, near, missed

    def query(v: Array, points: int, t: int) -> Array:
        winner, near, missed = parts(_begun(t))
        v = grid.extended(v)
        told = _worst(grid, full, v, points, _SELDOM)
        two = (1 - rarely) * _largest(grid, winner, v, points) + rarely * told
        three = _largest(grid, near, v, points)
        beyond = np.maximum(_worst(grid, far, v, points, _SELDOM), three)
        worst: Array = np.maximum(two, (1 - missed) * three + missed * beyond)
        wide = min(points + grid.pad, grid.size - _SELDOM)  # what follows is read farther away
        tests, values = (_worst(grid, part, v, wide, _SELDOM) for part in (over, one))
        tests, values = grid.extended(tests), grid.extended(values)
        for unseen, seen in behind:
            edge = _worst(grid, unseen, tests, points, _SELDOM)
            edge += _worst(grid, seen, values, points, _SELDOM)
            np.maximum(worst, edge, out=worst)
        return worst

    return query


def _largest(grid: _Grid, parts: list[tuple[csr_array, int]], v: Array, points: int) -> Array:
    """Return the largest over all parts, each worked out at one point in so many."""
    largest: Array = np.max([_worst(grid, part, v, points, every) for part, every in parts], axis=0)
    return largest


def _begun(t: int) -> int:
    """Return the power of four below, so that parts are chosen anew when t has quadrupled."""
    return 1 << 2 * ((t.bit_length() - 1) // 2)


def _tilt(t: int) -> float:
    """Return how steeply V falls after t queries, where it matters."""
    return min(2.0, 6.0 / math.sqrt(t))


def _by_information(channels: Channels, h: float, t: int) -> Iterator[tuple[Channels, int]]:
    """Yield parts of the channels, and how many points of the grid there need be for one.

    This decides on accuracy and speed alone.
    """
    p, loss = channels.p, -channels.shift
    share = np.zeros(p.shape[1])
    for tilt in _TILTS * _tilt(t):
        information = (p * np.expm1(tilt / h * loss)).sum(axis=0)
        share = np.maximum(share, information / information.max())
    left = np.ones(len(share), bool)
    for every in (*_EVERY, 1):
        chord = _CHORD * (1 + _SHARP / t) * every**2 if every > 1 else -np.inf
        part = left & (1 - share >= chord)
        left &= ~part
        if part.any():
            yield Channels(p[:, part], channels.shift[:, part]), every


def _laplace_query(h: float, grid: _Grid) -> Query:
    """Return one step of the recursion for arg-maxima with Laplace noise."""
    channels = laplace_argmax(h)
    pure = grid.filter(randomised_response(h))

    @lru_cache(maxsize=1)
    def parts(t: int) -> list[tuple[csr_array, int]]:
        return [(grid.filter(part), every) for part, every in _by_information(channels, h, t)]

    def query(v: Array, points: int, t: int) -> Array:
        v = grid.extended(v)
        near = parts(_begun(t))
        if points <= _FEW:  # the curve is not smooth yet
            near = [(part, 1) for part, _ in near]
        worst = _largest(grid, near, v, points)
        least: Array = np.minimum(worst, _worst(grid, pure, v, points))
        return least

    return query


@dataclass(frozen=True)
class _Gaussian:
    """Queries that are post-processing of Gaussian noise."""

    query: Callable[[float, _Grid], Query]
    spread: float  # distance of neighbouring counts, in votes

    first: ClassVar[int] = 1  # number of queries from which on the recursion starts
    rare: ClassVar[float] = _RARE

    def is_covered(self, h: float, n_queries: int) -> bool:
        return n_queries > 1 and self.spread * h * math.sqrt(n_queries) <= _LARGEST

    def pad(self, h: float, step: float) -> int:
        return shift(self.spread * h, step)

    def known(self, h: float, n_queries: int, losses: Array) -> Array:
        """Return the curve with all noisy counts released."""
        return gaussian_curve(self.spread * h * math.sqrt(n_queries), losses)

    def end(self, h: float, n_queries: int) -> float:
        """Return the loss up to which V is worked out for so many queries."""
        return self._beyond(h, n_queries, _FAR)

    def reach(self, h: float, n_queries: int) -> float:
        """Return the loss up to which V is held."""
        return self._beyond(h, n_queries, _FARTHEST)

    def most(self, h: float, n_queries: int) -> float:
        """Return the largest possible loss."""
        return math.inf

    def _beyond(self, h: float, n_queries: int, deviations: float) -> float:
        return _reach(self.spread * h * math.sqrt(n_queries), deviations)


class _Laplace:
    """Queries whose losses are at most 2h each."""

    query = staticmethod(_laplace_query)
    first = 0
    rare = 0.0  # nothing is left out

    def is_covered(self, h: float, n_queries: int) -> bool:
        return 2 * h * math.sqrt(n_queries) <= _LARGEST

    def pad(self, h: float, step: float) -> int:
        return math.ceil(2 * h / step) + 4

    def known(self, h: float, n_queries: int, losses: Array) -> Array:
        """Return the curve of all pure differential privacy with this bound on the loss."""
        most = self.most(h, n_queries)
        curve: Array = np.maximum(-np.expm1(losses - most), 0.0) / (1 + math.exp(-most))
        return curve

    def end(self, h: float, n_queries: int) -> float:
        return self.most(h, n_queries)

    def reach(self, h: float, n_queries: int) -> float:
        """Return the largest loss, or one that is hardly ever exceeded."""
        return min(self.most(h, n_queries), _reach(1.2 * h * math.sqrt(n_queries), 9.0))

    def most(self, h: float, n_queries: int) -> float:
        return 2 * h * n_queries


_KINDS: dict[str, _Gaussian | _Laplace] = {
    "gnmax": _Gaussian(_argmax_query, math.sqrt(2)),
    "threshold": _Gaussian(_threshold_query, 1.0),
    "lnmax": _Laplace(),
}


@lru_cache(maxsize=32)
def argmax_pair(kind: str, h: float, n_queries: int) -> AtomPair:
    """Return a pair that dominates the block, in both directions; see :func:`argmax_curve`."""
    epsilons, deltas = argmax_curve(kind, h, n_queries)
    return replace(pair_of_curve(epsilons, deltas), gap=h / _POINTS)


def is_covered(kind: str, h: float, n_queries: int) -> bool:
    """Return whether the recursion has something to say, without extreme noise."""
    reached = _KINDS[kind].is_covered(h, min(n_queries, LONGEST))
    return COVERED[0] <= h <= COVERED[1] and reached


def argmax_curve(kind: str, h: float, n_queries: int) -> tuple[Array, Array]:
    """Return epsilons, and an upper bound on delta at each.

    Parameters
    ----------
    kind : {"gnmax", "lnmax", "threshold"}
    h : float
        One vote in units of the noise's standard deviation, or of its scale if it is Laplace noise,
        within :data:`COVERED`.
    n_queries : int
    """
    noise, step = _KINDS[kind], h / _POINTS
    pad = noise.pad(h, step)
    size = max(math.ceil(noise.reach(h, n_queries) / step) + 1, pad)
    grid = _Grid(step, size + 2 * _EVERY[0], pad)
    query = noise.query(h, grid)
    v = noise.known(h, noise.first, grid.losses)
    for t in range(noise.first + 1, n_queries + 1):
        points = min(math.ceil(noise.end(h, t) / step) + 1, size)
        worst = np.maximum(query(v, points, t), v[:points]) * _ROUNDING + noise.rare
        v = noise.known(h, t, grid.losses)
        v[:points] = np.minimum(v[:points], worst)
        v = np.minimum.accumulate(v)  # V falls
    most = noise.most(h, n_queries)
    if math.isinf(most):
        return grid.losses, v
    inside = grid.losses < most  # and from there to the largest loss by a chord
    return np.r_[grid.losses[inside], most], np.r_[v[inside], 0.0]


def _reach(mu: float, deviations: float) -> float:
    """Return the loss so many standard deviations above the mean, of N(mu, 1) from N(0, 1)."""
    return mu**2 / 2 + mu * deviations
