"""What the words of a declaration mean: how each kind of attribute is written, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee
from ..linear_model.polynomial_objective import NoisyPolynomial
from ..mechanisms.bounds import UnitBall
from ..preprocessing import Schema
from .file_format import Arrays
from .value_checks import (
    check_names,
    classes_told,
    number,
    restore_classes,
    restore_guarantee,
    whole,
)

__all__ = [
    "StateReader",
    "StateWriter",
    "names_of_params",
    "restored_params",
    "saved_params",
    "state_of",
]

# Parameters that no file holds. Who takes part, what pays or seeds, and what is of the machine:
_SECRETS = {"budget", "device", "noise_seed", "party_names", "random_state"}
# ... models, and objects that a new fit takes by their defaults:
_OBJECTS = {
    "aggregator", "class_weight", "encoder", "estimator", "schema", "student", "synthesizer",
    "teacher",
}  # fmt: skip
# ... and code, without which the model would be another one.
_CODE = {"func", "inverse_func", "objective"}
LEFT_OUT = _SECRETS | _OBJECTS | _CODE
_BY_DEFAULT = {"default": True}  # written for a value that no file holds
_NUMBER_TYPES = {"float32": np.float32, "float64": np.float64}
_MOST_CLASSES = 1 << 16
_POLYNOMIAL = ("linear_std", "quadratic_std", "quadratic_norm", "trace_std", "unit")


@dataclass
class StateWriter:
    """What is written of one model."""

    model: Any
    facts: dict[str, Any]
    arrays: dict[str, NDArray]
    prefix: str
    nest: Callable[[Any, str, bool], dict[str, Any]]  # model, name and whether it is a learner

    def put(self, name: str, array: Any) -> None:
        """Write an array of float64 numbers."""
        self.arrays[self.prefix + name] = np.asarray(array).astype(np.float64)


@dataclass
class StateReader:
    """What is read of one model, and the sizes that are known of it by now."""

    model: Any
    facts: dict[str, Any]
    arrays: Arrays
    nest: Callable[[Any, str, bool], Any]
    sizes: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def fact(self, name: str) -> Any:
        """Return a fact, which is needed."""
        self.used.add(name)
        return self.facts[name]

    def flag(self, name: str) -> bool:
        """Return a fact that is true or false."""
        found = self.fact(name)
        if not isinstance(found, bool):
            raise ValueError(f"{name} is {found!r}, neither true nor false")
        return found

    def take(self, name: str, sizes: tuple[str, ...]) -> NDArray[np.float64]:
        """Return an array of these sizes; the first array that has a new one sets it."""
        if not set(sizes) <= set(self.sizes):
            found = self.arrays.shape(name)
            if len(found) == len(sizes):
                self.sizes = {**dict(zip(sizes, found, strict=True)), **self.sizes}
        return self.arrays.take(name, tuple(self.sizes.get(size, 0) for size in sizes))


class _State:
    """Base: how an attribute is written and read."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts[name] = value

    def read(self, into: StateReader, name: str) -> Any:
        raise NotImplementedError


class _Number(_State):
    """A finite number."""

    def read(self, into: StateReader, name: str) -> float:
        return number({name: into.fact(name)}, name)


class _Count(_State):
    """A whole number of at least 1."""

    def read(self, into: StateReader, name: str) -> int:
        return whole({name: into.fact(name)}, name)


class _Settings(_State):
    """Numbers by name; the names of whole ones end in a sign: ``batch_size#``."""

    def read(self, into: StateReader, name: str) -> dict[str, float | int]:
        told = check_names(into.fact(name), [each.rstrip("#") for each in self.arguments])
        return {
            each.rstrip("#"): (whole if each.endswith("#") else number)(told, each.rstrip("#"))
            for each in self.arguments
        }


class _Array(_State):
    """Finite numbers of the sizes that are named; with ``when PARAM`` None if PARAM is false."""

    def __init__(self, *arguments: str) -> None:
        self.sizes, self.when = arguments, ""
        if "when" in arguments:
            *sizes, _, self.when = arguments
            self.sizes = tuple(sizes)

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        if not self.when or getattr(out.model, self.when):
            out.put(name, value)

    def read(self, into: StateReader, name: str) -> Any:
        if self.when and not getattr(into.model, self.when):
            return None
        return into.take(name, self.sizes)


