"""The data-dependent cost of GNMax as a function of the votes, and how fast it moves with them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, logsumexp, ndtri_exp

__all__ = ["VoteCurve", "gnmax_rdp", "vote_curve"]

Floats = NDArray[np.float64]

_FAR = 38.0  # so far below the place where costs end they are mostly below 1e-300
_POINTS = 4001


def gnmax_rdp(log_q: ArrayLike, sigma: float, orders: ArrayLike) -> Floats:
    """Return the data-dependent Renyi bound of GNMax, at most the data-independent one.

    Parameters
    ----------
    log_q : float or ndarray
        Logarithm of a bound on the probability of an unlikely outcome.
    sigma : float
        Standard deviation of the noise of each count.
    orders : float or ndarray
        Broadcast against ``log_q``.
    """
    a, log_q = np.asarray(orders, dtype=float), np.asarray(log_q, dtype=float)
    # Papernot et al. (2018), proposition 8: without a look at the votes
    plain = a / sigma**2 + np.zeros_like(log_q)
    with np.errstate(all="ignore"):  # what is undefined is not taken
        mu2 = sigma * np.sqrt(-log_q)
        mu1 = mu2 + 1
        e1, e2 = mu1 / sigma**2, mu2 / sigma**2
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
    """Return ln(1 - e^x) for x < 0, to full precision however small the result is."""
    return np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


class VoteCurve:
    """The cost of one vote as a function of x, with the places where its change is largest."""

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
        while self(self.x0 - self.vote - far) > 1e-300:  # of large orders and little noise
            far *= 2
        x = np.linspace(self.x0 - self.vote - far, self.x0 + self.vote, _POINTS)
        cost, after = self(x), self(x + self.vote)
        rises, before = after - cost, x <= self.x1
        tiny = 1e-9 * after + 1e-300  # rounding
        monotone = bool((np.diff(cost) >= -tiny[1:]).all())
        self.regular = monotone and bool((np.diff(rises[before]) >= -tiny[before][1:]).all())
        self.steepest = self.top
        if self.regular:
            self.steepest = float(self.top - self(self.x1))
        elif monotone:  # between two points of the grid the change is at most from end to end
            self.steepest = float((after[1:] - cost[:-1]).max())

    def place(self, gaps: NDArray[Any]) -> Floats:
        """Return x of votes whose winner is ahead by ``gaps``, along the last axis."""
        log_q = logsumexp(log_ndtr(-gaps / (math.sqrt(2) * self.sigma)), axis=-1)
        place: Floats = ndtri_exp(np.minimum(log_q - self.others, 0.0))
        return place

    def local_sensitivity(self, votes: tuple[float, ...], distance: NDArray[Any]) -> Floats:
        """Return how much one more vote can change the cost, ``distance`` votes away from these.

        q is highest where that many votes went from the winner to the runner-up; by convexity no
        other way to move them makes it higher. It is not below where every gap widened by twice as
        many.
        """
        if not self.regular:
            return np.full(distance.shape, self.steepest)
        top, second, *rest = sorted(votes, reverse=True)
        gaps = top - np.array([second, *rest])
        d = distance[..., None]
        closed = gaps - d
        closed[..., 0] -= distance
        high = np.where(gaps[0] >= 2 * distance, self.place(closed), np.inf)
        low = self.place(np.minimum(gaps + 2 * d, sum(votes)))  # no gap is wider than that
        rise = self(high + self.vote) - self(high)
        fall = self.top - self(low - self.vote)
        return np.where(high <= self.x1, rise, np.where(low > self.x0, fall, self.steepest))

    def at_log_q(self, log_q: Floats | float) -> Floats:
        return np.where(log_q <= self._limit, gnmax_rdp(log_q, self.sigma, self.order), self.top)

    def __call__(self, x: ArrayLike) -> Floats:
        return self.at_log_q(self.others + log_ndtr(x))


@lru_cache(maxsize=64)
def vote_curve(sigma: float, n_classes: int, order: float) -> VoteCurve:
    """Return the curve of GNMax with this noise, made once."""
    return VoteCurve(sigma, n_classes, order)
