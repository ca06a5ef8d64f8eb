"""The built-in network: a multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

__all__ = ["ACTIVATIONS", "make_mlp"]

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
