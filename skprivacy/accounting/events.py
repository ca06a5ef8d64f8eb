"""What was released, as frozen facts; the interpreters say what it costs.

An event knows nothing of accounting. Only :class:`Repeated` knows a count, and an event's meaning
never changes: a new meaning is a new class.

Every sensitivity that an event divides by is the one under the relation of the guarantee, except
where an event says that it is the norm of one record's contribution (:class:`PoissonSampled`,
:class:`MatrixFactorization`).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields
from typing import Any, ClassVar

__all__ = [
    "RELATIONS",
    "ApproxDP",
    "Composed",
    "Event",
    "Gaussian",
    "Laplace",
    "Logistic",
    "NonPrivate",
    "PoissonSampled",
    "Repeated",
    "check_relation",
    "flatten",
]

RELATIONS = ("add_remove", "replace_one", "zero_out")


def check_relation(relation: str) -> str:
    """Return ``relation`` if it is one that the library knows."""
    if relation not in RELATIONS:
        raise ValueError(f"relation={relation!r} must be one of {RELATIONS}.")
    return relation


def positive(name: str, value: Any) -> None:
    """Refuse anything but a finite number above zero."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r} must be a finite number > 0.")


def probability(name: str, value: Any) -> None:
    """Refuse anything outside [0, 1)."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and 0 <= value < 1):
        raise ValueError(f"{name}={value!r} must be a number in [0, 1).")


@dataclass(frozen=True)
class Event:
    """Base class of everything that an accountant can be asked to interpret.

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
    >>> from skprivacy.accounting import Event, Gaussian, Repeated
    >>> Event.from_dict(Repeated(Gaussian(2.0), 3).to_dict())
    Repeated(event=Gaussian(noise_multiplier=2.0), count=3)
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


def _as_tuple(value: Any) -> tuple:
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


def _check_event(name: str, value: Any) -> None:
    if not isinstance(value, Event):
        raise TypeError(f"{name}={value!r} must be an Event.")


@dataclass(frozen=True)
class NonPrivate(Event, tag="NonPrivate"):
    """A release without any protection."""


@dataclass(frozen=True)
class Gaussian(Event, tag="Gaussian", stored=("noise_multiplier",)):
    """A value of bounded L2 sensitivity plus Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the L2 sensitivity.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class Laplace(Event, tag="Laplace", stored=("noise_multiplier",)):
    """A scalar or vector of bounded L1 sensitivity plus independent Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by the L1 sensitivity; its inverse is the pure epsilon.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)


@dataclass(frozen=True)
class Logistic(Event, tag="Logistic", stored=("noise_multiplier", "norm")):
    """A scalar or vector plus independent logistic noise (the additive logistic mechanism).

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by the sensitivity. The variance is (pi * scale)**2 / 3.
    norm : {1, 2}, default=1
        The norm in which the sensitivity is bounded.
    """

    noise_multiplier: float
    norm: int = 1

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        if self.norm not in (1, 2):
            raise ValueError(f"norm={self.norm!r} must be 1 or 2.")


@dataclass(frozen=True)
class ApproxDP(Event, tag="ApproxDP", stored=("epsilon", "delta")):
    """Anything that is (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float, default=0.0
        In [0, 1).
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if self.epsilon != 0:
            positive("epsilon", self.epsilon)
        probability("delta", self.delta)


@dataclass(frozen=True)
class PoissonSampled(Event, tag="PoissonSampled", stored=("sampling_rate", "event")):
    """An event on a sample that includes every record independently.

    Parameters
    ----------
    sampling_rate : float
        The probability of inclusion, in (0, 1].
    event : Event
        What is done to the sample. **Its sensitivity bounds the norm of one record's
        contribution, under every relation**: a DP-SGD step of clipping norm C and noise of
        standard deviation z * C is ``PoissonSampled(q, Gaussian(z))`` whatever the relation.
    """

    sampling_rate: float
    event: Event

    def __post_init__(self) -> None:
        positive("sampling_rate", self.sampling_rate)
        if self.sampling_rate > 1:
            raise ValueError(f"sampling_rate={self.sampling_rate!r} must be in (0, 1].")
        _check_event("event", self.event)


@dataclass(frozen=True)
class Repeated(Event, tag="Repeated", stored=("event", "count")):
    """The same event several times over, each possibly chosen after seeing the last answer.

    Parameters
    ----------
    event : Event
    count : int
        At least 0.
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 0:
            raise ValueError(f"count={self.count!r} must be an integer >= 0.")


@dataclass(frozen=True)
class Composed(Event, tag="Composed", stored=("events",)):
    """Several events on the same data.

    Parameters
    ----------
    events : tuple of Event
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            _check_event("events", event)


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
    >>> from skprivacy.accounting import Composed, Gaussian, Repeated, flatten
    >>> flatten(Composed((Repeated(Gaussian(1.0), 3), Gaussian(1.0))))
    Counter({Gaussian(noise_multiplier=1.0): 4})
    """
    counts: Counter[Event] = Counter()
    stack = [(event, 1)]
    while stack:
        current, times = stack.pop()
        if isinstance(current, Repeated):
            stack.append((current.event, times * current.count))
        elif isinstance(current, Composed):
            stack.extend((e, times) for e in current.events)
        elif isinstance(current, Event):
            counts[current] += times
        else:
            raise TypeError(f"{current!r} is not an Event.")
    return Counter({e: n for e, n in counts.items() if n})
