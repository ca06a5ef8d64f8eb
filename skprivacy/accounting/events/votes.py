"""Events of PATE votes: noisy arg-max and threshold tests (Papernot et al. 2017 and 2018).

Each vote has a data-independent and a data-dependent cost. :class:`VoteBlockEvent` is a declared
number of noisy arg-max queries of which only the winners are released.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from ..._docs import fill_docs
from ..._validation import is_number, positive, whole
from ..event import Event, LocalBound, NoLossDistributionError, Orders, Pairs, numbers
from ..pld.argmax import LONGEST, argmax_pair, is_covered
from ..pld.pairs import GaussianPair, pure_pair, symmetric_pairs
from ..renyi import rdp
from ..work_limit import CLOSED_FORM_WORK, COMPOSITIONS_PER_CURVE, CURVE_WORK
from .composition import RepeatedEvent
from .gnmax import gnmax_rdp, vote_curve

VOTE_DOCS = {
    "votes": """\
votes : tuple of float, default=None
    True counts, for the data-dependent bound, which is private itself.""",
    "moved": """\
moved : int, default=1
    Number of votes that a neighbouring data set moves: 2 if a replaced record leaves one teacher
    and joins another.""",
}
Floats = NDArray[np.float64]
_WORK_PER_VOTE = 100
_WORK_PER_QUERY = 1e6  # for the recursion: 10 s for 1,024 queries
# At equal cost, let r be the noise of a block of n queries divided by the noise of n votes with
# public counts. Then r is about a + b n**-.82, with a and b below, which were fitted to 3e-4 from
# 30 queries on (Laplace noise: to 6e-3). In the limit r is sqrt(2 / pi) for tests, and sqrt(1 / 3)
# with Laplace noise.
_NOISE_RATIOS = {"gnmax": (0.8005, 0.314), "lnmax": (0.576, 0.1), "threshold": (0.7984, 0.314)}


@dataclass(frozen=True)
class _VoteEvent(Event, tag=None):
    """Base of teachers' votes; with ``votes`` the cost is data-dependent, and private itself.

    If a neighbour moves m votes, the cost is the cost of one moved vote at 1/m of the noise. The
    counts then differ by at most m times the distance of one move, which is attained if all m votes
    go from one class to one other class.
    """

    noise_multiplier: float
    votes: tuple[float, ...] | None = field(default=None, repr=False)
    moved: int = field(default=1, kw_only=True)

    @property
    def _noise_per_move(self) -> float:
        """Noise at which one moved vote costs as much as ``moved`` votes at the given noise."""
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
        # A data-dependent cost has one local sensitivity for each number of moved votes.
        return CLOSED_FORM_WORK + _WORK_PER_VOTE * math.fsum(self.votes or ())

    def grouped(self, size: int) -> _VoteEvent:
        return replace(self, moved=size * self.moved)

    def _refuse_votes(self) -> None:
        if self.votes is not None:
            raise NoLossDistributionError(
                "Only Renyi accounting has data-dependent bounds: a dominating pair covers all "
                "possible votes. Leave votes out, or use rdp."
            )

    def _require_one_moved(self) -> None:
        if self.moved != 1:
            raise TypeError(
                f"moved={self.moved!r} must be 1 for the smooth sensitivity of a data-dependent "
                "cost. Account for it without votes."
            )


@fill_docs(VOTE_DOCS)
@dataclass(frozen=True)
class GNMaxEvent(_VoteEvent, tag="GNMaxVote", knows_label=True):
    """GNMax: arg-max of vote counts after Gaussian noise (Papernot et al. 2018).

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of each count.
    %(votes)s
    %(moved)s

    Notes
    -----
    The cost covers the release of the whole noisy histogram. If only the winners of a declared
    number of queries are released, :class:`VoteBlockEvent` costs less.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, Theorem 6 and
    Propositions 7 and 8.
    """

    def renyi(self, orders: Orders, relation: str) -> Orders:
        if self.votes is None:
            return orders / self._noise_per_move**2  # Papernot et al. 2018, Proposition 8
        # Papernot et al. 2018, Theorem 6. The Renyi bounds depend on ``moved``; q, the probability
        # that the noise changes the winner, does not.
        log_q = _log_changed_winner(self.votes, self.noise_multiplier)
        return gnmax_rdp(log_q, self._noise_per_move, orders)

    def dominating_pairs(self, relation: str) -> Pairs:
        self._refuse_votes()
        return symmetric_pairs(GaussianPair(self._noise_per_move / math.sqrt(2)))

    def zcdp(self, relation: str) -> float:
        return 1 / self._noise_per_move**2

    def local_bound(self, order: float) -> LocalBound | None:
        if self.votes is None:
            return None
        self._require_one_moved()
        curve = vote_curve(self.noise_multiplier, len(self.votes), order)
        cost = float(curve.at_log_q(_log_changed_winner(self.votes, self.noise_multiplier)))
        sensitivity = partial(curve.local_sensitivity, self.votes)
        return LocalBound(cost, sensitivity, math.ceil(sum(self.votes)))


@fill_docs(VOTE_DOCS)
@dataclass(frozen=True)
class LNMaxEvent(_VoteEvent, tag="LNMaxVote", knows_label=True):
    """LNMax: arg-max of vote counts after Laplace noise (Papernot et al. 2017).

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise on each count, in votes.
    %(votes)s
    %(moved)s

    Notes
    -----
    The cost covers the release of the whole noisy histogram. If only the winners of a declared
    number of queries are released, :class:`VoteBlockEvent` costs little more than half as much.

    References
    ----------
    N. Papernot et al., "Semi-supervised knowledge transfer for deep learning from private training
    data", ICLR 2017.
    """

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Papernot et al. 2017, theorem 2: pure 2 gamma, where gamma is 1 / noise
        a, pure = orders, 2 / self._noise_per_move
        plain = np.minimum(a * pure**2 / 2, pure)  # Bun and Steinke 2016, Proposition 1.4
        if self.votes is None:
            return plain
        top, *rest = sorted(self.votes, reverse=True)
        gaps = (top - np.array(rest)) / self.noise_multiplier
        # Papernot et al. 2017, lemma 4: q bounds the probability of any other outcome
        q = float(((2 + gaps) / (4 * np.exp(gaps))).sum())
        if not 0 < q <= 1 / (math.exp(pure) + 1):
            return plain
        # Papernot et al. 2017, theorem 3: the moment of order l = a - 1, divided by l
        log_good = math.log1p(-q) + (a - 1) * (math.log1p(-q) - math.log1p(-math.exp(pure) * q))
        value = np.logaddexp(log_good, math.log(q) + pure * (a - 1)) / (a - 1)
        return np.minimum(plain, np.maximum(value, 0))

    def dominating_pairs(self, relation: str) -> Pairs:
        self._refuse_votes()
        return symmetric_pairs(pure_pair(2 / self._noise_per_move))


@fill_docs(VOTE_DOCS)
@dataclass(frozen=True)
class VoteThresholdEvent(_VoteEvent, tag="VoteThreshold", knows_label=True):
    """Threshold test of Confident-GNMax: is the largest noisy count above a threshold?

    It is charged on every query, answered or not. With ``offset`` it is the test of
    Interactive-GNMax: does some class exceed the student's expected votes by the threshold?

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of the largest count.
    %(votes)s
    threshold : float, default=None
        Required with ``votes``.
    offset : tuple of float, default=None
        Public numbers, one for each class, subtracted from the counts first. The differences may be
        negative.
    %(moved)s

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, algorithms 1 and 2.
    """

    threshold: float | None = None
    offset: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.votes is not None and self.threshold is None:
            raise ValueError("threshold=None must be a number if votes are given. Pass it.")
        threshold = self.threshold
        if threshold is not None and not (is_number(threshold) and math.isfinite(threshold)):
            raise ValueError(f"threshold={threshold!r} must be a finite number.")
        if self.offset is not None:
            offset = numbers("offset", self.offset)
            fits = self.votes is None or len(offset) == len(self.votes)
            if not fits or not all(math.isfinite(v) for v in offset):
                raise ValueError(
                    f"offset={self.offset!r} must hold a finite number for each class of votes."
                )
            object.__setattr__(self, "offset", offset)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # One moved vote changes the largest count by at most 1, but GNMax's counts by sqrt(2). So
        # the bounds of GNMax hold with sqrt(2) times the noise.
        sigma = math.sqrt(2) * self._noise_per_move
        if self.votes is None:
            return orders / sigma**2
        largest = max(np.subtract(self.votes, self.offset or 0.0))
        return gnmax_rdp(self._log_q(largest), sigma, orders)

    def dominating_pairs(self, relation: str) -> Pairs:
        self._refuse_votes()
        return symmetric_pairs(GaussianPair(self._noise_per_move))

    def zcdp(self, relation: str) -> float:
        return 1 / (2 * self._noise_per_move**2)

    def local_bound(self, order: float) -> LocalBound | None:
        if self.votes is None:
            return None
        self._require_one_moved()
        if self.offset is not None:  # _local_sensitivity assumes counts whole steps apart
            raise TypeError(
                f"offset={self.offset!r} must be None for the smooth sensitivity of a threshold "
                "test. Account for it without votes."
            )
        cost = float(rdp(self, [order])[0])
        sensitivity = partial(self._local_sensitivity, self.votes, order)
        return LocalBound(cost, sensitivity, math.ceil(sum(self.votes)))

    def _log_q(self, largest: Floats | float) -> Floats:
        """Return ln q, where q is the probability of the less likely answer."""
        assert self.threshold is not None
        log_q: Floats = log_ndtr(-np.abs(largest - self.threshold) / self.noise_multiplier)
        return log_q

    def _local_sensitivity(
        self, votes: tuple[float, ...], order: float, distance: NDArray[Any]
    ) -> Floats:
        """Return the largest change of the cost between adjacent counts within each distance.

        The counts are whole steps apart. Only counts that can occur, from 0 to the number of votes,
        are used: a change beyond them would be within reach of one data set and not of the next.
        """
        reach = int(distance.max(initial=0)) + 1
        counts = np.clip(max(votes) + np.arange(-reach, reach + 1), 0.0, sum(votes))
        sigma = math.sqrt(2) * self.noise_multiplier
        change = np.abs(np.diff(gnmax_rdp(self._log_q(counts), sigma, order)))
        # change[reach - 1 - d : reach + 1 + d] holds the steps from all counts within distance d
        steps = np.maximum(change[reach - 1 :: -1], change[reach:])
        within: Floats = np.maximum.accumulate(steps)[distance]
        return within


@dataclass(frozen=True)
class VoteBlockEvent(Event, tag="VoteBlock", knows_label=True):
    """Block of votes: at most ``n_queries`` queries, of which only the winners are released.

    A block costs about a fifth less than the same number of :class:`GNMaxEvent` or
    ``VoteThresholdEvent`` events, and little more than half as much as ``LNMaxEvent``
    events. Those events would also allow the noisy counts to be published.

    Parameters
    ----------
    kind : {"gnmax", "lnmax", "threshold"}
        Released answer of each query. ``gnmax``: arg-max of vote counts after Gaussian noise.
        ``lnmax``: the same after Laplace noise. ``threshold``: whether the largest count, after
        Gaussian noise, is above a threshold.
    noise_multiplier : float
        Standard deviation of the noise of each count, or scale of Laplace noise, in votes.
    n_queries : int
        Largest number of queries. Each may be chosen after seeing the answers to all earlier
        queries. The number must be fixed **before** the first answer: a number read off afterwards,
        when the answers looked sufficient, proves nothing.
    moved : int, default=1
        Number of votes that a neighbouring data set moves. For more than one, the bound for
        public noisy counts is used, as no better bound is known.

    Notes
    -----
    **Guarantees.** The dominating pair bounds the best attack for any number of classes and any
    adaptive strategy; "The cost of a noisy arg-max" in the documentation has the proof. The bound
    holds for continuous noise. It also holds for the library's noise on a grid of at most 2**-35 of
    its standard deviation, however ties are broken.

    **Edge cases.** Noise below one vote or above 10,000 votes costs the same as with public counts.
    So does a block of very large epsilon, and one query with Gaussian noise, where that cost is
    exact. More than 1,024 queries are accounted for as several blocks. With Laplace noise and
    ``delta=0`` nothing is saved.

    Examples
    --------
    >>> from skprivacy.accounting import GNMaxEvent, RepeatedEvent, VoteBlockEvent, epsilon_of
    >>> round(epsilon_of(RepeatedEvent(GNMaxEvent(20.0), 20), 1e-5), 3)
    1.199
    >>> round(epsilon_of(VoteBlockEvent("gnmax", 20.0, 20), 1e-5), 3)
    0.975
    """

    kind: str
    noise_multiplier: float
    n_queries: int
    moved: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in _KINDS:
            raise ValueError(f"kind={self.kind!r} must be one of {sorted(_KINDS)}.")
        positive("noise_multiplier", self.noise_multiplier)
        whole("n_queries", self.n_queries)
        whole("moved", self.moved)

    @property
    def with_counts(self) -> Event:
        """The same queries with public noisy counts: an upper bound that is fast to compute."""
        vote = _KINDS[self.kind](self.noise_multiplier, moved=self.moved)
        return RepeatedEvent(vote, self.n_queries)

    @property
    def estimated(self) -> Event:
        """Queries with public noisy counts and more noise, which cost about the same.

        The estimate is fast to compute. It guides the search for noise; **never claim it**.
        """
        if self.moved != 1 or not is_covered(self.kind, self._vote_in_noise_units, self.n_queries):
            return self.with_counts
        block_size = min(self.n_queries, LONGEST)
        limit, excess = _NOISE_RATIOS[self.kind]
        noise = self.noise_multiplier / (limit + excess * block_size**-0.82)
        return RepeatedEvent(_KINDS[self.kind](noise), self.n_queries)

    @property
    def _vote_in_noise_units(self) -> float:
        return 1 / self.noise_multiplier

    def iter_components(self) -> Iterable[tuple[Event, int]] | None:
        if self.moved != 1 or not is_covered(self.kind, self._vote_in_noise_units, self.n_queries):
            return ((self.with_counts, 1),)
        blocks = -(-self.n_queries // LONGEST)
        if blocks == 1:
            return None
        longest = -(-self.n_queries // blocks)
        return ((VoteBlockEvent(self.kind, self.noise_multiplier, longest), blocks),)

    def work(self) -> float:
        return CLOSED_FORM_WORK + self._recursion_work()

    def curve_work(self) -> float:
        # The recursion yields one pair, which is composed as often as it is needed.
        composing = COMPOSITIONS_PER_CURVE * CLOSED_FORM_WORK
        return CURVE_WORK + composing + self._recursion_work()

    def renyi_work(self) -> float:
        return CLOSED_FORM_WORK  # of the noisy counts

    def _recursion_work(self) -> float:
        return _WORK_PER_QUERY * (50 + min(self.n_queries, LONGEST))

    def renyi(self, orders: Orders, relation: str) -> Orders:
        return rdp(self.with_counts, orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        if self.iter_components() is not None:
            raise NoLossDistributionError(
                f"{self!r} is accounted for by its parts and has no single dominating pair. "
                "Account for it directly, not inside PoissonSampledEvent or MixtureEvent."
            )
        return symmetric_pairs(argmax_pair(self.kind, self._vote_in_noise_units, self.n_queries))

    def zcdp(self, relation: str) -> float:
        return self.with_counts.zcdp(relation)

    def grouped(self, size: int) -> VoteBlockEvent:
        return replace(self, moved=size * self.moved)


def _log_changed_winner(votes: tuple[float, ...], sigma: float) -> float:
    """Return ln q, where q bounds the probability that the noise changes the winner."""
    # Papernot et al. 2018, Proposition 7
    top, *rest = sorted(votes, reverse=True)
    log_q = logsumexp(log_ndtr(-(top - np.array(rest)) / (math.sqrt(2) * sigma)))
    return min(float(log_q), math.log1p(-1 / len(votes)))


_KINDS: dict[str, type[GNMaxEvent] | type[LNMaxEvent] | type[VoteThresholdEvent]] = {
    "gnmax": GNMaxEvent,
    "lnmax": LNMaxEvent,
    "threshold": VoteThresholdEvent,
}
