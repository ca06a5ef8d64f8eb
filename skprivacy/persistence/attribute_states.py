"""Kinds of fitted attributes: how each is written to a file, read from it and checked.

A class declares the kinds of its attributes in ``_saved_state`` (see ``state``). ``model_states``
has the kinds of nested and single models, and the table of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee
from ..preprocessing import Schema
from .file_format import Arrays
from .value_checks import (
    BY_DEFAULT,
    NUMBER_TYPES,
    check_names,
    classes_from_state,
    classes_to_state,
    number,
    restore_guarantee,
    restored_value,
    saved_value,
    whole,
)

_MAX_CLASSES = 1 << 16


@dataclass
class StateWriter:
    """Destination of one model: its facts and arrays."""

    model: Any
    facts: dict[str, Any]
    arrays: dict[str, NDArray]
    prefix: str
    nest: Callable[[Any, str, bool], dict[str, Any]]  # arguments: model, name, is a learner

    def put(self, name: str, array: Any) -> None:
        """Write an array as float64."""
        self.arrays[self.prefix + name] = np.asarray(array).astype(np.float64)


@dataclass
class StateReader:
    """Source of one model: its facts, its arrays and the sizes known so far."""

    model: Any
    facts: dict[str, Any]
    arrays: Arrays
    nest: Callable[[Any, str, bool], Any]
    given: Any  # code that the caller passes
    sizes: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def fact(self, name: str) -> Any:
        """Return a required fact and mark it as used."""
        self.used.add(name)
        return self.facts[name]

    def flag(self, name: str) -> bool:
        """Return a boolean fact."""
        found = self.fact(name)
        if not isinstance(found, bool):
            raise ValueError(f"{name} is {found!r}, expected true or false")
        return found

    def take(self, name: str, sizes: tuple[str, ...]) -> NDArray[np.float64]:
        """Return an array of the named sizes; the first array with a new size name defines it."""
        if not set(sizes) <= set(self.sizes):
            found = self.arrays.shape(name)
            if len(found) == len(sizes):
                self.sizes = {**dict(zip(sizes, found, strict=True)), **self.sizes}
        return self.arrays.take(name, tuple(self.sizes.get(size, 0) for size in sizes))


class State:
    """Base class: writes and reads one kind of attribute."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts[name] = value

    def read_state(self, into: StateReader, name: str) -> Any:
        raise NotImplementedError


class _Number(State):
    """A finite number."""

    def read_state(self, into: StateReader, name: str) -> float:
        return number({name: into.fact(name)}, name)


class _Count(State):
    """An integer of at least 1."""

    def read_state(self, into: StateReader, name: str) -> int:
        return whole({name: into.fact(name)}, name)


class _Text(State):
    """Text: any, or one of the texts that the arguments name."""

    def read_state(self, into: StateReader, name: str) -> str:
        found = into.fact(name)
        if not isinstance(found, str) or found not in (self.arguments or (found,)):
            expected = f"one of {list(self.arguments)}" if self.arguments else "text"
            raise ValueError(f"{name} is {found!r}, expected {expected}")
        return found


class _Flag(State):
    """True or false."""

    def read_state(self, into: StateReader, name: str) -> bool:
        return into.flag(name)


class _Settings(State):
    """Numbers by name; a trailing ``#`` marks an integer, as in ``batch_size#``."""

    def read_state(self, into: StateReader, name: str) -> dict[str, float | int]:
        stated = check_names(into.fact(name), [each.rstrip("#") for each in self.arguments])
        return {
            each.rstrip("#"): (whole if each.endswith("#") else number)(stated, each.rstrip("#"))
            for each in self.arguments
        }


class _Array(State):
    """Finite numbers of the named sizes; with ``when PARAM``, None if PARAM is false."""

    def __init__(self, *arguments: str) -> None:
        self.sizes, self.when = arguments, ""
        if "when" in arguments:
            *sizes, _, self.when = arguments
            self.sizes = tuple(sizes)

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        if not self.when or getattr(out.model, self.when):
            out.put(name, value)

    def read_state(self, into: StateReader, name: str) -> Any:
        if self.when and not getattr(into.model, self.when):
            return None
        return into.take(name, self.sizes)


class _Positive(_Array):
    """An array of numbers above 0."""

    def read_state(self, into: StateReader, name: str) -> Any:
        found = super().read_state(into, name)
        if found is not None and not (found > 0).all():
            raise ValueError(f"{name} has values that are not above 0")
        return found


