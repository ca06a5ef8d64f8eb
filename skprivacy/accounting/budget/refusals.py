"""Refused charges: another relation or unit, or a cap that would be exceeded, with the remedy."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..event import Event
from .admission import Refusal
from .filters import Account, Cost, sum_epsilons_and_deltas
from .ledger import LedgerError


@contextmanager
def note_no_release() -> Iterator[None]:
    """Add to an error of the ledger that nothing was released for the failed charge."""
    try:
        yield
    except LedgerError as error:
        message = f"{error} As this charge failed, nothing was released for it."
        raise LedgerError(message) from error.__cause__


def check_same_relation(relation: str | None, settled: str | None) -> str:
    """Return the relation of a charge; raise ValueError if the ledger has another."""
    known = settled or relation or "add_remove"
    if relation in (None, known):
        return known
    either = "label" in (relation, known)  # no parameter converts to or from "label"
    restated = (
        ""
        if either
        else f", or set the estimator's relation (in a shell by --set) so that it states {known!r}"
    )
    raise ValueError(
        f"The event is stated for relation={relation!r} and the budget for {known!r}. Relations "
        f"are never mixed. Create a budget with relation={relation!r}{restated}."
    )


def check_same_unit(unit: str, settled: str) -> None:
    """Raise ValueError if the ledger has another unit."""
    if unit != settled:
        named = (
            f", or protect each {settled} with all of their records, by groups=pandas.Series(..., "
            f"name={settled!r}) of fit or by groups={settled!r} of private_summary"
        )
        if unit == "record":
            named += (
                f". If it is public that none has more than k records, "
                f"guarantee.group(k, unit={settled!r}) may be charged"
            )
        raise ValueError(
            f"The event is stated for unit={unit!r} and the budget for unit={settled!r}. Their "
            f"epsilons are never added up. Create a separate budget with unit={unit!r}"
            f"{'' if settled == 'record' else named}."
        )


def explain_refusal(refusal: Refusal, event: Event) -> str:
    """Explain why an event was refused, and what to do."""
    scope, before, after = refusal
    cap, spent, cost = after.cap, before.cost(), after.cost()
    return (
        f"the budget of epsilon={cap.epsilon:.4g}, delta={cap.delta:.4g} of scope {scope!r} would "
        f"be overspent. The filter {after.filter!r} counts epsilon={spent.epsilon:.4g}, "
        f"delta={spent.delta:.4g} as spent, and {_describe_cost(event, cost, after)}. "
        f"{_suggest_smaller_charge(event, cost, after)} Call budget.remaining(event) to see how "
        "many more such releases fit, or run `skprivacy budget what-if` in a shell."
    )


def _suggest_smaller_charge(event: Event, cost: Cost, after: Account) -> str:
    """Suggest a charge that costs less, in terms of both epsilon and noise."""
    if math.isinf(cost.epsilon) and has_no_epsilon(event, after.relation):
        if after.remaining_cap().delta <= 0:
            return "Use Laplace noise, or a budget with a larger delta."
        if after.filter == "basic":
            return (
                "Charge it as ApproxDPEvent(epsilon, delta), or use a budget with another filter."
            )
    if Cost(0.0, cost.delta).is_within(after.cap):
        return "Use a smaller epsilon, which takes more noise or fewer steps."
    alone = Cost(cost.epsilon, 0.0).is_within(after.cap)
    return f"Use a smaller {'delta' if alone else 'epsilon and a smaller delta'}."


def _describe_cost(event: Event, cost: Cost, after: Account) -> str:
    if math.isinf(cost.epsilon) and has_no_epsilon(event, after.relation):
        return f"no finite epsilon with {_brief_repr(event)}: {_explain_missing_epsilon(after)}"
    return (
        f"epsilon={_format_above_cap(cost.epsilon, after.cap.epsilon)}, "
        f"delta={_format_above_cap(cost.delta, after.cap.delta)} with {_brief_repr(event)}"
    )


def _format_above_cap(value: float, cap: float) -> str:
    """Format a figure with four digits such that it differs from the cap that it exceeds."""
    shown = f"{value:.4g}"
    return f"just above {shown}" if value > cap and shown == f"{cap:.4g}" else shown


def _brief_repr(event: Event) -> str:
    """Return the repr of an event, with numbers of four digits."""
    return re.sub(r"\d+\.\d{4,}(e[-+]\d+)?", lambda found: f"{float(found[0]):.4g}", repr(event))


def has_no_epsilon(event: Event, relation: str) -> bool:
    """Return True if an event has no finite epsilon that could be added to others."""
    return math.isinf(sum_epsilons_and_deltas(Counter({event: 1}), relation).epsilon)


def _explain_missing_epsilon(after: Account) -> str:
    if after.cap.delta == 0:
        return "at delta=0 it needs pure epsilons, which Gaussian noise does not have"
    if after.filter == "basic":
        return "it adds up epsilons and deltas, but this release has a different epsilon per delta"
    if after.remaining_cap().delta <= 0:
        return "all of delta is spent, and at delta=0 Gaussian noise has no finite epsilon"
    return "no finite epsilon is known for it at this delta"


def explain_missing_epsilon(event: Event, filter: str) -> str:
    """Explain why an event without a single epsilon does not fit a filter of sums."""
    return (
        f"The filter {filter!r} adds up epsilons and deltas, but event={_brief_repr(event)} has no "
        "single pair of them: it has a different epsilon at every delta. Use a budget with the "
        "filter 'adaptive', or charge ApproxDPEvent(epsilon, delta) at a delta of your choice."
    )
