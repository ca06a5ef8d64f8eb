"""DP-SGD (Abadi et al. 2016, Algorithm 1) for several networks side by side: private shadow models.

Each step equals the private estimator's, and so does the distribution of the result. It gives no
privacy, however: the records belong to the attacker, the noise can be seeded, and nothing is
charged. Estimators provide the configuration of the training.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import PoissonSampler, SecureRandom
from .perceptrons import (
    Adam,
    Float32Array,
    Layers,
    Momentum,
    PerceptronStack,
    append_columns,
    count_multiplications,
    count_numbers,
    softmax_error,
)

if TYPE_CHECKING:
    from ..neural_network._gradients.clipped_sum import Clip
    from ..neural_network._training.training_config import TrainingConfig

_N_FACTS = 3
_ADAM_EPSILON = 1e-8  # as in PrivateAdam
# Approximate number of records, and of normal numbers, drawn at a time.
_DRAWN = 1 << 12
_NORMALS = 1 << 15


@dataclass(frozen=True)
class PrivateTask:
    """One private network to train: its plan, records and initial weights."""

    config: TrainingConfig
    inputs: Float32Array  # (n_records, n_features)
    targets: NDArray[np.intp]  # class indices
    classes: NDArray[Any]
    layers: Layers  # initial weights
    activation: str  # of the hidden layers
    loss_weight: Float32Array  # (n_classes,), factors of the cross-entropy
    seed: int = 0

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.inputs.shape[1], *(len(bias) for _, bias in self.layers))

    @property
    def kind(self) -> Hashable:
        """Tasks of one kind can be trained side by side."""
        return self._sizes, self.config.n_steps

    @property
    def numbers(self) -> int:
        """How many numbers training holds in memory, without the records."""
        return count_numbers(self._sizes, self._batch)

    @property
    def source(self) -> Float32Array:
        """Array of the records, perhaps shared with other tasks."""
        return self.inputs

    @property
    def multiplications(self) -> float:
        """Number of multiplications of the training."""
        return self.config.n_steps * count_multiplications(self._sizes, self._batch)

    @property
    def _batch(self) -> int:
        return int(self.config.sampling_rate * len(self.inputs))


def is_supported(config: TrainingConfig) -> bool:
    """Return True if a stack trains as a configuration says."""
    known: dict[str, Any] = {}
    if config.clipping != "adaptive":
        known["clipping"] = config.clipping
    if config.averaging != "ema":
        known["averaging"] = config.averaging
    if config.device.partition(":")[0] in ("auto", "cuda"):  # a stack trains there, too
        known["device"] = config.device
    return config == type(config)(
        n_records=config.n_records,
        batch_size=config.batch_size,
        epochs=config.epochs,
        relation=config.relation,
        noise_multiplier=config.noise_multiplier,
        max_grad_norm=config.max_grad_norm,
        optimizer=config.optimizer,
        optimizer_params=config.optimizer_params,
        learning_rate=config.learning_rate,
        schedule=config.schedule,
        **known,
    )


def train_private(tasks: list[PrivateTask]) -> list[Layers]:
    """Train several networks of one kind."""
    configs = [task.config for task in tasks]
    first = configs[0]
    stack = PerceptronStack([task.layers for task in tasks], tasks[0].activation, _N_FACTS)
    records = [append_step_columns(task) for task in tasks]
    size = stack.weights.shape[1]
    draws = [Draws(task, size) for task in tasks]
    optimizer = make_optimizer(stack, configs)
    divisor = np.array([[config.batch_size] for config in configs], np.float32)
    rates = np.array([step_sizes(config, size) for config in configs], np.float32)
    clip = first.clip()
    average = np.zeros_like(stack.weights)
    for step in range(first.n_steps):
        # Abadi et al. 2016, Algorithm 1: "Take a random sample", "Compute" and "Clip gradient",
        # "Add noise" and "Descent", for all networks at once
        stack.load(records, [next(network.batches) for network in draws])
        sum_clipped_gradients(stack, clip, first.max_grad_norm)
        stack.gradient /= divisor
        for gradient, network in zip(stack.gradient, draws, strict=True):
            gradient += next(network.noise)
        optimizer.step(rates[:, step, None])
        if step >= first.first_averaged:
            average += stack.weights
    averaged = first.n_steps - first.first_averaged
    final = average / np.float32(averaged) if averaged else stack.weights
    return [stack.network(i, final) for i in range(len(tasks))]


class Draws:
    """Batches and noise of one network, drawn for several steps at a time for speed."""

    def __init__(self, task: PrivateTask, n_parameters: int) -> None:
        self.random = SecureRandom(task.seed)
        sampler = PoissonSampler(task.config.sampling_rate)
        self.batches = self._batches(sampler, len(task.inputs))
        self.noise = self._noise(n_parameters, _noise_std(task.config))

    def _batches(self, sampler: PoissonSampler, n: int) -> Iterator[NDArray[np.int64]]:
        # One draw from n * steps records: each is included independently, in every step.
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


def step_sizes(config: TrainingConfig, n_parameters: int) -> list[float]:
    """Return the step size of each step."""
    size = config.step_size(n_parameters)
    return [size * config.share_of_step_size(step) for step in range(config.n_steps)]


def make_optimizer(stack: Any, configs: list[TrainingConfig]) -> Momentum | Adam:
    """Return the optimizer of the configurations, on a stack in numpy or on a device."""
    params = configs[0].optimizer_params
    if configs[0].optimizer == "sgd":
        return Momentum(stack, params["momentum"])
    variances = [_noise_std(config) ** 2 for config in configs]
    return Adam(stack, params["betas"], _ADAM_EPSILON, variances)


def _noise_std(config: TrainingConfig) -> float:
    """Return the standard deviation of the noise in a step's mean gradient."""
    return config.noise_std * config.max_grad_norm / config.batch_size


