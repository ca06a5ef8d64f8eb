"""Kinds of fitted attributes: how each is written to a file, read from it and checked.

A class declares the kinds of its attributes in ``_saved_state`` (see ``state``). Start reading at
``_KINDS``, the table of all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee
from ..additive_model.additive_models import build_domain
from ..additive_model.effects import AdditiveEffect
from ..linear_model.polynomial_objective import NoisyPolynomial
from ..mechanisms.bounds import UnitBall
from ..preprocessing import Schema
from .file_format import Arrays
from .value_checks import (
    check_names,
    classes_from_state,
    classes_to_state,
    number,
    restore_bins,
    restore_guarantee,
    whole,
)

# Parameters that no file holds. Participants, budget, seeds and hardware:
_SECRETS = {"budget", "device", "distributed", "noise_seed", "party_names", "random_state"}
# ... models and objects, for which a new fit uses the defaults:
_OBJECTS = {
    "aggregator", "augment", "class_weight", "encoder", "estimator", "module", "schema", "student",
    "synthesizer", "teacher",
}  # fmt: skip
# ... and code. A model that depends on code is refused, because its meaning would change.
_CODE = {"func", "inverse_func"}
LEFT_OUT = _SECRETS | _OBJECTS | _CODE
_BY_DEFAULT = {"default": True}  # replaces a value that no file holds
_NUMBER_TYPES = {"float32": np.float32, "float64": np.float64}
_OPTIONS = ("Clipping", "Optimizer")  # of networks, which need torch
_SETTINGS = "skprivacy.neural_network.settings"
_OF_NETWORKS = ("loss", "network", "recipe")  # kinds that need torch
_MAX_CLASSES = 1 << 16
_POLYNOMIAL = ("linear_std", "quadratic_std", "quadratic_norm", "trace_std", "unit")


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


class _Choice(State):
    """One of the texts that the arguments name."""

    def read_state(self, into: StateReader, name: str) -> str:
        found = into.fact(name)
        if not isinstance(found, str) or found not in self.arguments:
            raise ValueError(f"{name} is {found!r}, expected one of {list(self.arguments)}")
        return found


class _Text(State):
    """Any text."""

    def read_state(self, into: StateReader, name: str) -> str:
        found = into.fact(name)
        if not isinstance(found, str):
            raise ValueError(f"{name} is {found!r}, expected text")
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
        if not isinstance(found, str) or found not in _NUMBER_TYPES:
            raise ValueError(
                f"{name!r} has the type {found!r}, expected one of {list(_NUMBER_TYPES)}"
            )
        return super().read_state(into, name).astype(found)


class _Variances(_Typed):
    """An array of numbers of at least 0."""

    def read_state(self, into: StateReader, name: str) -> Any:
        found = super().read_state(into, name)
        if not (found >= 0).all():
            raise ValueError(f"{name} has values below 0")
        return found


class _Public(State):
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


class _Labels(_Public):
    """Labels; they define the sizes ``classes`` and ``outputs``.

    They are sorted, unless they name several columns of labels.
    """

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.facts[parameter] = classes_to_state(value)

    def take(self, into: StateReader, parameter: str) -> Any:
        found = classes_from_state(
            into.fact(parameter), of_columns=getattr(into.model, "multilabel_", False)
        )
        _set_class_sizes(into, len(found))
        return found


class _Prior(_Public):
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


class _Bounds(_Public):
    """A lower and an upper bound of each feature."""

    def put(self, out: StateWriter, parameter: str, value: Any) -> None:
        out.put(f"{parameter}_", np.stack(value))

    def take(self, into: StateReader, parameter: str) -> Any:
        lower, upper = into.arrays.take(f"{parameter}_", (2, into.sizes["features"]))
        if not (lower <= upper).all():
            raise ValueError("a lower bound of a feature is above its upper bound")
        return lower, upper


class _Interval(_Public):
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
        found = _saved_value(value)
        if found == _BY_DEFAULT:
            raise ValueError(
                f"{name} of the {type(out.model).__name__} must hold only numbers and text to "
                "be saved. Use joblib instead, for files that only you can write."
            )
        out.facts[name] = found

    def read_state(self, into: StateReader, name: str) -> Any:
        return _restored_value(into.fact(name))


class _Model(State):
    """A fitted model within the model; the argument is its name in the file."""

    learner = False

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        (place,) = self.arguments
        out.facts[place] = out.nest(value, place, self.learner)

    def read_state(self, into: StateReader, name: str) -> Any:
        (place,) = self.arguments
        return into.nest(into.fact(place), place, self.learner)


class _Learner(_Model):
    """A model trained only on public and noisy values.

    Its classes must exist in the enclosing model, and its number of features must match.
    """

    learner = True

    def read_state(self, into: StateReader, name: str) -> Any:
        found, d = super().read_state(into, name), into.sizes["features"]
        if not hasattr(found, "predict"):
            raise ValueError(f"the learner {found!r} has no predict method")
        if "classes" in into.sizes:
            classes = np.asarray(found.classes_)
            if classes.max() >= into.sizes["classes"]:
                raise ValueError(
                    f"the learner has the classes {classes.tolist()}, but the model has only "
                    f"{into.sizes['classes']} classes"
                )
        one_class = type(found).__name__ == "DummyClassifier"  # uses no feature
        width = getattr(found, "n_features_in_", d)
        if not one_class and width != d:
            raise ValueError(f"the learner takes {width} features, but the model takes {d}")
        return found


class _Encoder(_Model):
    """A transformer fitted on public records, or None."""

    learner = True

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        if value is None:
            out.facts[self.arguments[0]] = None
        else:
            super().write_state(out, name, value)

    def read_state(self, into: StateReader, name: str) -> Any:
        if into.fact(self.arguments[0]) is None:
            return None
        found = super().read_state(into, name)
        if not hasattr(found, "transform"):
            raise ValueError(f"the encoder {found!r} has no transform method")
        return found


class _Head(State):
    """The head of a fine-tuned model: its name, or its class and fields."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        if not isinstance(value, str):
            own = {each.name: getattr(value, each.name) for each in fields(value)}
            value = {"kind": type(value).__name__, **own}
        out.facts[name] = value

    def read_state(self, into: StateReader, name: str) -> Any:
        from ..fine_tuning.heads import HEADS

        stated = into.fact(name)
        if isinstance(stated, str):
            return stated
        kinds: dict[str, Any] = {kind.__name__: kind for kind in HEADS.values()}
        kind = kinds[stated["kind"]]
        own = check_names(stated, ["kind", *(each.name for each in fields(kind))])
        return kind(**{k: _restored_value(own[k]) for k in own if k != "kind"})


