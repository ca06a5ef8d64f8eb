"""Votes of teachers: noisy arg-max and threshold tests, with and without a look at the votes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_ndtr, logsumexp

from ._pairs import GaussianPair
from .events import ApproxDP, Event, positive
from .pld import NoLossDistributionError, pairs
from .rdp import _rdp

__all__ = ["GNMaxVote", "LNMaxVote", "VoteThreshold", "gnmax_rdp"]


@dataclass(frozen=True)
class _VoteEvent(Event, tag=None):
    """A release of what teachers voted; ``votes``, if given, make its cost itself private."""

    noise_multiplier: float
    votes: tuple[float, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        if self.votes is not None:
            votes = tuple(float(v) for v in self.votes)
            if len(votes) < 2 or not all(math.isfinite(v) and v >= 0 for v in votes):
                raise ValueError("votes must be at least two finite counts >= 0.")
            object.__setattr__(self, "votes", votes)

    @property
    def data_dependent(self):
        return self.votes is not None


@dataclass(frozen=True)
class GNMaxVote(_VoteEvent, tag="GNMaxVote", stored=("noise_multiplier", "votes")):
    """The arg-max of vote counts after Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of each count. A record moves one vote from one class to
        another.
    votes : tuple of float, default=None
        The true counts, for the data-dependent bound. That bound is private itself.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", Theorem 6 and Proposition 7.
    """


@dataclass(frozen=True)
class LNMaxVote(_VoteEvent, tag="LNMaxVote", stored=("noise_multiplier", "votes")):
    """The arg-max of vote counts after Laplace noise of scale ``noise_multiplier``.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise on each count, in votes.
    votes : tuple of float, default=None
        Counts of one query. They are private; without them the cost is data-independent.

    References
    ----------
    Papernot et al. (2017), "Semi-supervised knowledge transfer for deep learning from private
    training data".
    """


@dataclass(frozen=True)
class VoteThreshold(
    _VoteEvent, tag="VoteThreshold", stored=("noise_multiplier", "votes", "threshold")
):
    """The test of Confident-GNMax: is the largest count, plus Gaussian noise, above a threshold?

    Charged on every query, answered or not.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of the largest count.
    votes : tuple of float, default=None
    threshold : float, default=None
        Needed with ``votes``.
    """

    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.votes is not None and self.threshold is None:
            raise ValueError("threshold=None must be given with votes.")


def gnmax_rdp(log_q, sigma: float, orders):
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
    plain = a / sigma**2 + np.zeros_like(log_q)
    with np.errstate(all="ignore"):  # what is undefined is not taken
        mu2 = sigma * np.sqrt(-log_q)
        mu1 = mu2 + 1
        e1, e2 = mu1 / sigma**2, mu2 / sigma**2
        most = (mu2 - 1) * e2 - mu2 * (np.log(mu1 / (mu1 - 1)) + np.log(mu2 / (mu2 - 1)))
        holds = (mu1 > a) & (mu2 > 1) & (-log_q > e2) & (log_q <= most)
        log_a = log1m_exp(log_q) - log1m_exp((log_q + e2) * (mu2 - 1) / mu2)
        log_b = e1 - log_q / (mu1 - 1)
        terms = log1m_exp(log_q) + (a - 1) * log_a, log_q + (a - 1) * log_b
        value = np.logaddexp(*terms) / (a - 1)
    value = np.where(holds, np.minimum(np.maximum(value, 0), plain), plain)
    return np.where(log_q == -np.inf, 0.0, value)


def log1m_exp(x):
    """Return ln(1 - e^x) for x < 0, to full precision however small the result is."""
    return np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x)))


def log_unlikely(event: GNMaxVote | VoteThreshold) -> float:
    """Return ln q, where q bounds the probability of an outcome that the votes do not suggest."""
    sigma, votes = event.noise_multiplier, event.votes
    assert votes is not None
    if isinstance(event, VoteThreshold):
        assert event.threshold is not None
        return float(log_ndtr(-abs(max(votes) - event.threshold) / sigma))
    top, *rest = sorted(votes, reverse=True)
    log_q = logsumexp(log_ndtr(-(top - np.array(rest)) / (math.sqrt(2) * sigma)))
    return min(float(log_q), math.log1p(-1 / len(votes)))


@_rdp.register
def _(event: GNMaxVote, orders, relation):
    sigma = event.noise_multiplier
    return (
        orders / sigma**2 if event.votes is None else gnmax_rdp(log_unlikely(event), sigma, orders)
    )


@_rdp.register
def _(event: VoteThreshold, orders, relation):
    sigma = math.sqrt(2) * event.noise_multiplier
    return (
        orders / sigma**2 if event.votes is None else gnmax_rdp(log_unlikely(event), sigma, orders)
    )


@_rdp.register
def _(event: LNMaxVote, orders, relation):
    a, pure = orders, 2 / event.noise_multiplier
    plain = np.minimum(a * pure**2 / 2, pure)
    if event.votes is None:
        return plain
    top, *rest = sorted(event.votes, reverse=True)
    gaps = (top - np.array(rest)) / event.noise_multiplier
    q = float(((2 + gaps) / (4 * np.exp(gaps))).sum())
    if not 0 < q <= 1 / (math.exp(pure) + 1):
        return plain
    log_good = math.log1p(-q) + (a - 1) * (math.log1p(-q) - math.log1p(-math.exp(pure) * q))
    value = np.logaddexp(log_good, math.log(q) + pure * (a - 1)) / (a - 1)
    return np.minimum(plain, np.maximum(value, 0))


def _independent(event):
    if event.votes is not None:
        raise NoLossDistributionError(
            "Data-dependent bounds are known to Renyi accounting only: a dominating pair speaks of "
            "all votes there might be. Leave votes out, or use rdp."
        )


@pairs.register
def _(event: GNMaxVote, relation):
    _independent(event)
    pair = GaussianPair(event.noise_multiplier / math.sqrt(2))
    return pair, pair


@pairs.register
def _(event: VoteThreshold, relation):
    _independent(event)
    pair = GaussianPair(event.noise_multiplier)
    return pair, pair


@pairs.register
def _(event: LNMaxVote, relation):
    _independent(event)
    return pairs(ApproxDP(2 / event.noise_multiplier), relation)
