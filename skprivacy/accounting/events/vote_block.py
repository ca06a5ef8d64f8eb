"""Block of votes: a declared number of noisy arg-max queries of which only winners are released."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .._checks import positive, whole
from .._event import Event, NoLossDistributionError, Orders, Pairs
from .._renyi import rdp
from .._work import CLOSED_FORM_WORK, COMPOSITIONS_PER_CURVE, CURVE_WORK
from ..pld.argmax import LONGEST, argmax_pair, is_covered
from ..pld.pairs import symmetric_pairs
from .composition import Repeated
from .votes import GNMaxVote, LNMaxVote, VoteThreshold

__all__ = ["VoteBlock"]

_KINDS: dict[str, type[GNMaxVote] | type[LNMaxVote] | type[VoteThreshold]] = {
    "gnmax": GNMaxVote,
    "lnmax": LNMaxVote,
    "threshold": VoteThreshold,
}

_WORK_PER_QUERY = 1e6  # for the recursion: 10 s for 1,024 queries

# At equal cost, let r be the noise of a block of n queries divided by the noise of n votes with
# public counts. Then r is about a + b n**-.82, with a and b below, which were fitted to 3e-4 from
# 30 queries on (Laplace noise: to 6e-3). In the limit r is sqrt(2 / pi) for tests, and sqrt(1 / 3)
# with Laplace noise.
_NOISE_RATIOS = {"gnmax": (0.8005, 0.314), "lnmax": (0.576, 0.1), "threshold": (0.7984, 0.314)}


@dataclass(frozen=True)
class VoteBlock(
    Event,
    tag="VoteBlock",
    stored=("kind", "noise_multiplier", "n_queries", "moved"),
    knows_label=True,
):
    """Block of votes: at most ``n_queries`` queries, of which only the winners are released.

    A block costs about a fifth less than the same number of :class:`GNMaxVote` or
    :class:`VoteThreshold` events, and little more than half as much as :class:`LNMaxVote` events.
    Those events would also allow the noisy counts to be published.

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
    So does one query with Gaussian noise, where that cost is exact. More than 1,024 queries are
    accounted for as several blocks. With Laplace noise and ``delta=0`` nothing is saved.

    Examples
    --------
    >>> from skprivacy.accounting import GNMaxVote, Repeated, VoteBlock, epsilon_of
    >>> round(epsilon_of(Repeated(GNMaxVote(20.0), 20), 1e-5), 3)
    1.199
    >>> round(epsilon_of(VoteBlock("gnmax", 20.0, 20), 1e-5), 3)
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
    def _vote_event(self) -> Event:
        return _KINDS[self.kind](self.noise_multiplier, moved=self.moved)

    @property
    def with_counts(self) -> Event:
        """The same queries with public noisy counts: an upper bound that is fast to compute."""
        return Repeated(self._vote_event, self.n_queries)

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
        return Repeated(_KINDS[self.kind](noise), self.n_queries)

    @property
    def _vote_in_noise_units(self) -> float:
        return 1 / self.noise_multiplier

    def parts(self) -> Iterable[tuple[Event, int]] | None:
        if self.moved != 1 or not is_covered(self.kind, self._vote_in_noise_units, self.n_queries):
            return ((self.with_counts, 1),)
        blocks = -(-self.n_queries // LONGEST)
        if blocks == 1:
            return None
        longest = -(-self.n_queries // blocks)
        return ((VoteBlock(self.kind, self.noise_multiplier, longest), blocks),)

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
        if self.parts() is not None:
            raise NoLossDistributionError(
                f"{self!r} is accounted for by its parts and has no single dominating pair. "
                "Account for it directly, not inside PoissonSampled or Mixture."
            )
        return symmetric_pairs(argmax_pair(self.kind, self._vote_in_noise_units, self.n_queries))

    def zcdp(self, relation: str) -> float:
        return self.with_counts.zcdp(relation)

    def grouped(self, size: int) -> VoteBlock:
        return replace(self, moved=size * self.moved)
