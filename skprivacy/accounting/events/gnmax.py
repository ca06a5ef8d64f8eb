"""Data-dependent cost of GNMax as a function of the votes, and its local sensitivity."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, logsumexp, ndtri_exp

Floats = NDArray[np.float64]

_FAR = 38.0  # distance in x below x0 at which most costs are below 1e-300
_CURVE_POINTS = 4001


def gnmax_rdp(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> Floats:
    """Return the data-dependent Renyi bound of GNMax; q bounds P(another winner)."""
    a, log_q = np.asarray(orders, dtype=float), np.asarray(log_q, dtype=float)
    # Papernot et al. 2018, Proposition 8: the data-independent bound
    plain = a / sigma**2 + np.zeros_like(log_q)
    with np.errstate(all="ignore"):  # undefined values are not used: ``holds`` is False there
        # Papernot et al. 2018, Proposition 10: near-optimal orders mu1 and mu2
        mu2 = sigma * np.sqrt(-log_q)
        mu1 = mu2 + 1
        e1, e2 = mu1 / sigma**2, mu2 / sigma**2
        # Theorem 6: its conditions on mu1, mu2 and q
        most = (mu2 - 1) * e2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1)))
        holds = (mu1 > a) & (mu2 > 1) & (-log_q > e2) & (log_q <= most)
        # Theorem 6: A, B and the sum of both
        log_a = _log1m_exp(log_q) - _log1m_exp((log_q + e2) * (mu2 - 1) / mu2)
        log_b = e1 - log_q / (mu1 - 1)
        terms = _log1m_exp(log_q) + (a - 1) * log_a, log_q + (a - 1) * log_b
        value = np.logaddexp(*terms) / (a - 1)
    value = np.where(holds, np.minimum(np.maximum(value, 0), plain), plain)
    return np.where(log_q == -np.inf, 0.0, value)


def _log1m_exp(x: Floats) -> Floats:
    """Return ln(1 - e^x) for x < 0, to full precision even for tiny results."""
    return np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


class VoteCurve:
    """Cost of one GNMax vote as a function of x = Phi^-1(q / (m - 1)), and its largest change."""

    def __init__(self, sigma: float, n_classes: int, order: float) -> None:
        self.sigma, self.order, self.others = sigma, order, math.log(n_classes - 1)
        self.top, self.vote = order / sigma**2, math.sqrt(2) / sigma
        self._limit = min(-((order / sigma) ** 2), math.log1p(-1 / n_classes))
        high = float(ndtri_exp(self._limit - self.others))
        low = high if self(high) < self.top else min(high, -1.0)
        while self(low) >= self.top:
            low *= 2
        while high - low > 1e-12:
            middle = (low + high) / 2
            low, high = (middle, high) if self(middle) < self.top else (low, middle)
        self.x0, self.x1 = low, low - self.vote
        far = _FAR
        while self(self.x0 - self.vote - far) > 1e-300:  # for large orders and little noise
            far *= 2
        x = np.linspace(self.x0 - self.vote - far, self.x0 + self.vote, _CURVE_POINTS)
        cost, after = self(x), self(x + self.vote)
        # Papernot et al. 2018, conditions C5 and C6, checked on the grid
        rises, before = after - cost, x <= self.x1
        tiny = 1e-9 * after + 1e-300  # rounding
        monotone = bool((np.diff(cost) >= -tiny[1:]).all())
        self.meets_conditions = monotone and bool(
            (np.diff(rises[before]) >= -tiny[before][1:]).all()
        )
        self.largest_change = self.top
        if self.meets_conditions:
            self.largest_change = float(self.top - self(self.x1))
        elif monotone:  # within a cell the change is at most the one from end to end
            self.largest_change = float((after[1:] - cost[:-1]).max())

    def to_x(self, gaps: NDArray[Any]) -> Floats:
        """Return x for votes whose winner leads by ``gaps``, along the last axis."""
        log_q = logsumexp(log_ndtr(-gaps / (math.sqrt(2) * self.sigma)), axis=-1)
        x: Floats = ndtri_exp(np.minimum(log_q - self.others, 0.0))
        return x

    def local_sensitivity(self, votes: tuple[float, ...], distance: NDArray[Any]) -> Floats:
        """Return the change of the cost by one more vote, ``distance`` votes away from ``votes``.

        Let d be the distance. By convexity q is highest if d votes went from the winner to the
        runner-up. It is never below its value for gaps that are all wider by 2 d.
        """
        # Papernot et al. 2018, Algorithm 3, over all data sets at each distance
        if not self.meets_conditions:
            return np.full(distance.shape, self.largest_change)
        top, second, *rest = sorted(votes, reverse=True)
        gaps = top - np.array([second, *rest])
        d = distance[..., None]
        closed = gaps - d
        closed[..., 0] -= distance
        high = np.where(gaps[0] >= 2 * distance, self.to_x(closed), np.inf)
        low = self.to_x(np.minimum(gaps + 2 * d, sum(votes)))  # the widest possible gap
        rise = self(high + self.vote) - self(high)
        fall = self.top - self(low - self.vote)
        return np.where(high <= self.x1, rise, np.where(low > self.x0, fall, self.largest_change))

    def at_log_q(self, log_q: Floats | float) -> Floats:
        return np.where(log_q <= self._limit, gnmax_rdp(log_q, self.sigma, self.order), self.top)

    def __call__(self, x: ArrayLike) -> Floats:
        return self.at_log_q(self.others + log_ndtr(x))


@lru_cache(maxsize=64)
def vote_curve(sigma: float, n_classes: int, order: float) -> VoteCurve:
    """Return the cached curve of GNMax with this noise."""
    return VoteCurve(sigma, n_classes, order)
