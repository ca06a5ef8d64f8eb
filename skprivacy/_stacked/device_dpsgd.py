"""DP-SGD for several networks side by side on a torch device; the noise is drawn there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..mechanisms.chacha import copy_to_device
from .perceptrons import Layers
from .stacked_dpsgd import (
    Draws,
    PrivateTask,
    append_step_columns,
    make_optimizer,
    step_sizes,
)
from .tensors import TensorStack, gather_records, softmax_error

if TYPE_CHECKING:
    from ..neural_network._gradients.clipping import Clip
    from ..neural_network._training.stacked_fit import StackedFit

_STEPS = 16  # steps whose rows are sent to the device at once
_NORMALS = 1 << 26  # numbers of noise in memory, over all networks


def train_private(tasks: list[PrivateTask], device: str) -> list[Layers]:
    """Train several networks of one kind."""
    fits = [task.fit for task in tasks]
    configs = [fit.config for fit in fits]
    first = configs[0]
    stack = TensorStack([fit.layers for fit in fits], fits[0].activation, device)
    table, begin = gather_records([append_step_columns(fit) for fit in fits], device)
    size = stack.weights.shape[1]
    draws = [DeviceDraws(task.fit, size, task.seed) for task in tasks]
    optimizer = make_optimizer(stack, configs)
    divisor = torch.tensor([[float(config.batch_size)] for config in configs], device=device)
    rates = torch.tensor([step_sizes(config, size) for config in configs], device=device)
    average = torch.zeros_like(stack.weights)
    noise = _noise(draws, first.n_steps, stack.gradient)
    for step, rows in enumerate(_rows(draws, begin, first.n_steps, device)):
        _average_clipped(stack, table[rows], rows > 0, first.clip(), first.max_grad_norm, divisor)
        stack.gradient += next(noise)
        optimizer.step(rates[:, step, None])
        if step >= first.first_averaged:
            average += stack.weights
    averaged = first.n_steps - first.first_averaged
    return stack.networks(average / averaged if averaged else None)


def _rows(
    draws: list[DeviceDraws], begin: list[int], n_steps: int, device: str
) -> Iterator[Tensor]:
    """Yield each network's rows of a step, padded with the blank row, number 0."""
    for start in range(0, n_steps, _STEPS):
        steps = min(_STEPS, n_steps - start)
        drawn = [list(islice(network.batches, steps)) for network in draws]
        longest = max(len(rows) for network in drawn for rows in network)
        table = np.zeros((steps, len(draws), longest), np.int64)
        for i, (network, first) in enumerate(zip(drawn, begin, strict=True)):
            for step, rows in enumerate(network):
                table[step, i, : len(rows)] = rows + first
        yield from copy_to_device(table, device)


def _noise(draws: list[DeviceDraws], n_steps: int, like: Tensor) -> Iterator[Tensor]:
    """Yield the noise of a step's mean gradients, shape (n_networks, n_parameters)."""
    ahead = min(n_steps, max(1, _NORMALS // max(1, like.numel())))
    drawn = like.new_empty((ahead, *like.shape))
    while True:
        for i, network in enumerate(draws):
            drawn[:, i] = network.draw_noise(ahead, like)
        yield from drawn


class DeviceDraws(Draws):
    """Batches and noise of one network; its mechanism draws the noise on the device."""

    def __init__(self, fit: StackedFit, n_parameters: int, seed: int) -> None:
        self._config = fit.config
        super().__init__(fit, n_parameters, seed)

    def draw_noise(self, steps: int, like: Tensor) -> Tensor:
        """Return the noise of several steps, shape (steps, n_parameters)."""
        config = self._config
        noise = like.new_zeros(steps * like.shape[1])
        mechanism = config.noise_kind.mechanism(
            config.noise_multiplier, config.max_grad_norm, config
        )
        released = mechanism.release(noise, self.random)
        return released.view(steps, -1) / config.batch_size


def _average_clipped(
    stack: TensorStack, records: Tensor, real: Tensor, clip: Clip, norm: float, divisor: Tensor
) -> None:
    """Sum the batch's clipped gradients by book-keeping, and divide by the expected size."""
    n_in = stack.sizes[0]
    label, weight, square = records[..., n_in + 1 :].unbind(-1)  # padding has weight zero
    seen, logits = stack.forward(records[..., :n_in])
    error, _ = softmax_error(logits, label)
    errors = stack.backward(seen, error)
    norms = [square, *(value.square().sum(-1) + 1.0 for value in seen[1:])]
    pairs = list(zip(norms, errors, strict=True))[::-1]  # from the output, as the estimator has it
    squared = torch.stack([n * error.square().sum(-1) for n, error in pairs]) * weight.square()
    total = squared.sum(0)
    lost = ~torch.isfinite(total) | ~real
    factors = clip(squared, total, norm) * (weight / divisor)
    per_layer = factors if factors.dim() == squared.dim() else [factors] * len(pairs)
    for value, error, factor in zip(seen[::-1], errors[::-1], per_layer, strict=True):
        error *= factor[..., None]
        for values in (value, error):
            values.masked_fill_(lost[..., None], 0.0)
    stack.sum_gradients(seen, errors)
