"""The network to train: the built-in multi-layer perceptron, or what the user gives."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

__all__ = ["ACTIVATIONS", "begins_by_chance", "make_mlp", "make_module"]


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


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "logistic": nn.Sigmoid}


def make_mlp(
    n_features: int,
    hidden_layer_sizes: Sequence[int],
    n_outputs: int,
    activation: str,
    random_state: np.random.RandomState,
) -> nn.Sequential:
    """Build a perceptron whose initial weights depend on ``random_state`` alone.

    Hidden layers start uniform within 1/sqrt(fan-in); the output layer starts at zero, so that
    training begins at equal class probabilities instead of at noise it must first undo.
    """
    sizes = [n_features, *hidden_layer_sizes, n_outputs]
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        linear = nn.Linear(fan_in, fan_out)
        bound = 1.0 / np.sqrt(fan_in)
        for p in linear.parameters():
            start = random_state.uniform(-bound, bound, size=tuple(p.shape))
            p.data = torch.from_numpy(start.astype(np.float32))
        layers += [linear, ACTIVATIONS[activation]()]
    layers.pop()
    for p in layers[-1].parameters():
        p.data.zero_()
    return nn.Sequential(*layers)


def begins_by_chance(module: nn.Module, again: nn.Module) -> bool:
    """Whether a module that was made twice, under different seeds, begins with random weights.

    Weights or buffers that are the same both times were brought along from somewhere, perhaps from
    private data. Layers that begin as all zeros or all ones, as biases and norms do, tell nothing.
    """
    first, second = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (module, again))
    return not any(
        name in second and torch.equal(p.cpu(), second[name].cpu())
        for name, p in first.items()
        if not bool((p == 0).all() or (p == 1).all())
    )
