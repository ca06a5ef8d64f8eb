"""A trained network in one safetensors file: weights, and JSON that says what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from ..accounting import PrivacyGuarantee
from ._base import PrivateNetwork
from ._modules import make_module
from .dpsgd import DPSGDClassifier
from .regression import DPSGDRegressor

__all__ = ["load_model", "save_model"]

_FORMAT = 1
_KINDS: dict[str, type[PrivateNetwork]] = {
    "DPSGDClassifier": DPSGDClassifier,
    "DPSGDRegressor": DPSGDRegressor,
}
# Parameters that are numbers or words. The rest (budget, seeds, module, augment, classes) is
# not written.
_PARAMS = (
    "hidden_layer_sizes", "activation", "epsilon", "delta", "noise", "max_grad_norm", "clipping",
    "target_quantile",
    "batch_size", "epochs", "optimizer", "learning_rate", "schedule", "momentum", "averaging",
    "averaging_decay", "n_records",
)  # fmt: skip
_FITTED = ("n_features_in_", "noise_multiplier_", "n_steps_", "gradients_", "max_grad_norm_")


def save_model(model: DPSGDClassifier | DPSGDRegressor, path: str | Path) -> None:
    """Write a fitted model to a safetensors file, without pickle.

    Parameters
    ----------
    model : DPSGDClassifier or DPSGDRegressor
        Fitted.
    path : str or Path
        The file to write; what is there is replaced.

    Raises
    ------
    ValueError
        If ``model`` is neither of the two, not fitted, or its labels are neither numbers nor text.

    Notes
    -----
    **Guarantees.** The file holds the released weights, the guarantee, and public facts:
    parameters, names of features, labels. No record, no seed and no budget is in it.

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
        raise ValueError(f"model={model!r} must be a fitted DPSGDClassifier or DPSGDRegressor.")
    facts: dict[str, Any] = {
        "format": _FORMAT,
        "kind": type(model).__name__,
        "own_module": model.module is not None,
        "params": {k: _plain(getattr(model, k)) for k in _PARAMS},
        "fitted": {k: _plain(getattr(model, k)) for k in _FITTED},
        "feature_names": _plain(getattr(model, "feature_names_in_", None)),
        "privacy": model.privacy_.to_dict(),
    }
    if isinstance(model, DPSGDClassifier):
        facts["classes"] = _plain(model.classes_)
        facts["multilabel"] = model.multilabel_
        facts["classes_dtype"] = "object" if model.classes_.dtype == object else "plain"
    else:
        facts["target_bounds"] = list(model.target_bounds_)
    try:
        header = json.dumps(facts)
    except TypeError as error:
        raise ValueError(f"The labels must be numbers or text to be saved ({error}).") from error
    weights = {k: v.contiguous().clone() for k, v in model.module_.state_dict().items()}
    save_file(weights, path, metadata={"skprivacy": header})


def load_model(
    path: str | Path, module: nn.Module | None = None
) -> DPSGDClassifier | DPSGDRegressor:
    """Read a model that :func:`save_model` wrote. Nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
    module : torch.nn.Module, default=None
        For a model with a ``module`` of its own: a module of the same make, whose weights are
        replaced. It is not in the file, which holds numbers alone.

    Returns
    -------
    DPSGDClassifier or DPSGDRegressor
        Predicts as the saved one, and states the same guarantee.

    Raises
    ------
    ValueError
        If the file was not written by :func:`save_model`, or ``module`` does not fit to it.
    """
    with safe_open(path, framework="pt") as file:
        header = (file.metadata() or {}).get("skprivacy")
        weights = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)
    facts = json.loads(header) if header else {}
    if facts.get("format") != _FORMAT or facts.get("kind") not in _KINDS:
        raise ValueError(f"path={str(path)!r} is not a model of this version's save_model.")
    if facts["own_module"] != (module is not None):
        raise ValueError(
            "The model has a module of its own: pass module=..., of the same make."
            if module is None
            else "The model has the built-in perceptron: leave module=None."
        )
    params = facts["params"]
    model: Any = _KINDS[facts["kind"]](**params, module=module)
    vars(model).update(facts["fitted"])
    if facts["feature_names"] is not None:
        model.feature_names_in_ = np.array(facts["feature_names"], dtype=object)
    if "classes" in facts:
        kind = object if facts["classes_dtype"] == "object" else None
        model.classes = model.classes_ = np.array(facts["classes"], dtype=kind)
        model.multilabel_ = facts["multilabel"]
        n_outputs = len(model.classes_)
    else:
        model.target_bounds = model.target_bounds_ = tuple(facts["target_bounds"])
        n_outputs = 1
    hidden = tuple(np.atleast_1d(params["hidden_layer_sizes"]).astype(int))
    made = make_module(
        module, {}, model.n_features_in_, n_outputs, hidden,
        params["activation"], np.random.RandomState(0),
    )  # fmt: skip
    try:
        made.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"module does not fit to the weights in the file: {error}") from error
    model.module_ = made.eval()
    model.privacy_ = PrivacyGuarantee.from_dict(facts["privacy"])
    model.privacy_event_ = model.privacy_.event
    model.delta_ = model.privacy_.at_delta
    model.epsilon_ = model.privacy_.epsilon()
    return model


def _plain(value: Any) -> Any:
    """Return numbers, text and lists of them as JSON knows them."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