class _Positive(_Array):
    """An array of numbers above 0."""

    def read(self, into: StateReader, name: str) -> Any:
        found = super().read(into, name)
        if found is not None and not (found > 0).all():
            raise ValueError(f"{name} is not above 0")
        return found


class _Typed(_Array):
    """An array that comes back in single precision if it was."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        super().write(out, name, value)
        out.facts.setdefault("types", {})[name] = np.asarray(value).dtype.name

    def read(self, into: StateReader, name: str) -> Any:
        found = into.fact("types")[name]
        if not isinstance(found, str) or found not in _NUMBER_TYPES:
            raise ValueError(f"the numbers of {name!r} are of the type {found!r}")
        return super().read(into, name).astype(found)


class _Variances(_Typed):
    """An array of numbers of at least 0."""

    def read(self, into: StateReader, name: str) -> Any:
        found = super().read(into, name)
        if not (found >= 0).all():
            raise ValueError(f"{name} is below 0")
        return found


class _Public(_State):
    """Base of public facts: a file says how they were used, and whether they had been given.

    What was read off the data must not pass for public in a new fit.
    """

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        parameter = name.rstrip("_")
        self.put(out, parameter, value)
        if _has_parameter(out.model, parameter):
            out.facts[f"{parameter}_given"] = getattr(out.model, parameter) is not None

    def read(self, into: StateReader, name: str) -> Any:
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


class _Labels(_Public):
    """Labels, sorted; they set the sizes ``classes`` and ``outputs``."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = classes_told(value)

    def take(self, into: StateReader, parameter: str) -> Any:
        found = restore_classes(into.fact(parameter))
        _set_classes(into, len(found))
        return found


class _Bounds(_Public):
    """A lower and an upper bound of each feature."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.put(f"{parameter}_", np.stack(value))

    def take(self, into: StateReader, parameter: str) -> Any:
        lower, upper = into.arrays.take(f"{parameter}_", (2, into.sizes["features"]))
        if not (lower <= upper).all():
            raise ValueError("a lower bound of the features is above the upper one")
        return lower, upper


class _Interval(_Public):
    """A lower and an upper bound of the target."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = list(value)

    def take(self, into: StateReader, parameter: str) -> Any:
        lower, upper = (number({parameter: v}, parameter) for v in into.fact(parameter))
        if not lower < upper:
            raise ValueError(f"the target's bounds are {lower!r} and {upper!r}")
        return lower, upper


class _Schema(_Public):
    """Public facts about each column."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = value.to_dict()

    def take(self, into: StateReader, parameter: str) -> Any:
        return Schema.from_dict(into.fact(parameter))


class _ImageShape(_Public):
    """Height and width of images, whose product is the number of features."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = list(value)

    def take(self, into: StateReader, parameter: str) -> Any:
        height, width = (whole({parameter: side}, parameter) for side in into.fact(parameter))
        if height * width != into.sizes["features"]:
            raise ValueError(f"{height} times {width} are no {into.sizes['features']} pixels")
        return height, width


class _Indices(_State):
    """Classes of a learner, which are indices of those of the model around."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts[name.rstrip("_")] = value

    def read(self, into: StateReader, name: str) -> NDArray[np.int64]:
        told = into.fact(name.rstrip("_"))
        whole_numbers = isinstance(told, list) and all(type(value) is int for value in told)
        if not whole_numbers or len(told) < 2 or sorted(set(told)) != told:
            raise ValueError(f"the classes of its learner are {told!r}")
        if told[0] < 0 or told[-1] >= _MOST_CLASSES:
            raise ValueError(f"the classes of its learner are {told!r}")
        _set_classes(into, len(told))
        return np.array(told, dtype=np.int64)


class _Guarantee(_State):
    """The guarantee; the numbers that say it in short are computed again."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts[name.rstrip("_")] = value.to_dict()

    def read(self, into: StateReader, name: str) -> PrivacyGuarantee:
        restore_guarantee(into.model, {"privacy": into.fact(name.rstrip("_"))})
        found: PrivacyGuarantee = into.model.privacy_
        return found