class _Weights(State):
    """The weights of a head: an array, or a network."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        numbers = isinstance(value, np.ndarray)
        out.facts["network"] = None if numbers else out.nest(value, "network", False)
        if numbers:
            out.put(name, value)

    def read_state(self, into: StateReader, name: str) -> Any:
        if into.fact("network") is None:
            return into.take(name, ("columns", "classes"))
        found = into.nest(into.facts["network"], "network", False)
        if type(found).__name__ != "DPSGDClassifier":
            raise ValueError(f"the head is {found!r}, expected a DPSGDClassifier")
        if not np.array_equal(found.classes_, np.arange(into.sizes["classes"])):
            raise ValueError(
                f"the network of the head has the classes {found.classes_!r}, expected indices"
            )
        return found


class _Ball(State):
    """The unit ball of the records, built from the bounds of the model."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts["ball"] = {"radius": value.radius, "intercept": value.intercept}

    def read_state(self, into: StateReader, name: str) -> UnitBall:
        stated = check_names(into.fact("ball"), ["radius", "intercept"])
        lower, upper = (tuple(bound.tolist()) for bound in into.model.bounds_)
        ball = UnitBall(lower, upper, number(stated, "radius"), number(stated, "intercept"))
        if ball.radius <= 0 or ball.intercept < 0:
            raise ValueError(
                f"the ball {stated!r} needs a radius above 0 and an intercept of at least 0"
            )
        into.sizes["ball"] = ball.size
        return ball


