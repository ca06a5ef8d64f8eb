"""Conversion of fitted models to JSON and arrays, and back with checks.

A class declares ``_saved_state`` beside its fitted attributes: a dictionary from the name of an
attribute to a text that describes it, such as ``{"coef_": "array outputs features"}``. Plain text
lets lower layers declare attributes without importing this package. The first word names a kind of
``attribute_states`` or ``model_states``; the others are its arguments. The model knows the sizes
``features``, ``classes`` and ``outputs`` (1 for two classes); the first array with any other size
name defines that size. Attributes are written and read in the order of the declaration.

Constructor parameters are written if they are values: numbers, text, None, number types, and
sequences or mappings of these. Parameters in ``LEFT_OUT`` are never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .._extras import name_missing_extra
from .._sklearn import output_container
from ..preprocessing.pipeline import is_plain_pipeline
from . import synthesizers, third_party
from .attribute_states import KINDS, Public, State, StateReader, StateWriter
from .file_format import Arrays, digest_of_arrays
from .model_states import state_of
from .value_checks import (
    BY_DEFAULT,
    check_names,
    common_from_state,
    common_to_state,
    restored_value,
    saved_value,
)

PASSTHROUGH = "passthrough"
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
# Classes that a file may hold, by public name; third_party lists the classes of scikit-learn.
CLASSES = {
    name: f"skprivacy.{package}"
    for package, names in {
        "additive_model": "PrivateAdditiveClassifier PrivateAdditiveRegressor",
        "ensemble": "PATEClassifier PrivateKNNClassifier",
        "federated": "DPFederatedClassifier",
        "fine_tuning": "ALMFineTuner",
        "label_privacy": (
            "ALIBIClassifier LP2STClassifier LabelPATEClassifier RandomizedResponseClassifier"
        ),
        "linear_model": (
            "AdaSSPRegressor FunctionalMechanismClassifier FunctionalMechanismRegressor "
            "ObjectivePerturbationClassifier OutputPerturbationClassifier"
        ),
        "model_selection": "PrivateSearchCV",
        "neural_network": (
            "DPNeuralNet DPSGDClassifier DPSGDRegressor SCARFEncoder ScatteringTransformer "
            "SimCLREncoder"
        ),
        "preprocessing": "LocalPerturbation PrivateStandardScaler SchemaTransformer",
        "synthesis": (
            "DPGANSynthesizer MarginalSynthesizer SyntheticDataClassifier SyntheticDataRegressor"
        ),
    }.items()
    for name in names.split()
}
# Classes with their own module: a declaration cannot describe tables on grids.
_SYNTHESIZERS = ("DPGANSynthesizer", "MarginalSynthesizer")
_TRAINED = {
    "noise_multiplier_": "number",
    "n_steps_": "count",
    "gradients_": "text",
    "max_grad_norm_": "number",
    "privacy_": "guarantee",
}
# The fitted attributes of networks.
_NETWORKS: dict[str, dict[str, str]] = {
    "DPNeuralNet": {"criterion_": "loss", "module_": "network", **_TRAINED},
    "DPSGDClassifier": {
        "multilabel_": "flag",
        "classes_": "labels",
        "class_prior_": "prior",
        "class_weight_": "positive classes",
        "settings_": "recipe",
        "module_": "network",
        **_TRAINED,
    },
    "DPSGDRegressor": {
        "target_bounds_": "interval",
        "target_scale_": "choice linear log",
        "settings_": "recipe",
        "module_": "network",
        **_TRAINED,
    },
    "SCARFEncoder": {"module_": "network"},
    "SimCLREncoder": {"module_": "network"},
}
# Parameters of a DPNeuralNet in a file; skorch has many more, mostly code.
NET_PARAMS = [
    "epsilon", "delta", "noise_multiplier", "noise", "max_grad_norm", "batch_size", "max_epochs",
    "lr", "schedule", "averaging", "relation", "n_records", "max_group_size",
]  # fmt: skip
_WITHOUT_FEATURES = third_party.STATELESS | {"DPNeuralNet"}
_ADVICE = {
    "StandardScaler": "use PrivateStandardScaler, or SchemaTransformer with public bounds",
    "MinMaxScaler": "use SchemaTransformer with public bounds",
    "OneHotEncoder": "use SchemaTransformer with public categories",
    "ColumnTransformer": "use SchemaTransformer, which uses the public facts of each column",
}


@dataclass(frozen=True)
class Given:
    """Code that a file cannot hold and the caller passes: a network and its loss."""

    module: Any = None
    criterion: Any = None


def to_state(
    model: Any, prefix: str, arrays: dict[str, NDArray], learner: bool = False
) -> dict[str, Any]:
    """Return the JSON description of a model, and add its arrays to ``arrays``."""
    kind = type(model).__name__
    if is_plain_pipeline(model):
        steps = [_step_to_state(n, step, prefix, arrays, learner) for n, step in model.steps]
        return {"kind": "Pipeline", "steps": steps}
    if type(model) is FrozenEstimator:
        return {"kind": kind, "estimator": to_state(model.estimator, prefix, arrays, learner)}
    if learner and type(model) is ColumnTransformer:
        parts = {
            name: to_state(step, f"{prefix}{name}.", arrays, learner)
            for name, step, _ in third_party.frozen_parts(model)
        }
        return {"kind": kind, "parts": parts, **third_party.columns_to_state(model)}
    if type(model) is not _find_class(kind, learner):  # a subclass may predict differently
        raise ValueError(_describe_refusal(model, prefix, learner))
    check_is_fitted(model)
    if kind in _SYNTHESIZERS:
        facts, found = synthesizers.to_state(model)
        arrays.update({prefix + name: array for name, array in found.items()})
    elif kind in third_party.BY_VALUES:
        facts = third_party.BY_VALUES[kind][0](model)
    else:
        facts = _attributes_to_state(model, prefix, arrays)
    # set_output is not supported on a model that holds another model.
    output = {} if _holds_model(type(model)) else {"output": output_container(model)}
    return {"kind": kind, **output, **facts}


def _attributes_to_state(model: Any, prefix: str, arrays: dict[str, NDArray]) -> dict[str, Any]:
    """Return the facts of a model whose class declares its attributes."""

    def nest(inner: Any, place: str, learner: bool) -> dict[str, Any]:
        return to_state(inner, f"{prefix}{place}.", arrays, learner)

    kind = type(model)
    if hasattr(model, "_check_unchanged"):  # since the last fit
        model._check_unchanged()
    declared = _get_declared_state(kind)
    facts: dict[str, Any] = common_to_state(model) if hasattr(model, "n_features_in_") else {}
    facts["params"] = _saved_params(model, declared)
    third_party.check_usual(model)
    out = StateWriter(model, facts, arrays, prefix, nest)
    for name, words in declared.items():
        state_of(words).write_state(out, name, getattr(model, name))
    return facts


def _step_to_state(
    name: str, step: Any, prefix: str, arrays: dict[str, NDArray], learner: bool
) -> list[Any]:
    if "." in name:
        raise ValueError(f"The step {name!r} has a dot in its name. Rename the step.")
    if step is None or isinstance(step, str):
        return [name, {"kind": PASSTHROUGH}]
    return [name, to_state(step, f"{prefix}{name}.", arrays, learner)]


def _get_declared_state(kind: type) -> dict[str, str]:
    """Return the declared fitted attributes of a class."""
    own: dict[str, str] | None = third_party.STATES.get(kind, _NETWORKS.get(kind.__name__))
    return getattr(kind, "_saved_state", {}) if own is None else own


def _names_of_params(kind: type, declared: Mapping[str, str]) -> list[str]:
    """Return the names of the constructor parameters that a file holds for a class."""
    if kind.__name__ == "DPNeuralNet":
        return NET_PARAMS
    if kind in third_party.PARAMS:
        return third_party.PARAMS[kind]
    public = {
        name.rstrip("_")
        for name, words in declared.items()
        if issubclass(KINDS.get(words.split()[0], State), Public)
    }
    left_out = LEFT_OUT | public | set(declared)
    return [
        name
        for name, parameter in signature(kind).parameters.items()
        if name not in left_out and parameter.kind is not Parameter.VAR_KEYWORD
    ]


def _saved_params(model: Any, declared: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of a model to write."""
    kind = type(model)
    for name in sorted(_CODE & set(signature(kind).parameters)):
        if getattr(model, name) is not None:
            raise ValueError(
                f"{name} of the {kind.__name__} is code, which save_model cannot write. Leave "
                f"{name}=None, or use joblib for files that only you can write."
            )
    return {name: saved_value(getattr(model, name)) for name in _names_of_params(kind, declared)}


