"""MNIST's pixels and scattering features, a small convolution network, and their settings.

The settings were chosen on these data, which are public: the search is not in epsilon.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.shared.data import fetch_mnist
from benchmarks.shared.quick import choose
from skprivacy.neural_network import Optimizer, ScatteringTransformer


class SmallConvNet(nn.Module):
    """Two convolutions and 26,010 weights: N. Papernot et al., "Tempered sigmoid activations for
    deep learning with differential privacy", AAAI 2021, with the plain tanh.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 16, 8, stride=2, padding=2), nn.Tanh(), MaxPool(2, 1),
            nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), MaxPool(2, 1),
            nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class MaxPool(nn.MaxPool2d):
    """The largest of neighbours, channels last in memory: ten times as fast on a CPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.contiguous(memory_format=torch.channels_last))


CONVOLUTION = {
    "module": SmallConvNet, "batch_size": choose(1024, 100), "epochs": choose(20, 1),
    "max_grad_norm": 0.1, "learning_rate": 6.0,
}  # fmt: skip
SCATTERING = {
    "hidden_layer_sizes": (), "batch_size": choose(15_000, 100), "epochs": choose(50, 2),
    "learning_rate": 1.0, "optimizer": Optimizer(schedule="constant"),
}  # fmt: skip


def pixels(subset: str) -> tuple[NDArray, NDArray]:
    """Return images as rows of numbers from 0 to 1, and their digits."""
    X, y = fetch_mnist(subset=subset, return_X_y=True)
    return (X / 255).astype(np.float32), y


def features(rows: NDArray) -> NDArray:
    """Return scattering features of images."""
    return ScatteringTransformer().fit_transform(rows)
