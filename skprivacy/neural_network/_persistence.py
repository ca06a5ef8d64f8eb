"""A trained network in one safetensors file: weights, and JSON that says what they are."""

from __future__ import annotations

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from .._output import output_path
from ..accounting import PrivacyGuarantee
from ._training.net import make_module
from .dp_net import DPNeuralNet
from .dpsgd import DPSGDClassifier
from .encoders import SCARFEncoder, SimCLREncoder
from .encoders._contrastive import ContrastiveEncoder
from .regression import DPSGDRegressor

__all__ = ["load_model", "save_model"]

_FORMAT = 1
_KINDS: dict[str, type] = {
    "DPNeuralNet": DPNeuralNet,
    "DPSGDClassifier": DPSGDClassifier,
    "DPSGDRegressor": DPSGDRegressor,
    "SCARFEncoder": SCARFEncoder,
    "SimCLREncoder": SimCLREncoder,
}
# Parameters that are numbers or words. The rest (budget, seeds, module, augment, classes) is
# not written.
_PARAMS = (
    "hidden_layer_sizes", "activation", "epsilon", "delta", "noise_multiplier", "noise",
    "max_grad_norm", "clipping", "target_quantile", "batch_size", "epochs", "optimizer",
    "learning_rate", "schedule", "momentum", "averaging", "averaging_decay", "n_records",
)  # fmt: skip
_NET_PARAMS = (
    "epsilon", "delta", "noise_multiplier", "noise", "max_grad_norm", "clipping",
    "target_quantile", "batch_size", "max_epochs", "lr", "schedule", "averaging",
    "averaging_decay", "n_records",
)  # fmt: skip
_ENCODER_PARAMS = (
    "n_components", "temperature", "batch_size", "epochs", "learning_rate", "image_shape",
    "hidden_layer_sizes", "corruption", "groups",
)  # fmt: skip
_FITTED = ("n_features_in_", "noise_multiplier_", "n_steps_", "gradients_", "max_grad_norm_")

Model = DPNeuralNet | DPSGDClassifier | DPSGDRegressor | SCARFEncoder | SimCLREncoder


def save_model(model: Model, path: str | Path) -> None:
    """Write a fitted model to a safetensors file, without pickle.

    Parameters
    ----------
    model : DPSGDClassifier, DPSGDRegressor, DPNeuralNet, SCARFEncoder or SimCLREncoder
        Fitted.
    path : str or Path
        The file to write; what is there is replaced.

    Raises
    ------
    ValueError
        If ``model`` is none of these, not fitted, or its labels are neither numbers nor text.

    Notes
    -----
    **Guarantees.** The file holds the released weights, the guarantee, and public facts:
    parameters, names of features, labels. No record, no seed and no budget is in it. An encoder
    has no guarantee, and its file is as public as the records that it was fitted on.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from skprivacy.neural_network import DPSGDRegressor, load_model, save_model
    >>> model = DPSGDRegressor(target_bounds=(0, 3), delta=0.01, epochs=1)
    >>> model = model.fit([[0.0], [0.5], [1.0]], [0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_model(model, Path(folder) / "model.safetensors")
    ...     again = load_model(Path(folder) / "model.safetensors")
    >>> again.privacy_ == model.privacy_
    True
    """
    if type(model).__name__ not in _KINDS or not hasattr(model, "module_"):
        raise ValueError(
            f"model must be a fitted {', '.join(_KINDS)}, got a {type(model).__name__} that is "
            "none, or not fitted. Call fit first; of a pipeline, save its last step, model[-1], "
            "and its Schema as JSON."
        )
    facts = _facts_of_encoder(model) if isinstance(model, ContrastiveEncoder) else _facts(model)
    try:
        header = json.dumps(facts)
    except TypeError as error:
        raise ValueError(f"The labels must be numbers or text to be saved ({error}).") from error
    weights = {k: v.contiguous().clone() for k, v in model.module_.state_dict().items()}
    save_file(weights, output_path(path), metadata={"skprivacy": header})


