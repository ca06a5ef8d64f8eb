"""What an event is: a frozen fact with a tag, and what is known of its cost.

An event's meaning never changes: a new meaning is a new class. Only :class:`Repeated` knows a
count. Every sensitivity that an event divides by is the one under the relation of the guarantee,
except where an event says that it is the norm of one record's contribution
(:class:`PoissonSampled`, :class:`MatrixFactorization`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # the engine reads events, and events name its pairs
    from .pld.pairs import Pair

__all__ = [
    "Event",
    "LocalBound",
    "NoLossDistributionError",
    "Orders",
    "Pairs",
    "check_event",
    "flatten",
]

Orders: TypeAlias = NDArray[np.float64]
Pairs: TypeAlias = "tuple[Pair, Pair]"


class NoLossDistributionError(TypeError):
    """No dominating pair is known for an event, so it has no privacy loss distribution here."""


class LocalBound(NamedTuple):
    """A Renyi cost at one order, and how far it moves with the data. **Both may be private.**

    Parameters
    ----------
    cost : float
        In nats.
    sensitivity : callable
        Takes distances, an integer array, and returns how much one more record can change the cost
        when that many records may have changed before.
    reach : int
        The distance from which on the sensitivity grows no more.
    """

    cost: float
    sensitivity: Callable[[NDArray[Any]], NDArray[np.float64]]
    reach: int


def check_event(name: str, value: Any) -> None:
    """Refuse anything but an event."""
    if not isinstance(value, Event):
        raise TypeError(f"{name}={value!r} must be an Event.")


@dataclass(frozen=True)
class Event:
    """Base class of everything that an accountant can be asked to interpret.

    The methods from :meth:`parts` to :meth:`local_bound` say what is known of an event's cost; an
    event overrides those that it has an answer to. They are for accountants: ask :func:`rdp`,
    :func:`pld`, :func:`zcdp` or :func:`epsilon_of`.

    A ledger keeps events for years, so what it keeps does not hang on names in the source: a class
    is stored under its tag, and its fields under the names in ``stored``.

    Parameters
    ----------
    tag : str, class keyword
        What the class is called in JSON; never to be changed or given to another class. Without
        one it is the name of the module and of the class. ``None`` marks a base class.
    stored : tuple of str, class keyword
        What the fields are called in JSON, in their order; by default as in the source.
    version : int, class keyword, default=1
        Raise it when ``stored`` changes, and write :meth:`upgraded`.

    Raises
    ------
    TypeError
        When a class is defined whose tag is that of another one.

    Examples
    --------
    >>> from skprivacy.accounting import Event, GaussianEvent, Repeated
    >>> Event.from_dict(Repeated(GaussianEvent(2.0), 3).to_dict())
    Repeated(event=GaussianEvent(noise_multiplier=2.0), count=3)
    """

    _tag: ClassVar[str | None] = None
    _source: ClassVar[str] = "Event"
    _stored: ClassVar[tuple[str, ...] | None] = None
    _version: ClassVar[int] = 1

    def __init_subclass__(
        cls,
        *,
        tag: str | None = "",
        stored: tuple[str, ...] | None = None,
        version: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        # dataclass(slots=True) makes the class anew, of the same attributes, without its keywords
        own = cls.__dict__
        cls._source = own.get("_source") or f"{cls.__module__}.{cls.__qualname__}"
        if tag is not None:
            tag = tag or own.get("_tag") or cls._source
        cls._tag = tag
        cls._stored = stored or own.get("_stored")
        cls._version = version or own.get("_version", 1)
        if tag is not None:
            _register(tag, cls)

    def parts(self) -> Iterable[tuple[Event, int]] | None:
        """Return the events that this one consists of, and how often; None if it is elementary."""
        return None

    def renyi(self, orders: Orders, relation: str) -> Orders:
        """Return the Renyi divergence bound at each order, in nats.

        Infinity where there is none. A negative or undefined number also counts as infinity.
        """
        raise TypeError(f"No Renyi bound is known for {self!r}; it cannot be accounted for.")

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        """Return the Renyi divergence bound of this event on a Poisson sample."""
        raise TypeError(f"No Renyi bound is known for a Poisson sample of {self!r}.")

    def dominating_pairs(self, relation: str) -> Pairs:
        """Return the dominating pairs for removing and for adding a record."""
        raise NoLossDistributionError(f"No privacy loss distribution is known for {self!r}.")

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        """Return the pairs of this event on a Poisson sample; None if they follow from its own."""
        return None

    def zcdp(self, relation: str) -> float:
        """Return rho of zero-concentrated DP: through pure DP unless something better is known."""
        try:
            pairs = self.dominating_pairs(relation)
        except NoLossDistributionError:
            return math.inf
        if any(pair.infinity > 0 for pair in pairs):
            return math.inf
        return max(pair.max_loss for pair in pairs) ** 2 / 2

    def gdp(self) -> tuple[float, bool]:
        """Return mu of Gaussian DP, and whether it is proved; infinity where nothing is known."""
        return math.inf, True

    def local_bound(self, order: float) -> LocalBound | None:
        """Return the data-dependent Renyi cost and how far it moves; None if it does not move."""
        if self.data_dependent:
            raise TypeError(
                f"No smooth sensitivity is known for the data-dependent cost of {self!r}; account "
                "for it without votes."
            )
        return None

    @property
    def data_dependent(self) -> bool:
        """Whether the cost was computed from private data, and is therefore private itself."""
        return any(
            e.data_dependent
            for f in fields(self)
            for e in _as_tuple(getattr(self, f.name))
            if isinstance(e, Event)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a description made of JSON types only.

        Raises
        ------
        ValueError
            If the event holds private data, such as votes.
        """
        if self.data_dependent:
            raise ValueError(
                f"{type(self).__name__} holds private data and is not written down; give the "
                "data-independent event instead."
            )
        if self._tag is None:
            raise TypeError(f"{self._source} is a base class (tag=None), no event.")
        version = {"version": self._version} if self._version != 1 else {}
        names = self._stored_names()
        values = {stored: _plain(getattr(self, own)) for stored, own in names.items()}
        return {"type": self._tag, **version, **values}

    @staticmethod
    def from_dict(description: dict[str, Any]) -> Event:
        """Rebuild the event that :meth:`to_dict` described.

        Raises
        ------
        ValueError
            If the tag or its version is unknown, or the fields do not fit.
        """
        stored = dict(description) if isinstance(description, dict) else {}
        tag, version = stored.pop("type", None), stored.pop("version", 1)
        known = _TAGS.get(tag) if isinstance(tag, str) else None
        if known is None:
            raise ValueError(
                f"type={tag!r} is not the tag of a known event. If it is an event of yours, import "
                f"its module first, and let its class have tag={tag!r}; if a newer skprivacy wrote "
                f"it, update. Known tags are {sorted(_TAGS)}. Got {description!r}."
            )
        if type(version) is not int or not 1 <= version <= known._version:
            raise ValueError(
                f"version={version!r} of the event {tag!r} is unknown: versions up to "
                f"{known._version} are read here. Update what defines {known._source}."
            )
        if version < known._version:
            stored = known.upgraded(stored, version)
        names = known._stored_names()
        unknown = sorted(stored.keys() - names.keys())
        if unknown:
            raise ValueError(f"{description!r} does not fit its type: {unknown} are no fields.")
        try:
            return known(**{names[k]: _event_like(v) for k, v in stored.items()})
        except TypeError as error:
            raise ValueError(f"{description!r} does not fit its type: {error}.") from None

    @classmethod
    def upgraded(cls, stored: dict[str, Any], version: int) -> dict[str, Any]:
        """Return what ``version`` stored as the present version would have stored it.

        Parameters
        ----------
        stored : dict
            Stored names and values.
        version : int
            Below the present one.

        Returns
        -------
        dict
        """
        raise ValueError(
            f"version={version!r} of the event {cls._tag!r} cannot be read any more: its class, "
            f"{cls._source}, has version {cls._version} and defines no upgraded()."
        )

    @classmethod
    def _stored_names(cls) -> dict[str, str]:
        """Return the name of each field by the name that it is stored under."""
        own = [f.name for f in fields(cls)]
        stored = own if cls._stored is None else list(cls._stored)
        if len(set(stored) - {"type", "version"}) != len(own) or len(stored) != len(own):
            raise TypeError(
                f"stored={stored!r} of {cls._source} must name each of its fields {own!r} "
                "once, and none of them 'type' or 'version'."
            )
        return dict(zip(stored, own, strict=True))


