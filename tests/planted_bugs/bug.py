"""A planted bug: one row of the tables in this folder, and how it is planted."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any
from unittest import mock

Make = Callable[[Any], Any]


@dataclass(frozen=True)
class Bug:
    """``make(original)`` in the place of ``owner.attribute``, and who notices it.

    ``owner`` is None for the class of the estimator itself. ``caught_by`` is a contract, which
    takes one of ``cases`` (of ``tests/contracts/cases.py`` or ``tests/mechanisms/noise_cases.py``)
    or nothing. The first case is tried every day, the others in the nightly run.
    ``visible_outside`` says in which estimators ``verify_privacy`` shows the bug: True for those
    that release through ``owner``, otherwise the beginnings of their names in ``VERIFIED``.
    """

    owner: Any
    attribute: str
    make: Make
    caught_by: Callable[..., None] | None = None
    cases: str | tuple[str, ...] = ()
    name: str = ""  # else that of ``make``
    visible_outside: bool | tuple[str, ...] = ()
    beside: tuple[tuple[Any, str, Make], ...] = ()  # what is planted with it
    says: str = ""  # an expression for the complaint of the contract
    nightly: bool = False  # whether all cases are left to the nightly run

    def __post_init__(self) -> None:
        cases = (self.cases,) if isinstance(self.cases, str) else self.cases
        object.__setattr__(self, "cases", cases)
        name = self.name or self.make.__name__.replace("_", " ")
        object.__setattr__(self, "name", name)

    def __str__(self) -> str:
        owner = "estimator" if self.owner is None else getattr(self.owner, "__name__", "table")
        return f"{self.name}-{owner.rpartition('.')[2]}.{self.attribute}"

    @contextmanager
    def planted(self, estimator: Any = None) -> Iterator[None]:
        """Plant it; ``estimator`` is the class of the estimator, for an owner of None."""
        with ExitStack() as stack:
            for owner, *patch in ((self.owner, self.attribute, self.make), *self.beside):
                stack.enter_context(patched(estimator if owner is None else owner, *patch))
            yield


def patched(owner: Any, name: str, make: Make) -> AbstractContextManager[Any]:
    """Return a patch that puts ``make(original)`` in the place of ``owner.name``."""
    if isinstance(owner, dict):
        return mock.patch.dict(owner, {name: make(owner[name])})
    return mock.patch.object(owner, name, make(getattr(owner, name)))


def instead(value: Any) -> Make:
    """Put a value in the place of whatever there is."""
    return lambda original: value


def replaced(
    owner: Any, attribute: str, value: Any, caught_by: Callable[..., None], name: str = "",
    nightly: bool = False,
) -> Bug:  # fmt: skip
    """Return a row whose bug is another value; of a function, its name is that of the bug."""
    name = name or value.__name__
    return Bug(owner, attribute, instead(value), caught_by, name=name, nightly=nightly)


def calling(bug: Callable[..., Any]) -> Make:
    """Let ``bug(original, ...)`` take the place of a call of the original."""

    @wraps(bug)
    def make(original: Any) -> Any:
        @wraps(original)
        def planted(*given: Any, **named: Any) -> Any:
            return bug(original, *given, **named)

        return planted

    return make


def halved(original: Any) -> Any:
    """Halve what a function, or a property, returns."""
    if isinstance(original, property):
        return property(halved(original.fget))
    return lambda *given, **named: original(*given, **named) / 2


def fields_halved(*names: str) -> Make:
    """Halve fields of the dataclass that a function, or a property, returns."""

    def make(original: Any) -> Any:
        if isinstance(original, property):
            return property(make(original.fget))

        def remade(*given: Any) -> Any:
            found = original(*given)
            return replace(found, **{name: getattr(found, name) / 2 for name in names})

        return remade

    return make


def asked_of(**changes: Any) -> Make:
    """Call a method of a copy of its dataclass with other fields."""
    return lambda original: lambda self, *given: original(replace(self, **changes), *given)
