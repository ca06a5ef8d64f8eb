"""Kinds of fitted attributes that need torch: the weights of networks, and what rebuilds them."""

from __future__ import annotations

import copy
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from ..neural_network._gradients.perceptron import ACTIVATIONS, make_mlp
from ..neural_network.contrastive import ContrastiveEncoder
from ..neural_network.dpsgd_classifier import DPSGDClassifier
from ..neural_network.modules import make_module
from ..neural_network.settings import Optimizer, Recipe
from ..neural_network.skorch_net import DPNeuralNet
from .attribute_states import State, StateReader, StateWriter


class _Loss(State):
    """The loss of a ``DPNeuralNet``: its name, which is looked up in torch only."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        out.facts["criterion"] = type(value).__name__

    def read_state(self, into: StateReader, name: str) -> None:
        stated, found = into.fact("criterion"), into.given.criterion
        if found is None:
            found = getattr(nn.modules.loss, stated, None)
        kind = found if isinstance(found, type) else type(found)
        if not issubclass(kind, nn.Module):
            raise ValueError(f"The loss {stated!r} is not in torch: pass criterion=...")
        vars(into.model)["criterion"] = found  # skorch lets nobody set a module that is made


class _Recipe(State):
    """The settings of the training, which include the sizes of the perceptron."""

    def read_state(self, into: StateReader, name: str) -> dict[str, Any]:
        settings = into.fact(name)
        if sorted(settings) != sorted(field.name for field in fields(Recipe)):
            raise KeyError(name)
        sizes = np.atleast_1d(settings["hidden_layer_sizes"])
        settings = settings | {"hidden_layer_sizes": tuple(int(size) for size in sizes)}
        given, used = (
            np.atleast_1d(known).tolist()
            for known in (into.model.hidden_layer_sizes, settings["hidden_layer_sizes"])
        )
        if given not in (["auto"], used):
            raise ValueError(
                f"The file states both hidden_layer_sizes={given!r} and {used!r}: it is damaged. "
                "Copy it again."
            )
        if settings["activation"] not in ACTIVATIONS:
            raise ValueError(
                f"The activation is {settings['activation']!r}, expected one of torch's."
            )
        optimizer = Optimizer(
            settings["optimizer"], schedule=settings["schedule"], averaging=settings["averaging"]
        )
        others = {
            k: settings[k] for k in ("batch_size", "epochs", "learning_rate", "max_grad_norm")
        }
        DPSGDClassifier(hidden_layer_sizes=used, optimizer=optimizer, **others)._validate_params()
        return settings


class _Network(State):
    """A module: its weights, and whether the user passed its code."""

    def write_state(self, out: StateWriter, name: str, value: Any) -> None:
        weights = value.state_dict()
        if any(weight.dtype == torch.bfloat16 for weight in weights.values()):
            raise ValueError("module holds bfloat16, which numpy cannot hold. Save module.float().")
        if isinstance(out.model, ContrastiveEncoder):
            out.facts["saved"] = out.model._saved()
        else:
            out.facts["own_module"] = out.model.module is not None
        for key, weight in weights.items():
            out.arrays[f"{out.prefix}{name}.{key}"] = weight.detach().cpu().numpy()

    def read_state(self, into: StateReader, name: str) -> nn.Module:
        weights = {k: torch.from_numpy(v) for k, v in into.arrays.below(name).all().items()}
        encodes = isinstance(into.model, ContrastiveEncoder)
        module = _make_encoder(into, weights) if encodes else _make_network(into, weights)
        try:
            module.load_state_dict(weights)
        except RuntimeError as error:
            raise ValueError(f"module does not fit the weights in the file: {error}") from error
        return module.eval()


def _make_encoder(into: StateReader, weights: dict[str, Any]) -> nn.Module:
    """Return a new module of the saved shape."""
    model = into.model
    with torch.device("meta"):  # no memory is allocated before the sizes are checked
        module: nn.Module = model._restore(into.fact("saved"))
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    if expected != {name: tensor.shape for name, tensor in weights.items()}:
        raise ValueError(
            f"The weights in the file do not have the sizes that it states for its "
            f"{type(model).__name__}: the file is damaged. Copy it again."
        )
    model.needs_public_records_ = True
    return module.to_empty(device="cpu")


def _make_network(into: StateReader, weights: dict[str, Any]) -> nn.Module:
    """Return a new module of the saved shape, or from the code that the caller passed."""
    model, own = into.model, into.given.module if into.flag("own_module") else None
    if into.flag("own_module") and own is None:
        raise ValueError(
            "The file does not hold the code of the model's module: pass one of the same "
            "architecture, load_model(path, module=...); after a warm start, the initial one."
        )
    if isinstance(model, DPNeuralNet):
        model.__dict__["module"] = copy.deepcopy(own)
        return model.initialize().module_
    model.module = own
    hidden, n_outputs = model.settings_["hidden_layer_sizes"], into.sizes.get("classes", 1)
    random = np.random.RandomState(0)
    if own is not None:
        return make_module(own, {}, random)
    _check_sizes((model.n_features_in_, *hidden, n_outputs), weights)
    return make_mlp(model.n_features_in_, hidden, n_outputs, model.settings_["activation"], random)


def _check_sizes(sizes: tuple[int, ...], weights: dict[str, Any]) -> None:
    """Refuse layer sizes that differ from the weights, before a network of that size is made."""
    found = sorted(tuple(tensor.shape) for tensor in weights.values())
    layers = list(pairwise(sizes))
    if found != sorted([(b, a) for a, b in layers] + [(b,) for _, b in layers]):
        raise ValueError(
            f"The weights in the file have the shapes {found}, but the layer sizes are {sizes}: "
            "it is damaged. Copy it again."
        )


KINDS: dict[str, type[State]] = {"loss": _Loss, "network": _Network, "recipe": _Recipe}
