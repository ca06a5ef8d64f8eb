"""Composition of privacy losses: pessimistic grids, exponential tilting and one real FFT.

**Never below the truth.** Three things are rounded up, and everything else is exact:

- *Grid.* The P- and Q-mass of every grid cell are exact differences of distribution functions.
  They are split onto the two ends of the cell so that both are preserved ("connect the dots":
  Doroshenko et al. 2022, arXiv:2207.04380), which joins the points of the hockey-stick curve by
  straight lines, and so never lies below it.
- *Window.* Loss above the window is bounded by Chernoff's inequality and counted as infinite.
  Loss below it reappears at the top, where it only adds.
- *Rounding.* A bound on the error of the transforms is added to delta.

**Tilting.** The masses are multiplied by exp(theta * loss) and normalised before the transform,
which moves the loss of interest to the middle of the distribution. Without it the transform's
error, some 1e-16 per step, would drown a delta of 1e-12.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.special import erfcx, logsumexp

from ._pairs import Array, Pair

__all__ = ["Composed", "Group", "Plan", "compose", "plan"]

_ULP = 2.0**-53
_TAIL = 1e-5  # share of delta that may be lost at the top of each distribution
_WRAP = 1e-10  # tilted probability that may reappear at the top
_LARGEST = 1 << 22  # points of the largest transform


@dataclass(frozen=True)
class Group:
    """The same pair, ``count`` times."""

    pair: Pair
    count: int


@dataclass(frozen=True)
class Plan:
    """Where to look, and how closely."""

    epsilon: float  # an estimate, or what was asked for
    theta: float  # the tilt
    slope: float  # how fast ln delta falls with epsilon, about
    low: float  # the window of the composed loss
    high: float
    chernoff: float  # the order of Chernoff's inequality at the top of the window
    log_delta: float  # an estimate, or what was asked for


class _Cumulants:
    """The composed loss's log moment generating function, estimated from the pairs' sketches."""

    def __init__(self, groups: list[Group]) -> None:
        self.parts = []
        for group in groups:
            loss, weight, _ = group.pair.sketch()
            keep = weight > 0
            self.parts.append((group.count, loss[keep], np.log(weight[keep])))
        tiny = np.array([0.0])
        _, _, variance = self(tiny)
        self.scale = max(math.sqrt(float(variance[0])), 1e-9)

    def __call__(self, theta: Array) -> tuple[Array, Array, Array]:
        """Return the function and its first two derivatives."""
        value, first, second = (np.zeros(len(theta)) for _ in range(3))
        for count, loss, log_weight in self.parts:
            terms = np.outer(theta, loss) + log_weight
            top = terms.max(axis=1)
            terms = np.exp(terms - top[:, None])
            total = terms.sum(axis=1)
            mean = terms @ loss / total
            value += count * (top + np.log(total))
            first += count * mean
            second += count * np.maximum(terms @ loss**2 / total - mean**2, 0)
        return value, first, second


def plan(groups: list[Group], *, delta: float | None = None, epsilon: float | None = None) -> Plan:
    """Estimate where delta is reached (or what is reached at epsilon) by a saddle point."""
    cumulants = _Cumulants(groups)
    thetas = np.geomspace(1e-4, 1e2, 100) / cumulants.scale
    value, mean, variance = cumulants(thetas)
    spread = np.sqrt(variance)
    # delta = e^(K - theta eps) E[e^(-theta Y) - e^(-(theta + 1) Y); Y > 0] for Y about N(0, K'').
    overshoot = erfcx(thetas * spread / 2**0.5) - erfcx((thetas + 1) * spread / 2**0.5)
    log_share = np.log(np.maximum(overshoot / 2, 1e-300))
    if delta is not None:
        log_delta = math.log(delta)
        found = np.interp(-log_delta, thetas * mean - value - log_share, np.log(thetas))
        epsilon = float(np.interp(found, np.log(thetas), mean))
    else:
        assert epsilon is not None
        found = np.interp(epsilon, mean, np.log(thetas))
    theta = float(np.exp(found))
    at_theta = float(cumulants(np.array([theta]))[0][0])
    if delta is None:
        share = float(np.interp(found, np.log(thetas), log_share))
        log_delta = min(0.0, at_theta - theta * epsilon) + share
    below = (math.log(_WRAP) - cumulants(theta - thetas)[0] + at_theta) / thetas
    low = min(epsilon, float(below.max()))
    # What lies above the window must be rare under P, because it is counted as infinite loss, and
    # rare when tilted if it is so high that it reappears not only above low but above epsilon.
    orders = theta + thetas
    beyond = cumulants(orders)[0]
    above = (beyond - log_delta - math.log(_TAIL)) / orders
    far = float(((beyond - at_theta - math.log(_WRAP)) / thetas).min())
    high = max(epsilon, float(above.min()), far - (epsilon - low))
    ceiling = sum(g.count * g.pair.max_loss for g in groups)
    slope = max(theta, 1 / max(float(np.interp(found, np.log(thetas), spread)), 1e-9))
    order = float(orders[np.argmin(above)])
    return Plan(epsilon, theta, slope, low, min(high, ceiling), order, log_delta)


@dataclass(frozen=True)
class _Lattice:
    """Masses under P at ``(first + i) * step``, and at infinity."""

    first: int
    mass: Array
    infinity: float

    def log_mgf(self, theta: float, step: float) -> tuple[float, Array, Array]:
        """Return ln E[e^(theta L)], the tilted masses and their losses."""
        loss = (self.first + np.arange(len(self.mass))) * step
        with np.errstate(divide="ignore"):
            terms = theta * loss + np.log(self.mass)
        value = float(logsumexp(terms))
        return value, np.exp(terms - value), loss


def _connect_the_dots(pair: Pair, step: float, tail: float) -> _Lattice:
    low, high = pair.span(tail)
    high = min(high, pair.max_loss)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    edges = np.arange(first, last + 1) * step
    p, q = pair.masses(edges)
    inner_p, inner_q, left = p[1:-1], q[1:-1], edges[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        from_q = np.where(inner_q > 0, inner_q * np.exp(left), 0.0)
    # A cell's mass is a difference of numbers that may be much larger than itself.
    with np.errstate(over="ignore", invalid="ignore"):
        level = _nearer_tail(p) + np.nan_to_num(_nearer_tail(q) * np.exp(left), posinf=0.0)
    slack = 8 * _ULP * (inner_p + from_q + level)
    up = np.clip((inner_p - from_q + slack) / -math.expm1(-step), 0.0, inner_p)
    mass = np.zeros(len(edges))
    mass[1:] = up
    mass[:-1] += inner_p - up
    mass[0] += p[0]
    beyond = 0.0 if high >= pair.max_loss else float(p[-1])
    mass[-1] += p[-1] if high >= pair.max_loss else 0.0
    return _Lattice(first, mass, min(1.0, pair.infinity + beyond))


def _nearer_tail(masses: Array) -> Array:
    """Return, for each inner cell, the mass on its left or on its right, whichever is less."""
    right = np.cumsum(masses[::-1])[::-1]
    return np.minimum(np.cumsum(masses)[1:-1], right[1:-1])


def _coarsened(lattice: _Lattice, step: float) -> _Lattice:
    """Return the same losses on a grid of twice the step, again connecting the dots."""
    offset = lattice.first % 2
    size = offset + len(lattice.mass)
    padded = np.zeros(size + 1 - size % 2)
    padded[offset:size] = lattice.mass
    # A point half way between two others goes up with this share, which preserves P and Q.
    up = 1 / (1 + math.exp(-step))
    even, odd = padded[::2].copy(), padded[1::2]
    even[1:] += up * odd
    even[:-1] += (1 - up) * odd
    return _Lattice((lattice.first - offset) // 2, even, lattice.infinity)


def _power(base: Array, exponent: int) -> Array:
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        exponent >>= 1
        if exponent:
            base = base * base
    assert result is not None
    return result


@dataclass(frozen=True)
class Composed:
    """The composed loss on a grid, tilted: an upper bound on the hockey-stick curve.

    Attributes
    ----------
    loss : ndarray of shape (n_points,)
    mass : ndarray of shape (n_points,)
        Tilted probabilities.
    theta, log_mgf : float
        The tilt, and the logarithm of its normaliser.
    infinity : float
        Probability of infinite loss, not tilted.
    error : float
        A bound on the Euclidean norm of the error of ``mass``.
    """

    loss: Array
    mass: Array
    theta: float
    log_mgf: float
    infinity: float
    error: float

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta at ``epsilon``."""
        start = int(np.searchsorted(self.loss, epsilon, side="right"))
        ahead = self.loss[start:] - epsilon
        weight = np.exp(-self.theta * ahead) * -np.expm1(-ahead)
        tilted = float(weight @ self.mass[start:]) + self.error * float(np.linalg.norm(weight))
        if tilted == 0:
            return self.infinity
        log_delta = self.log_mgf - self.theta * epsilon + math.log(tilted)
        return min(1.0, math.exp(min(log_delta, 0.0)) + self.infinity)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which :meth:`delta` is at most ``delta``."""
        if self.infinity >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        if self.delta(float(self.loss[-1])) > delta:
            return math.inf
        grid = np.maximum(self.loss, 0.0)
        low, high = 0, len(grid) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.delta(grid[middle]) > delta else (low, middle)
        # Within a cell the curve is a straight line in e^epsilon, and its error term falls.
        left, right = float(grid[low]), float(grid[high])
        at_left, at_right = self.delta(left), self.delta(right)
        share = (at_left - delta) / (at_left - at_right)
        return min(right, left + math.log1p(share * math.expm1(right - left)))


def compose(
    groups: list[Group],
    plan: Plan,
    tolerance: float,
    question: Callable[[Composed], float],
) -> Composed:
    """Compose ``groups`` on a grid so fine that ``question`` is answered to about ``tolerance``.

    The answer, in units of ln delta, on a grid of twice the step tells how good it is.
    """
    count = sum(g.count for g in groups)
    tail = max(math.exp(plan.log_delta) * _TAIL / count, 1e-300)
    width = max(plan.high - plan.low, 1e-9)
    # Connecting the dots multiplies E[e^(theta L)] by about 1 + theta (theta + 1) step^2 / 12.
    steepness = max(plan.theta * (plan.theta + 1), plan.slope**2)
    step = min(math.sqrt(12 * tolerance / (count * steepness)), width / 64)
    gap = min((g.pair.gap for g in groups), default=0.0)
    aligned = gap > 0 and all(g.pair.gap == gap for g in groups)
    while True:
        step = max(step, width / _LARGEST)
        if gap > 0:
            step = gap / math.ceil(gap / step)
        lattices = [_connect_the_dots(g.pair, step, tail) for g in groups]
        composed = _transform(groups, lattices, plan, step)
        if aligned or step <= width / _LARGEST:
            return composed
        coarse = [_coarsened(lattice, step) for lattice in lattices]
        change = question(_transform(groups, coarse, plan, 2 * step)) - question(composed)
        if change <= 3.3 * tolerance:
            return composed
        ratio = math.sqrt(tolerance / change) if change < math.inf else 0.0
        step *= min(max(1.5 * ratio, 1 / 16), 1 / 2)


def _transform(groups: list[Group], lattices: list[_Lattice], plan: Plan, step: float) -> Composed:
    theta = plan.theta
    start = math.floor(plan.low / step) - 1
    size = fft.next_fast_len(math.ceil(plan.high / step) - start + 2, real=True)
    product, error = np.ones(size // 2 + 1, dtype=complex), np.zeros(size // 2 + 1)
    log_mgf, chernoff, log_finite = 0.0, -plan.chernoff * (start + size) * step, 0.0
    top = sum(g.count * (c.first + len(c.mass) - 1) for g, c in zip(groups, lattices, strict=True))
    for group, lattice in zip(groups, lattices, strict=True):
        value, tilted, loss = lattice.log_mgf(theta, step)
        log_mgf += group.count * value
        chernoff += group.count * lattice.log_mgf(plan.chernoff, step)[0]
        if lattice.infinity == 1:
            log_finite = -math.inf
        else:
            log_finite += group.count * math.log1p(-lattice.infinity)
        place = (lattice.first + np.arange(len(tilted))) % size
        factor = fft.rfft(np.bincount(place, tilted, size))
        # One factor is off by a few units in the last place of its exponents and butterflies.
        exponents = float(np.abs(theta * loss) @ tilted) + abs(value)
        off = group.count * _ULP * (8 * math.log2(size) + 8 + 4 * exponents)
        power = _power(factor, group.count)
        size_of_error = off * np.abs(factor) ** (group.count - 1)
        error = error * np.abs(power) + np.abs(product) * size_of_error
        product = product * power
    beyond = math.exp(min(chernoff, 0.0)) if top >= start + size else 0.0
    mass = fft.irfft(product, size)
    error += _ULP * 8 * math.log2(size) * np.abs(product)
    order = np.arange(start, start + size)
    return Composed(
        loss=order * step,
        mass=np.maximum(mass[order % size], 0.0),
        theta=theta,
        log_mgf=log_mgf,
        infinity=min(1.0, -math.expm1(log_finite) + beyond),
        error=2 * math.sqrt(2 * float(np.square(error).sum()) / size),
    )