def _facts(model: Any) -> dict[str, Any]:
    params = _NET_PARAMS if isinstance(model, DPNeuralNet) else _PARAMS
    facts: dict[str, Any] = {
        "format": _FORMAT,
        "kind": type(model).__name__,
        "own_module": model.module is not None,
        "params": {k: _plain(getattr(model, k)) for k in params},
        "fitted": {k: _plain(getattr(model, k)) for k in _FITTED if hasattr(model, k)},
        "feature_names": _plain(getattr(model, "feature_names_in_", None)),
        "privacy": model.privacy_.to_dict(),
    }
    if isinstance(model, DPSGDClassifier):
        facts["classes"] = _plain(model.classes_)
        facts["given"] = model.classes is not None
        facts["multilabel"] = model.multilabel_
        facts["classes_dtype"] = "object" if model.classes_.dtype == object else "plain"
    elif isinstance(model, DPNeuralNet):
        facts["criterion"] = type(model.criterion_).__name__
    else:
        facts["target_bounds"] = list(model.target_bounds_)
        facts["given"] = model.target_bounds is not None
    return facts


def _facts_of_encoder(model: ContrastiveEncoder) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "kind": type(model).__name__,
        "own_module": False,
        "params": {k: _plain(getattr(model, k)) for k in _ENCODER_PARAMS if hasattr(model, k)},
        "fitted": {"n_features_in_": model.n_features_in_},
        "feature_names": _plain(getattr(model, "feature_names_in_", None)),
        "saved": model._saved(),
    }


def load_model(path: str | Path, module: nn.Module | None = None, criterion: Any = None) -> Model:
    """Read a model that :func:`save_model` wrote. Nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
    module : torch.nn.Module, default=None
        For a model with a ``module`` of its own: a module of the same make, whose weights are
        replaced. It is not in the file, which holds numbers alone.
    criterion : type or torch.nn.Module, default=None
        For a ``DPNeuralNet`` whose loss is none of torch's own: the loss.

    Returns
    -------
    DPSGDClassifier, DPSGDRegressor, DPNeuralNet, SCARFEncoder or SimCLREncoder
        Predicts or transforms as the saved one, and states the same guarantee.

    Raises
    ------
    ValueError
        If the file is damaged or was not written by :func:`save_model`, or ``module`` does not fit
        to it.
    """
    facts, weights = _contents(path)
    if facts.get("format") != _FORMAT or facts.get("kind") not in list(_KINDS):
        raise ValueError(f"path={str(path)!r} is not a model of this version's save_model.")
    try:
        return _model(facts, weights, module, criterion)
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(
            f"path={str(path)!r} is damaged: what it says of its model makes none ({error!r}). "
            "Copy it again, or save the model again with save_model."
        ) from error