def _holds_model(kind: type) -> bool:
    words = [each.split()[0] for each in _get_declared_state(kind).values()]
    return not {"encoder", "learner", "model"}.isdisjoint(words)


def _find_class(kind: str, learner: bool) -> type | None:
    """Return the class of this name, or None; a learner must not contain another model."""
    if kind in third_party.CLASSES and (learner or kind in third_party.STATELESS):
        return third_party.CLASSES[kind]
    if kind not in CLASSES:
        return None
    with name_missing_extra():
        found: type = getattr(import_module(CLASSES[kind]), kind)
    return None if learner and _holds_model(found) else found


def _describe_refusal(model: Any, prefix: str, learner: bool) -> str:
    kind = type(model).__name__
    if learner:
        return (
            f"The learner {prefix[:-1]!r} ({kind}) cannot be saved without pickle: its class "
            "is not supported. Use one of "
            f"{', '.join(sorted(third_party.CLASSES))}, or a Pipeline of these; or use "
            "joblib for a file that only you can write."
        )
    where = f"The step {prefix[:-1]!r} ({kind})" if prefix else kind
    advice = _ADVICE.get(kind, "use joblib for a file that only you can write")
    return (
        f"{where} cannot be saved without pickle: its class is not supported. "
        f"Instead, {advice}. save_model supports {', '.join(sorted(CLASSES))}, "
        "and a Pipeline of these."
    )