_TAGS: dict[str, type[Event]] = {}


def _register(tag: str, cls: type[Event]) -> None:
    """Give ``cls`` its tag, unless another class has it; a class defined anew keeps its own."""
    known = _TAGS.get(tag)
    if known is not None and known._source != cls._source:
        raise TypeError(
            f"tag={tag!r} of {cls._source} is that of {known._source}: ledgers that hold "
            "one would be read as the other. Give the class a tag of its own."
        )
    _TAGS[tag] = cls


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def _event_like(value: Any) -> Any:
    if isinstance(value, dict):
        return Event.from_dict(value)
    if isinstance(value, list):
        return tuple(_event_like(v) for v in value)
    return value


def flatten(event: Event) -> Counter[Event]:
    """Return how often each elementary event happens in ``event``.

    Parameters
    ----------
    event : Event
        Any, nested as it may be.

    Returns
    -------
    collections.Counter of Event
        How often each event occurs that is neither ``Repeated`` nor ``Composed``.

    Examples
    --------
    >>> from skprivacy.accounting import Composed, GaussianEvent, Repeated, flatten
    >>> flatten(Composed((Repeated(GaussianEvent(1.0), 3), GaussianEvent(1.0))))
    Counter({GaussianEvent(noise_multiplier=1.0): 4})
    """
    counts: Counter[Event] = Counter()
    stack = [(event, 1)]
    while stack:
        current, times = stack.pop()
        if not isinstance(current, Event):
            raise TypeError(f"{current!r} is not an Event.")
        parts = current.parts()
        if parts is None:
            counts[current] += times
        else:
            stack.extend((e, times * n) for e, n in parts)
    return Counter({e: n for e, n in counts.items() if n})