class _Polynomial(State):
    """The released noisy polynomial on the unit ball."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts["polynomial"] = {each: getattr(value, each) for each in _POLYNOMIAL}
        out.put(f"{name}.linear", value.linear)
        out.put(f"{name}.quadratic", value.quadratic)

    def read_state(self, into: StateReader, name: str) -> NoisyPolynomial:
        stated = check_names(into.fact("polynomial"), _POLYNOMIAL)
        into.sizes.setdefault("outputs", 1)
        return NoisyPolynomial(
            linear=into.take(f"{name}.linear", ("ball", "outputs")),
            quadratic=into.take(f"{name}.quadratic", ("ball", "ball")),
            **{each: number(stated, each) for each in _POLYNOMIAL},
        )


class _Plan(State):
    """The plan of a private search: its guarantee and its numbers."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        own = {each.name: getattr(value, each.name) for each in fields(value)}
        out.facts[name] = {**own, "guarantee": value.guarantee.to_dict()}

    def read_state(self, into: StateReader, name: str) -> Any:
        plan = import_module("skprivacy.model_selection.search_plan").SearchPlan  # a higher layer
        names = [each.name for each in fields(plan)]
        stated = check_names(into.fact(name), names)
        numbers = {k: number(stated, k) for k in names if k not in ("guarantee", "n_candidates")}
        return plan(
            guarantee=PrivacyGuarantee.from_dict(stated["guarantee"]),
            n_candidates=whole(stated, "n_candidates"),
            **numbers,
        )


class _Bins(State):
    """The bin of each cell, for every column of the schema."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        for j, bins in enumerate(value):
            out.put(f"{name}.{j}", bins)

    def read_state(self, into: StateReader, name: str) -> list[NDArray[np.int64]]:
        integers = into.model.integer_columns_
        if not set(integers) <= set(into.model.schema_):
            raise ValueError(f"the integer columns {integers!r} are not all in the schema")
        columns = build_domain(into.model.schema_, integers).columns
        return [
            restore_bins(into.arrays, f"{name}.{j}", column.size)
            for j, column in enumerate(columns)
        ]


class _Effects(State):
    """The effects of an additive model, over the bins of its columns."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts[name] = [list(effect.columns) for effect in value]
        for k, effect in enumerate(value):
            out.put(f"{name}.{k}", effect.scores)
            out.put(f"{name}_noise.{k}", effect.noise_std)

    def read_state(self, into: StateReader, name: str) -> list[AdditiveEffect]:
        n_bins = {
            column: int(bins.max()) + 1
            for column, bins in zip(into.model.schema_, into.model.bins_, strict=True)
        }
        effects = []
        for k, stated in enumerate(into.fact(name)):
            if (
                not 1 <= len(stated) <= 2
                or len({*stated}) < len(stated)
                or not {*stated} <= {*n_bins}
            ):
                raise ValueError(f"an effect has the columns {stated!r}, expected one or two")
            shape = (*(n_bins[column] for column in stated), into.sizes.setdefault("outputs", 1))
            scores, noise = (
                into.arrays.take(place, shape) for place in (f"{name}.{k}", f"{name}_noise.{k}")
            )
            if not (noise >= 0).all():
                raise ValueError(f"the noise of the effect of {stated!r} is below 0")
            effects.append(AdditiveEffect(tuple(stated), scores, noise))
        return effects


