"""Base class of privacy events: frozen descriptions of releases with known bounds on their cost.

The meaning of an event never changes: a new meaning is a new class. Only :class:`RepeatedEvent` has
a count. Noise multipliers divide by the sensitivity under the relation of the guarantee. Two
classes divide by the norm of one record's contribution instead: :class:`PoissonSampledEvent` and
:class:`MatrixFactorizationEvent`. Start reading at :class:`Event`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._validation import PlainNumbers, is_number, probability, sequence, whole
from .work_limit import COMPOSITIONS_PER_CURVE, CURVE_WORK

if TYPE_CHECKING:
    from .pld.pairs import Pair

RELATIONS = ("add_remove", "label", "replace_one", "zero_out")
ARITHMETICS = ("exact", "unspecified", "floating_point")  # of noise, strongest first
Orders: TypeAlias = NDArray[np.float64]
Pairs: TypeAlias = "tuple[Pair, Pair]"
_TAGS: dict[str, type[Event]] = {}


@dataclass(frozen=True)
class Event(PlainNumbers):
    """Base class of privacy events: what was released, and the known bounds on its cost.

    A subclass must define :meth:`work`, which accountants call first. It overrides the methods from
    :meth:`iter_components` to :meth:`local_bound` for which it has a bound. Accountants call these
    methods. Users call ``rdp``, ``pld``, :func:`zcdp` or :func:`epsilon_of`.

    Ledgers store events for years: a class is stored under its tag, and its fields under their
    names. From the first release on, neither changes.

    Parameters
    ----------
    tag : str, class keyword
        Name of the class in JSON. It must never change or be reused for another class. The default
        joins the names of module and class. ``None`` marks a base class.
    knows_label : bool, class keyword, default=False
        Whether the bounds also hold under ``relation="label"``, where a record keeps its features
        and its label becomes any other. They do if the sensitivity is the one under the relation of
        the guarantee. Accountants refuse other events under that relation. The keyword is not
        inherited.

    Raises
    ------
    TypeError
        If a class is defined with the tag of another class, or without :meth:`work`.

    Examples
    --------
    >>> from skprivacy.accounting import Event, GaussianEvent, RepeatedEvent
    >>> Event.from_dict(RepeatedEvent(GaussianEvent(2.0), 3).to_dict())
    RepeatedEvent(event=GaussianEvent(noise_multiplier=2.0), count=3)
    """

    _tag: ClassVar[str | None] = None
    _source: ClassVar[str] = "Event"
    _knows_label: ClassVar[bool] = False
    has_bounded_loss: ClassVar[bool] = False  # a Poisson sample then follows from the pure epsilon

    def __init_subclass__(
        cls, *, tag: str | None = "", knows_label: bool = False, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls._source = f"{cls.__module__}.{cls.__qualname__}"
        cls._tag = cls._source if tag == "" else tag
        cls._knows_label = knows_label
        if cls._tag is not None:
            if cls.work is Event.work:
                raise TypeError(
                    f"{cls._source} must define work(), by which events that take too long are "
                    "refused: about how many numbers its bounds compute, 1e6 if they are formulas."
                )
            _register(cls._tag, cls)

    def work(self) -> float:
        """Return roughly how many floating-point numbers the bounds of this event compute.

        Accountants call this first and refuse an event above the limit. Every class with a tag must
        define it. For all values of the fields it must return without computing a bound, allocating
        an array or raising; it may return infinity.

        Returns
        -------
        float
            Each number takes about 10 ns; see ``skprivacy/accounting/work_limit.py``.
        """
        raise NotImplementedError(f"{self._source} is a base class (tag=None) without work().")

    def curve_work(self) -> float:
        """Return the work of the privacy curve of this event, from which others are bounded.

        By default its bounds are computed anew for each composition that the curve takes. A class
        with work that is done once for all of them adds that only once.

        Returns
        -------
        float
            In the unit of :meth:`work`.
        """
        return CURVE_WORK + COMPOSITIONS_PER_CURVE * self.work()

    def renyi_work(self) -> float:
        """Return the work of the Renyi divergences alone, by default all of :meth:`work`.

        A class that holds other events adds up their ``renyi_work`` and does not call ``work``.
        Otherwise the number of calls would double with each level of nesting.

        Returns
        -------
        float
            In the unit of :meth:`work`.
        """
        return self.work()

    def iter_components(self) -> Iterable[tuple[Event, int]] | None:
        """Return the events that this event consists of, with counts; None if it is elementary."""
        return None

    def renyi(self, orders: Orders, relation: str) -> Orders:
        """Return the Renyi divergence bound at each order.

        Infinity stands for no bound. Accountants also read negative numbers and NaN as infinity.

        Parameters
        ----------
        orders : ndarray of shape (n_orders,)
            Renyi orders, above 1.
        relation : str
            The neighbouring relation.

        Returns
        -------
        ndarray of shape (n_orders,)
            In nats.
        """
        raise TypeError(
            f"No Renyi bound is known for {self!r}, so it cannot be accounted for. Implement "
            "renyi() or dominating_pairs() in its class."
        )

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        """Return the Renyi divergence bound of this event on a Poisson sample.

        Parameters
        ----------
        rate : float
            The probability with which each record is in the sample, in (0, 1].
        orders : ndarray of shape (n_orders,)
            Renyi orders, above 1.
        relation : str
            The neighbouring relation.

        Returns
        -------
        ndarray of shape (n_orders,)
            In nats, as from :meth:`renyi`.
        """
        raise TypeError(
            f"No Renyi bound is known for a Poisson sample of {self!r}. Account for it without "
            "sampling, or implement sampled_renyi() in its class."
        )

    def dominating_pairs(self, relation: str) -> Pairs:
        """Return the dominating pairs for removing and for adding a record.

        Parameters
        ----------
        relation : str
            The neighbouring relation.

        Returns
        -------
        tuple of two pairs
            For removing, and for adding.
        """
        raise NoLossDistributionError(f"No privacy loss distribution is known for {self!r}.")

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        """Return the dominating pairs on a Poisson sample.

        Parameters
        ----------
        rate : float
            The probability with which each record is in the sample, in (0, 1].
        relation : str
            The neighbouring relation.

        Returns
        -------
        tuple of two pairs, or None
            For removing, and for adding. None: :class:`PoissonSampledEvent` derives them from
            :meth:`dominating_pairs`.
        """
        return None

    def zcdp(self, relation: str) -> float:
        """Return rho of zero-concentrated DP, by default epsilon^2 / 2 of pure DP.

        Parameters
        ----------
        relation : str
            The neighbouring relation.

        Returns
        -------
        float
            Infinity where no bound is known.
        """
        try:
            pairs = self.dominating_pairs(relation)
        except NoLossDistributionError:
            return math.inf
        if any(pair.infinity > 0 for pair in pairs):
            return math.inf
        # Bun and Steinke 2016, Proposition 1.4: pure epsilon-DP implies (epsilon^2 / 2)-zCDP
        return max(pair.max_loss for pair in pairs) ** 2 / 2

    def gdp(self) -> tuple[float, bool]:
        """Return mu of Gaussian DP, and whether it is proved.

        Returns
        -------
        tuple of float and bool
            Mu (infinity where none is known), and whether it is proved. Under sampling mu is only
            the limit of many steps.
        """
        return math.inf, True

    def grouped(self, size: int) -> Event | None:
        """Return the event that bounds the cost for a group of units (group privacy).

        Parameters
        ----------
        size : int
            Largest number of units in a group, at least 1.

        Returns
        -------
        Event or None
            Its bounds hold between two data sets that are ``size`` steps of the relation apart, all
            steps in the same direction. None: only the privacy curve bounds the group's cost.
        """
        return None

    def local_bound(self, order: float) -> LocalBound | None:
        """Return the data-dependent Renyi cost and its sensitivity; None if data-independent.

        Parameters
        ----------
        order : float
            The Renyi order, above 1.

        Returns
        -------
        LocalBound or None
            The cost and its sensitivity may be private.
        """
        if self.data_dependent:
            raise TypeError(
                f"No smooth sensitivity is known for the data-dependent cost of {self!r}. Account "
                "for it without votes."
            )
        return None

    @property
    def data_dependent(self) -> bool:
        """Whether the cost was computed from private data, and is therefore private itself."""
        return any(event.data_dependent for event in _inner_events(self))

    def to_dict(self) -> dict[str, Any]:
        """Return a description of JSON types only.

        Returns
        -------
        dict
            With the tag as ``type``, and the fields.

        Raises
        ------
        ValueError
            If the event holds private data, such as votes.
        """
        if self.data_dependent:
            raise ValueError(
                f"{type(self).__name__} holds private data and is never stored. Pass the "
                "data-independent event instead."
            )
        if self._tag is None:
            raise TypeError(
                f"{self._source} is a base class (tag=None), not an event. Use one of its "
                "subclasses."
            )
        values = {f.name: _to_json_types(getattr(self, f.name)) for f in fields(self)}
        return {"type": self._tag, **values}

    @staticmethod
    def from_dict(description: dict[str, Any]) -> Event:
        """Rebuild an event from the output of :meth:`to_dict`.

        Parameters
        ----------
        description : dict
            Output of :meth:`to_dict`.

        Returns
        -------
        Event
            Equal to the one described.

        Raises
        ------
        ValueError
            If the tag is unknown, or the fields do not fit.
        """
        stored = dict(description) if isinstance(description, dict) else {}
        tag = stored.pop("type", None)
        known = _TAGS.get(tag) if isinstance(tag, str) else None
        if known is None:
            raise ValueError(
                f"type={tag!r} of {description!r} is not the tag of a known event, one of "
                f"{sorted(_TAGS)}. Import the module that defines the event with tag={tag!r}, or "
                "update skprivacy if a newer version wrote it."
            )
        try:
            return known(**{name: _from_json_types(value) for name, value in stored.items()})
        except TypeError as error:
            raise ValueError(f"{description!r} does not match its type: {error}.") from None


def check_relation(relation: str) -> str:
    """Return ``relation`` if the library supports it, else raise ValueError."""
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ValueError(f"relation={relation!r} must be one of {RELATIONS}.")
    return relation


def check_arithmetic(arithmetic: Any) -> str:
    """Return a valid arithmetic; raise ValueError for any other value."""
    if not isinstance(arithmetic, str) or arithmetic not in ARITHMETICS:
        raise ValueError(f"arithmetic={arithmetic!r} must be one of {ARITHMETICS}.")
    return arithmetic


def allows_replacement(relation: str) -> bool:
    """Return True if a record may change, which moves its contribution by up to twice its norm."""
    return relation in ("label", "replace_one")


def numbers(name: str, values: Any) -> tuple[float, ...]:
    """Convert a sequence of real numbers to floats; errors do not show its values."""
    found = sequence(name, values)
    if not all(is_number(value) for value in found):
        raise TypeError(f"{name} must be a sequence of real numbers.")
    try:
        return tuple(float(value) for value in found)
    except OverflowError:
        raise ValueError(f"{name} holds a number beyond 1e308.") from None


def check_delta(delta: float, n_records: int | None = None) -> float:
    """Return ``delta`` if it is in [0, 1) and below ``1 / n_records``."""
    probability("delta", delta)
    if n_records is not None:
        whole("n_records", n_records)
    if n_records is not None and delta >= 1 / n_records:
        raise ValueError(
            f"delta={delta!r} must be below 1/n = {1 / n_records:.3g} for {n_records} records: at "
            "1/n, even publishing a record chosen at random would satisfy the guarantee. Pass a "
            "smaller delta."
        )
    return float(delta)


class NoLossDistributionError(TypeError):
    """No dominating pair is known for an event, so it has no privacy loss distribution."""


class LocalBound(NamedTuple):
    """A Renyi cost at one order, and its local sensitivity. **Both may be private.**"""

    cost: float  # in nats
    # Maps distances (integers) to the change by one more record at that distance.
    sensitivity: Callable[[NDArray[Any]], NDArray[np.float64]]
    reach: int  # distance from which on the sensitivity does not grow


def check_event(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is an event."""
    if not isinstance(value, Event):
        raise TypeError(
            f"{name} must be an Event, such as GaussianEvent(1.0); got {type(value).__name__}."
        )


