"""sanitized_cost: publication of the data-dependent cost of PATE votes (Papernot et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from .._validation import is_number, positive
from ..accounting import ComposedEvent, Event, GNMaxEvent, PrivacyBudget, RepeatedEvent
from ..accounting.event import check_delta, flatten
from ..accounting.events import VoteThresholdEvent
from ..accounting.renyi import rdp
from ..accounting.smooth_sensitivity import check_order, smoothed_cost
from ..base import private_release
from ..mechanisms.additive import SmoothGaussian
from ..mechanisms.secure_random import SecureRandom


@dataclass(frozen=True)
class SanitizedCost:
    """Data-dependent cost of votes, in a form that may be published.

    Attributes
    ----------
    order : float
        The Renyi order.
    renyi : float
        The published cost, without the cost of publishing it.
    release : Event
        The cost of publishing it.
    alpha : float
        Probability, before the noise is drawn, that ``renyi`` is below the true cost.
    proved : bool
        False if the noise was seeded.
    """

    order: float
    renyi: float
    release: Event
    alpha: float
    proved: bool = True

    def epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta`` of the votes and this release together."""
        if check_delta(delta) == 0:
            raise ValueError(
                "delta=0 must be above 0: a Renyi cost gives no pure guarantee. Pass a delta > 0."
            )
        a = self.order
        together = self.renyi + float(rdp(self.release, [a])[0])
        # Canonne et al. 2020, Proposition 12: from a Renyi bound to (epsilon, delta)
        spread = math.log1p(-1 / a) - (math.log(a) + math.log(delta)) / (a - 1)
        return max(together + spread, 0.0)

    def __repr__(self) -> str:
        kind = "sanitised" if self.proved else "estimate"
        return (
            f"Renyi cost {self.renyi:.4g} at order {self.order:g} for this data set, "
            f"confidence {1 - self.alpha:g}, {kind}"
        )


def sanitized_cost(
    event: Event,
    order: float,
    *,
    noise_multiplier: float = 5.0,
    smoothness: float | None = None,
    alpha: float = 0.01,
    budget: PrivacyBudget | None = None,
    relation: str = "add_remove",
    noise_seed: int | None = None,
) -> SanitizedCost:
    """Publish the data-dependent Renyi cost of votes with noise of smooth sensitivity.

    Parameters
    ----------
    event : Event
        Votes and threshold tests with their true counts, and any data-independent events.
    order : float
        Above 1, chosen without looking at the votes. If the teachers mostly agree, 5 to 10 is good
        for hundreds of queries and delta = 1e-5.
    noise_multiplier : float, default=5.0
        Noise of the release, in units of the smooth sensitivity. More noise makes the release
        cheaper and the published number larger.
    smoothness : float, default=None
        ``None`` means 0.25 / order. It must be below -ln(1 - 1/order)/2.
    alpha : float, default=0.01
        Probability, in (0, 0.5), that the published number is below the true cost.
    budget : PrivacyBudget, default=None
        Charged for the release before the votes are read. Charge the votes themselves by their
        data-independent events: a budget accepts no data-dependent cost.
    relation : str, default="add_remove"
        Neighbouring relation under which the release is charged.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    SanitizedCost
        Its ``epsilon(delta)`` includes the cost of the release itself.

    Notes
    -----
    **Guarantees.** The published number is private, at the cost ``release``. With probability 1 -
    ``alpha`` it bounds a Renyi divergence of this order: between the releases for this data set and
    for any of its neighbours. The bound is about *this* data set. It is not differential privacy,
    which is about all data sets, and is never added to a budget.

    **Edge cases.** The published number never exceeds the data-independent cost. Nothing is gained
    if the votes were close, the order is far above the noise of the votes, or there are few
    teachers.

    References
    ----------
    Papernot et al. (2018), "Scalable private learning with PATE", appendix B.

    Examples
    --------
    >>> from skprivacy.accounting import GNMaxEvent, RepeatedEvent
    >>> from skprivacy.ensemble import sanitized_cost
    >>> votes = RepeatedEvent(GNMaxEvent(40.0, votes=(220, 20, 10)), 1000)
    >>> published = sanitized_cost(votes, order=6.0)
    >>> published.epsilon(1e-5) < 5.8  # data-independently at this order, and 4.98 at the best one
    True
    """
    order = check_order(order)
    smoothness = 0.25 / order if smoothness is None else smoothness
    if not (is_number(alpha) and 0 < alpha < 0.5):
        raise ValueError(f"alpha={alpha!r} must lie in (0, 0.5), for example 0.01.")
    positive("noise_multiplier", noise_multiplier)
    lift = noise_multiplier * -float(ndtri(alpha))
    random = SecureRandom(noise_seed)
    plain = [RepeatedEvent(_remove_votes(e), n) for e, n in flatten(event).items()]
    upper = float(rdp(ComposedEvent(tuple(plain)), [order])[0])
    mechanism = SmoothGaussian(noise_multiplier, smoothness, lift, upper=upper)
    if math.isinf(float(rdp(mechanism.event, [order])[0])):
        raise ValueError(
            f"smoothness={smoothness!r} is too large for order={order!r}: it must be below "
            f"{-math.log1p(-1 / order) / 2:.4g}. Pass None for the default."
        )
    with private_release(
        mechanism.event, relation=relation, at_delta=0.0, source="sanitized_cost", budget=budget,
        noise_seed=noise_seed, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        value = smoothed_cost(event, order, smoothness)
        published = mechanism.release(value, random)
    proved = privacy.kind == "proved"
    return SanitizedCost(float(order), published, mechanism.event, alpha, proved)


def _remove_votes(event: Event) -> Event:
    """Return the event without the votes' counts."""
    if not event.data_dependent:
        return event
    if not isinstance(event, GNMaxEvent | VoteThresholdEvent):
        raise TypeError(
            f"event={event!r} has no known smooth sensitivity; expected GNMaxEvent, "
            "VoteThresholdEvent and data-independent events. Account for the data-independent cost."
        )
    return type(event)(event.noise_multiplier)
