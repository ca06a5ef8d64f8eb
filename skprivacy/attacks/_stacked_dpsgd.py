"""DP-SGD for several networks side by side: shadow models of private networks.

The algorithm is that of the private estimator, step by step, and so is the distribution of what it
returns. Its privacy is not: the records are the attacker's own, the noise can be seeded, and
nothing is charged. What an estimator has to say about itself is :class:`Description`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import PoissonSampler, SecureRandom
from ._perceptrons import Floats, Layers, PerceptronStack, count_numbers, softmax_error

__all__ = ["Description", "PrivateTask", "train_private"]


class Description(Protocol):
    """What a private estimator says its training on some records would do."""

    inputs: Floats  # (n_records, n_features)
    targets: NDArray[np.intp]  # columns of classes
    classes: NDArray[Any]
    layers: Layers  # to start from
    activation: str
    loss_weight: Floats  # (n_classes,)
    factors: Callable[[Floats], Floats]  # squared norms (n_layers, ...) to factors of that shape
    sampling_rate: float
    n_steps: int
    noise_std: float  # of the noise in the sum of gradients
    divisor: float
    optimizer: str  # "sgd" or "adam"
    momentum: float
    learning_rate: NDArray[np.float64]  # (n_steps,)
    first_averaged: int


@dataclass(frozen=True)
class PrivateTask:
    """One private network to train."""

    fit: Description
    seed: int

    @property
    def activation(self) -> str:
        """That of the hidden layers."""
        return self.fit.activation

    @property
    def classes(self) -> NDArray[Any]:
        """Labels, in the order of the outputs."""
        return self.fit.classes

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.fit.inputs.shape[1], *(len(bias) for _, bias in self.fit.layers))

    @property
    def kind(self) -> Hashable:
        """Tasks of one kind can be trained side by side."""
        return self._sizes, self.fit.n_steps

    @property
    def numbers(self) -> int:
        """How many numbers training holds, but for the records."""
        return count_numbers(self._sizes, int(self.fit.sampling_rate * len(self.fit.inputs)))


def train_private(tasks: list[PrivateTask]) -> list[Layers]:
    """Train several networks of one kind."""
    fits = [task.fit for task in tasks]
    first = fits[0]
    stack = PerceptronStack([fit.layers for fit in fits], first.activation)
    randoms = [SecureRandom(task.seed) for task in tasks]
    samplers = [PoissonSampler(fit.sampling_rate) for fit in fits]
    records = [fit.inputs for fit in fits]
    lengths = [np.einsum("nk,nk->n", own, own) for own in records]
    optimizer = _Momentum if first.optimizer == "sgd" else _Adam
    update = optimizer(stack, fits)
    divisor = np.array([[fit.divisor] for fit in fits], np.float32)
    average = np.zeros_like(stack.weights)
    for step in range(first.n_steps):
        drawn = [
            sampler.draw(len(own), random)
            for sampler, own, random in zip(samplers, records, randoms, strict=True)
        ]
        stack.load(records, drawn)
        _sum_clipped(stack, fits, lengths, drawn)
        for gradient, fit, random in zip(stack.gradient, fits, randoms, strict=True):
            if fit.noise_std:
                random.add_normal(gradient, fit.noise_std)
        stack.gradient /= divisor
        update(np.array([[fit.learning_rate[step]] for fit in fits], np.float32))
        if step >= first.first_averaged:
            average += stack.weights
    averaged = first.n_steps - first.first_averaged
    final = average / np.float32(averaged) if averaged else stack.weights
    return [stack.layers(place, final) for place in range(len(fits))]


def _sum_clipped(
    stack: PerceptronStack,
    fits: list[Description],
    lengths: list[Floats],
    drawn: list[NDArray[np.int64]],
) -> None:
    """Sum the clipped gradients of the batch: norms and sums by book-keeping.

    ``lengths`` holds the squared norms of all records.
    """
    if stack.size == 0:
        stack.gradient[:] = 0.0
        return
    label = np.zeros((len(fits), stack.size), np.intp)
    weight = np.zeros((len(fits), stack.size), np.float32)  # none for padding
    squared = np.zeros((len(fits[0].layers), len(fits), stack.size), np.float32)
    for place, (fit, own, rows) in enumerate(zip(fits, lengths, drawn, strict=True)):
        label[place, : len(rows)] = fit.targets[rows]
        weight[place, : len(rows)] = fit.loss_weight[label[place, : len(rows)]]
        squared[-1, place, : len(rows)] = own[rows]
    error = stack.forward()
    softmax_error(error, label, False)
    error *= weight[:, :, None]
    seen = stack.backward()[::-1]  # from the output on, as the layers of the private estimator
    for norms, (value, error) in zip(squared, seen, strict=True):
        if value is not seen[-1][0]:
            np.einsum("sbk,sbk->sb", value, value, out=norms)
        norms += 1.0
        norms *= np.einsum("sbk,sbk->sb", error, error)
    factors = fits[0].factors(squared)
    lost = ~np.isfinite(squared.sum(0))
    for (value, error), factor in zip(seen, factors, strict=True):
        error *= factor[:, :, None]
        if lost.any():  # no finite gradient: no part
            value[lost] = error[lost] = 0.0
    stack.sum_gradients(seen[::-1])


class _Momentum:
    """Stochastic gradient descent with momentum."""

    def __init__(self, stack: PerceptronStack, fits: list[Description]) -> None:
        self.stack = stack
        self.momentum = fits[0].momentum
        self.velocity = np.zeros_like(stack.weights)

    def __call__(self, rate: Floats) -> None:
        self.velocity *= self.momentum
        self.velocity += self.stack.gradient
        self.stack.weights -= np.multiply(self.velocity, rate, out=self.stack.gradient)


class _Adam:
    """Adam whose second moment has the variance of the noise taken off."""

    SECOND = 0.999
    EPSILON = 1e-8

    def __init__(self, stack: PerceptronStack, fits: list[Description]) -> None:
        self.stack = stack
        self.first = fits[0].momentum
        self.noise = np.array([[(fit.noise_std / fit.divisor) ** 2] for fit in fits], np.float32)
        self.mean, self.square = np.zeros_like(stack.weights), np.zeros_like(stack.weights)
        self.steps = 0

    def __call__(self, rate: Floats) -> None:
        self.steps += 1
        gradient, second = self.stack.gradient, self.SECOND
        self.mean += (1 - self.first) * (gradient - self.mean)
        self.square += (1 - second) * (gradient * gradient - self.square)
        independent = min(self.steps, (1 + second) / (1 - second))
        square = self.square / (1 - second**self.steps) - self.noise
        np.maximum(square, self.noise * math.sqrt(2 / independent), out=square)
        np.sqrt(square, out=square)
        square += self.EPSILON
        self.stack.weights -= rate / (1 - self.first**self.steps) * self.mean / square
