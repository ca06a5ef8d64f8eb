"""Privacy amplification by Poisson sampling of records."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .._checks import allows_replacement, positive
from .._event import Event, NoLossDistributionError, Orders, Pairs, check_event
from .._renyi import pure_rdp, rdp
from ..pld.sampled import Added, Removed
from .composition import total_zcdp
from .gaussian import GaussianEvent
from .sampled_group import SampledGroup

__all__ = ["PoissonSampled"]

_SAMPLING_WORK = 2e6  # for quadratures at fractional Renyi orders


@dataclass(frozen=True)
class PoissonSampled(
    Event, tag="PoissonSampled", stored=("sampling_rate", "event"), knows_label=True
):
    """Event on a Poisson sample, which includes each record independently.

    Parameters
    ----------
    sampling_rate : float
        The probability of inclusion, in (0, 1].
    event : Event
        The event on the sample. **Under every relation its sensitivity is a bound on the norm of
        one record's contribution**: a DP-SGD step of clipping norm C and noise of standard
        deviation z * C is ``PoissonSampled(q, GaussianEvent(z))``, whatever the relation.
    """

    sampling_rate: float
    event: Event

    def __post_init__(self) -> None:
        positive("sampling_rate", self.sampling_rate)
        if self.sampling_rate > 1:
            raise ValueError(f"sampling_rate={self.sampling_rate!r} must be in (0, 1].")
        check_event("event", self.event)

    def work(self) -> float:
        return _SAMPLING_WORK + 2 * self.event.work()

    def renyi_work(self) -> float:
        return _SAMPLING_WORK + 2 * self.event.renyi_work()

    def renyi(self, orders: Orders, relation: str) -> Orders:
        if self.sampling_rate == 1 and not allows_replacement(relation):
            return rdp(self.event, orders, relation)
        if self.event.has_bounded_loss:  # ln(1 + q (e^epsilon - 1)) of the pure epsilon
            both = self.dominating_pairs(relation)
            return pure_rdp(max(pair.max_loss for pair in both), orders)
        return self.event.sampled_renyi(self.sampling_rate, orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        inner, rate = self.event, self.sampling_rate
        known = inner.sampled_pairs(rate, relation)
        if known is not None:
            return known
        if allows_replacement(relation):
            raise NoLossDistributionError(
                f"A Poisson sample of {inner!r} has no known dominating pair under "
                f"relation={relation!r}. Use 'add_remove' or 'zero_out'."
            )
        base = inner.dominating_pairs(relation)
        if rate == 1:
            return base
        if base[0] != base[1] or base[0].infinity:
            raise NoLossDistributionError(
                f"A Poisson sample of {inner!r} is not covered, since the dominating pair of the "
                "event is not symmetric. Account for it without sampling."
            )
        # Zhu, Dong and Wang 2022, Theorem 11
        return Removed(base[0], rate), Added(base[1], rate)

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        if allows_replacement(relation):
            return None
        # A sample of a sample is a sample, at the product of the rates.
        return PoissonSampled(rate * self.sampling_rate, self.event).dominating_pairs(relation)

    def zcdp(self, relation: str) -> float:
        # zCDP has no amplification by sampling, so this is the bound without sampling. A replaced
        # contribution moves by up to twice its norm, which multiplies rho by four.
        return total_zcdp(self.event, relation) * (4 if allows_replacement(relation) else 1)

    def grouped(self, size: int) -> Event | None:
        inner: Event = self
        rate = 1.0
        while isinstance(inner, PoissonSampled):
            rate, inner = rate * inner.sampling_rate, inner.event
        return SampledGroup(rate, inner, size) if isinstance(inner, GaussianEvent) else None

    def gdp(self) -> tuple[float, bool]:
        if not isinstance(self.event, GaussianEvent):
            return math.inf, True
        if self.sampling_rate == 1:
            return self.event.gdp()
        # Bu, Dong, Long and Su 2020: the limit of T steps is q sqrt(T (e^(1/z^2) - 1))
        precision = 1 / self.event.noise_multiplier**2
        square = math.expm1(precision) if precision < 700 else math.inf
        return self.sampling_rate * math.sqrt(square), False
