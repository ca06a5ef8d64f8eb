"""Privacy curve of a block of noisy arg-max queries of which only the winners are released.

"The cost of a noisy arg-max" in the documentation has the theorems and their proofs. Let V_0 be
(1 - gamma)_+. Let V_t(gamma) be the supremum of sum_o P(o) V_{t-1}(gamma Q(o) / P(o)) over all
channels (P, Q) of one query. Then V_T is the privacy curve of T adaptive queries (Theorem 3 there).

**Never below the exact value.** V_t is stored on a grid of ln gamma and interpolated by chords,
which lie above a convex function. The supremum is a maximum over finitely many channels. Every
other channel is a garbling of one of them, or of a public mixture of them. No channel is left out
because it looks small. Outcomes rarer than 1e-15, rounding and ties are added to V.

Start reading at :func:`argmax_curve`.
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

from .channels import (
    Channels,
    argmax_channels,
    censored_channels,
    far_shift_channel,
    gaussian_channel,
    laplace_argmax_channels,
    max_shift_in_steps,
    randomized_response_channel,
    threshold_channels,
)
from .pairs import Array, AtomPair, pair_from_curve

LONGEST = 1024  # queries of one block; more are composed of several blocks
COVERED = (1e-4, 1.0)  # range of votes per noise in which the recursion runs
_LARGEST = 16.0  # largest distance of neighbours over all queries, in standard deviations

_POINTS = 16  # points of the grid of ln gamma per h
_RARE = 1e-14  # probability of all omitted outcomes of one query
_ROUNDING = 1 + 1e-12  # bound on the rounding errors of one query
_ALONE = 2.7  # mean of S, in units of the noise, above which other classes hardly ever win
_BEHIND = -2.5  # mean of X or Y below which that class hardly ever wins
_AT_ONCE = 256  # points of the grid in one matrix product
_FAR, _FARTHEST = 7.0, 12.0  # standard deviations: end of the recursion, and of the grid

# Channels far from the maximum are computed on a coarser grid, at every n-th point. How far a
# channel is follows from its Renyi divergences at some orders 1 + tilt / h, relative to the largest
# divergence: after t queries V falls no faster than e^(-tilt / h). A chord over n points costs up
# to about _CHORD n^2 of a query's divergence, and more while V is sharp.
_COARSE_STRIDE = 8
_FEW = 512  # grids of up to this many points are computed in full
_EVERY = (16, 8, 4, 2)
_CHORD, _SHARP = 0.0012, 16
_TILTS = np.array([0.05, 0.25, 0.5, 1.0])


def gaussian_curve(mu: float, losses: Array) -> Array:
    """Return delta of N(mu, 1) from N(0, 1) at each epsilon, rounded up."""
    # Balle and Wang 2018, Theorem 8: the privacy curve of Gaussian noise
    up = ndtr(mu / 2 - losses / mu)
    # e^x Phi is computed in logarithms, as its factors overflow where their product does not.
    log_phi = log_ndtr(-mu / 2 - losses / mu)
    curve: Array = np.maximum(up - np.exp(losses + log_phi), 0.0)
    curve += 4e-16 * (4 + losses - log_phi) * up
    return curve


@dataclass(frozen=True)
class _Grid:
    """Points ``i * step`` of ln gamma for i >= 0; negative points follow from symmetry."""

    step: float
    size: int
    pad: int

    @property
    def losses(self) -> Array:
        return self.step * np.arange(self.size)

    def extend(self, v: Array) -> Array:
        """Extend ``v`` by ``pad`` points on both sides.

        To the left the symmetry H_gamma(P, Q) = 1 - gamma + gamma H_{1/gamma}(Q, P) applies, since
        all suprema are over families closed under exchange of P and Q. To the right V falls, so a
        constant lies above it.
        """
        losses = self.losses[self.pad : 0 : -1]
        mirrored = -np.expm1(-losses) + np.exp(-losses) * v[self.pad : 0 : -1]
        constant = np.full(self.pad + self.size - len(v), v[-1])
        return np.concatenate([mirrored, v, constant])

    def filter(self, channels: Channels) -> csr_array:
        """Return weights of the points from ``-pad`` to ``pad`` around gamma, a row per channel."""
        # V at gamma Q / P is a chord in gamma between the grid points on either side.
        place = np.floor(channels.shift / self.step)
        share = np.expm1(channels.shift - place * self.step) / math.expm1(self.step)
        column = place.astype(int) + self.pad
        row = np.broadcast_to(np.arange(column.shape[1]), column.shape)
        weights = np.concatenate([channels.p * (1 - share), channels.p * share], axis=None)
        places = np.concatenate([row, row], axis=None), np.concatenate([column, column + 1], None)
        return csr_array((weights, places), shape=(column.shape[1], 2 * self.pad + 1))


def _filtered_maximum(
    grid: _Grid, filters: csr_array, v: Array, points: int, every: int = 1
) -> Array:
    """Return the maximum over channels of the filtered, extended ``v``, at ``points`` grid points.

    With ``every`` above 1 it is computed at every ``every``-th point only. The maximum is convex
    too, so chords between these points lie above it.
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


