"""Composition of events: the same event repeated, or several events on the same data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .._checks import sequence, whole
from .._event import Event, Orders, check_event, check_known, flatten
from .._renyi import rdp
from .._work import check_work, repeated_work

__all__ = ["Composed", "Repeated"]


@dataclass(frozen=True)
class Repeated(Event, tag="Repeated", stored=("event", "count"), knows_label=True):
    """Adaptive composition of the same event: each run may depend on earlier answers.

    Parameters
    ----------
    event : Event
        What is released each time.
    count : int
        Number of runs, at least 0.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        check_event("event", self.event)
        whole("count", self.count, 0)

    def parts(self) -> Iterable[tuple[Event, int]]:
        return ((self.event, self.count),)

    def work(self) -> float:
        return repeated_work(self.event.work(), self.count)

    def curve_work(self) -> float:
        return repeated_work(self.event.curve_work(), self.count)

    def renyi_work(self) -> float:
        return self.event.renyi_work()

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Mironov 2017, composition: Renyi costs add up
        return self.count * rdp(self.event, orders, relation) if self.count else 0 * orders

    def zcdp(self, relation: str) -> float:
        return total_zcdp(self, relation)

    def grouped(self, size: int) -> Repeated | None:
        one = self.event.grouped(size)
        return None if one is None else Repeated(one, self.count)


@dataclass(frozen=True)
class Composed(Event, tag="Composed", stored=("events",), knows_label=True):
    """Adaptive composition of several events on the same data.

    Parameters
    ----------
    events : tuple of Event
        What is released, in any order.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", sequence("events", self.events))
        for event in self.events:
            check_event("events", event)

    def parts(self) -> Iterable[tuple[Event, int]]:
        return ((event, 1) for event in self.events)

    def work(self) -> float:
        return sum(event.work() for event in self.events)

    def curve_work(self) -> float:
        return sum(event.curve_work() for event in self.events)

    def renyi_work(self) -> float:
        return sum(event.renyi_work() for event in self.events)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        each = (rdp(Repeated(e, n), orders, relation) for e, n in flatten(self).items())
        return sum(each, 0 * orders)

    def zcdp(self, relation: str) -> float:
        return total_zcdp(self, relation)

    def grouped(self, size: int) -> Composed | None:
        each = [event.grouped(size) for event in self.events]
        known = tuple(event for event in each if event is not None)
        return Composed(known) if len(known) == len(each) else None


def total_zcdp(event: Event, relation: str) -> float:
    """Return rho of all parts of an event: the sum (Bun and Steinke 2016, Lemma 1.7)."""
    check_work(event)
    check_known(event, relation)
    return math.fsum(n * e.zcdp(relation) for e, n in flatten(event).items())