class _Values(_State):
    """Values by name, or lists of such, as constructor parameters are."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        found = _saved_value(value)
        if found == _BY_DEFAULT:
            raise ValueError(
                f"{name} of the {type(out.model).__name__} holds other than numbers and text, "
                "which no file of save_model holds. Use joblib, for files that only you can write."
            )
        out.facts[name] = found

    def read(self, into: StateReader, name: str) -> Any:
        return _restored_value(into.fact(name))


class _Model(_State):
    """A fitted model within the model, under the name that is the argument."""

    learner = False

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        (place,) = self.arguments
        out.facts[place] = out.nest(value, place, self.learner)

    def read(self, into: StateReader, name: str) -> Any:
        (place,) = self.arguments
        return into.nest(into.fact(place), place, self.learner)


class _Learner(_Model):
    """A model that saw public and noisy values alone; it knows no further classes and features."""

    learner = True

    def read(self, into: StateReader, name: str) -> Any:
        found, d = super().read(into, name), into.sizes["features"]
        if not hasattr(found, "predict"):
            raise ValueError(f"its learner is {found!r}, which predicts nothing")
        if "classes" in into.sizes:
            classes = np.asarray(found.classes_)
            if classes.max() >= into.sizes["classes"]:
                raise ValueError(
                    f"its learner has the classes {classes.tolist()}, and the model "
                    f"{into.sizes['classes']}"
                )
        one_class = type(found).__name__ == "DummyClassifier"  # which looks at no feature
        width = getattr(found, "n_features_in_", d)
        if not one_class and width != d:
            raise ValueError(f"its learner takes {width} features, and it {d}")
        return found


class _Encoder(_Model):
    """A transformer that learned from public records, or None."""

    learner = True

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        if value is None:
            out.facts[self.arguments[0]] = None
        else:
            super().write(out, name, value)

    def read(self, into: StateReader, name: str) -> Any:
        if into.fact(self.arguments[0]) is None:
            return None
        found = super().read(into, name)
        if not hasattr(found, "transform"):
            raise ValueError(f"its encoder is {found!r}, which transforms nothing")
        return found


class _Head(_State):
    """A head of a fine-tuned model: its name, or its class and numbers."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        if not isinstance(value, str):
            own = {each.name: getattr(value, each.name) for each in fields(value)}
            value = {"kind": type(value).__name__, **own}
        out.facts[name] = value

    def read(self, into: StateReader, name: str) -> Any:
        from ..fine_tuning.heads import HEADS

        told = into.fact(name)
        if isinstance(told, str):
            return told
        kinds: dict[str, Any] = {kind.__name__: kind for kind in HEADS.values()}
        kind = kinds[told["kind"]]
        own = check_names(told, ["kind", *(each.name for each in fields(kind))])
        return kind(**{k: _restored_value(own[k]) for k in own if k != "kind"})


class _Weights(_State):
    """The weights of a head: numbers, or a network."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        numbers = isinstance(value, np.ndarray)
        out.facts["network"] = None if numbers else out.nest(value, "network", False)
        if numbers:
            out.put(name, value)

    def read(self, into: StateReader, name: str) -> Any:
        if into.fact("network") is None:
            return into.take(name, ("columns", "classes"))
        found = into.nest(into.facts["network"], "network", False)
        if type(found).__name__ != "DPSGDClassifier":
            raise ValueError(f"its head is {found!r}, which is no network")
        if not np.array_equal(found.classes_, np.arange(into.sizes["classes"])):
            raise ValueError(f"its network has the classes {found.classes_!r}")
        return found


class _Ball(_State):
    """The unit ball of records with the bounds of the model."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts["ball"] = {"radius": value.radius, "intercept": value.intercept}

    def read(self, into: StateReader, name: str) -> UnitBall:
        told = check_names(into.fact("ball"), ["radius", "intercept"])
        lower, upper = (tuple(bound.tolist()) for bound in into.model.bounds_)
        ball = UnitBall(lower, upper, number(told, "radius"), number(told, "intercept"))
        if ball.radius <= 0 or ball.intercept < 0:
            raise ValueError(f"there is no ball of {told!r}")
        into.sizes["ball"] = ball.size
        return ball