def check_known(event: Event, relation: str) -> None:
    """Raise TypeError if bounds of an event, or of an inner one, may not hold for a relation."""
    if relation != "label":
        return
    if not event._knows_label:
        raise TypeError(
            f"The bounds of {event!r} are not known to hold under relation='label', where a record "
            "keeps its features and its label changes. If its sensitivity is the one under that "
            "relation, define its class with knows_label=True."
        )
    for part in _inner_events(event):
        check_known(part, relation)


def flatten(event: Event) -> Counter[Event]:
    """Count the elementary events in an event."""
    counts: Counter[Event] = Counter()
    stack = [(event, 1)]
    while stack:
        current, times = stack.pop()
        check_event("event", current)
        parts = current.iter_components()
        if parts is None:
            counts[current] += times
        else:
            stack.extend((e, times * n) for e, n in parts)
    return Counter({e: n for e, n in counts.items() if n})


def _register(tag: str, cls: type[Event]) -> None:
    """Register ``cls`` under its tag, unless a class of another source has it."""
    known = _TAGS.get(tag)
    if known is not None and known._source != cls._source:
        raise TypeError(
            f"tag={tag!r} of {cls._source} already belongs to {known._source}: stored events of "
            "one would be read as the other. Choose a unique tag for the class."
        )
    _TAGS[tag] = cls


def _inner_events(event: Event) -> Iterator[Event]:
    """Yield the events that are fields of an event."""
    for f in fields(event):
        value = getattr(event, f.name)
        values = value if isinstance(value, tuple) else (value,)
        yield from (e for e in values if isinstance(e, Event))


def _to_json_types(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_to_json_types(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(value) if isinstance(value, Real) and not isinstance(value, int) else value


def _from_json_types(value: Any) -> Any:
    if isinstance(value, dict):
        return Event.from_dict(value)
    if isinstance(value, list):
        return tuple(_from_json_types(v) for v in value)
    return value
