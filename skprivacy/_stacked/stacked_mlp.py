"""Training of :class:`sklearn.neural_network.MLPClassifier` for several networks side by side.

Initialisation, batches, penalty, learning rate and stopping rule follow ``solver="adam"``, in
single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from .perceptrons import (
    Adam,
    Float32Array,
    Layers,
    PerceptronStack,
    count_multiplications,
    count_numbers,
    logistic_error,
    softmax_error,
)


@dataclass(frozen=True)
class MLPTask:
    """One network to train like ``net``; with two classes it has one output."""

    net: MLPClassifier
    records: Float32Array  # with a one and the class column; perhaps shared with other tasks
    rows: NDArray[np.intp]  # rows of this task's records
    classes: NDArray[Any]
    seed: int

    @property
    def activation(self) -> str:
        """Activation of the hidden layers."""
        return self.net.activation

    @property
    def sizes(self) -> list[int]:
        """Numbers of features, hidden units and outputs."""
        outputs = 1 if len(self.classes) == 2 else len(self.classes)
        return [self.records.shape[1] - 2, *hidden_sizes(self.net), outputs]

    @property
    def kind(self) -> Hashable:
        """Tasks of one kind can be trained side by side."""
        return tuple(self.sizes)

    @property
    def batch(self) -> int:
        """Batch size, from this network's own records only: a teacher must not depend on others."""
        return min(
            200 if self.net.batch_size == "auto" else int(self.net.batch_size), len(self.rows)
        )

    @property
    def numbers(self) -> int:
        """How many numbers training holds in memory, without the records."""
        return count_numbers(self.sizes, self.batch)

    @property
    def source(self) -> Float32Array:
        """Array of the records, perhaps shared with other tasks."""
        return self.records

    @property
    def multiplications(self) -> float:
        """Number of multiplications of the training, unless it stops early."""
        steps = self.net.max_iter * -(-len(self.rows) // self.batch)
        return steps * count_multiplications(self.sizes, self.batch)


def train_mlps(
    tasks: list[MLPTask], make_epochs: Callable[[list[MLPTask], list[Layers]], Epochs] | None = None
) -> list[Layers]:
    """Train several networks of one kind; ``make_epochs`` starts the arithmetic of their epochs."""
    net, sizes = tasks[0].net, tasks[0].sizes
    counts = np.array([len(task.rows) for task in tasks])
    rngs = [np.random.default_rng(task.seed) for task in tasks]
    start = [initial_layers(net, sizes, rng) for rng in rngs]
    epochs = (make_epochs or _NumpyEpochs)(tasks, start)
    needs_loss = net.n_iter_no_change < net.max_iter  # else training cannot stop early
    patience = Patience(len(tasks), net.tol, net.n_iter_no_change)
    done: dict[int, Layers] = {}
    for _ in range(net.max_iter):
        orders = [task.rows for task in tasks]
        if net.shuffle:
            orders = [rng.permutation(own) for own, rng in zip(orders, rngs, strict=True)]
        total = epochs.train(orders, needs_loss)
        stopped = patience.run_out(total / counts) if needs_loss else []
        if new := [i for i in stopped if i not in done]:
            done |= zip(new, epochs.networks(new), strict=True)
        if len(done) == len(tasks):
            break
    left = [i for i in range(len(tasks)) if i not in done]
    done |= zip(left, epochs.networks(left), strict=True)
    return [done[i] for i in range(len(tasks))]


class Epochs(Protocol):
    """Networks of one kind in training."""

    def train(self, orders: list[NDArray[np.intp]], needs_loss: bool) -> NDArray[Any]:
        """Train for an epoch on rows in this order; return summed losses, if needed."""

    def networks(self, which: list[int]) -> list[Layers]:
        """Return the layers of some networks as they are now."""


class _NumpyEpochs:
    def __init__(self, tasks: list[MLPTask], start: list[Layers]) -> None:
        self.net = tasks[0].net
        self.stack = PerceptronStack(start, self.net.activation, 1)
        self.adam = make_adam(self.stack, self.net)
        self.records = [task.records for task in tasks]
        self.batch = min(task.batch for task in tasks)

    def train(self, orders: list[NDArray[np.intp]], needs_loss: bool) -> NDArray[Any]:
        net, stack, total = self.net, self.stack, np.zeros(len(orders))
        error = logistic_error if stack.sizes[-1] == 1 else softmax_error
        for chosen in batches_of_epoch(orders, self.batch):
            stack.load(self.records, chosen)
            logits = stack.forward()
            losses = error(logits, stack.facts[..., 0].astype(np.intp), needs_loss)
            in_batch = np.maximum([len(rows) for rows in chosen], 1)
            share = stack.real / in_batch[:, None].astype(np.float32)
            penalty = net.alpha / in_batch
            if losses is not None:
                squares = _sum_squared_weights(stack)
                total += in_batch * ((losses * share).sum(1) + penalty / 2 * squares)
            logits *= share[:, :, None]
            stack.sum_gradients(stack.backward())
            pull = penalty[:, None].astype(np.float32)
            for layer, gradient in zip(stack.layers, stack.gradients, strict=True):
                gradient[:, -1] -= pull * layer[:, -1]  # biases have no penalty: cancels Adam's
            self.adam.step(float(net.learning_rate_init), pull if net.alpha else None)
        return total

    def networks(self, which: list[int]) -> list[Layers]:
        return [self.stack.network(i) for i in which]


def make_adam(stack: Any, net: MLPClassifier) -> Adam:
    """Return the optimizer of ``net`` on a stack in numpy or on a device."""
    return Adam(stack, (net.beta_1, net.beta_2), net.epsilon)


def hidden_sizes(net: MLPClassifier) -> list[Any]:
    return np.atleast_1d(net.hidden_layer_sizes).tolist()


def initial_layers(net: MLPClassifier, sizes: list[int], rng: np.random.Generator) -> Layers:
    """Draw initial weights as MLPClassifier does."""
    factor = 2.0 if net.activation == "logistic" else 6.0  # Glorot and Bengio 2010, as in sklearn
    layers = []
    for fan_in, fan_out in pairwise(sizes):
        bound = np.sqrt(factor / (fan_in + fan_out))
        both = rng.uniform(-bound, bound, (fan_in + 1, fan_out)).astype(np.float32)
        layers.append((both[:-1], both[-1]))
    return layers


def batches_of_epoch(
    orders: list[NDArray[np.intp]], batch: int
) -> Iterator[list[NDArray[np.intp]]]:
    """Yield the rows of each network for each batch of an epoch; all take equally many steps."""
    counts = np.array([len(order) for order in orders])
    for starts, stops in pairwise(cuts_of_epoch(counts, batch).tolist()):
        yield [order[a:b] for order, a, b in zip(orders, starts, stops, strict=True)]


def cuts_of_epoch(counts: NDArray[np.int64], batch: int) -> NDArray[np.int64]:
    """Return where each network's records are cut into batches, shape (steps + 1, n_networks)."""
    # All take equally many: one without records would move weights, by Adam's moments.
    steps = -(-int(counts.max()) // batch)
    return np.arange(steps + 1)[:, None] * counts // steps


def _sum_squared_weights(stack: PerceptronStack) -> NDArray[np.float64]:
    squares = np.zeros(len(stack.weights))
    for layer in stack.layers:
        squares += np.einsum("sio,sio->s", layer[:, :-1], layer[:, :-1])  # no biases
    return squares


class Patience:
    """MLPClassifier's stopping rule, applied to each network separately."""

    def __init__(self, n_networks: int, tol: float, n_iter_no_change: int) -> None:
        self.best = np.full(n_networks, np.inf)
        self.waited = np.zeros(n_networks, dtype=int)
        self.tol = tol
        self.limit = n_iter_no_change

    def run_out(self, loss: NDArray[Any]) -> list[int]:
        """Return the networks whose loss has not improved for long enough."""
        self.waited = np.where(loss > self.best - self.tol, self.waited + 1, 0)
        self.best = np.minimum(self.best, loss)
        return np.flatnonzero(self.waited > self.limit).tolist()