class _Polynomial(_State):
    """A released polynomial on the ball."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts["polynomial"] = {each: getattr(value, each) for each in _POLYNOMIAL}
        out.put(f"{name}.linear", value.linear)
        out.put(f"{name}.quadratic", value.quadratic)

    def read(self, into: StateReader, name: str) -> NoisyPolynomial:
        told = check_names(into.fact("polynomial"), _POLYNOMIAL)
        into.sizes.setdefault("outputs", 1)
        return NoisyPolynomial(
            linear=into.take(f"{name}.linear", ("ball", "outputs")),
            quadratic=into.take(f"{name}.quadratic", ("ball", "ball")),
            **{each: number(told, each) for each in _POLYNOMIAL},
        )


class _Plan(_State):
    """The plan of a search: its guarantee, and numbers."""

    def write(self, out: StateWriter, name: str, value: Any) -> None:
        own = {each.name: getattr(value, each.name) for each in fields(value)}
        out.facts[name] = {**own, "guarantee": value.guarantee.to_dict()}

    def read(self, into: StateReader, name: str) -> Any:
        plan = import_module("skprivacy.model_selection").SearchPlan  # which is a layer above
        names = [each.name for each in fields(plan)]
        told = check_names(into.fact(name), names)
        numbers = {k: number(told, k) for k in names if k not in ("guarantee", "n_candidates")}
        return plan(
            guarantee=PrivacyGuarantee.from_dict(told["guarantee"]),
            n_candidates=whole(told, "n_candidates"),
            **numbers,
        )


_KINDS: dict[str, type[_State]] = {
    "array": _Array, "ball": _Ball, "bounds": _Bounds, "count": _Count, "encoder": _Encoder,
    "guarantee": _Guarantee, "head": _Head, "image_shape": _ImageShape, "indices": _Indices,
    "interval": _Interval, "labels": _Labels, "learner": _Learner, "model": _Model,
    "number": _Number, "plan": _Plan, "polynomial": _Polynomial, "positive": _Positive,
    "schema": _Schema, "settings": _Settings, "typed": _Typed, "values": _Values,
    "variances": _Variances, "weights": _Weights,
}  # fmt: skip


def state_of(words: str) -> _State:
    """Return how an attribute is written and read that is declared by these words."""
    kind, *arguments = words.split()
    return _KINDS[kind](*arguments)


def _set_classes(into: StateReader, n: int) -> None:
    into.sizes |= {"classes": n, "outputs": 1 if n == 2 else n}


def _has_parameter(model: Any, name: str) -> bool:
    return name in signature(type(model)).parameters


def names_of_params(kind: type, declared: Mapping[str, str]) -> list[str]:
    """Return the constructor parameters that a file holds of a class."""
    public = {name.rstrip("_") for name, words in declared.items() if _is_public(words)}
    names = signature(kind).parameters
    return [name for name in names if name not in LEFT_OUT | public | set(declared)]


def _is_public(words: str) -> bool:
    return issubclass(_KINDS[words.split()[0]], _Public)


def saved_params(
    model: Any, declared: Mapping[str, str], names: list[str] | None = None
) -> dict[str, Any]:
    """Return the parameters of a model that are values, or those of ``names`` alone.

    Raises
    ------
    ValueError
        If one is code, without which the model would be another one.
    """
    kind = type(model)
    for name in sorted(_CODE & set(signature(kind).parameters)):
        if getattr(model, name) is not None:
            raise ValueError(
                f"{name} of the {kind.__name__} is code, which no file of save_model holds. Leave "
                f"{name}=None, or use joblib, for files that only you can write."
            )
    names = names_of_params(kind, declared) if names is None else names
    return {name: _saved_value(getattr(model, name)) for name in names}


def restored_params(params: Any, names: list[str]) -> dict[str, Any]:
    """Return the parameters that a file states, which are those of the class."""
    told = check_names(params, names)
    return {name: _restored_value(v) for name, v in told.items() if v != _BY_DEFAULT}


def _saved_value(value: Any) -> Any:
    """Return a value as JSON knows it."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type) and value in _NUMBER_TYPES.values():
        return {"dtype": np.dtype(value).name}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        inner = {key: _saved_value(each) for key, each in value.items()}
        return _BY_DEFAULT if _BY_DEFAULT in inner.values() else {"mapping": inner}
    if isinstance(value, list | tuple | range):
        each = [_saved_value(inner) for inner in value]
        return _BY_DEFAULT if _BY_DEFAULT in each else each
    return _BY_DEFAULT


def _restored_value(told: Any) -> Any:
    """Return what :func:`_saved_value` was given; a sequence is a tuple."""
    if isinstance(told, list):
        return tuple(_restored_value(each) for each in told)
    if not isinstance(told, dict):
        return told
    ((kind, value),) = told.items()
    if kind == "mapping":
        return {str(key): _restored_value(each) for key, each in value.items()}
    if kind == "dtype":
        return _NUMBER_TYPES[value]
    raise ValueError(f"there is a value expected, and it says {told!r}")