Query = Callable[[Array, int, int], Array]  # takes V before query t, the number of points, and t


def _threshold_query(h: float, grid: _Grid) -> Query:
    """Return the recursion step for tests of one noisy number against a threshold."""
    over = grid.filter(threshold_channels(h))
    return lambda v, points, t: _filtered_maximum(grid, over, grid.extend(v), points)


def _argmax_query(h: float, grid: _Grid) -> Query:
    """Return the recursion step for arg-maxima with Gaussian noise.

    It is the maximum over the four parts of the plane in the documentation ("How the supremum is
    taken"): s above _ALONE, y or x below _BEHIND, and the rest, on a lattice.
    """
    apart = math.sqrt(2) * h
    full, one = (grid.filter(gaussian_channel(t, grid.step)) for t in (apart, h))
    far = grid.filter(far_shift_channel(h, grid.step))
    over = grid.filter(threshold_channels(h))
    behind = [
        tuple(map(grid.filter, censored_channels(h, _BEHIND, grid.step, side))) for side in (-1, 1)
    ]
    rarely = float(ndtr(-_ALONE))

    @lru_cache(maxsize=1)
    def choose_parts(
        t: int,
    ) -> tuple[list[tuple[csr_array, int]], list[tuple[csr_array, int]], float]:
        lattice, missed = argmax_channels(h, _BEHIND, _ALONE, wide=1.25 + _tilt(t))
        winner, near = (
            [(grid.filter(part), every) for part, every in _split_by_divergence(channels, h, t)]
            for channels in (threshold_channels(apart), lattice)
        )
        return winner, near, missed

    def query(v: Array, points: int, t: int) -> Array:
        winner, near, missed = choose_parts(_power_of_four_below(t))
        v = grid.extend(v)
        public_counts = _filtered_maximum(grid, full, v, points, _COARSE_STRIDE)
        # Part 1: two classes; with probability ``rarely`` D is public instead.
        two = (1 - rarely) * _maximum_over_parts(grid, winner, v, points) + rarely * public_counts
        # Part 4: the lattice; with probability ``missed`` a shift lies beyond it.
        three = _maximum_over_parts(grid, near, v, points)
        beyond = np.maximum(_filtered_maximum(grid, far, v, points, _COARSE_STRIDE), three)
        worst: Array = np.maximum(two, (1 - missed) * three + missed * beyond)
        # Parts 2 and 3: a class far behind. Its noise is public if large, then a test or all of the
        # other class follows, so V of that step is needed ``pad`` points farther.
        wide = min(points + grid.pad, grid.size - _COARSE_STRIDE)
        tests, values = (
            _filtered_maximum(grid, part, v, wide, _COARSE_STRIDE) for part in (over, one)
        )
        tests, values = grid.extend(tests), grid.extend(values)
        for unseen, seen in behind:
            edge = _filtered_maximum(grid, unseen, tests, points, _COARSE_STRIDE)
            edge += _filtered_maximum(grid, seen, values, points, _COARSE_STRIDE)
            np.maximum(worst, edge, out=worst)
        return worst

    return query


def _maximum_over_parts(
    grid: _Grid, parts: list[tuple[csr_array, int]], v: Array, points: int
) -> Array:
    """Return the maximum over all parts, each with its grid spacing."""
    largest: Array = np.max(
        [_filtered_maximum(grid, part, v, points, every) for part, every in parts], axis=0
    )
    return largest