class _Typed(_Array):
    """An array that is restored in its own type, float32 or float64."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        super().write_state(out, name, value)
        out.facts.setdefault("types", {})[name] = np.asarray(value).dtype.name

    def read_state(self, into: StateReader, name: str) -> Any:
        found = into.fact("types")[name]
        if not isinstance(found, str) or found not in NUMBER_TYPES:
            raise ValueError(
                f"{name!r} has the type {found!r}, expected one of {list(NUMBER_TYPES)}"
            )
        return super().read_state(into, name).astype(found)


class _Variances(_Typed):
    """An array of numbers of at least 0."""

    def read_state(self, into: StateReader, name: str) -> Any:
        found = super().read_state(into, name)
        if not (found >= 0).all():
            raise ValueError(f"{name} has values below 0")
        return found


class Public(State):
    """Base class of public facts; a file also states whether the user had passed them.

    A fact that was read off the data must not count as public in a new fit.
    """

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        parameter = name.rstrip("_")
        self.put(out, parameter, value)
        if _has_parameter(out.model, parameter):
            out.facts[f"{parameter}_given"] = getattr(out.model, parameter) is not None

    def read_state(self, into: StateReader, name: str) -> Any:
        parameter = name.rstrip("_")
        found = self.take(into, parameter)
        if _has_parameter(into.model, parameter):
            given = into.flag(f"{parameter}_given")
            setattr(into.model, parameter, found if given else None)
        return found

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        raise NotImplementedError

    def take(self, into: StateReader, parameter: str) -> Any:
        raise NotImplementedError


class _Labels(Public):
    """Labels, sorted unless they name columns; they define the sizes of classes and outputs."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = classes_to_state(value)

    def take(self, into: StateReader, parameter: str) -> Any:
        found = classes_from_state(
            into.fact(parameter), of_columns=getattr(into.model, "multilabel_", False)
        )
        _set_class_sizes(into, len(found))
        return found


class _Prior(Public):
    """Public rates of the classes, or None."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = value

    def take(self, into: StateReader, parameter: str) -> Any:
        stated = into.fact(parameter)
        if stated is None:
            return None
        found = np.array(stated, dtype=np.float64)
        if found.shape != (into.sizes["classes"],) or not ((found > 0) & (found <= 1)).all():
            raise ValueError(f"{parameter}={stated!r}, expected a positive rate for each class")
        return found


class _Bounds(Public):
    """A lower and an upper bound of each feature."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.put(f"{parameter}_", np.stack(value))

    def take(self, into: StateReader, parameter: str) -> Any:
        lower, upper = into.arrays.take(f"{parameter}_", (2, into.sizes["features"]))
        if not (lower <= upper).all():
            raise ValueError("a lower bound of a feature is above its upper bound")
        return lower, upper


class _Interval(Public):
    """A lower and an upper bound of the target."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = list(value)

    def take(self, into: StateReader, parameter: str) -> Any:
        lower, upper = (number({parameter: v}, parameter) for v in into.fact(parameter))
        if not lower < upper:
            raise ValueError(
                f"{parameter}=({lower!r}, {upper!r}), expected a lower bound below the upper bound"
            )
        return lower, upper


class _Schema(Public):
    """Public facts about each column."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = value.to_dict()

    def take(self, into: StateReader, parameter: str) -> Any:
        return Schema.from_dict(into.fact(parameter))


class _ImageShape(Public):
    """Height and width of images, whose product is the number of features."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = list(value)

    def take(self, into: StateReader, parameter: str) -> Any:
        height, width = (whole({parameter: side}, parameter) for side in into.fact(parameter))
        if height * width != into.sizes["features"]:
            raise ValueError(
                f"{parameter}=({height}, {width}) does not match {into.sizes['features']} features"
            )
        return height, width


class _Indices(State):
    """Classes of a learner, as indices into the classes of the enclosing model."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts[name.rstrip("_")] = value

    def read_state(self, into: StateReader, name: str) -> NDArray[np.int64]:
        stated = into.fact(name.rstrip("_"))
        whole_numbers = isinstance(stated, list) and all(type(value) is int for value in stated)
        if not whole_numbers or len(stated) < 2 or sorted(set(stated)) != stated:
            raise ValueError(f"the learner has the classes {stated!r}, expected sorted indices")
        if stated[0] < 0 or stated[-1] >= _MAX_CLASSES:
            raise ValueError(
                f"the learner has the classes {stated!r}, expected 0 to {_MAX_CLASSES - 1}"
            )
        _set_class_sizes(into, len(stated))
        return np.array(stated, dtype=np.int64)


class _Guarantee(State):
    """The guarantee; the attributes derived from it, such as ``epsilon_``, are recomputed."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts[name.rstrip("_")] = value.to_dict()

    def read_state(self, into: StateReader, name: str) -> PrivacyGuarantee:
        restore_guarantee(into.model, {"privacy": into.fact(name.rstrip("_"))})
        found: PrivacyGuarantee = into.model.privacy_
        return found


class _Values(State):
    """Numbers and text, in mappings or sequences, in the form of constructor parameters."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        found = saved_value(value)
        if found == BY_DEFAULT:
            raise ValueError(
                f"{name} of the {type(out.model).__name__} must hold only numbers and text to "
                "be saved. Use joblib instead, for files that only you can write."
            )
        out.facts[name] = found

    def read_state(self, into: StateReader, name: str) -> Any:
        return restored_value(into.fact(name))


def _set_class_sizes(into: StateReader, n: int) -> None:
    into.sizes |= {"classes": n, "outputs": 1 if n == 2 else n}


def _has_parameter(model: Any, name: str) -> bool:
    return name in signature(type(model)).parameters


KINDS: dict[str, type[State]] = {
    "array": _Array, "bounds": _Bounds, "choice": _Text, "count": _Count, "flag": _Flag,
    "guarantee": _Guarantee, "image_shape": _ImageShape, "indices": _Indices,
    "interval": _Interval, "labels": _Labels, "number": _Number, "positive": _Positive,
    "prior": _Prior, "schema": _Schema, "settings": _Settings, "text": _Text, "typed": _Typed,
    "values": _Values, "variances": _Variances,
}  # fmt: skip
