"""Limit on the computing work of an event's bounds, checked before they are computed.

An event states its work in ``Event.work``. An event accounted for by the privacy curve of another
event adds that event's ``Event.curve_work``: the curve is computed once, however many events
enclose it, and they see at most 2,001 atoms of each curve.

Ledgers and certificates may come from strangers, and a single number in an event can make a bound
take hours or terabytes. Every accountant therefore calls :func:`check_work` first.

The unit is one floating-point number computed, about 10 ns. The figures were measured on one core
and hold within a factor of about three. They decide on refusals, never on a bound.
"""

from __future__ import annotations

import math
from typing import Protocol

MAX_WORK = 6e9  # about a minute
CLOSED_FORM_WORK = 1e6  # 217 Renyi orders, or a sketch of the losses and one transform
CURVE_WORK = 1e7  # 1,000 points on a curve, and the pair made of them
COMPOSITIONS_PER_CURVE = 8  # each is tight near one of the points


class HasWork(Protocol):
    """The part of an Event that the limit asks; event.py imports the figures above."""

    def work(self) -> float: ...


class WorkLimitError(ValueError):
    """The bounds of an event would take too long to compute."""


def check_work(event: HasWork) -> None:
    """Raise WorkLimitError if the bounds of an event would take more than :data:`MAX_WORK`."""
    if not hasattr(event, "work"):
        raise TypeError(f"event={event!r} must be an Event.")
    try:
        work = event.work()
    except RecursionError:
        raise WorkLimitError("The event is nested too deeply. Flatten its compositions.") from None
    if not work <= MAX_WORK:
        raise WorkLimitError(
            f"Accounting for this {type(event).__name__} would compute about {work:.0e} numbers; "
            f"the limit is {MAX_WORK:.0e}, about a minute. Use smaller counts or fewer kinds of "
            "events."
        )


def closed_form_work(self: HasWork) -> float:
    """Return the work of closed-form bounds; a class uses it as ``work = closed_form_work``."""
    return CLOSED_FORM_WORK


def repeated_work(work: float, count: int) -> float:
    """Return the work of ``count`` occurrences of an event: powers take log2(count) squarings."""
    return work * (1 + math.log2(max(count, 1)) / 16)
