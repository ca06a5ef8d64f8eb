"""Saving and loading of trained networks: their weights, and the facts that describe them."""

from __future__ import annotations

import copy
import math
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from torch import nn

from ..neural_network._gradients.perceptron import ACTIVATIONS
from ..neural_network.contrastive import ContrastiveEncoder
from ..neural_network.dpsgd_classifier import DPSGDClassifier
from ..neural_network.dpsgd_regressor import DPSGDRegressor
from ..neural_network.encoders import SCARFEncoder, SimCLREncoder
from ..neural_network.network import make_module
from ..neural_network.settings import Clipping, Optimizer, Recipe, TrainingOption
from ..neural_network.skorch_net import DPNeuralNet
from .value_checks import restore_guarantee

_KINDS: dict[str, type] = {
    "DPNeuralNet": DPNeuralNet,
    "DPSGDClassifier": DPSGDClassifier,
    "DPSGDRegressor": DPSGDRegressor,
    "SCARFEncoder": SCARFEncoder,
    "SimCLREncoder": SimCLREncoder,
}
# Saved parameters: numbers and text. Budget, seeds, module, augment and classes are not saved.
_PARAMS = (
    "hidden_layer_sizes", "epsilon", "delta", "noise_multiplier", "noise", "max_grad_norm",
    "batch_size", "epochs", "optimizer", "learning_rate", "relation", "n_records",
    "max_group_size", "target_scale", "loss",
)  # fmt: skip
_NET_PARAMS = (
    "epsilon", "delta", "noise_multiplier", "noise", "max_grad_norm", "batch_size", "max_epochs",
    "lr", "schedule", "averaging", "relation", "n_records", "max_group_size",
)  # fmt: skip
_OPTIONS: dict[str, type[TrainingOption]] = {"max_grad_norm": Clipping, "optimizer": Optimizer}
_ENCODER_PARAMS = (
    "n_components", "temperature", "batch_size", "epochs", "learning_rate", "image_shape",
    "hidden_layer_sizes", "column_groups",
)  # fmt: skip
_FITTED = ("n_features_in_", "noise_multiplier_", "n_steps_", "gradients_", "max_grad_norm_")

Model = DPNeuralNet | DPSGDClassifier | DPSGDRegressor | SCARFEncoder | SimCLREncoder


