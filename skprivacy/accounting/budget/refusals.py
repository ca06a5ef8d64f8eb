"""Messages of refused charges: the figures that decided, and what to do."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..events import Event
from .admission import Refusal, how_many_fit
from .filters import Account
from .log import LedgerError, Log
from .rules import Cost, added_up

__all__ = ["before_release", "explained", "has_no_epsilon", "no_epsilon"]

_SHOWN = 20  # counting the releases that another filter would have admitted stops here
_OTHERS = {"basic": ("adaptive", "renyi", "pld"), "adaptive": ("renyi", "pld"), "renyi": ("pld",)}
_SETTLED = (
    " That filter is proved only if the events are fixed before the first answer is seen, as in "
    "cross-validation over a fixed grid."
)


@contextmanager
def before_release() -> Iterator[None]:
    """Add to an error of the ledger what it cannot know: that the data was not yet accessed."""
    try:
        yield
    except LedgerError as error:
        told = f"{error} As this charge failed, nothing was released for it."
        raise LedgerError(told) from error.__cause__


def explained(log: Log, leaf: str, refusal: Refusal, event: Event) -> str:
    """Return why an event was refused, and what to do."""
    scope, before, after = refusal
    cap, spent, cost = after.cap, before.cost(), after.cost()
    return (
        f"the budget of epsilon={cap.epsilon:.4g}, delta={cap.delta:.4g} of scope {scope!r} would "
        f"be overspent. The filter {after.filter!r} counts epsilon={spent.epsilon:.4g}, "
        f"delta={spent.delta:.4g} as spent, and {_with(event, cost, after)}. "
        f"{_less(event, cost, after)} Call budget.remaining(event) to see how many more such "
        "releases fit, or run `skprivacy budget what-if` in a shell."
        f"{_elsewhere(log, leaf, event, after)}"
    )


def _less(event: Event, cost: Cost, after: Account) -> str:
    """Return what to do, in words for whoever set an epsilon and for whoever set the noise."""
    if math.isinf(cost.epsilon) and has_no_epsilon(event, after.relation):
        if after.left().delta <= 0:
            return "Use Laplace noise, or a budget with a larger delta."
        if after.filter == "basic":
            return "Charge it as ApproxDP(epsilon, delta), or use a budget with another filter."
    if Cost(0.0, cost.delta).within(after.cap):
        return "Use a smaller epsilon, which takes more noise or fewer steps."
    alone = Cost(cost.epsilon, 0.0).within(after.cap)
    return f"Use a smaller {'delta' if alone else 'epsilon and a smaller delta'}."


def _with(event: Event, cost: Cost, after: Account) -> str:
    if math.isinf(cost.epsilon) and has_no_epsilon(event, after.relation):
        return f"no finite epsilon with {_brief(event)}: {_why(after)}"
    return (
        f"epsilon={_above(cost.epsilon, after.cap.epsilon)}, "
        f"delta={_above(cost.delta, after.cap.delta)} with {_brief(event)}"
    )


def _above(value: float, cap: float) -> str:
    """Return a figure with four digits that does not look like the cap that it exceeds."""
    shown = f"{value:.4g}"
    return f"just above {shown}" if value > cap and shown == f"{cap:.4g}" else shown


def _brief(event: Event) -> str:
    """Return the repr of an event with numbers of four digits."""
    return re.sub(r"\d+\.\d{4,}(e[-+]\d+)?", lambda found: f"{float(found[0]):.4g}", repr(event))


def has_no_epsilon(event: Event, relation: str) -> bool:
    """Return whether an event has no finite epsilon that could be added to others."""
    return math.isinf(added_up(Counter({event: 1}), relation).epsilon)


def _why(after: Account) -> str:
    if after.cap.delta == 0:
        return "at delta=0 it needs pure epsilons, which Gaussian noise does not have"
    if after.filter == "basic":
        return "it adds up epsilons and deltas, but this release has a different epsilon per delta"
    if after.left().delta <= 0:
        return "all of delta is spent, and at delta=0 Gaussian noise has no finite epsilon"
    return "no finite epsilon is known for it at this delta"


def no_epsilon(event: Event, filter: str) -> str:
    return (
        f"The filter {filter!r} adds up epsilons and deltas, but event={_brief(event)} has no "
        "single pair of them: it has a different epsilon at every delta. Use a budget with the "
        "filter 'adaptive', or charge ApproxDP(epsilon, delta) at a delta of your choice."
    )


def _elsewhere(log: Log, leaf: str, event: Event, after: Account) -> str:
    """Return a sentence on how many such releases another filter would have admitted."""
    for other in _OTHERS.get(after.filter, ()) if after.cap.delta else ():
        terms = {"filter": other, "relation": after.relation}
        more = how_many_fit(log, leaf, event, terms, most=_SHOWN)
        if more:
            count = f"{_SHOWN} or more" if more >= _SHOWN else str(more)
            return (
                f" A budget with the filter {other!r} would have admitted {count} of these."
                f"{_SETTLED if other == 'pld' else ''}"
            )
    return ""
