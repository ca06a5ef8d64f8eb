"""A declared number of votes of which nothing but the winners is released."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .._checks import positive, whole
from .._event import Event, NoLossDistributionError, Orders, Pairs
from .._renyi import rdp
from .._work import CLOSED_FORM_WORK, COMPOSITIONS_PER_CURVE, CURVE_WORK
from ..pld.argmax import LONGEST, argmax_pair, is_covered
from ..pld.pairs import both
from .composition import Repeated
from .votes import GNMaxVote, LNMaxVote, VoteThreshold

__all__ = ["VoteBlock"]

_KINDS: dict[str, type[GNMaxVote] | type[LNMaxVote] | type[VoteThreshold]] = {
    "gnmax": GNMaxVote,
    "lnmax": LNMaxVote,
    "threshold": VoteThreshold,
}

_WORK_PER_QUERY = 1e6  # of the recursion, 10 s for 1,024 queries

# At equal cost, the noise of a block of n over that of as many votes with their counts is about
# a + b n**-.82. Here are a and b, fitted: to 3e-4 from 30 queries on, with Laplace noise to 6e-3.
# In the limit it is sqrt(2 / pi) for tests, and sqrt(1 / 3) with Laplace noise.
_SAVES = {"gnmax": (0.8005, 0.314), "lnmax": (0.576, 0.1), "threshold": (0.7984, 0.314)}


@dataclass(frozen=True)
class VoteBlock(
    Event,
    tag="VoteBlock",
    stored=("kind", "noise_multiplier", "n_queries", "moved"),
    knows_label=True,
):
    """At most so many votes, declared beforehand, of which only the winners are released.

    It costs about a fifth less than the same number of :class:`GNMaxVote` or
    :class:`VoteThreshold`, and little more than half as much as :class:`LNMaxVote`, which would
    allow for the noisy counts to be published as well.

    Parameters
    ----------
    kind : {"gnmax", "lnmax", "threshold"}
        What is released of each query: the arg-max of vote counts after Gaussian noise, or after
        Laplace noise; or whether the largest count, after Gaussian noise, is above a threshold.
    noise_multiplier : float
        Standard deviation of the noise of each count, or scale of Laplace noise, in votes.
    n_queries : int
        The most queries there may be. Each may be chosen after seeing the answers to all before.
        The number is fixed **before** the first answer: one that was read off afterwards, when the
        answers looked sufficient, is no bound.
    moved : int, default=1
        How many votes a neighbouring data set moves. For more than one nothing better is known than
        to let the noisy counts be public.

    Notes
    -----
    **Guarantees.** Its dominating pair is that of an upper bound on the best attack on any number
    of classes and any adaptive strategy; see "The cost of a noisy arg-max" in the documentation for
    the proof. The bound holds for continuous noise, and for the library's own on a grid of at most
    2**-35 of its standard deviation, however ties are broken.

    **Edge cases.** Noise below one vote or above 10,000 costs what it costs with the counts public,
    and so does one query with Gaussian noise, for which that is exact. More than 1,024 queries are
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
    def _vote(self) -> Event:
        return _KINDS[self.kind](self.noise_multiplier, moved=self.moved)

    @property
    def with_counts(self) -> Event:
        """The same queries with all noisy counts released: what is never less, and quickly told."""
        return Repeated(self._vote, self.n_queries)

    @property
    def estimated(self) -> Event:
        """Queries with all noisy counts released, but with so much noise that they cost the same.

        About the same, and quickly told: to look for noise with, **never to claim**.
        """
        if self.moved != 1 or not is_covered(self.kind, self._h, self.n_queries):
            return self.with_counts
        together = min(self.n_queries, LONGEST)
        limit, more = _SAVES[self.kind]
        noise = self.noise_multiplier / (limit + more * together**-0.82)
        return Repeated(_KINDS[self.kind](noise), self.n_queries)

    @property
    def _h(self) -> float:
        return 1 / self.noise_multiplier

    def parts(self) -> Iterable[tuple[Event, int]] | None:
        if self.moved != 1 or not is_covered(self.kind, self._h, self.n_queries):
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
                f"{self!r} is accounted for by its parts and has no dominating pair of its own. "
                "Account for it directly, not inside PoissonSampled or Mixture."
            )
        return both(argmax_pair(self.kind, self._h, self.n_queries))

    def zcdp(self, relation: str) -> float:
        return self.with_counts.zcdp(relation)

    def grouped(self, size: int) -> VoteBlock:
        return replace(self, moved=size * self.moved)