_KINDS: dict[str, type[State]] = {
    "array": _Array, "ball": _Ball, "bins": _Bins, "bounds": _Bounds, "choice": _Choice,
    "count": _Count,
    "effects": _Effects, "encoder": _Encoder, "flag": _Flag, "guarantee": _Guarantee,
    "head": _Head,
    "image_shape": _ImageShape, "indices": _Indices,
    "interval": _Interval, "labels": _Labels, "learner": _Learner, "model": _Model,
    "number": _Number, "plan": _Plan, "polynomial": _Polynomial, "positive": _Positive,
    "prior": _Prior, "schema": _Schema, "settings": _Settings, "text": _Text, "typed": _Typed,
    "values": _Values,
    "variances": _Variances, "weights": _Weights,
}  # fmt: skip


def state_of(words: str) -> State:
    """Return the kind of attribute that a declaration names, with its arguments."""
    kind, *arguments = words.split()
    kinds = _KINDS
    if kind in _OF_NETWORKS:
        kinds = import_module("skprivacy.persistence.networks").KINDS
    return kinds[kind](*arguments)


def _set_class_sizes(into: StateReader, n: int) -> None:
    into.sizes |= {"classes": n, "outputs": 1 if n == 2 else n}


def _has_parameter(model: Any, name: str) -> bool:
    return name in signature(type(model)).parameters


def names_of_params(kind: type, declared: Mapping[str, str]) -> list[str]:
    """Return the names of the constructor parameters that a file holds for a class."""
    public = {name.rstrip("_") for name, words in declared.items() if _is_public(words)}
    names = signature(kind).parameters
    left_out = LEFT_OUT | public | set(declared)
    return [
        name
        for name, parameter in names.items()
        if name not in left_out and parameter.kind is not Parameter.VAR_KEYWORD
    ]


def _is_public(words: str) -> bool:
    return issubclass(_KINDS.get(words.split()[0], State), _Public)


def saved_params(
    model: Any, declared: Mapping[str, str], names: list[str] | None = None
) -> dict[str, Any]:
    """Return the parameters of a model to write: those in ``names``, or all that hold values."""
    kind = type(model)
    for name in sorted(_CODE & set(signature(kind).parameters)):
        if getattr(model, name) is not None:
            raise ValueError(
                f"{name} of the {kind.__name__} is code, which save_model cannot write. Leave "
                f"{name}=None, or use joblib for files that only you can write."
            )
    names = names_of_params(kind, declared) if names is None else names
    return {name: _saved_value(getattr(model, name)) for name in names}


def restored_params(params: Any, names: list[str]) -> dict[str, Any]:
    """Return the constructor parameters in a file, without those left at their default."""
    stated = check_names(params, names)
    return {name: _restored_value(v) for name, v in stated.items() if v != _BY_DEFAULT}


def _saved_value(value: Any) -> Any:
    """Return a value in JSON types, or ``_BY_DEFAULT`` if it has no such form."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type) and value in _NUMBER_TYPES.values():
        return {"dtype": np.dtype(value).name}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        inner = {key: _saved_value(each) for key, each in value.items()}
        return _BY_DEFAULT if _BY_DEFAULT in inner.values() else {"mapping": inner}
    if type(value).__module__ == _SETTINGS and type(value).__name__ in _OPTIONS:
        return {type(value).__name__: _saved_value(value.get_params())}
    if isinstance(value, list | tuple | range):
        each = [_saved_value(inner) for inner in value]
        return _BY_DEFAULT if _BY_DEFAULT in each else each
    return _BY_DEFAULT


def _restored_value(stated: Any) -> Any:
    """Invert :func:`_saved_value`; a sequence becomes a tuple."""
    if isinstance(stated, list):
        return tuple(_restored_value(each) for each in stated)
    if not isinstance(stated, dict):
        return stated
    ((kind, value),) = stated.items()
    if kind == "mapping":
        return {str(key): _restored_value(each) for key, each in value.items()}
    if kind == "dtype":
        return _NUMBER_TYPES[value]
    if kind in _OPTIONS:
        option = getattr(import_module(_SETTINGS), kind)(**_restored_value(value))
        option._validate_params()
        return option
    raise ValueError(f"expected a value, found {stated!r}")
