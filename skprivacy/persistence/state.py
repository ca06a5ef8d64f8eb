"""A model and its steps: which classes a file may hold, and how each is written and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .._environment import name_missing_torch
from .._sklearn import output_container
from . import (
    federated_state,
    linear_state,
    preprocessing_state,
    student_state,
    synthesizer_state,
    synthetic_training_state,
    third_party,
)
from .file_format import Arrays

__all__ = ["Given", "restored", "told"]

Told = Callable[[Any], tuple[dict[str, Any], dict[str, NDArray]]]
Restored = Callable[[type, dict[str, Any], Arrays], Any]

PASSED = "passthrough"


@dataclass(frozen=True)
class _Form:
    """How a class is written and read; it is imported when a model or a file has it."""

    module: str
    told: Told
    restored: Restored


_BY_SCHEMA = _Form(
    "skprivacy.preprocessing",
    preprocessing_state.told_by_schema,
    preprocessing_state.restored_by_schema,
)
_FORMS = {
    "DPGANSynthesizer": _Form(
        "skprivacy.synthesis", synthesizer_state.told_gan, synthesizer_state.restored_gan
    ),
    **dict.fromkeys(
        [kind.__name__ for kind in linear_state.PARAMS],
        _Form("skprivacy.linear_model", linear_state.told_linear, linear_state.restored_linear),
    ),
    **dict.fromkeys(
        preprocessing_state.FROM_SCIKIT_LEARN,
        _Form(
            "sklearn.preprocessing",
            preprocessing_state.told_stateless,
            preprocessing_state.restored_stateless,
        ),
    ),
    "DPFederatedClassifier": _Form(
        "skprivacy.federated", federated_state.told_federated, federated_state.restored_federated
    ),
    "LocalPerturbation": _BY_SCHEMA,
    "PrivateStandardScaler": _Form(
        "skprivacy.preprocessing", linear_state.told_scaler, linear_state.restored_scaler
    ),
    "PrivateSynthesizer": _Form(
        "skprivacy.synthesis",
        synthesizer_state.told_synthesizer,
        synthesizer_state.restored_synthesizer,
    ),
    "ScatteringTransformer": _Form(
        "skprivacy.neural_network",
        preprocessing_state.told_images,
        preprocessing_state.restored_images,
    ),
    "SchemaTransformer": _BY_SCHEMA,
}
_NETWORKS = ("DPNeuralNet", "DPSGDClassifier", "DPSGDRegressor", "SCARFEncoder", "SimCLREncoder")
_ADVICE = {
    "StandardScaler": "use PrivateStandardScaler, or SchemaTransformer with public bounds",
    "MinMaxScaler": "use SchemaTransformer with public bounds",
    "OneHotEncoder": "use SchemaTransformer with public categories",
    "ColumnTransformer": "use SchemaTransformer, which treats each column by its own facts",
}
_REASONS = {
    "ALMFineTuner": "it holds an encoder of any kind, whose fitted state can only be pickled",
}


@dataclass(frozen=True)
class Given:
    """What a file cannot hold and its reader has: the code of a network and of its loss."""

    module: Any = None
    criterion: Any = None


def told(
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
        steps = [_told_step(name, step, prefix, arrays, learner) for name, step in model.steps]
        return {"kind": kind, "steps": steps}
    if type(model) is FrozenEstimator:
        return {"kind": kind, "estimator": told(model.estimator, prefix, arrays, learner)}
    if learner and type(model) is ColumnTransformer:
        parts = {
            name: told(step, f"{prefix}{name}.", arrays, learner)
            for name, step, _ in third_party.frozen_parts(model)
        }
        return {"kind": kind, "parts": parts, **third_party.told_columns(model)}
    if not _may_be_written(model, learner):
        raise ValueError(_refusal(model, prefix, learner))
    check_is_fitted(model)
    if kind in student_state.MODELS:
        taught = told(student_state.learner_of(model), f"{prefix}learner.", arrays, learner=True)
        return {"kind": kind, "learner": taught, **student_state.told_taught(model)}
    if kind in synthetic_training_state.MODELS:
        return {
            "kind": kind,
            "estimator": told(model.estimator_, f"{prefix}estimator.", arrays, learner=True),
            "synthesizer": told(model.synthesizer_, f"{prefix}synthesizer.", arrays),
            **synthetic_training_state.told_trained(model),
        }
    if learner and kind in third_party.LEARNERS:
        facts, own = third_party.told_learner(model)
    else:
        facts, own = (_networks() if kind in _NETWORKS else _FORMS[kind]).told(model)
    arrays.update({prefix + name: array for name, array in own.items()})
    return {"kind": kind, "output": output_container(model), **facts}


def _told_step(
    name: str, step: Any, prefix: str, arrays: dict[str, NDArray], learner: bool
) -> list[Any]:
    if "." in name:
        raise ValueError(f"The step {name!r} has a dot in its name. Rename it to save it.")
    if step is None or isinstance(step, str):
        return [name, {"kind": PASSED}]
    return [name, told(step, f"{prefix}{name}.", arrays, learner)]


def _may_be_written(model: Any, learner: bool) -> bool:
    """Return whether a model is of a known class, exactly: a subclass may predict otherwise."""
    kind = type(model).__name__
    if learner and kind in third_party.LEARNERS:
        return type(model) is third_party.LEARNERS[kind]
    if kind in student_state.MODELS or kind in synthetic_training_state.MODELS:
        return not learner and type(model) is _class_of(kind)
    if kind in _NETWORKS:
        return type(model) is getattr(import_module("skprivacy.neural_network"), kind)
    return kind in _FORMS and type(model) is _class_of(kind)


def _class_of(kind: str) -> type:
    with name_missing_torch():
        found: type = getattr(import_module(_module_of(kind)), kind)
    return found


def _module_of(kind: str) -> str:
    if kind in student_state.MODELS:
        return student_state.MODELS[kind][0]
    if kind in synthetic_training_state.MODELS:
        return synthetic_training_state.MODELS[kind]
    return "skprivacy.neural_network" if kind in _NETWORKS else _FORMS[kind].module


def _networks() -> Any:
    with name_missing_torch():
        return import_module("skprivacy.neural_network.network_state")


def _refusal(model: Any, prefix: str, learner: bool) -> str:
    kind = type(model).__name__
    if learner:
        return (
            f"The learner {prefix[:-1]!r} ({kind}) cannot be saved without pickle: its fitted "
            "state has no other form. Teach one of "
            f"{', '.join(sorted(third_party.LEARNERS))}, or a Pipeline of these; or keep it by "
            "joblib, in a file that only you may be able to write."
        )
    where = f"The step {prefix[:-1]!r} ({kind})" if prefix else kind
    why = _REASONS.get(kind, "it is of no class whose state can be written as numbers and words")
    known = sorted([*_FORMS, *_NETWORKS, *student_state.MODELS, *synthetic_training_state.MODELS])
    advice = _ADVICE.get(kind, "joblib keeps it in a file that only you may be able to write")
    return (
        f"{where} cannot be saved without pickle: {why}. Instead, {advice}. save_model writes "
        f"{', '.join(known)}, and a Pipeline of these."
    )


def restored(node: Any, arrays: Arrays, given: Given, learner: bool = False) -> Any:
    """Return the model that :func:`told` described.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the description makes none.
    """
    if not isinstance(node, dict) or not isinstance(node.get("kind"), str):
        raise ValueError(f"there is a model expected, and it says {node!r}")
    kind = node["kind"]
    if kind == PASSED:
        return PASSED
    if kind == "Pipeline":
        return _restored_pipeline(node["steps"], arrays, given, learner)
    if kind == "FrozenEstimator":
        return FrozenEstimator(restored(node["estimator"], arrays, given, learner))
    if learner and kind == "ColumnTransformer":
        parts = {
            name: restored(part, arrays.below(name), given, learner)
            for name, part in node["parts"].items()
        }
        return third_party.restored_columns(_facts(node, "parts"), parts)
    if kind in student_state.MODELS and not learner:
        model = student_state.restored_taught(_class_of(kind), _facts(node, "learner"))
        taught = restored(node["learner"], arrays.below("learner"), given, learner=True)
        return student_state.with_learner(model, taught)
    if kind in synthetic_training_state.MODELS and not learner:
        fitted = restored(node["estimator"], arrays.below("estimator"), given, learner=True)
        synthesizer = restored(node["synthesizer"], arrays.below("synthesizer"), given)
        facts = _facts(node, "estimator", "synthesizer")
        return synthetic_training_state.restored_trained(
            _class_of(kind), facts, fitted, synthesizer
        )
    if learner and kind in third_party.LEARNERS:
        model = third_party.restored_learner(third_party.LEARNERS[kind], _facts(node), arrays)
    elif kind in _NETWORKS:
        own = given.module if node["own_module"] is True else None
        model = _networks().restored(node, arrays.all(), own, given.criterion)
    elif kind in _FORMS:
        model = _FORMS[kind].restored(_class_of(kind), _facts(node), arrays)
    else:
        raise ValueError(f"{kind!r} is not a model of this version's save_model")
    output = node["output"]
    if output is not None:
        if output not in ("default", "pandas", "polars"):
            raise ValueError(f"its output would be in {output!r}")
        model.set_output(transform=output)
    return model


def _facts(node: dict[str, Any], *others: str) -> dict[str, Any]:
    return {name: node[name] for name in node if name not in ("kind", "output", *others)}


def _restored_pipeline(steps: Any, arrays: Arrays, given: Given, learner: bool) -> Pipeline:
    names = [name for name, _ in steps]
    if not names or len(set(names)) < len(names) or any(_unfit(name) for name in names):
        raise ValueError(f"there is no pipeline of the steps {names!r}")
    found = [(name, restored(node, arrays.below(name), given, learner)) for name, node in steps]
    return Pipeline(found)


def _unfit(name: Any) -> bool:
    return not isinstance(name, str) or not name or "." in name or "__" in name
