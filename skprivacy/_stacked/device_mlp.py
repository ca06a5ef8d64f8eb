"""Training of several MLPClassifiers on a torch device, equal to ``stacked_mlp`` up to rounding.

:func:`train_mlps` trains shadow models: the largest network decides the number of steps and the
length of batches of all. :func:`train_isolated` trains the teachers of a vote, which must not
influence each other: every network takes its own steps, in its own slot of arrays of public shapes.
Its weights are a function of its records and of public facts.
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
from .perceptrons import Float32Array, Layers, count_numbers
from .stacked_mlp import MLPTask, _batches, _hidden, _initial, _Patience
from .tensors import TensorStack, gather_records, logistic_error, softmax_error

__all__ = [
    "train_isolated",
    "train_mlps",
]

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
    sizes = [n_features, *_hidden(net), 1 if len(classes) == 2 else len(classes)]
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
    net, sizes = tasks[0].net, tasks[0].sizes
    counts = np.array([len(task.rows) for task in tasks])
    rngs = [np.random.default_rng(task.seed) for task in tasks]
    start = [_initial(net, sizes, rng) for rng in rngs]
    stack = TensorStack(start, net.activation, device)
    table, first = gather_records([task.records for task in tasks], device)
    rows = [task.rows + begin for task, begin in zip(tasks, first, strict=True)]
    batches = _Batches(counts, min(task.batch for task in tasks), device)
    adam = _Adam(stack, net)
    patience = _Patience(len(tasks), net.tol, net.n_iter_no_change)
    done: dict[int, Layers] = {}
    may_stop = net.n_iter_no_change < net.max_iter
    for _ in range(net.max_iter):
        orders = rows
        if net.shuffle:
            orders = [rng.permutation(own) for own, rng in zip(rows, rngs, strict=True)]
        total = _epoch(stack, adam, table, batches, orders, may_stop)
        if not may_stop:
            continue
        if stopped := [i for i in patience.run_out(total.cpu().numpy() / counts) if i not in done]:
            finished = stack.networks()
            done |= {i: finished[i] for i in stopped}
        if len(done) == len(tasks):
            break
    last = stack.networks()
    return [done.get(i) or last[i] for i in range(len(tasks))]


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
    adam = _IsolatedAdam(stack, net)
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


class _IsolatedAdam:
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


class _Batches:
    """Indices, into its order, of each network's rows in each step of an epoch, on the device.

    As in ``mlp``, all networks take equally many steps, with their records spread evenly over them.
    """

    def __init__(self, counts: NDArray[np.int64], batch: int, device: str) -> None:
        self.device = device
        self.steps = -(-int(counts.max()) // batch)
        cuts = np.arange(self.steps + 1)[:, None] * counts // self.steps
        sizes = np.diff(cuts, axis=0)
        self._longest = int(counts.max())
        self._starts = torch.from_numpy(cuts[:-1]).to(device)
        self._sizes = torch.from_numpy(sizes).to(device)
        self._places = torch.arange(int(sizes.max()), device=device)
        self.in_batch = self._sizes.clamp(min=1).float()

    def epoch(self, orders: list[NDArray[np.int64]]) -> Tensor:
        """Send the order of each network's rows to the device, padded with the blank row."""
        filled = np.zeros((len(orders), self._longest), np.int64)
        for row, order in zip(filled, orders, strict=True):
            row[: len(order)] = order
        return copy_to_device(filled, self.device)

    def rows(self, orders: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return each network's rows, shape (n_networks, size), and a mask of real records."""
        places = self._starts[step][:, None] + self._places
        real = self._places < self._sizes[step][:, None]
        rows = orders.gather(1, places.clamp(max=self._longest - 1))
        return rows.masked_fill_(~real, 0), real


def _epoch(
    stack: TensorStack,
    adam: _Adam,
    table: Tensor,
    batches: _Batches,
    orders: list[NDArray[np.int64]],
    needs_loss: bool,
) -> Tensor:
    """Train for an epoch; return each network's summed loss over its records, if needed."""
    n_in, n_out = stack.sizes[0], stack.sizes[-1]
    error_of = logistic_error if n_out == 1 else softmax_error
    total = torch.zeros(len(orders), dtype=torch.float64, device=table.device)
    there = batches.epoch(orders)
    for step in range(batches.steps):
        rows, real = batches.rows(there, step)
        records, in_batch = table[rows], batches.in_batch[step]
        seen, logits = stack.forward(records[..., :n_in])
        error, losses = error_of(logits, records[..., n_in + 1])
        share = real / in_batch[:, None]
        penalty = adam.net.alpha / in_batch
        if needs_loss:
            squares = sum(layer[:, :-1].square().sum((1, 2)) for layer in stack.layers)  # no biases
            total += in_batch * ((losses * share).sum(1) + penalty / 2 * squares)
        error *= share[..., None]
        stack.sum_gradients(seen, stack.backward(seen, error))
        adam.step(penalty)
    return total


class _Adam:
    """Adam on all weights of a stack; its moments are stored without their constant factors."""

    def __init__(self, stack: TensorStack, net: MLPClassifier) -> None:
        self.stack, self.net = stack, net
        self.mean, self.square = (torch.zeros_like(stack.weights) for _ in "mv")
        self.steps = 0

    def step(self, penalty: Tensor) -> None:
        """Update by the stack's gradient plus each network's ``penalty`` times its weights."""
        net, stack, pull = self.net, self.stack, penalty[:, None]
        self.steps += 1
        last = np.sqrt(1 - net.beta_2)
        rate = net.learning_rate_init * np.sqrt(1 - net.beta_2**self.steps)
        rate *= (1 - net.beta_1) / (1 - net.beta_1**self.steps) / last
        if net.alpha:
            for layer, gradient in zip(stack.layers, stack.gradients, strict=True):
                gradient[:, :-1].addcmul_(pull[..., None], layer[:, :-1])
        self.mean.mul_(net.beta_1).add_(stack.gradient)
        self.square.mul_(net.beta_2).addcmul_(stack.gradient, stack.gradient)
        spread = self.square.sqrt().add_(net.epsilon / last)
        stack.weights.addcdiv_(self.mean, spread, value=-float(rate))