def released_digest(model: Any) -> str:
    """Return the digest of the arrays that ``save_model`` writes; empty for an unsupported model.

    Because these arrays contain noise, no two private fits share a digest.
    """
    arrays: dict[str, NDArray] = {}
    try:
        to_state(model, "", arrays)
    except (AttributeError, NotFittedError, TypeError, ValueError):
        return ""
    return digest_of_arrays(arrays)


def from_state(node: Any, arrays: Arrays, given: Given, learner: bool = False) -> Any:
    """Build a model from the description that :func:`to_state` returned."""
    if not isinstance(node, dict) or not isinstance(node.get("kind"), str):
        raise ValueError(f"expected a model, found {node!r}")
    kind = node["kind"]
    if kind == PASSTHROUGH:
        return PASSTHROUGH
    if kind == "Pipeline":
        return _pipeline_from_state(node["steps"], arrays, given, learner)
    if kind == "FrozenEstimator":
        return FrozenEstimator(from_state(node["estimator"], arrays, given, learner))
    if learner and kind == "ColumnTransformer":
        parts = {
            name: from_state(part, arrays.below(name), given, learner)
            for name, part in node["parts"].items()
        }
        return third_party.columns_from_state(_select_facts(node, "parts"), parts)
    found = _find_class(kind, learner)
    if found is None:
        raise ValueError(f"{kind!r} is not a model of this version's save_model")
    if kind in _SYNTHESIZERS:
        model = synthesizers.from_state(found, _select_facts(node), arrays)
    elif kind in third_party.BY_VALUES:
        model = third_party.BY_VALUES[kind][1](_select_facts(node))
    else:
        model = _attributes_from_state(found, _select_facts(node), arrays, given)
    if _holds_model(found):
        return model
    output = node["output"]
    if output is not None:
        if output not in ("default", "pandas", "polars"):
            raise ValueError(
                f"its output container is {output!r}, expected default, pandas or polars"
            )
        model.set_output(transform=output)
    return model


def _attributes_from_state(kind: type, facts: dict[str, Any], arrays: Arrays, given: Given) -> Any:
    """Build a model whose class declares its attributes."""

    def nest(inner: Any, place: str, learner: bool) -> Any:
        return from_state(inner, arrays.below(place), given, learner)

    declared = _get_declared_state(kind)
    stated = check_names(facts["params"], _names_of_params(kind, declared))
    params = {name: restored_value(v) for name, v in stated.items() if v != BY_DEFAULT}
    needed = {
        name: None
        for name, parameter in signature(kind).parameters.items()
        if parameter.default is Parameter.empty and parameter.kind is not Parameter.VAR_KEYWORD
    }
    model = kind(**needed | params)
    if not needed:
        _check_params(model)
    reader = StateReader(model, facts, arrays, nest, given, used={"params"})
    if kind.__name__ not in _WITHOUT_FEATURES or "n_features_in_" in facts:
        reader.sizes["features"] = common_from_state(model, facts)
        reader.used |= {"n_features_in_", "feature_names"}
    for name, words in declared.items():
        setattr(model, name, state_of(words).read_state(reader, name))
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


def _select_facts(node: dict[str, Any], *others: str) -> dict[str, Any]:
    return {name: node[name] for name in node if name not in ("kind", "output", *others)}


def _pipeline_from_state(steps: Any, arrays: Arrays, given: Given, learner: bool) -> Pipeline:
    names = [name for name, _ in steps]
    if not names or len(set(names)) < len(names) or any(_is_invalid_name(name) for name in names):
        raise ValueError(f"the pipeline has the step names {names!r}, expected unique valid names")
    found = [(name, from_state(node, arrays.below(name), given, learner)) for name, node in steps]
    return Pipeline(found)


def _is_invalid_name(name: Any) -> bool:
    return not isinstance(name, str) or not name or "." in name or "__" in name
