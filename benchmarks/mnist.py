"""MNIST at epsilon 3 and delta 1e-5, twice: a small convolution net, and scattering features.

``python benchmarks/mnist.py [convolution] [scattering] [--seeds N] [--epochs N]`` prints one line
for each fit: test accuracy on the 10,000 images, the guarantee, and seconds of the whole fit
(features included). It needs MNIST, see ``skprivacy.datasets.fetch_mnist``. The settings below were
chosen on these data, which are public: the search is not in epsilon. ``--steps [--processor]``
instead times a private step of the convolution net beside a plain torch step, interleaved, by the
clock or in processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import dpsgd
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from skprivacy._environment import one_blas_thread
from skprivacy.datasets import fetch_mnist
from skprivacy.neural_network import DPSGDClassifier, ScatteringTransformer
from skprivacy.neural_network._gradients.trial import Probe


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
    "module": SmallConvNet, "batch_size": 1024, "epochs": 20, "max_grad_norm": 0.1,
    "learning_rate": 6.0,
}  # fmt: skip
SCATTERING = {
    "hidden_layer_sizes": (), "batch_size": 15_000, "epochs": 50, "learning_rate": 1.0,
    "schedule": "constant",
}  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """What a fit reached, and what it cost."""

    accuracy: float
    guarantee: str
    seconds: float


def pixels(subset: str) -> tuple[NDArray, NDArray]:
    """Return images as rows of numbers from 0 to 1, and their digits."""
    X, y = fetch_mnist(subset=subset, return_X_y=True)
    return (X / 255).astype(np.float32), y


def features(rows: NDArray) -> NDArray:
    """Return scattering features of images."""
    return ScatteringTransformer().fit_transform(rows)


def fit(kind: str, seed: int, **params: object) -> Fit:
    """Train and test once; ``params`` change the settings."""
    X, y = pixels("train")
    X_test, y_test = pixels("test")
    start = time.perf_counter()
    settings = CONVOLUTION if kind == "convolution" else SCATTERING
    if kind == "scattering":
        X = features(X)
    fixed = {"epsilon": 3.0, "delta": 1e-5, "classes": range(10), "random_state": seed}
    model = DPSGDClassifier(**{**fixed, **settings, **params}).fit(X, y)
    seconds = time.perf_counter() - start
    if kind == "scattering":
        X_test = features(X_test)
    return Fit(model.score(X_test, y_test), repr(model.privacy_), seconds)


def compare_steps(clock: Callable[[], float]) -> None:
    """Time private and plain steps of the convolution net in turns, on noise for images."""
    X, y = torch.rand(20_000, 784), torch.randint(10, (20_000,))
    for batch in (256, 1024, 4096):
        steps = {
            "plain": dpsgd.plain_step(SmallConvNet(), X, y, batch),
            "gathers": dpsgd.plain_step(SmallConvNet(), X, y, batch, torch.randperm(len(X))),
            "ours": dpsgd.private_step(SmallConvNet(), X, y, batch, Probe.like((784,), 10)),
        }
        found = dpsgd.medians(steps, rounds=15, clock=clock)
        plain = found["plain"]
        print(
            f"batch {batch}: a plain step {1e3 * plain:.1f} ms, one that gathers "
            f"{found['gathers'] / plain:.2f} times that, a private one {found['ours'] / plain:.2f}",
            dpsgd.load(),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=["convolution", "scattering"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="fewer for a quick look")
    parser.add_argument("--steps", action="store_true", help="time steps instead")
    parser.add_argument("--processor", action="store_true", help="processor time, not wall time")
    options = parser.parse_args()
    if options.steps:
        compare_steps(time.process_time if options.processor else time.perf_counter)
        return
    params = {} if options.epochs is None else {"epochs": options.epochs}
    for kind in options.kinds:
        for seed in range(options.seeds):
            found = fit(kind, seed, **params)
            print(
                f"{kind:12} seed {seed}  accuracy {found.accuracy:.4f}  {found.guarantee}  "
                f"{found.seconds:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    with one_blas_thread():  # as every run of the engine has it
        main()
