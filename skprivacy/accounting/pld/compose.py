"""Composition of privacy losses by FFT (Koskela, Jalko and Honkela 2020, arXiv:1906.03049).

The grid is pessimistic, and the losses are tilted exponentially.

**Never below the exact value.** Three quantities are rounded up, and everything else is exact:

- *Grid.* The P- and Q-mass of every grid cell are exact differences of distribution functions.
  They are split between the two ends of the cell such that both are preserved ("connect the dots",
  Doroshenko et al. 2022, arXiv:2207.04380). This joins the points of the hockey-stick curve by
  chords, which never lie below the curve.
- *Window.* Loss above the window is bounded by Chernoff's inequality and counted as infinite.
  Loss below it wraps around to the top, where it only increases delta.
- *Rounding.* A bound on the error of the transforms is added to delta.

**Tilting.** The masses are multiplied by exp(theta * loss) and normalised before the transform.
This moves the loss of interest to the middle of the distribution. Without it, the error of the
transform, about 1e-16 per step, would swamp a delta of 1e-12.

Start reading at :func:`compose`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import fft

from .pairs import Array, Pair
from .saddle_point import HARMLESS, Group, SaddlePoint, log_wrap

_ULP = 2.0**-53
_MAX_POINTS = 1 << 20  # of a transform


@dataclass(frozen=True)
class _Lattice:
    """Masses under P at the losses ``(first + i) * step``, and at infinity."""

    first: int
    step: float
    mass: Array
    infinity: float

    @cached_property
    def loss(self) -> Array:
        return (self.first + np.arange(len(self.mass))) * self.step

    @cached_property
    def log_mass(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.mass)

    def tilt(self, theta: float) -> tuple[float, Array]:
        """Return ln E[e^(theta L)] and the tilted masses."""
        terms = theta * self.loss
        terms += self.log_mass
        top = terms.max()
        terms -= top
        np.exp(terms, out=terms)
        total = terms.sum()
        terms /= total
        return float(top + math.log(total)), terms

    def log_mgf(self, theta: float) -> float:
        terms = theta * self.loss
        terms += self.log_mass
        top = terms.max()
        terms -= top
        return float(top + math.log(np.exp(terms, out=terms).sum()))


def _connect_the_dots(pair: Pair, step: float, tail: float) -> _Lattice:
    """Discretise a pair (Doroshenko et al. 2022, Algorithm 1), rounding up."""
    low, high = pair.span(tail)
    high = min(high, pair.max_loss)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    edges = np.arange(first, last + 1) * step
    p, q = pair.masses(edges)
    inner_p, inner_q, left = p[1:-1], q[1:-1], edges[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        from_q = np.where(inner_q > 0, inner_q * np.exp(left), 0.0)
    # The mass of a cell is a difference of numbers that may be much larger than the mass.
    with np.errstate(over="ignore", invalid="ignore"):
        level = _nearer_tail(p) + np.nan_to_num(_nearer_tail(q) * np.exp(left), posinf=0.0)
    slack = 8 * _ULP * (inner_p + from_q + level)
    # Share of the cell's P-mass at its upper end that preserves P and Q: with e^-loss weights, the
    # Q-mass of both ends must add up to the cell's Q-mass.
    up = np.clip((inner_p - from_q + slack) / -math.expm1(-step), 0.0, inner_p)
    mass = np.zeros(len(edges))
    mass[1:] = up
    mass[:-1] += inner_p - up
    mass[0] += p[0]
    beyond = 0.0 if high >= pair.max_loss else float(p[-1])
    mass[-1] += p[-1] if high >= pair.max_loss else 0.0
    return _Lattice(first, step, mass, min(1.0, pair.infinity + beyond))


def _nearer_tail(masses: Array) -> Array:
    """Return for each inner cell the smaller of the masses on its left and on its right."""
    left, right = np.cumsum(masses), np.cumsum(masses[::-1])[::-1]
    nearer: Array = np.minimum(left[1:-1], right[1:-1])
    return nearer


def _coarsen(lattice: _Lattice) -> _Lattice:
    """Connect the dots on a grid of twice the step."""
    offset = lattice.first % 2
    size = offset + len(lattice.mass)
    padded = np.zeros(size + 1 - size % 2)
    padded[offset:size] = lattice.mass
    # This share of a point half-way between two others moves up, which preserves P and Q.
    up = 1 / (1 + math.exp(-lattice.step))
    even, odd = padded[::2].copy(), padded[1::2]
    even[1:] += up * odd
    even[:-1] += (1 - up) * odd
    return _Lattice((lattice.first - offset) // 2, 2 * lattice.step, even, lattice.infinity)


def _raise_to_power(base: Array, exponent: int) -> Array:
    """Raise ``base`` to a power of at least 1 by squaring."""
    base = base.copy()
    while not exponent & 1:  # the first factor is copied below, not multiplied by ones
        np.multiply(base, base, out=base)
        exponent >>= 1
    result: Array = base.copy()
    while exponent := exponent >> 1:
        np.multiply(base, base, out=base)
        if exponent & 1:
            np.multiply(result, base, out=result)
    return result


@dataclass(frozen=True)
class ComposedLoss:
    """The composed loss on a grid, tilted: an upper bound on the hockey-stick curve."""

    loss: Array
    mass: Array  # tilted probabilities
    theta: float  # tilt
    log_mgf: float  # logarithm of the normaliser of the tilt
    infinity: float  # probability of infinite loss, not tilted
    error: float  # bound on the Euclidean norm of the error of ``mass``
    _found: dict[float, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def step(self) -> float:
        """Distance between neighbouring losses."""
        return float(self.loss[1] - self.loss[0])

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at ``epsilon``."""
        start = int(np.searchsorted(self.loss, epsilon, side="right"))
        if start == len(self.loss):
            return self.infinity
        # delta = sum over losses L > epsilon of (1 - e^(epsilon - L)) mass(L). Weights are relative
        # to the first such loss: far below the window they would all underflow, and the result
        # would be 0 where delta is 1.
        first = float(self.loss[start])
        weight = np.exp(-self.theta * (self.loss[start:] - first))
        weight *= -np.expm1(epsilon - self.loss[start:])
        # Cauchy-Schwarz: the error of the sum is at most |error| |weight|.
        tilted = float(weight @ self.mass[start:]) + self.error * float(np.linalg.norm(weight))
        if tilted == 0:
            return self.infinity
        log_delta = self.log_mgf - self.theta * first + math.log(tilted)
        return min(1.0, math.exp(min(log_delta, 0.0)) + self.infinity)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which :meth:`delta` is at most ``delta``."""
        if delta not in self._found:  # compose() asks for it too, when it refines the grid
            self._found[delta] = self._epsilon(delta)
        return self._found[delta]

    def _epsilon(self, delta: float) -> float:
        if self.infinity >= delta:
            return math.inf
        grid = np.r_[0.0, np.maximum(self.loss, 0.0)]  # the curve may cross delta below the window
        if (at_first := self.delta(0.0)) <= delta:
            return 0.0
        if (at_last := self.delta(float(grid[-1]))) > delta:
            return math.inf
        low, high, at_left, at_right = self._cell(grid, delta, at_first, at_last)
        # Within a cell the curve is linear in e^epsilon, and its error term decreases.
        left, right = float(grid[low]), float(grid[high])
        if right - left > 700:  # its exponential overflows
            return right
        share = (at_left - delta) / (at_left - at_right)
        return min(right, left + math.log1p(share * math.expm1(right - left)))

    def _cell(
        self, grid: Array, delta: float, at_low: float, at_high: float
    ) -> tuple[int, int, float, float]:
        """Return the adjacent points between which the curve crosses ``delta``, with its values."""
        low, high = 0, len(grid) - 1
        step = 1
        guess = self._guess(delta)
        while high - low > 1:
            middle = min(max(guess, low + 1), high - 1) if guess is not None else (low + high) // 2
            at_middle = self.delta(float(grid[middle]))
            if at_middle > delta:
                low, at_low, guess = middle, at_middle, middle + step
            else:
                high, at_high, guess = middle, at_middle, middle - step
            step *= 2
            if step > 64:
                guess = None
        return low, high, at_low, at_high

    def _guess(self, delta: float) -> int | None:
        """Estimate the index at which the curve crosses ``delta``, by sums from the top."""
        ahead = self.loss - self.loss[0]
        if ahead[-1] > 500:
            return None
        from_p = self.mass * np.exp(-self.theta * ahead)
        grow = np.exp(ahead)
        from_q = np.cumsum((from_p / grow)[::-1])[::-1]
        curve = np.cumsum(from_p[::-1])[::-1] - grow * from_q
        target = (delta - self.infinity) * math.exp(
            min(self.theta * float(self.loss[0]) - self.log_mgf, 700)
        )
        return len(curve) - int(np.searchsorted(curve[::-1], target))


def compose(
    groups: list[Group],
    saddle: SaddlePoint,
    tolerance: float,
    question: Callable[[ComposedLoss], float] | None = None,
    probe: ComposedLoss | None = None,
) -> ComposedLoss:
    """Compose ``groups`` on a grid on which the error of ``question`` in ln delta is ``tolerance``.

    The error is estimated by the change of the answer on a grid of twice the step, or on the grid
    of ``probe`` if that is coarser. Without a question the saddle point determines the grid.
    """
    count = sum(g.count for g in groups)
    tail = max(math.exp(saddle.log_delta) * HARMLESS / count, 1e-300)
    width = max(saddle.width, 1e-9)
    spans = [g.pair.span(tail) for g in groups]
    finest = max(width, *(high - low for low, high in spans)) / _MAX_POINTS
    # Connecting the dots multiplies E[e^(theta L)] by about 1 + theta (theta + 1) step^2 / 12.
    steepness = saddle.slope * (saddle.slope + 1)
    step = min(math.sqrt(12 * tolerance / (count * steepness)), width / 64)
    gap = min((g.pair.gap for g in groups), default=0.0)
    aligned = gap > 0 and all(g.pair.gap == gap for g in groups)
    while True:
        step = max(step, finest)
        if gap > 0:
            step = gap / math.ceil(gap / step)
        lattices = [_connect_the_dots(g.pair, step, tail) for g in groups]
        composed = _transform(groups, lattices, saddle)
        if question is None or aligned or step <= finest:
            return composed
        if probe is not None and probe.step > 1.9 * step:
            larger, ratio = probe, probe.step / step
        else:
            coarse = [_coarsen(lattice) for lattice in lattices]
            larger, ratio = _transform(groups, coarse, saddle), 2.0
        # The error grows with the square of the step: scale the change to twice the step.
        change = (question(larger) - question(composed)) * 3.0 / (ratio**2 - 1.0)
        if change <= 3.3 * tolerance:
            return composed
        share = math.sqrt(tolerance / change) if change < math.inf else 0.0
        step *= min(max(1.5 * share, 1 / 16), 1 / 2)


def _find_window(
    groups: list[Group], lattices: list[_Lattice], saddle: SaddlePoint
) -> tuple[float, float, float]:
    """Return the ends of the window and a bound on the probability of a loss above it.

    Losses above the window must be rare under P, because they are counted as infinite. Losses so
    high that they wrap around beyond epsilon must be rare after tilting.
    """

    def log_mgf(theta: float) -> float:
        parts = zip(groups, lattices, strict=True)
        return sum(g.count * lattice.log_mgf(theta) for g, lattice in parts)

    at_theta = log_mgf(saddle.theta)
    wrap = log_wrap(at_theta, saddle.theta, saddle.epsilon, saddle.log_delta)
    lows, fars, highs = [], [], []
    for share in (1, 1 / 8):  # the grid has spread the loss, so lower orders may be tighter
        pull, push = share * saddle.pull, share * saddle.push
        order = saddle.theta + share * (saddle.order - saddle.theta)
        # Chernoff: P(L >= x) <= E[e^(s L)] e^(-s x) at order s, and the mirror image below
        lows.append((wrap - log_mgf(saddle.theta - pull) + at_theta) / pull)
        fars.append((log_mgf(saddle.theta + push) - at_theta - wrap) / push)
        highs.append((log_mgf(order) - saddle.log_delta - math.log(HARMLESS)) / order)
    low = min(saddle.epsilon, max(lows))
    high = max(saddle.epsilon, min(highs), min(fars) - (saddle.epsilon - low))
    top = sum(g.count * c.loss[-1] for g, c in zip(groups, lattices, strict=True))
    if high >= top:
        return low, float(top), 0.0
    return low, high, math.exp(saddle.log_delta) * HARMLESS


def _transform(groups: list[Group], lattices: list[_Lattice], saddle: SaddlePoint) -> ComposedLoss:
    """Compose by one real FFT (Koskela, Jalko and Honkela 2020) of the tilted masses."""
    theta, step = saddle.theta, lattices[0].step
    low, high, beyond = _find_window(groups, lattices, saddle)
    if high - low > 8 * _MAX_POINTS * step:  # a useless plan: return the trivial bound
        low, high, beyond = saddle.epsilon, saddle.epsilon + step, 1.0
    start = math.floor(low / step) - 1
    size = fft.next_fast_len(max(math.ceil(high / step) - start + 2, 8), real=True)
    product = None
    length = error = np.zeros(0)  # length: |product|
    log_mgf = log_finite = 0.0
    for group, lattice in zip(groups, lattices, strict=True):
        value, tilted = lattice.tilt(theta)
        log_mgf += group.count * value
        if lattice.infinity == 1:
            log_finite = -math.inf
        else:
            log_finite += group.count * math.log1p(-lattice.infinity)
        # Koskela, Jalko and Honkela 2020: powers of the transform compose equal losses
        factor = fft.rfft(_wrap_around(tilted, lattice.first, size))
        # A factor's error is a few units in the last place of its exponents and butterflies.
        exponents = abs(theta) * float(np.abs(lattice.loss) @ tilted) + abs(value)
        off = group.count * _ULP * (8 * math.log2(size) + 8 + 4 * exponents)
        power = _raise_to_power(factor, group.count)
        modulus, one = np.abs(power), np.abs(factor)
        # |factor|^(count - 1); values too small for a quotient are negligible
        fewer = np.divide(modulus, one, out=np.zeros_like(one), where=one > 1e-300)
        if product is None:
            product, length, error = power, modulus, np.multiply(fewer, off, out=fewer)
        else:
            error = error * modulus + length * off * fewer
            product *= power
            length *= modulus
    assert product is not None, "nothing to compose"
    mass = fft.irfft(product, size)
    length *= _ULP * 8 * math.log2(size)
    error += length
    return ComposedLoss(
        loss=np.arange(start, start + size) * step,
        mass=np.maximum(np.roll(mass, -start), 0.0),
        theta=theta,
        log_mgf=log_mgf,
        infinity=min(1.0, -math.expm1(log_finite) + beyond),
        error=2 * math.sqrt(2 * float(error @ error) / size),
    )


def _wrap_around(mass: Array, first: int, size: int) -> Array:
    """Return ``mass``, whose first index is ``first``, wrapped modulo ``size``."""
    wrapped = np.zeros(size)
    place = first % size
    start = 0
    while start < len(mass):
        part = mass[start : start + size - place]
        wrapped[place : place + len(part)] += part
        start, place = start + len(part), 0
    return wrapped
