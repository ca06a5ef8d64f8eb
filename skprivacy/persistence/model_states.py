"""Kinds of attributes that hold a model, or belong to one; the table of all kinds."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee
from ..additive_model.additive_models import build_domain
from ..additive_model.effects import AdditiveEffect
from ..linear_model.functional_mechanism import NoisyPolynomial
from ..mechanisms.base import UnitBall
from .attribute_states import KINDS, State, StateReader, StateWriter
from .value_checks import check_names, number, restore_bins, restored_value, whole

_OF_NETWORKS = ("loss", "network", "recipe")  # kinds that need torch
_POLYNOMIAL = ("linear_std", "quadratic_std", "quadratic_norm", "trace_std", "unit")


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
    """A model trained only on public and noisy values; it fits the sizes of the enclosing one."""

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
        return kind(**{k: restored_value(own[k]) for k in own if k != "kind"})


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
    **KINDS, "ball": _Ball, "bins": _Bins, "effects": _Effects, "encoder": _Encoder,
    "head": _Head, "learner": _Learner, "model": _Model, "plan": _Plan, "polynomial": _Polynomial,
    "weights": _Weights,
}  # fmt: skip


def state_of(words: str) -> State:
    """Return the kind of attribute that a declaration names, with its arguments."""
    kind, *arguments = words.split()
    kinds = _KINDS
    if kind in _OF_NETWORKS:
        kinds = import_module("skprivacy.persistence.networks").KINDS
    return kinds[kind](*arguments)