def append_step_columns(task: PrivateTask) -> Float32Array:
    """Return the records with their label, its weight, and their squared norm plus one."""
    square = np.einsum("nk,nk->n", task.inputs, task.inputs) + 1.0
    return append_columns(task.inputs, task.targets, task.loss_weight[task.targets], square)


def sum_clipped_gradients(
    stack: PerceptronStack, clip: Clip, norm: float, lost_square: float = 0.0
) -> None:
    """Fill ``gradient`` with each network's sum of clipped gradients over the loaded batch.

    The facts of a record are its label, its weight, and its squared norm plus one. ``lost_square``
    bounds the square of a number of an error that has vanished; a squared norm adds it once per
    number.

    **Guarantees.** The sum of a network depends on its weights, its records and the length of the
    batch only. A record's vector has a norm of at most ``norm``, up to rounding, whatever the
    other records are.

    **Edge cases.** A record whose gradient, or its squared norm, is not finite adds nothing.
    """
    if stack.size == 0:
        stack.gradient[:] = 0.0
        return
    label, weight, square = np.moveaxis(stack.facts, -1, 0)  # padding has weight zero
    logits = stack.forward()
    logits -= logits.max(axis=-1, keepdims=True)  # or all rows would share one shift
    softmax_error(logits, label.astype(np.intp), False)
    seen = stack.backward()[::-1]  # from the output down, the order of the private estimator
    # Bu et al. 2023: a layer's gradient norm is the product of its input's and its error's norms
    squared = np.empty((len(seen), *label.shape), np.float32)
    for norms, (value, error) in zip(squared, seen, strict=True):
        np.einsum("sbk,sbk->sb", error, error, out=norms)
        norms += np.float32(lost_square * error.shape[-1])
        norms *= square if value is seen[-1][0] else np.einsum("sbk,sbk->sb", value, value)
    squared *= weight * weight
    total = squared.sum(0)
    # Abadi et al. 2016, Algorithm 1, "Clip gradient"
    factors = clip(squared, total, norm) * weight
    lost = ~np.isfinite(total)
    per_layer = factors if factors.ndim == squared.ndim else repeat(factors)
    for (value, error), factor in zip(seen, per_layer):  # noqa: B905 (repeat has no end)
        error *= factor[:, :, None]
        if lost.any():
            value[lost] = error[lost] = 0.0
    stack.sum_gradients(seen[::-1])
