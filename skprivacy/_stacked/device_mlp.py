"""Training of MLPClassifier for several networks on a torch device, as ``mlp`` up to rounding."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from ..mechanisms.chacha import copy_to_device
from .mlp import MLPTask, _initial, _Patience
from .perceptrons import Layers
from .tensors import TensorStack, gather_records, logistic_error, softmax_error

__all__ = ["train_mlps"]


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
