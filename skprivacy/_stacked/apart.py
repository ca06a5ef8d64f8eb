"""Isolated training of many perceptrons on a torch device, as teachers need it.

For shadow models, the largest of the networks decides the number of steps and the length of batches
of all. Here every network takes its own steps, in its own slot of arrays of public shapes. Its
weights are a function of its records and of public facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from ..mechanisms.chacha import copy_to_device
from .mlp import MLPTask, _batches, _hidden, _initial, _Patience
from .perceptrons import Float32Array, Layers, count_numbers
from .tensors import TensorStack, gather_records, logistic_error, softmax_error

__all__ = ["train_isolated"]

_MAX_NUMBERS = 1 << 30  # numbers on a device at once: a public constant, not the free memory


@dataclass
class _NetworkSlot:
    """Slot of one network and its records; without a task the slot exists all the same."""

    net: MLPClassifier
    task: MLPTask | None
    first: int  # its first row of the table

    def start(self, sizes: list[int]) -> Layers:
        """Return the network's initial layers, drawn first from its generator."""
        self.rng = np.random.default_rng(0 if self.task is None else self.task.seed)
        return _initial(self.net, sizes, self.rng)

    def steps(self) -> Iterator[tuple[NDArray[np.intp], bool]]:
        """Yield the rows of each step, and whether the step ends an epoch."""
        if self.task is None:
            return
        rows, batch = self.task.rows + self.first, self.task.batch
        last = -(-len(rows) // batch) - 1
        for _ in range(self.net.max_iter):
            epoch = _batches([rows], batch, [self.rng] if self.net.shuffle else None)
            for step, (chosen,) in enumerate(epoch):
                yield chosen, step == last


def train_isolated(
    net: MLPClassifier,
    records: Sequence[Float32Array | None],
    n_features: int,
    classes: NDArray[Any],
    seeds: Sequence[int] | NDArray[np.int64],
    device: str,
) -> list[Layers | None]:
    """Train a network like ``net`` on each of ``records``; None stands for no network.

    Each array of records has a one and the class column after its features.

    **Guarantees.** A network is a function of its own records and of public facts, to the last bit
    of a matrix product that ignores other matrices. Shapes follow from ``net``, ``classes`` and the
    number of networks. A network without further steps stays as it is, whatever is computed in its
    slot. It equals the network of ``train_alone`` up to rounding.
    """
    sizes = [n_features, *_hidden(net), 1 if len(classes) == 2 else len(classes)]
    length = 200 if net.batch_size == "auto" else int(net.batch_size)
    together = max(1, _MAX_NUMBERS // count_numbers(sizes, length))
    trained: list[Layers | None] = []
    for start in range(0, len(records), together):
        some = range(start, min(start + together, len(records)))
        tasks = [_task(net, records[i], classes, int(seeds[i])) for i in some]
        trained += _train(net, tasks, sizes, length, device)
    return trained


def _task(
    net: MLPClassifier, records: Float32Array | None, classes: NDArray[Any], seed: int
) -> MLPTask | None:
    if records is None:
        return None
    return MLPTask(net, records, np.arange(len(records)), classes, seed)


def _train(
    net: MLPClassifier, tasks: list[MLPTask | None], sizes: list[int], length: int, device: str
) -> list[Layers | None]:
    nothing = np.zeros((0, sizes[0] + 2), np.float32)
    table, first = gather_records([nothing if t is None else t.records for t in tasks], device)
    places = [_NetworkSlot(net, task, at) for task, at in zip(tasks, first, strict=True)]
    stack = TensorStack([place.start(sizes) for place in places], net.activation, device)
    adam = _Adam(stack, net)
    patience = [_Patience(1, net.tol, net.n_iter_no_change) for _ in places]
    may_stop = net.n_iter_no_change < net.max_iter
    losses = torch.zeros(len(places), dtype=torch.float64, device=device)
    steps = [place.steps() for place in places]
    lengths = [0 if task is None else len(task.rows) for task in tasks]
    active = {i for i, task in enumerate(tasks) if task is not None}
    while active:
        rows, sizes_of, ended = _next(steps, active, length)
        on = copy_to_device(sizes_of > 0, device)
        losses += adam.step(
            table[copy_to_device(rows, device)], copy_to_device(sizes_of, device), on, may_stop
        )
        if may_stop and ended:
            found = np.array(losses.tolist())
            losses.masked_fill_(copy_to_device(np.isin(np.arange(len(places)), ended), device), 0.0)
            for i in ended:
                if patience[i].run_out(found[i : i + 1] / lengths[i]):
                    active.discard(i)
    trained = stack.networks()
    return [None if t is None else layers for t, layers in zip(tasks, trained, strict=True)]


def _next(
    steps: list[Iterator[tuple[NDArray[np.intp], bool]]], active: set[int], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Return each network's rows of the next step, their number, and networks whose epoch ends."""
    rows, sizes = np.zeros((len(steps), length), np.int64), np.zeros(len(steps), np.int64)
    ended = []
    for i in sorted(active):
        chosen, ends = next(steps[i], (None, False))
        if chosen is None:
            active.discard(i)
            continue
        rows[i, : len(chosen)], sizes[i] = chosen, len(chosen)
        if ends:
            ended.append(i)
    return rows, sizes, ended


class _Adam:
    """Adam for the networks that take a step; the others stay unchanged."""

    def __init__(self, stack: TensorStack, net: MLPClassifier) -> None:
        self.stack, self.net = stack, net
        self.mean, self.square = (torch.zeros_like(stack.weights) for _ in "mv")
        self.steps = 0  # all networks that still train have taken this many

    def step(self, records: Tensor, sizes: Tensor, on: Tensor, needs_loss: bool) -> Tensor:
        """Update by the mean gradient; return sums of losses, zeros if not needed."""
        stack, net, n_in = self.stack, self.net, self.stack.sizes[0]
        in_batch = sizes.clamp(min=1).float()
        share = records[..., n_in] / in_batch[:, None]  # blank rows have a zero instead of the one
        penalty = net.alpha / in_batch
        seen, logits = stack.forward(records[..., :n_in])
        error_of = logistic_error if stack.sizes[-1] == 1 else softmax_error
        error, losses = error_of(logits, records[..., n_in + 1])
        total = torch.zeros_like(in_batch)
        if needs_loss:
            squares = sum(layer[:, :-1].square().sum((1, 2)) for layer in stack.layers)  # no biases
            total = in_batch * ((losses * share).sum(1) + penalty / 2 * squares)
        error *= share[..., None]
        stack.sum_gradients(seen, stack.backward(seen, error))
        if net.alpha:
            for layer, gradient in zip(stack.layers, stack.gradients, strict=True):
                gradient[:, :-1].addcmul_(penalty[:, None, None], layer[:, :-1])
        self._move(on[:, None])
        return torch.where(on, total, 0.0)

    def _move(self, on: Tensor) -> None:
        net, stack = self.net, self.stack
        self.steps += 1
        last = np.sqrt(1 - net.beta_2)
        rate = net.learning_rate_init * np.sqrt(1 - net.beta_2**self.steps)
        rate *= (1 - net.beta_1) / (1 - net.beta_1**self.steps) / last
        gradient = stack.gradient
        mean = self.mean * net.beta_1 + gradient
        square = self.square * net.beta_2 + gradient.square()
        weights = stack.weights - float(rate) * mean / (square.sqrt() + net.epsilon / last)
        for old, new in ((self.mean, mean), (self.square, square), (stack.weights, weights)):
            old.copy_(torch.where(on, new, old))
