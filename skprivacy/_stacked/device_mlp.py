"""Training of several MLPClassifiers on a torch device, equal to ``stacked_mlp`` up to rounding.

:func:`train_mlps` trains shadow models: the largest network decides the number of steps and the
length of batches of all. :func:`train_isolated` trains the teachers of a vote, which must not
influence each other: every network takes its own steps, in its own slot of arrays of public shapes.
Its weights are a function of its records and of public facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from ..mechanisms.chacha import copy_to_device
from . import stacked_mlp
from .perceptrons import Float32Array, Layers, count_numbers
from .stacked_mlp import (
    MLPTask,
    Patience,
    batches_of_epoch,
    cuts_of_epoch,
    hidden_sizes,
    initial_layers,
    make_adam,
)
from .tensors import TensorStack, gather_records, logistic_error, softmax_error

_MAX_NUMBERS = 1 << 30  # numbers on a device at once: a public constant, not the free memory


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
    sizes = [n_features, *hidden_sizes(net), 1 if len(classes) == 2 else len(classes)]
    length = 200 if net.batch_size == "auto" else int(net.batch_size)
    together = max(1, _MAX_NUMBERS // count_numbers(sizes, length))
    trained: list[Layers | None] = []
    for start in range(0, len(records), together):
        some = range(start, min(start + together, len(records)))
        tasks = [_task(net, records[i], classes, int(seeds[i])) for i in some]
        trained += _train(net, tasks, sizes, length, device)
    return trained


def train_mlps(tasks: list[MLPTask], device: str) -> list[Layers]:
    """Train several networks of one kind."""
    return stacked_mlp.train_mlps(tasks, partial(_DeviceEpochs, device=device))


class _DeviceEpochs:
    """Epochs of several networks, all of equally many steps, as in ``stacked_mlp``."""

    def __init__(self, tasks: list[MLPTask], start: list[Layers], device: str) -> None:
        self.net, self.device = tasks[0].net, device
        self.stack = TensorStack(start, self.net.activation, device)
        self.adam = make_adam(self.stack, self.net)
        self.table, self.first = gather_records([task.records for task in tasks], device)
        counts = np.array([len(task.rows) for task in tasks])
        cuts = cuts_of_epoch(counts, min(task.batch for task in tasks))
        sizes = np.diff(cuts, axis=0)
        self._longest = int(counts.max())
        self._starts = torch.from_numpy(cuts[:-1]).to(device)
        self._sizes = torch.from_numpy(sizes).to(device)
        self._places = torch.arange(int(sizes.max()), device=device)

    def train(self, orders: list[NDArray[np.intp]], needs_loss: bool) -> NDArray[Any]:
        filled = np.zeros((len(orders), self._longest), np.int64)  # padded with the blank row
        for row, order, first in zip(filled, orders, self.first, strict=True):
            row[: len(order)] = order + first
        there = copy_to_device(filled, self.device)
        total = torch.zeros(len(orders), dtype=torch.float64, device=self.device)
        for starts, sizes in zip(self._starts, self._sizes, strict=True):
            places = starts[:, None] + self._places
            rows = there.gather(1, places.clamp(max=self._longest - 1))
            rows.masked_fill_(self._places >= sizes[:, None], 0)
            total += _mean_gradient(self.stack, self.net, self.table[rows], sizes, needs_loss)
            self.adam.step(float(self.net.learning_rate_init))
        return total.cpu().numpy() if needs_loss else np.zeros(len(orders))

    def networks(self, which: list[int]) -> list[Layers]:
        every = self.stack.networks()
        return [every[i] for i in which]


def _mean_gradient(
    stack: TensorStack, net: MLPClassifier, records: Tensor, sizes: Tensor, needs_loss: bool
) -> Tensor:
    """Fill in the gradient of each network's mean loss; return sums of losses, zeros if not needed.

    ``sizes`` are the numbers of real records. The column of ones is zero in blank records.
    """
    n_in, in_batch = stack.sizes[0], sizes.clamp(min=1).float()
    share, penalty = records[..., n_in] / in_batch[:, None], net.alpha / in_batch
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
    return total


@dataclass
class _NetworkSlot:
    """Slot for one network and its records; a slot may stay empty."""

    net: MLPClassifier
    task: MLPTask | None
    first: int  # its first row of the table

    def start(self, sizes: list[int]) -> Layers:
        """Return the network's initial layers, drawn first from its generator."""
        self.rng = np.random.default_rng(0 if self.task is None else self.task.seed)
        return initial_layers(self.net, sizes, self.rng)

    def steps(self) -> Iterator[tuple[NDArray[np.intp], bool]]:
        """Yield the rows of each step, and whether the step ends an epoch."""
        if self.task is None:
            return
        rows, batch = self.task.rows + self.first, self.task.batch
        last = -(-len(rows) // batch) - 1
        for _ in range(self.net.max_iter):
            order = self.rng.permutation(rows) if self.net.shuffle else rows
            for step, (chosen,) in enumerate(batches_of_epoch([order], batch)):
                yield chosen, step == last


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
    adam = make_adam(stack, net)
    patience = [Patience(1, net.tol, net.n_iter_no_change) for _ in places]
    may_stop = net.n_iter_no_change < net.max_iter
    losses = torch.zeros(len(places), dtype=torch.float64, device=device)
    steps = [place.steps() for place in places]
    lengths = [0 if task is None else len(task.rows) for task in tasks]
    active = {i for i, task in enumerate(tasks) if task is not None}
    while active:
        rows, sizes_of, ended = _next(steps, active, length)
        records, sizes_there = table[copy_to_device(rows, device)], copy_to_device(sizes_of, device)
        found = _mean_gradient(stack, net, records, sizes_there, may_stop)
        ended_before = sizes_there == 0
        losses += found.masked_fill_(ended_before, 0.0)
        for values in (stack.gradient, adam.mean):  # without these, Adam adds zero to the weights
            values.masked_fill_(ended_before[:, None], 0.0)
        adam.step(float(net.learning_rate_init))
        if may_stop and ended:
            sums = np.array(losses.tolist())
            losses.masked_fill_(copy_to_device(np.isin(np.arange(len(places)), ended), device), 0.0)
            for i in ended:
                if patience[i].run_out(sums[i : i + 1] / lengths[i]):
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
