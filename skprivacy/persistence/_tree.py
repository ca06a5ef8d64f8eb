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

from .._sklearn import output_container
from .._torch import torch_is_named
from . import _federated, _learners, _linear, _preprocessing, _synthesis, _taught, _trained
from .files import Arrays

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
    _preprocessing.told_by_schema,
    _preprocessing.restored_by_schema,
)
_FORMS = {
    "DPGANSynthesizer": _Form("skprivacy.synthesis", _synthesis.told_gan, _synthesis.restored_gan),
    **dict.fromkeys(
        [kind.__name__ for kind in _linear.PARAMS],
        _Form("skprivacy.linear_model", _linear.told_linear, _linear.restored_linear),
    ),
    **dict.fromkeys(
        _preprocessing.FROM_SCIKIT_LEARN,
        _Form(
            "sklearn.preprocessing",
            _preprocessing.told_stateless,
            _preprocessing.restored_stateless,
        ),
    ),
    "DPFederatedClassifier": _Form(
        "skprivacy.federated", _federated.told_federated, _federated.restored_federated
    ),
    "LocalPerturbation": _BY_SCHEMA,
    "PrivateStandardScaler": _Form(
        "skprivacy.preprocessing", _linear.told_scaler, _linear.restored_scaler
    ),
    "PrivateSynthesizer": _Form(
        "skprivacy.synthesis", _synthesis.told_synthesizer, _synthesis.restored_synthesizer
    ),
    "ScatteringTransformer": _Form(
        "skprivacy.neural_network", _preprocessing.told_images, _preprocessing.restored_images
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
            for name, step, _ in _learners.frozen_parts(model)
        }
        return {"kind": kind, "parts": parts, **_learners.told_columns(model)}
    if not _may_be_written(model, learner):
        raise ValueError(_refusal(model, prefix, learner))
    check_is_fitted(model)
    if kind in _taught.MODELS:
        taught = told(_taught.learner_of(model), f"{prefix}learner.", arrays, learner=True)
        return {"kind": kind, "learner": taught, **_taught.told_taught(model)}
    if kind in _trained.MODELS:
        return {
            "kind": kind,
            "estimator": told(model.estimator_, f"{prefix}estimator.", arrays, learner=True),
            "synthesizer": told(model.synthesizer_, f"{prefix}synthesizer.", arrays),
            **_trained.told_trained(model),
        }
    if learner and kind in _learners.LEARNERS:
        facts, own = _learners.told_learner(model)
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
    if learner and kind in _learners.LEARNERS:
        return type(model) is _learners.LEARNERS[kind]
    if kind in _taught.MODELS or kind in _trained.MODELS:
        return not learner and type(model) is _class_of(kind)
    if kind in _NETWORKS:
        return type(model) is getattr(import_module("skprivacy.neural_network"), kind)
    return kind in _FORMS and type(model) is _class_of(kind)


def _class_of(kind: str) -> type:
    with torch_is_named():
        found: type = getattr(import_module(_module_of(kind)), kind)
    return found


def _module_of(kind: str) -> str:
    if kind in _taught.MODELS:
        return _taught.MODELS[kind][0]
    if kind in _trained.MODELS:
        return _trained.MODELS[kind]
    return "skprivacy.neural_network" if kind in _NETWORKS else _FORMS[kind].module


def _networks() -> Any:
    with torch_is_named():
        return import_module("skprivacy.neural_network._persistence")


def _refusal(model: Any, prefix: str, learner: bool) -> str:
    kind = type(model).__name__
    if learner:
        return (
            f"The learner {prefix[:-1]!r} ({kind}) cannot be saved without pickle: its fitted "
            "state has no other form. Teach one of "
            f"{', '.join(sorted(_learners.LEARNERS))}, or a Pipeline of these; or keep it by "
            "joblib, in a file that only you may be able to write."
        )
    where = f"The step {prefix[:-1]!r} ({kind})" if prefix else kind
    why = _REASONS.get(kind, "it is of no class whose state can be written as numbers and words")
    known = sorted([*_FORMS, *_NETWORKS, *_taught.MODELS, *_trained.MODELS])
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
        return _learners.restored_columns(_facts(node, "parts"), parts)
    if kind in _taught.MODELS and not learner:
        model = _taught.restored_taught(_class_of(kind), _facts(node, "learner"))
        taught = restored(node["learner"], arrays.below("learner"), given, learner=True)
        return _taught.with_learner(model, taught)
    if kind in _trained.MODELS and not learner:
        fitted = restored(node["estimator"], arrays.below("estimator"), given, learner=True)
        synthesizer = restored(node["synthesizer"], arrays.below("synthesizer"), given)
        facts = _facts(node, "estimator", "synthesizer")
        return _trained.restored_trained(_class_of(kind), facts, fitted, synthesizer)
    if learner and kind in _learners.LEARNERS:
        model = _learners.restored_learner(_learners.LEARNERS[kind], _facts(node), arrays)
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
