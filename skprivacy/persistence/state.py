"""One walk over a model: what its classes declare is written, and read back with checks.

A class declares ``_saved_state`` beside its fitted attributes: a dictionary from the name of an
attribute to words that say what it is, such as ``{"coef_": "array outputs features"}``. The words
are plain text, so that a lower layer declares without importing anything of this package. The
first word names one of the kinds of ``attribute_states``; the others are its
arguments. ``features``, ``classes`` and ``outputs`` (one of two classes) are sizes that the model
knows; any other word is a size that the first array of it sets. Attributes are written and read in
the order of the declaration.

Constructor parameters are written if they are values: numbers, text, None, types of numbers, and
sequences of these. Those in ``LEFT_OUT`` never are.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .._environment import name_missing_torch
from .._sklearn import output_container
from . import third_party
from .attribute_states import (
    StateReader,
    StateWriter,
    names_of_params,
    restored_params,
    saved_params,
    state_of,
)
from .file_format import Arrays
from .value_checks import common, restore_common

__all__ = ["CLASSES", "PASSTHROUGH", "Given", "from_state", "to_state"]

PASSTHROUGH = "passthrough"
# The classes that a file may hold, by their public names; third_party has those of scikit-learn.
CLASSES = {
    name: module
    for module, names in {
        "skprivacy.ensemble": ("PATEClassifier", "PrivateKNNClassifier"),
        "skprivacy.federated": ("DPFederatedClassifier",),
        "skprivacy.fine_tuning": ("ALMFineTuner",),
        "skprivacy.label_privacy": (
            "ALIBIClassifier",
            "LP2STClassifier",
            "LabelPATEClassifier",
            "RandomizedResponseClassifier",
        ),
        "skprivacy.linear_model": (
            "AdaSSPRegressor",
            "FunctionalMechanismClassifier",
            "FunctionalMechanismRegressor",
            "ObjectivePerturbationClassifier",
            "OutputPerturbationClassifier",
        ),
        "skprivacy.model_selection": ("PrivateSearchCV",),
        "skprivacy.neural_network": (
            "DPNeuralNet",
            "DPSGDClassifier",
            "DPSGDRegressor",
            "SCARFEncoder",
            "ScatteringTransformer",
            "SimCLREncoder",
        ),
        "skprivacy.preprocessing": (
            "LocalPerturbation",
            "PrivateStandardScaler",
            "SchemaTransformer",
        ),
        "skprivacy.synthesis": (
            "DPGANSynthesizer",
            "PrivateSynthesizer",
            "SyntheticDataClassifier",
            "SyntheticDataRegressor",
        ),
    }.items()
    for name in names
}
# What one walk cannot say: modules of public sizes, and tables on the grid of each column.
_SYNTHESIZERS = ("DPGANSynthesizer", "PrivateSynthesizer")
_NETWORKS = ("DPNeuralNet", "DPSGDClassifier", "DPSGDRegressor", "SCARFEncoder", "SimCLREncoder")
_ADVICE = {
    "StandardScaler": "use PrivateStandardScaler, or SchemaTransformer with public bounds",
    "MinMaxScaler": "use SchemaTransformer with public bounds",
    "OneHotEncoder": "use SchemaTransformer with public categories",
    "ColumnTransformer": "use SchemaTransformer, which treats each column by its own facts",
}


@dataclass(frozen=True)
class Given:
    """What a file cannot hold and its reader has: the code of a network and of its loss."""

    module: Any = None
    criterion: Any = None


def to_state(
    model: Any, prefix: str, arrays: dict[str, NDArray], learner: bool = False
) -> dict[str, Any]:
    """Return what a file says of a model, and add its arrays to ``arrays``.

    Parameters
    ----------
    model : estimator
    prefix : str
        What the names of its arrays begin with.
    arrays : dict
    learner : bool, default=False
        Whether it is a learner within a private model, which may be of scikit-learn's own.

    Raises
    ------
    ValueError
        If it is of a class that no file may hold, or not fitted; the message names the step.
    """
    kind = type(model).__name__
    if type(model) is Pipeline:
        steps = [_step_to_state(n, step, prefix, arrays, learner) for n, step in model.steps]
        return {"kind": kind, "steps": steps}
    if type(model) is FrozenEstimator:
        return {"kind": kind, "estimator": to_state(model.estimator, prefix, arrays, learner)}
    if learner and type(model) is ColumnTransformer:
        parts = {
            name: to_state(step, f"{prefix}{name}.", arrays, learner)
            for name, step, _ in third_party.frozen_parts(model)
        }
        return {"kind": kind, "parts": parts, **third_party.columns_to_state(model)}
    if not _may_be_saved(model, learner):
        raise ValueError(_refusal(model, prefix, learner))
    check_is_fitted(model)
    own = _own_code(kind)
    if own is not None:
        facts, found = own.to_state(model)
        arrays.update({prefix + name: array for name, array in found.items()})
    elif kind in third_party.BY_VALUES:
        facts = third_party.BY_VALUES[kind][0](model)
    else:
        facts = _attributes_to_state(model, prefix, arrays)
    # What holds a model has no output of its own to set.
    output = {} if _holds_model(type(model)) else {"output": output_container(model)}
    return {"kind": kind, **output, **facts}


def _attributes_to_state(model: Any, prefix: str, arrays: dict[str, NDArray]) -> dict[str, Any]:
    """Return what is declared of a model."""

    def nest(inner: Any, place: str, learner: bool) -> dict[str, Any]:
        return to_state(inner, f"{prefix}{place}.", arrays, learner)

    kind = type(model)
    if hasattr(model, "_check_unchanged"):  # its parameters may have been changed since
        model._check_unchanged()
    declared = _declared(kind)
    facts: dict[str, Any] = common(model) if hasattr(model, "n_features_in_") else {}
    names = third_party.PARAMS.get(kind)
    facts["params"] = saved_params(model, declared, names)
    third_party.check_usual(model)
    out = StateWriter(model, facts, arrays, prefix, nest)
    for name, words in declared.items():
        state_of(words).write(out, name, getattr(model, name))
    return facts


def _step_to_state(
    name: str, step: Any, prefix: str, arrays: dict[str, NDArray], learner: bool
) -> list[Any]:
    if "." in name:
        raise ValueError(f"The step {name!r} has a dot in its name. Rename it to save it.")
    if step is None or isinstance(step, str):
        return [name, {"kind": PASSTHROUGH}]
    return [name, to_state(step, f"{prefix}{name}.", arrays, learner)]


def _declared(kind: type) -> dict[str, str]:
    """Return what a class declares of its fitted attributes."""
    own: dict[str, str] | None = third_party.STATES.get(kind)
    return getattr(kind, "_saved_state", {}) if own is None else own


def _holds_model(kind: type) -> bool:
    words = [each.split()[0] for each in _declared(kind).values()]
    return not {"encoder", "learner", "model"}.isdisjoint(words)


def _may_be_saved(model: Any, learner: bool) -> bool:
    """Return whether a model is of a known class, exactly: a subclass may predict otherwise."""
    kind = type(model).__name__
    return type(model) is _class_of(kind, learner)


def _class_of(kind: str, learner: bool) -> type | None:
    """Return the class of this name in the table; a learner is no model that holds another."""
    if kind in third_party.CLASSES and (learner or kind in third_party.STATELESS):
        return third_party.CLASSES[kind]
    if kind not in CLASSES:
        return None
    with name_missing_torch():
        found: type = getattr(import_module(CLASSES[kind]), kind)
    return None if learner and _holds_model(found) else found


def _own_code(kind: str) -> Any:
    if kind in _NETWORKS:
        with name_missing_torch():
            return import_module("skprivacy.persistence.networks")
    return import_module("skprivacy.persistence.synthesizers") if kind in _SYNTHESIZERS else None


def _refusal(model: Any, prefix: str, learner: bool) -> str:
    kind = type(model).__name__
    if learner:
        return (
            f"The learner {prefix[:-1]!r} ({kind}) cannot be saved without pickle: its fitted "
            "state has no other form. Teach one of "
            f"{', '.join(sorted(third_party.CLASSES))}, or a Pipeline of these; or keep it by "
            "joblib, in a file that only you may be able to write."
        )
    where = f"The step {prefix[:-1]!r} ({kind})" if prefix else kind
    advice = _ADVICE.get(kind, "joblib keeps it in a file that only you may be able to write")
    return (
        f"{where} cannot be saved without pickle: it is of no class whose state can be written as "
        f"numbers and words. Instead, {advice}. save_model writes {', '.join(sorted(CLASSES))}, "
        "and a Pipeline of these."
    )


def from_state(node: Any, arrays: Arrays, given: Given, learner: bool = False) -> Any:
    """Return the model that :func:`to_state` described.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the description makes none.
    """
    if not isinstance(node, dict) or not isinstance(node.get("kind"), str):
        raise ValueError(f"there is a model expected, and it says {node!r}")
    kind = node["kind"]
    if kind == PASSTHROUGH:
        return PASSTHROUGH
    if kind == "Pipeline":
        return _restored_pipeline(node["steps"], arrays, given, learner)
    if kind == "FrozenEstimator":
        return FrozenEstimator(from_state(node["estimator"], arrays, given, learner))
    if learner and kind == "ColumnTransformer":
        parts = {
            name: from_state(part, arrays.below(name), given, learner)
            for name, part in node["parts"].items()
        }
        return third_party.columns_from_state(_facts(node, "parts"), parts)
    found = _class_of(kind, learner)
    if found is None:
        raise ValueError(f"{kind!r} is not a model of this version's save_model")
    if kind in _NETWORKS:
        own = given.module if node["own_module"] is True else None
        model = _own_code(kind).from_state(node, arrays.all(), own, given.criterion)
    elif kind in _SYNTHESIZERS:
        model = _own_code(kind).from_state(found, _facts(node), arrays)
    elif kind in third_party.BY_VALUES:
        model = third_party.BY_VALUES[kind][1](_facts(node))
    else:
        model = _attributes_from_state(found, _facts(node), arrays, given)
    if _holds_model(found):
        return model
    output = node["output"]
    if output is not None:
        if output not in ("default", "pandas", "polars"):
            raise ValueError(f"its output would be in {output!r}")
        model.set_output(transform=output)
    return model


def _attributes_from_state(kind: type, facts: dict[str, Any], arrays: Arrays, given: Given) -> Any:
    """Return a model of a class whose attributes are declared."""

    def nest(inner: Any, place: str, learner: bool) -> Any:
        return from_state(inner, arrays.below(place), given, learner)

    declared = _declared(kind)
    names = third_party.PARAMS.get(kind)
    if names is None:
        names = names_of_params(kind, declared)
    params = restored_params(facts["params"], names)
    needed = {
        name: None
        for name, parameter in signature(kind).parameters.items()
        if parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_KEYWORD
    }
    model = kind(**needed | params)
    if not needed:
        _check_params(model)
    reader = StateReader(model, facts, arrays, nest, used={"params"})
    if kind.__name__ not in third_party.STATELESS or "n_features_in_" in facts:
        reader.sizes["features"] = restore_common(model, facts)
        reader.used |= {"n_features_in_", "feature_names"}
    for name, words in declared.items():
        setattr(model, name, state_of(words).read(reader, name))
    if unknown := sorted(set(facts) - reader.used):
        raise ValueError(f"the facts {unknown} are unknown")
    if hasattr(model, "_finish_loading"):
        model._finish_loading()
    if needed:
        _check_params(model)
    return model


def _check_params(model: Any) -> None:
    if hasattr(model, "_check_parameters"):
        model._check_parameters()
    elif hasattr(model, "_parameter_constraints"):
        model._validate_params()


def _facts(node: dict[str, Any], *others: str) -> dict[str, Any]:
    return {name: node[name] for name in node if name not in ("kind", "output", *others)}


def _restored_pipeline(steps: Any, arrays: Arrays, given: Given, learner: bool) -> Pipeline:
    names = [name for name, _ in steps]
    if not names or len(set(names)) < len(names) or any(_unfit(name) for name in names):
        raise ValueError(f"there is no pipeline of the steps {names!r}")
    found = [(name, from_state(node, arrays.below(name), given, learner)) for name, node in steps]
    return Pipeline(found)


def _unfit(name: Any) -> bool:
    return not isinstance(name, str) or not name or "." in name or "__" in name