def to_state(model: Model) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the weights of a fitted model."""
    encodes = isinstance(model, ContrastiveEncoder)
    if not hasattr(model, "module_") or not (encodes or hasattr(model, "privacy_")):
        raise NotFittedError(f"This {type(model).__name__} has no weights yet.")
    weights = model.module_.state_dict()
    if any(weight.dtype == torch.bfloat16 for weight in weights.values()):
        raise ValueError("module holds bfloat16, which numpy cannot hold. Save module.float().")
    facts = _encoder_facts(model) if encodes else _network_facts(model)
    return facts, {name: weight.detach().cpu().numpy() for name, weight in weights.items()}


def _network_facts(model: Any) -> dict[str, Any]:
    params = _NET_PARAMS if isinstance(model, DPNeuralNet) else _PARAMS
    facts: dict[str, Any] = {
        "own_module": model.module is not None,
        "params": {k: _as_json(getattr(model, k)) for k in params if hasattr(model, k)},
        "fitted": {k: _as_json(getattr(model, k)) for k in _FITTED if hasattr(model, k)},
        "feature_names": _as_json(getattr(model, "feature_names_in_", None)),
        "privacy": model.privacy_.to_dict(),
    }
    if not isinstance(model, DPNeuralNet):
        facts["settings"] = {k: _as_json(v) for k, v in model.settings_.items()}
    if isinstance(model, DPSGDClassifier):
        facts["classes"] = _as_json(model.classes_)
        facts["given"] = model.classes is not None
        facts["multilabel"] = model.multilabel_
        facts["class_prior"] = _as_json(model.class_prior_)
        facts["class_weight"] = _as_json(model.class_weight_)
        facts["classes_dtype"] = "object" if model.classes_.dtype == object else "plain"
    elif isinstance(model, DPNeuralNet):
        facts["criterion"] = type(model.criterion_).__name__
    else:
        facts["target_bounds"] = list(model.target_bounds_)
        facts["given"] = model.target_bounds is not None
        facts["target_scale"] = model.target_scale_
    return facts


def _encoder_facts(model: ContrastiveEncoder) -> dict[str, Any]:
    return {
        "own_module": False,
        "params": {k: _as_json(getattr(model, k)) for k in _ENCODER_PARAMS if hasattr(model, k)},
        "fitted": {"n_features_in_": model.n_features_in_},
        "feature_names": _as_json(getattr(model, "feature_names_in_", None)),
        "saved": model._saved(),
    }


def from_state(
    facts: dict[str, Any], arrays: dict[str, NDArray], module: nn.Module | None, criterion: Any
) -> Model:
    """Return the model that :func:`to_state` described, from facts and arrays."""
    weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if facts["own_module"] != (module is not None):
        raise ValueError(
            "The file does not hold the code of the model's module: pass one of the same "
            "architecture, load_model(path, module=...); after a warm start, the initial one."
            if module is None
            else "The model has the built-in perceptron: leave module=None."
        )
    _check_facts(facts)
    params = {name: _as_option(name, value) for name, value in facts["params"].items()}
    facts = facts | {"params": params}
    if issubclass(_KINDS[facts["kind"]], ContrastiveEncoder):
        model: Any = _load_encoder(facts, weights)
    elif facts["kind"] == "DPNeuralNet":
        model = _load_net(facts, copy.deepcopy(module), criterion)
    else:
        model = _load_estimator(facts, weights, module)
    try:
        model.module_.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"module does not fit the weights in the file: {error}") from error
    model.module_.eval()
    vars(model).update(facts["fitted"])
    if isinstance(model, ContrastiveEncoder):
        return model
    restore_guarantee(model, facts)
    return model


def _check_facts(facts: dict[str, Any]) -> None:
    """Refuse unknown names, and values of the wrong type."""
    unknown = {*facts["params"], *facts["fitted"]} - {
        *_PARAMS, *_NET_PARAMS, *_ENCODER_PARAMS, *_FITTED
    }  # fmt: skip
    if unknown:
        raise KeyError(*sorted(unknown))
    for name, value in facts["fitted"].items():
        right = str if name == "gradients_" else int | float
        if isinstance(value, bool) or not isinstance(value, right):
            raise TypeError(f"{name} is {value!r}")
    for value in facts.get("target_bounds", []):
        if isinstance(value, bool) or not math.isfinite(value):
            raise TypeError(f"a bound of the target is {value!r}, expected a finite number")
    names = facts["feature_names"] or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("the feature names must all be text")
    if facts.get("target_scale", "linear") not in ("linear", "log"):
        raise ValueError(f"the scale of the target is {facts['target_scale']!r}")
    for name in ("given", "multilabel"):
        if not isinstance(facts.get(name, False), bool):
            raise TypeError(f"{name} is {facts[name]!r}, expected true or false")


def _as_option(name: str, value: Any) -> Any:
    """Return the checked option that a saved dictionary describes; other values stay."""
    if not isinstance(value, dict):
        return value
    option = _OPTIONS[name](**value)
    option._validate_params()
    return option


def _load_encoder(facts: dict[str, Any], weights: dict[str, Any]) -> ContrastiveEncoder:
    """Return an encoder with a new module of the saved shape."""
    model: ContrastiveEncoder = _KINDS[facts["kind"]](**facts["params"])
    model._validate_params()
    model.n_features_in_ = facts["fitted"]["n_features_in_"]
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    with torch.device("meta"):  # no memory is allocated before the sizes are checked
        module = model._restore(facts["saved"])
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    if expected != {name: tensor.shape for name, tensor in weights.items()}:
        raise ValueError(
            f"The weights in the file do not have the sizes that it states for its "
            f"{facts['kind']}: the file is damaged. Copy it again."
        )
    model.module_ = module.to_empty(device="cpu")
    model.needs_public_records_ = True
    return model


def _load_net(facts: dict[str, Any], module: Any, criterion: Any) -> DPNeuralNet:
    """Return an initialised net; a loss is looked up by name in torch only."""
    if criterion is None:
        criterion = getattr(nn.modules.loss, facts["criterion"], None)
    known = isinstance(criterion, nn.Module) or (
        isinstance(criterion, type) and issubclass(criterion, nn.Module)
    )
    if not known:
        raise ValueError(f"The loss {facts['criterion']!r} is not in torch: pass criterion=...")
    return DPNeuralNet(module, criterion, **facts["params"]).initialize()


def _load_estimator(
    facts: dict[str, Any], weights: dict[str, Any], module: nn.Module | None
) -> Any:
    """Return an estimator with a new module of the saved shape."""
    params = facts["params"]
    model: Any = _KINDS[facts["kind"]](**params, module=module)
    model.n_features_in_ = facts["fitted"]["n_features_in_"]
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    given = facts.get("given", False)  # values read off y must not count as public in a new fit
    if "classes" in facts:
        kind = object if facts["classes_dtype"] == "object" else None
        model.classes_ = np.array(facts["classes"], dtype=kind)
        model.classes = model.classes_ if given else None
        model.multilabel_ = facts["multilabel"]
        n_outputs = len(model.classes_)
        model.class_weight_ = _load_factors(facts["class_weight"], n_outputs)
        if (prior := facts["class_prior"]) is not None:
            prior = _load_factors(prior, n_outputs)
        model.class_prior = model.class_prior_ = prior
    else:
        model.target_bounds_ = tuple(facts["target_bounds"])
        model.target_bounds = model.target_bounds_ if given else None
        model.target_scale_ = facts["target_scale"]
        n_outputs = 1
    model._validate_params()
    model.settings_ = _load_settings(facts)
    hidden = model.settings_["hidden_layer_sizes"]
    if module is None:
        _check_sizes((model.n_features_in_, *hidden, n_outputs), weights)
    model.module_ = make_module(
        module, {}, model.n_features_in_, n_outputs, hidden,
        model.settings_["activation"], np.random.RandomState(0),
    )  # fmt: skip
    return model


def _load_factors(stated: Any, n: int) -> NDArray[np.float64]:
    """Return a positive number for each class."""
    found = np.array(stated, dtype=np.float64)
    if found.shape != (n,) or not ((found > 0) & (found < np.inf)).all():
        raise ValueError(f"the factors of the classes are {stated!r}, expected {n} above 0")
    return found


def _load_settings(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the checked training settings."""
    params, names = facts["params"], [field.name for field in fields(Recipe)]
    settings = facts["settings"]
    if sorted(settings) != sorted(names):
        raise KeyError("settings")
    sizes = np.atleast_1d(settings["hidden_layer_sizes"])
    settings = settings | {"hidden_layer_sizes": tuple(int(size) for size in sizes)}
    given, used = (
        np.atleast_1d(known["hidden_layer_sizes"]).tolist() for known in (params, settings)
    )
    if given not in (["auto"], used):
        raise ValueError(
            f"The file states both hidden_layer_sizes={given!r} and {used!r}: it is damaged. Copy "
            "it again."
        )
    if settings["activation"] not in ACTIVATIONS:
        raise ValueError(f"The activation is {settings['activation']!r}, expected one of torch's.")
    optimizer = Optimizer(
        settings["optimizer"], schedule=settings["schedule"], averaging=settings["averaging"]
    )
    others = {k: settings[k] for k in ("batch_size", "epochs", "learning_rate", "max_grad_norm")}
    DPSGDClassifier(hidden_layer_sizes=used, optimizer=optimizer, **others)._validate_params()
    return settings


def _check_sizes(sizes: tuple[int, ...], weights: dict[str, Any]) -> None:
    """Refuse layer sizes that differ from the weights, before a network of that size is made."""
    found = sorted(tuple(tensor.shape) for tensor in weights.values())
    layers = list(pairwise(sizes))
    if found != sorted([(b, a) for a, b in layers] + [(b,) for _, b in layers]):
        raise ValueError(
            f"The weights in the file have the shapes {found}, but the layer sizes are {sizes}: "
            "it is damaged. Copy it again."
        )


def _as_json(value: Any) -> Any:
    """Return numbers, text, lists of them and training options as JSON types."""
    if isinstance(value, TrainingOption):
        return {name: _as_json(part) for name, part in value.get_params().items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
