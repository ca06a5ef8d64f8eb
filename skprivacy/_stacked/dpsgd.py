"""DP-SGD for several networks side by side: shadow models of private networks.

Step by step, the algorithm is that of the private estimator, and so is the distribution of its
result. It gives no privacy, however: the records are the attacker's own, the noise can be seeded,
and nothing is charged. Estimators describe their training by :class:`Description`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import PoissonSampler, SecureRandom
from .perceptrons import (
    Float32Array,
    Layers,
    PerceptronStack,
    count_multiplications,
    count_numbers,
    softmax_error,
    with_facts,
)

__all__ = ["Description", "Draws", "PrivateTask", "train_private"]

_N_FACTS = 3
# Approximate number of records, and of normal variates, to draw at a time.
_DRAWN = 1 << 12
_NORMALS = 1 << 15


class Description(Protocol):
    """A private estimator's description of its training on given records."""

    inputs: Float32Array  # (n_records, n_features)
    targets: NDArray[np.intp]  # index of each record's class
    classes: NDArray[Any]
    layers: Layers  # initial weights
    activation: str
    loss_weight: Float32Array  # (n_classes,)
    factors: Callable[
        [Float32Array], Float32Array
    ]  # squared norms (n_layers, ...) to factors of that shape
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
        """Activation of the hidden layers."""
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
        """How many numbers training holds in memory, apart from the records."""
        return count_numbers(self._sizes, self._batch)

    @property
    def multiplications(self) -> float:
        """How many multiplications training takes."""
        return self.fit.n_steps * count_multiplications(self._sizes, self._batch)

    @property
    def _batch(self) -> int:
        return int(self.fit.sampling_rate * len(self.fit.inputs))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the description's class, whose module imports torch needlessly."""
        return vars(self) | {"fit": SimpleNamespace(**vars(self.fit))}


def train_private(tasks: list[PrivateTask]) -> list[Layers]:
    """Train several networks of one kind."""
    fits = [task.fit for task in tasks]
    first = fits[0]
    stack = PerceptronStack([fit.layers for fit in fits], first.activation, _N_FACTS)
    records = [_with_facts(fit) for fit in fits]
    draws = [Draws(task.fit, stack.weights.shape[1], task.seed) for task in tasks]
    update = (_Momentum if first.optimizer == "sgd" else _Adam)(stack, fits)
    divisor = np.array([[fit.divisor] for fit in fits], np.float32)
    rates = np.array([fit.learning_rate for fit in fits], np.float32)
    average = np.zeros_like(stack.weights)
    for step in range(first.n_steps):
        stack.load(records, [next(network.batches) for network in draws])
        _average_clipped(stack, first.factors, divisor)
        for gradient, network in zip(stack.gradient, draws, strict=True):
            gradient += next(network.noise)
        update(rates[:, step, None])
        if step >= first.first_averaged:
            average += stack.weights
    averaged = first.n_steps - first.first_averaged
    final = average / np.float32(averaged) if averaged else stack.weights
    return [stack.network(i, final) for i in range(len(fits))]


class Draws:
    """The batches and the noise of one network, drawn for several steps at a time.

    A long draw costs little more than a short one. Batches and noise are distributed as in the
    private estimator: each record is included independently, of other records and in every step.
    """

    def __init__(self, fit: Description, n_parameters: int, seed: int) -> None:
        self.random = SecureRandom(seed)
        self.batches = self._batches(PoissonSampler(fit.sampling_rate), len(fit.inputs))
        self.noise = self._noise(n_parameters, fit.noise_std / fit.divisor)

    def _batches(self, sampler: PoissonSampler, n: int) -> Iterator[NDArray[np.int64]]:
        steps = 1 + int(_DRAWN / (n * sampler.rate))
        while True:
            drawn = sampler.draw(n * steps, self.random)
            cuts = np.searchsorted(drawn, n * np.arange(steps + 1)).tolist()
            for step, (start, stop) in enumerate(pairwise(cuts)):
                yield drawn[start:stop] - n * step

    def _noise(self, size: int, std: float) -> Iterator[Float32Array | float]:
        while not std:
            yield 0.0
        steps = max(1, _NORMALS // size)
        while True:
            noise = self.random.normal(steps * size)
            noise *= np.float32(std)
            yield from noise.reshape(steps, size)


def _with_facts(fit: Description) -> Float32Array:
    """Return the records with their label, its weight, and their squared norm plus one."""
    square = np.einsum("nk,nk->n", fit.inputs, fit.inputs)
    return with_facts(fit.inputs, fit.targets, fit.loss_weight[fit.targets], square + 1.0)


def _average_clipped(
    stack: PerceptronStack,
    factors_of: Callable[[Float32Array], Float32Array],
    divisor: Float32Array,
) -> None:
    """Sum the clipped gradients of the batch and divide, without forming per-example gradients."""
    if stack.size == 0:
        stack.gradient[:] = 0.0
        return
    label, weight, square = np.moveaxis(stack.facts, -1, 0)  # padding has weight zero
    softmax_error(stack.forward(), label.astype(np.intp), False)
    seen = stack.backward()[::-1]  # from the output down, the order of the private estimator
    squared = np.empty((len(seen), *label.shape), np.float32)
    for norms, (value, error) in zip(squared, seen, strict=True):
        np.einsum("sbk,sbk->sb", error, error, out=norms)
        norms *= square if value is seen[-1][0] else np.einsum("sbk,sbk->sb", value, value)
    squared *= weight * weight
    factors = factors_of(squared) * (weight / divisor)
    lost = ~np.isfinite(squared.sum(0))
    for (value, error), factor in zip(seen, factors, strict=True):
        error *= factor[:, :, None]
        if lost.any():  # records without a finite gradient are ignored
            value[lost] = error[lost] = 0.0
    stack.sum_gradients(seen[::-1])


class _Momentum:
    """Stochastic gradient descent with momentum."""

    def __init__(self, stack: PerceptronStack, fits: list[Description]) -> None:
        self.stack = stack
        self.momentum = fits[0].momentum
        self.velocity = np.zeros_like(stack.weights)

    def __call__(self, rate: Float32Array) -> None:
        self.velocity *= self.momentum
        self.velocity += self.stack.gradient
        self.stack.weights -= np.multiply(self.velocity, rate, out=self.stack.gradient)


class _Adam:
    """Adam with the variance of the noise subtracted from its second moment."""

    SECOND = 0.999
    EPSILON = 1e-8

    def __init__(self, stack: PerceptronStack, fits: list[Description]) -> None:
        self.stack = stack
        self.first = fits[0].momentum
        self.noise = np.array([[(fit.noise_std / fit.divisor) ** 2] for fit in fits], np.float32)
        self.mean, self.square = np.zeros_like(stack.weights), np.zeros_like(stack.weights)
        self.steps = 0

    def __call__(self, rate: Float32Array) -> None:
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
