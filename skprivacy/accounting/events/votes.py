"""Votes of teachers: noisy arg-max and threshold tests, with and without a look at the votes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from .._checks import number, numbers, positive, whole
from .._event import Event, LocalBound, NoLossDistributionError, Orders, Pairs
from .._renyi import rdp
from .._work import CLOSED_FORM_WORK
from ..pld.pairs import GaussianPair, both, pure_pair
from ._vote_curve import gnmax_rdp, vote_curve

__all__ = ["GNMaxVote", "LNMaxVote", "VoteThreshold"]

Floats = NDArray[np.float64]

_WORK_PER_VOTE = 100


@dataclass(frozen=True)
class _VoteEvent(Event, tag=None):
    """A release of what teachers voted; ``votes``, if given, make its cost itself private.

    Votes of which a neighbour moves m cost what one moved vote costs with an m-th of the noise: the
    distance between counts is at most m times that of one move, and is so where all m go from one
    class to one other.
    """

    noise_multiplier: float
    votes: tuple[float, ...] | None = field(default=None, repr=False)
    moved: int = field(default=1, kw_only=True)

    @classmethod
    def upgraded(cls, stored: dict[str, Any], version: int) -> dict[str, Any]:
        """Return what version 1 stored, where a neighbour always moved one vote.

        Parameters
        ----------
        stored : dict
            The fields as version 1 stored them.
        version : int
            The version that was stored.

        Returns
        -------
        dict
            The fields of today's version.
        """
        return {**stored, "moved": 1}

    @property
    def _per_vote(self) -> float:
        """Noise with which one moved vote costs as much as ``moved`` votes do with theirs."""
        return self.noise_multiplier / self.moved

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        whole("moved", self.moved)
        if self.votes is not None:
            votes = numbers("votes", self.votes)
            if len(votes) < 2 or not all(math.isfinite(v) and v >= 0 for v in votes):
                raise ValueError("votes must be at least two finite counts >= 0.")
            object.__setattr__(self, "votes", votes)

    @property
    def data_dependent(self) -> bool:
        return self.votes is not None

    def work(self) -> float:
        # The sensitivity of a data-dependent cost is looked up for each number of moved votes.
        return CLOSED_FORM_WORK + _WORK_PER_VOTE * math.fsum(self.votes or ())

    def grouped(self, size: int) -> _VoteEvent:
        return replace(self, moved=size * self.moved)

    def _without_votes(self) -> None:
        if self.votes is not None:
            raise NoLossDistributionError(
                "Data-dependent bounds are known to Renyi accounting only: a dominating pair "
                "speaks of all votes there might be. Leave votes out, or use rdp."
            )

    def _one_moved(self) -> None:
        if self.moved != 1:
            raise TypeError(
                f"moved={self.moved!r}: the smooth sensitivity of a data-dependent cost is known "
                "for neighbours that move one vote. Account for it without votes."
            )


@dataclass(frozen=True)
class GNMaxVote(
    _VoteEvent,
    tag="GNMaxVote",
    stored=("noise_multiplier", "votes", "moved"),
    version=2,
    knows_label=True,
):
    """The arg-max of vote counts after Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of each count.
    votes : tuple of float, default=None
        The true counts, for the data-dependent bound. That bound is private itself.
    moved : int, default=1
        How many votes a neighbouring data set moves: 2 where a replaced record leaves one teacher
        and comes to another.

    Notes
    -----
    What it covers is the whole noisy histogram. If only the winners of a declared number of queries
    are released, :class:`VoteBlock` costs less.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", Theorem 6 and Proposition 7.
    """

    def renyi(self, orders: Orders, relation: str) -> Orders:
        if self.votes is None:
            return orders / self._per_vote**2
        # The theorem asks for the Renyi bounds of noise, and for what the votes make unlikely.
        log_q = _log_unlikely(self.votes, self.noise_multiplier)
        return gnmax_rdp(log_q, self._per_vote, orders)

    def dominating_pairs(self, relation: str) -> Pairs:
        self._without_votes()
        return both(GaussianPair(self._per_vote / math.sqrt(2)))

    def zcdp(self, relation: str) -> float:
        return 1 / self._per_vote**2

    def local_bound(self, order: float) -> LocalBound | None:
        if self.votes is None:
            return None
        self._one_moved()
        curve = vote_curve(self.noise_multiplier, len(self.votes), order)
        cost = float(curve.at_log_q(_log_unlikely(self.votes, self.noise_multiplier)))
        sensitivity = partial(curve.local_sensitivity, self.votes)
        return LocalBound(cost, sensitivity, math.ceil(sum(self.votes)))


@dataclass(frozen=True)
class LNMaxVote(
    _VoteEvent,
    tag="LNMaxVote",
    stored=("noise_multiplier", "votes", "moved"),
    version=2,
    knows_label=True,
):
    """The arg-max of vote counts after Laplace noise of scale ``noise_multiplier``.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise on each count, in votes.
    votes : tuple of float, default=None
        Counts of one query. They are private; without them the cost is data-independent.
    moved : int, default=1
        How many votes a neighbouring data set moves: 2 where a replaced record leaves one teacher
        and comes to another.

    Notes
    -----
    What it covers is the whole noisy histogram. If only the winners of a declared number of queries
    are released, :class:`VoteBlock` costs little more than half.

    References
    ----------
    Papernot et al. (2017), "Semi-supervised knowledge transfer for deep learning from private
    training data".
    """

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Papernot et al. (2017), theorem 2: pure 2 gamma, where gamma is 1 / noise
        a, pure = orders, 2 / self._per_vote
        plain = np.minimum(a * pure**2 / 2, pure)
        if self.votes is None:
            return plain
        top, *rest = sorted(self.votes, reverse=True)
        gaps = (top - np.array(rest)) / self.noise_multiplier
        # Papernot et al. (2017), lemma 4: q bounds the probability of any other outcome
        q = float(((2 + gaps) / (4 * np.exp(gaps))).sum())
        if not 0 < q <= 1 / (math.exp(pure) + 1):
            return plain
        # Theorem 3, of moments l = order - 1, divided by l
        log_good = math.log1p(-q) + (a - 1) * (math.log1p(-q) - math.log1p(-math.exp(pure) * q))
        value = np.logaddexp(log_good, math.log(q) + pure * (a - 1)) / (a - 1)
        return np.minimum(plain, np.maximum(value, 0))

    def dominating_pairs(self, relation: str) -> Pairs:
        self._without_votes()
        return both(pure_pair(2 / self._per_vote))


@dataclass(frozen=True)
class VoteThreshold(
    _VoteEvent,
    tag="VoteThreshold",
    stored=("noise_multiplier", "votes", "moved", "threshold", "offset"),
    version=2,
    knows_label=True,
):
    """The test of Confident-GNMax: is the largest count, plus Gaussian noise, above a threshold?

    Charged on every query, answered or not. With ``offset`` it is the test of Interactive-GNMax:
    does some class have so many more votes than the student expects?

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of the largest count.
    votes : tuple of float, default=None
        The true counts, for the data-dependent bound. That bound is private itself.
    threshold : float, default=None
        Needed with ``votes``.
    offset : tuple of float, default=None
        Public numbers, one for each class, that are taken off the counts before the largest is
        looked for. What is left may be negative.
    moved : int, default=1
        How many votes a neighbouring data set moves: 2 where a replaced record leaves one teacher
        and comes to another.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", algorithms 1 and 2.
    """

    threshold: float | None = None
    offset: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.votes is not None and self.threshold is None:
            raise ValueError("threshold=None must be given with votes.")
        if self.threshold is not None:
            number("threshold", self.threshold, "a finite number")
            if not math.isfinite(self.threshold):
                raise ValueError(f"threshold={self.threshold!r} must be a finite number.")
        if self.offset is not None:
            offset = numbers("offset", self.offset)
            fits = self.votes is None or len(offset) == len(self.votes)
            if not fits or not all(math.isfinite(v) for v in offset):
                raise ValueError(
                    f"offset={self.offset!r} must hold a finite number for each class of votes."
                )
            object.__setattr__(self, "offset", offset)

    @classmethod
    def upgraded(cls, stored: dict[str, Any], version: int) -> dict[str, Any]:
        """Return what version 1 stored, where nothing was taken off the counts.

        Parameters
        ----------
        stored : dict
            The fields as version 1 stored them.
        version : int
            The version that was stored.

        Returns
        -------
        dict
            The fields of today's version.
        """
        return {**super().upgraded(stored, version), "offset": None}

    def renyi(self, orders: Orders, relation: str) -> Orders:
        sigma = math.sqrt(2) * self._per_vote
        if self.votes is None:
            return orders / sigma**2
        largest = max(np.subtract(self.votes, self.offset or 0.0))
        return gnmax_rdp(self._log_q(largest), sigma, orders)

    def dominating_pairs(self, relation: str) -> Pairs:
        self._without_votes()
        return both(GaussianPair(self._per_vote))

    def zcdp(self, relation: str) -> float:
        return 1 / (2 * self._per_vote**2)

    def local_bound(self, order: float) -> LocalBound | None:
        if self.votes is None:
            return None
        self._one_moved()
        if self.offset is not None:  # what is left of the counts moves by less than whole steps
            raise TypeError(
                f"offset={self.offset!r}: the smooth sensitivity of a threshold test is known for "
                "the counts themselves. Account for it without votes."
            )
        cost = float(rdp(self, [order])[0])
        sensitivity = partial(self._local_sensitivity, self.votes, order)
        return LocalBound(cost, sensitivity, math.ceil(sum(self.votes)))

    def _log_q(self, largest: Floats | float) -> Floats:
        assert self.threshold is not None
        log_q: Floats = log_ndtr(-np.abs(largest - self.threshold) / self.noise_multiplier)
        return log_q

    def _local_sensitivity(
        self, votes: tuple[float, ...], order: float, distance: NDArray[Any]
    ) -> Floats:
        """Take the largest change among all counts within reach: they are whole steps apart.

        Only counts that can occur are looked at. The sum over distances ends where all of them are
        within reach; a change beyond would be in reach of one data set and not of the next.
        """
        reach = int(distance.max(initial=0)) + 1
        counts = np.clip(max(votes) + np.arange(-reach, reach + 1), 0.0, sum(votes))
        sigma = math.sqrt(2) * self.noise_multiplier
        change = np.abs(np.diff(gnmax_rdp(self._log_q(counts), sigma, order)))
        # change[reach - 1 - d : reach + 1 + d] are the steps to be made from within distance d
        steps = np.maximum(change[reach - 1 :: -1], change[reach:])
        within: Floats = np.maximum.accumulate(steps)[distance]
        return within


def _log_unlikely(votes: tuple[float, ...], sigma: float) -> float:
    """Return ln q, where q bounds the probability of an outcome that the votes do not suggest."""
    # Papernot et al. (2018), proposition 7
    top, *rest = sorted(votes, reverse=True)
    log_q = logsumexp(log_ndtr(-(top - np.array(rest)) / (math.sqrt(2) * sigma)))
    return min(float(log_q), math.log1p(-1 / len(votes)))