def _contents(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a file says of its model, and the weights."""
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("skprivacy")
            weights = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)
        facts = json.loads(header) if header else {}
    except (SafetensorError, RecursionError, ValueError) as error:
        raise ValueError(
            f"path={str(path)!r} is damaged or no safetensors file ({error}). Copy it again, or "
            "save the model again with save_model."
        ) from error
    return (facts if isinstance(facts, dict) else {}), weights


def _model(
    facts: dict[str, Any], weights: dict[str, Any], module: nn.Module | None, criterion: Any
) -> Model:
    if facts["own_module"] != (module is not None):
        raise ValueError(
            "The model has a module of its own, whose code is not in the file: pass one of the "
            "same make, load_model(path, module=...); after a warm start, the one it began with."
            if module is None
            else "The model has the built-in perceptron: leave module=None."
        )
    unknown = {*facts["params"], *facts["fitted"]} - {
        *_PARAMS, *_NET_PARAMS, *_ENCODER_PARAMS, *_FITTED
    }  # fmt: skip
    if unknown:
        raise KeyError(*sorted(unknown))
    if issubclass(_KINDS[facts["kind"]], ContrastiveEncoder):
        model: Any = _encoder(facts, weights)
    elif facts["kind"] == "DPNeuralNet":
        model = _net(facts, copy.deepcopy(module), criterion)
    else:
        model = _estimator(facts, weights, module)
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise ValueError("The weights in the file are not all finite numbers. Copy it again.")
    try:
        model.module_.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"module does not fit to the weights in the file: {error}") from error
    model.module_.eval()
    vars(model).update(facts["fitted"])
    if isinstance(model, ContrastiveEncoder):
        return model
    model.privacy_ = PrivacyGuarantee.from_dict(facts["privacy"])
    model.privacy_event_ = model.privacy_.event
    model.delta_ = model.privacy_.at_delta
    model.epsilon_ = model.privacy_.epsilon()
    return model


def _encoder(facts: dict[str, Any], weights: dict[str, Any]) -> ContrastiveEncoder:
    """Return an encoder with a new module, of the right shape."""
    model: ContrastiveEncoder = _KINDS[facts["kind"]](**facts["params"])
    model.n_features_in_ = facts["fitted"]["n_features_in_"]
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    with torch.device("meta"):  # no memory is taken before the sizes are known to be right
        module = model._restore(facts["saved"])
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    if expected != {name: tensor.shape for name, tensor in weights.items()}:
        raise ValueError(
            f"The weights in the file are not those of a {facts['kind']} of the sizes that it "
            "states: it is damaged. Copy it again."
        )
    model.module_ = module.to_empty(device="cpu")
    model.needs_public_records_ = True
    return model


def _net(facts: dict[str, Any], module: Any, criterion: Any) -> DPNeuralNet:
    """Return an initialised net; a loss is looked up by name among torch's own only."""
    if criterion is None:
        criterion = getattr(nn.modules.loss, facts["criterion"], None)
    if criterion is None:
        raise ValueError(f"The loss {facts['criterion']!r} is none of torch's: pass criterion=...")
    return DPNeuralNet(module, criterion, **facts["params"]).initialize()


def _estimator(facts: dict[str, Any], weights: dict[str, Any], module: nn.Module | None) -> Any:
    """Return an estimator with a new module, of the right shape."""
    params = facts["params"]
    model: Any = _KINDS[facts["kind"]](**params, module=module)
    model.n_features_in_ = facts["fitted"]["n_features_in_"]
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    given = facts.get("given", False)  # what was read off y must not pass for public in a new fit
    if "classes" in facts:
        kind = object if facts["classes_dtype"] == "object" else None
        model.classes_ = np.array(facts["classes"], dtype=kind)
        model.classes = model.classes_ if given else None
        model.multilabel_ = facts["multilabel"]
        n_outputs = len(model.classes_)
    else:
        model.target_bounds_ = tuple(facts["target_bounds"])
        model.target_bounds = model.target_bounds_ if given else None
        n_outputs = 1
    hidden = tuple(int(size) for size in np.atleast_1d(params["hidden_layer_sizes"]))
    if module is None:
        _check_sizes((model.n_features_in_, *hidden, n_outputs), weights)
    model.module_ = make_module(
        module, {}, model.n_features_in_, n_outputs, hidden,
        params["activation"], np.random.RandomState(0),
    )  # fmt: skip
    return model


def _check_sizes(sizes: tuple[int, ...], weights: dict[str, Any]) -> None:
    """Refuse sizes that are not those of the weights, before a network of that size is made."""
    found = sorted(tuple(tensor.shape) for tensor in weights.values())
    layers = list(pairwise(sizes))
    if found != sorted([(b, a) for a, b in layers] + [(b,) for _, b in layers]):
        raise ValueError(
            f"The weights in the file have the shapes {found}, and its model the layers {sizes}: "
            "it is damaged. Copy it again."
        )


def _plain(value: Any) -> Any:
    """Return numbers, text and lists of them as JSON knows them."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
