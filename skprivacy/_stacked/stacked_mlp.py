"""Training of :class:`sklearn.neural_network.MLPClassifier` for several networks side by side.

Initialisation, batches, penalty, learning rate and stopping rule are those of ``solver="adam"``, in
single precision.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from .perceptrons import (
    Float32Array,
    Layers,
    PerceptronStack,
    count_multiplications,
    count_numbers,
    logistic_error,
    softmax_error,
)

__all__ = ["MLPTask", "is_plain_mlp", "train_mlps"]

# Weights that the optimiser updates at a time, so that its dozen passes stay in the cache.
_CHUNK = 1 << 18


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
        return [self.records.shape[1] - 2, *_hidden(self.net), outputs]

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


def is_plain_mlp(net: Any) -> bool:
    """Return True if :func:`train_mlps` can train this; a subclass may do anything, so not."""
    return (
        type(net) is MLPClassifier
        and net.solver == "adam"
        and not net.early_stopping
        and all(isinstance(size, int) and size > 0 for size in _hidden(net))
    )


def train_mlps(tasks: list[MLPTask]) -> list[Layers]:
    """Train several networks of one kind."""
    net, sizes = tasks[0].net, tasks[0].sizes
    counts = np.array([len(task.rows) for task in tasks])
    rngs = [np.random.default_rng(task.seed) for task in tasks]
    stack = PerceptronStack([_initial(net, sizes, rng) for rng in rngs], net.activation, 1)
    batch = min(task.batch for task in tasks)
    adam = _Adam(stack, net)
    error = logistic_error if sizes[-1] == 1 else softmax_error
    needs_loss = net.n_iter_no_change < net.max_iter  # else training cannot stop early
    patience = _Patience(len(tasks), net.tol, net.n_iter_no_change)
    done: dict[int, Layers] = {}
    records, rows = [task.records for task in tasks], [task.rows for task in tasks]
    for _ in range(net.max_iter):
        total = np.zeros(len(tasks))
        for chosen in _batches(rows, batch, rngs if net.shuffle else None):
            stack.load(records, chosen)
            logits = stack.forward()
            losses = error(logits, stack.facts[..., 0].astype(np.intp), needs_loss)
            in_batch = np.maximum([len(batch_rows) for batch_rows in chosen], 1)
            share = stack.real / in_batch[:, None].astype(np.float32)
            penalty = net.alpha / in_batch
            if losses is not None:
                total += in_batch * (
                    (losses * share).sum(1) + penalty / 2 * _sum_squared_weights(stack)
                )
            logits *= share[:, :, None]
            stack.sum_gradients(stack.backward())
            adam.step(penalty)
        for i in patience.run_out(total / counts) if needs_loss else []:
            done.setdefault(i, stack.network(i))
        if len(done) == len(tasks):
            break
    return [done.get(i) or stack.network(i) for i in range(len(tasks))]


def _hidden(net: MLPClassifier) -> list[Any]:
    return np.atleast_1d(net.hidden_layer_sizes).tolist()


def _initial(net: MLPClassifier, sizes: list[int], rng: np.random.Generator) -> Layers:
    """Draw initial weights as MLPClassifier does."""
    factor = 2.0 if net.activation == "logistic" else 6.0  # Glorot and Bengio 2010, as in sklearn
    layers = []
    for fan_in, fan_out in pairwise(sizes):
        bound = np.sqrt(factor / (fan_in + fan_out))
        both = rng.uniform(-bound, bound, (fan_in + 1, fan_out)).astype(np.float32)
        layers.append((both[:-1], both[-1]))
    return layers


def _batches(
    rows: list[NDArray[np.intp]], batch: int, rngs: list[Any] | None
) -> Iterator[list[NDArray[np.intp]]]:
    """Yield the rows of each network for each batch of an epoch.

    All networks take equally many steps, with their records spread evenly over them. A step without
    records would still move a network's weights, through Adam's moments.
    """
    orders = rows
    if rngs is not None:
        orders = [rng.permutation(indices) for indices, rng in zip(rows, rngs, strict=True)]
    counts = np.array([len(indices) for indices in rows])
    steps = -(-int(counts.max()) // batch)
    cuts = (np.arange(steps + 1)[:, None] * counts // steps).tolist()
    for starts, stops in pairwise(cuts):
        yield [order[a:b] for order, a, b in zip(orders, starts, stops, strict=True)]


def _sum_squared_weights(stack: PerceptronStack) -> NDArray[np.float64]:
    squares = np.zeros(len(stack.weights))
    for layer in stack.layers:
        squares += np.einsum("sio,sio->s", layer[:, :-1], layer[:, :-1])  # no biases
    return squares


class _Adam:
    """Adam on all weights of a stack; its moments are stored without their constant factors."""

    def __init__(self, stack: PerceptronStack, net: MLPClassifier) -> None:
        self.stack, self.net = stack, net
        self.mean, self.square = np.zeros_like(stack.weights), np.zeros_like(stack.weights)
        self.scratch = np.zeros(max(_CHUNK, stack.weights.shape[1]), np.float32)
        self.steps = 0

    def step(self, penalty: Float32Array) -> None:
        """Update by the stack's gradient plus each network's ``penalty`` times its weights."""
        net, stack = self.net, self.stack
        self.steps += 1
        last = np.sqrt(1 - net.beta_2)
        rate = net.learning_rate_init * np.sqrt(1 - net.beta_2**self.steps)
        rate *= (1 - net.beta_1) / (1 - net.beta_1**self.steps) / last
        pull = penalty[:, None].astype(np.float32)
        for layer, gradient in zip(stack.layers, stack.gradients, strict=True):
            gradient[:, -1] -= pull * layer[:, -1]  # biases have no penalty: cancels the one below
        for part in self._parts():
            w, g, m, v = (x[part] for x in (stack.weights, stack.gradient, self.mean, self.square))
            t = self.scratch[: w.size].reshape(w.shape)
            if net.alpha:
                g += np.multiply(w, pull[part[0]], out=t)
            m *= net.beta_1
            m += g
            g *= g
            v *= net.beta_2
            v += g
            np.sqrt(v, out=t)
            t += net.epsilon / last
            np.divide(m, t, out=t)
            t *= float(rate)
            w -= t

    def _parts(self) -> Iterator[tuple[slice, slice]]:
        """Yield slices of a few whole networks, or of a part of one; contiguous either way."""
        n_networks, n_parameters = self.stack.weights.shape
        whole = max(1, _CHUNK // n_parameters)
        for top in range(0, n_networks, whole):
            for left in range(0, n_parameters, _CHUNK):
                yield slice(top, top + whole), slice(left, left + _CHUNK)


class _Patience:
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
