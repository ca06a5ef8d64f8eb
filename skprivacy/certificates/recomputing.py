"""Recomputed epsilon of a certificate's events, by two accountants that share no code."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

from scipy.stats import binom

from ..accounting import (
    ApproxDPEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    epsilon_of,
)
from ..accounting.event import flatten
from ..accounting.events import SampledGroupEvent

Bracket = tuple[float, float]

_SECOND = "dp_accounting.pld.privacy_loss_distribution"
GRID = 1e-4  # discretisation of privacy losses in dp_accounting
# Beyond these limits dp_accounting takes minutes and gigabytes: about a second per kind of event.
MOST_PARTS, MOST_KINDS, LEAST_NOISE = 1_000_000, 50, 0.05
# Limits for sampled groups, each loss of which takes dp_accounting a fifth of a millisecond.
MOST_RECORDS, MOST_LOSSES, MOST_GROUPS = 64, 10_000, 5
ROUNDING = 1e-6  # relative difference allowed between two computers
CUT_OFF = 1e-12  # above the total mass that dp_accounting cuts off: 1e-15 in each of <= 100 steps


def has_second_accountant() -> bool:
    """Return whether dp_accounting is installed and can be imported."""
    try:
        import_module(_SECOND)
    except Exception:  # an incompatible version, which says nothing about the certificate
        return False
    return True


def differing_epsilon(stated: float, event: Event, delta: float, relation: str) -> float | None:
    """Return the epsilon of an event if it differs from the stated one, else None."""
    found = epsilon_of(event, delta, relation)
    same = math.isclose(stated, found, rel_tol=ROUNDING, abs_tol=1e-12)
    return None if same else found


def epsilon_bracket(event: Event, delta: float, relation: str) -> Bracket | None:
    """Return bounds on epsilon by dp_accounting; None for events beyond its limits."""
    counts = flatten(event)
    groups = sum(isinstance(part, SampledGroupEvent) for part in counts)
    if sum(counts.values()) > MOST_PARTS or len(counts) > MOST_KINDS or groups > MOST_GROUPS:
        return None
    bounds = [_epsilon(event, delta, relation, pessimistic) for pessimistic in (False, True)]
    low, high = bounds
    return None if low is None or high is None else (low, high)


def _epsilon(event: Event, delta: float, relation: str, pessimistic: bool) -> float | None:
    whole: Any = None
    for part, count in flatten(event).items():
        known = _distribution(part, relation, pessimistic)
        if known is None:
            return None
        repeated = known if count == 1 else known.self_compose(count)
        whole = repeated if whole is None else whole.compose(repeated)
    if whole is None:
        return None
    # Epsilon decreases in delta, so a larger delta keeps the lower bound valid. It is needed twice:
    # an event whose own delta is the stated one has no epsilon if rounding makes delta the least
    # bit smaller; and dp_accounting counts the tails that it cuts off as infinite losses, so at
    # delta 0 nothing would have an epsilon.
    allowed = delta if pessimistic else delta * (1 + ROUNDING) + CUT_OFF
    return float(whole.get_epsilon_for_delta(allowed))


def _distribution(event: Event, relation: str, pessimistic: bool) -> Any:
    pld = import_module(_SECOND)
    if isinstance(event, SampledGroupEvent):
        return _group_distribution(pld, event, relation, pessimistic)
    rate, inner = 1.0, event
    if isinstance(event, PoissonSampledEvent):
        if relation not in ("add_remove", "zero_out"):
            return None
        rate, inner = event.sampling_rate, event.event
    options = {
        "sampling_prob": rate,
        "value_discretization_interval": GRID,
        "pessimistic_estimate": pessimistic,
        "use_connect_dots": pessimistic,
    }
    if isinstance(inner, GaussianEvent) and inner.noise_multiplier >= LEAST_NOISE:
        return pld.from_gaussian_mechanism(inner.noise_multiplier, **options)
    if isinstance(inner, LaplaceEvent) and inner.noise_multiplier >= LEAST_NOISE:
        return pld.from_laplace_mechanism(inner.noise_multiplier, **options)
    if isinstance(inner, ApproxDPEvent) and rate == 1 and inner.epsilon <= 1 / LEAST_NOISE:
        more, less = _worst_pair(inner)
        return pld.from_two_probability_mass_functions(
            less, more, pessimistic_estimate=pessimistic, value_discretization_interval=GRID
        )
    return None


def _group_distribution(
    pld: Any, event: SampledGroupEvent, relation: str, pessimistic: bool
) -> Any:
    """Return the loss distribution of a Poisson-sampled group; None if it is not supported."""
    noise, size = event.event.noise_multiplier, event.size
    known = relation in ("add_remove", "zero_out") and size <= MOST_RECORDS
    if not known or noise / size < LEAST_NOISE:
        return None
    largest = size * (size / 2 + 10 * noise) / noise**2  # largest loss that dp_accounting keeps
    if event.sampling_rate == 1:
        return _distribution(GaussianEvent(noise / size), relation, pessimistic)
    drawn = range(size + 1)
    return pld.from_mixture_gaussian_mechanism(
        noise,
        list(drawn),
        [float(p) for p in binom.pmf(drawn, size, event.sampling_rate)],
        value_discretization_interval=max(GRID, largest / MOST_LOSSES),
        pessimistic_estimate=pessimistic,
        use_connect_dots=pessimistic,
    )


def _worst_pair(event: ApproxDPEvent) -> tuple[dict[str, float], dict[str, float]]:
    """Return the log-probabilities of the worst (epsilon, delta)-DP mechanism on two data sets."""
    # Kairouz, Oh and Viswanath 2015: this mechanism dominates every (epsilon, delta)-DP one. It
    # reveals the data set with probability delta, and otherwise makes a randomised response.
    share = math.log1p(-event.delta)
    high = share - math.log1p(math.exp(-event.epsilon))
    low = high - event.epsilon
    more, less = {"yes": high, "no": low}, {"yes": low, "no": high}
    if event.delta:
        more["certain"], less["impossible"] = (math.log(event.delta),) * 2
    return more, less
