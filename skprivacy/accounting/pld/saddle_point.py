"""Saddle-point estimate that plans the grid, window and tilt of a composition.

Nothing here is a bound: a bad plan costs accuracy or time, never correctness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from .pairs import Array, Pair

HARMLESS = 1e-5  # share of delta that each source of rounding up may add


@dataclass(frozen=True)
class Group:
    """The same pair, ``count`` times."""

    pair: Pair
    count: int


@dataclass(frozen=True)
class SaddlePoint:
    """Plan of a composition: point of interest, tilt and window."""

    epsilon: float
    log_delta: float
    slope: float  # approximate rate at which ln delta decreases with epsilon
    theta: float  # tilt
    width: float  # approximate width of the window that the composed loss needs
    pull: float  # order at which Chernoff's inequality is tight below the window, after tilting
    push: float  # the same above the window, after tilting
    order: float  # the same above the window, before tilting


class _Cumulants:
    """Log moment generating function of the composed loss, estimated from the pairs' sketches."""

    def __init__(self, groups: list[Group]) -> None:
        self.parts = []
        for group in groups:
            loss, weight, _ = group.pair.sketch()
            keep = weight > 0
            self.parts.append((group.count, loss[keep], np.log(weight[keep])))
        _, _, variance = self(np.array([0.0]))
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


def saddle_point(
    groups: list[Group], *, epsilon: float | None = None, log_delta: float | None = None
) -> SaddlePoint:
    """Plan the search for epsilon at a delta or for delta at an epsilon, or a check of both."""
    cumulants = _Cumulants(groups)
    thetas = np.geomspace(1e-4, 1e2, 100) / cumulants.scale
    logs = np.log(thetas)
    value, mean, variance = cumulants(thetas)
    spread = np.sqrt(variance)
    # delta = e^(K - theta eps) E[e^(-theta Y) - e^(-(theta + 1) Y); Y > 0] for Y about N(0, K'').
    overshoot = erfcx(thetas * spread / 2**0.5) - erfcx((thetas + 1) * spread / 2**0.5)
    log_share = np.log(np.maximum(overshoot / 2, 1e-300))
    if epsilon is None:
        assert log_delta is not None
        saddle = float(np.interp(-log_delta, thetas * mean - value - log_share, logs))
        epsilon = float(np.interp(saddle, logs, mean))
    else:
        saddle = float(np.interp(epsilon, mean, logs))
    if log_delta is None:
        lead = float(np.interp(saddle, logs, value)) - math.exp(saddle) * epsilon
        log_delta = min(0.0, lead) + float(np.interp(saddle, logs, log_share))
    slope = max(math.exp(saddle), 1 / max(float(np.interp(saddle, logs, spread)), 1e-9))
    theta = _tilt(groups, thetas, value, epsilon, log_delta, math.exp(saddle))
    at_theta = float(cumulants(np.array([theta]))[0][0])
    wrap = log_wrap(at_theta, theta, epsilon, log_delta)
    below = (wrap - cumulants(theta - thetas)[0] + at_theta) / thetas
    beyond = cumulants(theta + thetas)[0]
    far = (beyond - at_theta - wrap) / thetas
    above = (beyond - log_delta - math.log(HARMLESS)) / (theta + thetas)
    low = min(epsilon, below.max())
    return SaddlePoint(
        epsilon,
        log_delta,
        slope,
        theta,
        width=float(max(epsilon, above.min(), far.min() - (epsilon - low)) - low),
        pull=float(thetas[below.argmax()]),
        push=float(thetas[far.argmin()]),
        order=float(theta + thetas[above.argmin()]),
    )


def _tilt(
    groups: list[Group],
    thetas: Array,
    value: Array,
    epsilon: float,
    log_delta: float,
    saddle: float,
) -> float:
    """Return the smallest tilt at which the rounding errors of the transforms are negligible."""
    # An error of the tilted masses is multiplied by e^(K - theta epsilon).
    allowed = log_delta + math.log(HARMLESS) - (value - thetas * epsilon)
    rounding = math.log(1e-14 * max(10, sum(g.count for g in groups)))
    enough = np.flatnonzero((allowed >= rounding) & (thetas <= saddle))
    return float(thetas[enough[0]]) if enough.size else saddle


def log_wrap(log_mgf: float, theta: float, epsilon: float, log_delta: float) -> float:
    """Return the logarithm of the tilted mass that may fall outside the window."""
    return min(0.0, log_delta + math.log(HARMLESS) - (log_mgf - theta * epsilon))
