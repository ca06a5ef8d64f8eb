"""The network to train: the built-in perceptron, or what the user gives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from ._mlp import make_mlp

__all__ = ["make_module"]


def make_module(
    module: Any,
    params: dict[str, Any],
    n_features: int,
    n_outputs: int,
    hidden_layer_sizes: tuple[int, ...],
    activation: str,
    random_state: np.random.RandomState,
) -> nn.Module:
    """Return a new module in single precision; ``module`` itself is left alone."""
    if module is None:
        if params:
            raise ValueError(f"module__{next(iter(params))} is given, but module=None takes none.")
        return make_mlp(n_features, hidden_layer_sizes, n_outputs, activation, random_state)
    if isinstance(module, nn.Module):
        if params:
            raise ValueError(
                f"module__{next(iter(params))} is given, but module={type(module).__name__} is "
                "ready made. Pass its class instead."
            )
        made = copy.deepcopy(module)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random_state.randint(2**31)))
            made = module(**params)
    if not isinstance(made, nn.Module):
        raise ValueError(f"module={module!r} made a {type(made).__name__}, not a torch module.")
    if not any(p.requires_grad for p in made.parameters()):
        raise ValueError(f"module={type(made).__name__} has no parameters to train.")
    return made.float()