def _power_of_four_below(t: int) -> int:
    """Return the largest power of four up to t: parts are chosen again when t has quadrupled."""
    return 1 << 2 * ((t.bit_length() - 1) // 2)


def _tilt(t: int) -> float:
    """Return the slope of ln V near the losses that matter after t queries, times h."""
    return min(2.0, 6.0 / math.sqrt(t))


def _split_by_divergence(channels: Channels, h: float, t: int) -> Iterator[tuple[Channels, int]]:
    """Yield parts of the channels with a grid spacing each: for accuracy, never for validity."""
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
    """Return the recursion step for arg-maxima with Laplace noise."""
    channels = laplace_argmax_channels(h)
    pure = grid.filter(randomized_response_channel(h))

    @lru_cache(maxsize=1)
    def choose_parts(t: int) -> list[tuple[csr_array, int]]:
        return [(grid.filter(part), every) for part, every in _split_by_divergence(channels, h, t)]

    def query(v: Array, points: int, t: int) -> Array:
        v = grid.extend(v)
        near = choose_parts(_power_of_four_below(t))
        if points <= _FEW:  # the curve is not smooth yet
            near = [(part, 1) for part, _ in near]
        worst = _maximum_over_parts(grid, near, v, points)
        least: Array = np.minimum(worst, _filtered_maximum(grid, pure, v, points))
        return least

    return query


@dataclass(frozen=True)
class _Gaussian:
    """Queries that post-process counts with Gaussian noise."""

    query: Callable[[float, _Grid], Query]
    spread: float  # L2 distance of neighbouring counts, in votes

    first: ClassVar[int] = 1  # number of queries whose curve starts the recursion
    rare: ClassVar[float] = _RARE

    def is_covered(self, h: float, n_queries: int) -> bool:
        return n_queries > 1 and self.spread * h * math.sqrt(n_queries) <= _LARGEST

    def pad(self, h: float, step: float) -> int:
        return max_shift_in_steps(self.spread * h, step)

    def known_curve(self, h: float, n_queries: int, losses: Array) -> Array:
        """Return the curve with public noisy counts, an upper bound on V."""
        return gaussian_curve(self.spread * h * math.sqrt(n_queries), losses)

    def end(self, h: float, n_queries: int) -> float:
        """Return the loss up to which V is computed after ``n_queries`` queries."""
        return self._beyond(h, n_queries, _FAR)

    def reach(self, h: float, n_queries: int) -> float:
        """Return the largest loss of the grid."""
        return self._beyond(h, n_queries, _FARTHEST)

    def largest_loss(self, h: float, n_queries: int) -> float:
        """Return the largest possible loss."""
        return math.inf

    def _beyond(self, h: float, n_queries: int, deviations: float) -> float:
        return _reach(self.spread * h * math.sqrt(n_queries), deviations)


class _Laplace:
    """Queries whose losses are at most 2h each."""

    query = staticmethod(_laplace_query)
    first = 0
    rare = 0.0  # no outcome is omitted

    def is_covered(self, h: float, n_queries: int) -> bool:
        return 2 * h * math.sqrt(n_queries) <= _LARGEST

    def pad(self, h: float, step: float) -> int:
        return math.ceil(2 * h / step) + 4

    def known_curve(self, h: float, n_queries: int, losses: Array) -> Array:
        """Return the curve of randomised response with the largest loss, an upper bound on V."""
        largest_loss = self.largest_loss(h, n_queries)
        curve: Array = np.maximum(-np.expm1(losses - largest_loss), 0.0) / (
            1 + math.exp(-largest_loss)
        )
        return curve

    def end(self, h: float, n_queries: int) -> float:
        return self.largest_loss(h, n_queries)

    def reach(self, h: float, n_queries: int) -> float:
        """Return the largest loss, or a loss that is hardly ever exceeded."""
        return min(self.largest_loss(h, n_queries), _reach(1.2 * h * math.sqrt(n_queries), 9.0))

    def largest_loss(self, h: float, n_queries: int) -> float:
        return 2 * h * n_queries


_KINDS: dict[str, _Gaussian | _Laplace] = {
    "gnmax": _Gaussian(_argmax_query, math.sqrt(2)),
    "threshold": _Gaussian(_threshold_query, 1.0),
    "lnmax": _Laplace(),
}


@lru_cache(maxsize=32)
def argmax_pair(kind: str, h: float, n_queries: int) -> AtomPair:
    """Return the pair of :func:`argmax_curve`, which dominates the block in both directions."""
    epsilons, deltas = argmax_curve(kind, h, n_queries)
    return replace(pair_from_curve(epsilons, deltas), gap=h / _POINTS)


def is_covered(kind: str, h: float, n_queries: int) -> bool:
    """Return True if the recursion applies: the noise is not extreme."""
    reached = _KINDS[kind].is_covered(h, min(n_queries, LONGEST))
    return COVERED[0] <= h <= COVERED[1] and reached


def argmax_curve(kind: str, h: float, n_queries: int) -> tuple[Array, Array]:
    """Return epsilons and upper bounds on delta; one vote is ``h`` deviations (Laplace: scales)."""
    noise, step = _KINDS[kind], h / _POINTS
    pad = noise.pad(h, step)
    size = max(math.ceil(noise.reach(h, n_queries) / step) + 1, pad)
    grid = _Grid(step, size + 2 * _EVERY[0], pad)
    query = noise.query(h, grid)
    v = noise.known_curve(h, noise.first, grid.losses)
    # Theorem 3 of "The cost of a noisy arg-max": V_t from V_{t-1}
    for t in range(noise.first + 1, n_queries + 1):
        points = min(math.ceil(noise.end(h, t) / step) + 1, size)
        worst = np.maximum(query(v, points, t), v[:points]) * _ROUNDING + noise.rare
        v = noise.known_curve(h, t, grid.losses)
        v[:points] = np.minimum(v[:points], worst)
        v = np.minimum.accumulate(v)  # V falls, so this is a bound too
    largest_loss = noise.largest_loss(h, n_queries)
    if math.isinf(largest_loss):
        return grid.losses, v
    inside = grid.losses < largest_loss  # a chord leads from the last point to the largest loss
    return np.r_[grid.losses[inside], largest_loss], np.r_[v[inside], 0.0]


def _reach(mu: float, deviations: float) -> float:
    """Return the loss of N(mu, 1) from N(0, 1) at ``deviations`` above its mean."""
    return mu**2 / 2 + mu * deviations
