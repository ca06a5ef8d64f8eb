"""PerceptronStack: several perceptrons of one shape side by side in numpy, and their optimizers.

Buffers are allocated once. Networks this small spend their time in matrix products, and the code
around these must neither allocate memory nor leave the cache. The optimizers also serve stacks on a
torch device: tensors bring their own operations, so nothing here imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Float32Array = NDArray[np.float32]
Layers = list[tuple[Float32Array, Float32Array]]  # weights (n_in, n_out), biases (n_out,)

# Largest difference between logits whose exponential fits single precision.
_RANGE = 80.0
# Rows that one product adds up: over more, products of few columns round more.
_ROWS = 512
# Weights that numpy updates at a time, so that its dozen passes stay in the cache.
_CHUNK = 1 << 18


def _logistic(z: Float32Array) -> None:
    np.negative(z, out=z)
    np.exp(z, out=z)
    np.add(z, 1.0, out=z)
    np.reciprocal(z, out=z)


def _with_logistic(z: Float32Array, slope: Float32Array) -> None:
    _logistic(z)
    np.multiply(z, z, out=slope)
    np.subtract(z, slope, out=slope)


def _with_tanh(z: Float32Array, slope: Float32Array) -> None:
    np.tanh(z, out=z)
    np.multiply(z, z, out=slope)
    np.subtract(1.0, slope, out=slope)


def _with_relu(z: Float32Array, slope: Float32Array) -> None:
    np.greater(z, 0.0, out=slope)
    np.multiply(z, slope, out=z)


class Activation(NamedTuple):
    """An activation, as a function and as an in-place operation that fills in its slope."""

    function: Callable[[Any], Any]
    with_slope: Callable[[Float32Array, Float32Array], None]


ACTIVATIONS = {
    "identity": Activation(lambda z: z, lambda z, slope: slope.fill(1.0)),
    "logistic": Activation(expit, _with_logistic),
    "tanh": Activation(np.tanh, _with_tanh),
    "relu": Activation(lambda z: np.maximum(z, 0), _with_relu),
}


class PerceptronStack:
    """Networks of one shape, with all their weights in one matrix.

    The input of every layer ends with a column of ones, so the biases are the last row of the
    weights. Of a loaded batch, ``real`` is one for records and zero for padding, and ``facts`` are
    the columns that :func:`append_columns` has added.
    """

    def __init__(self, start: Sequence[Layers], activation: str, n_facts: int) -> None:
        self.activation = activation
        self.sizes, self.weights = flatten_layers(start)
        self.gradient = np.zeros_like(self.weights)
        self.layers = layer_views(self.weights, self.sizes)
        self.gradients = layer_views(self.gradient, self.sizes)
        self._n_facts = n_facts
        self._reserved = -1
        self._resize(0)

    def load(self, records: Sequence[Float32Array], chosen: Sequence[NDArray[np.intp]]) -> None:
        """Load a batch of the chosen rows of each network's records, padded with zeros."""
        self._resize(max(map(len, chosen)))
        for buffer, source, rows in zip(self._rows, records, chosen, strict=True):
            np.take(source, rows, axis=0, out=buffer[: len(rows)], mode="clip")
            buffer[len(rows) :] = 0.0

    def _resize(self, size: int) -> None:
        """Point the arrays, contiguous for batches of this size, into the buffers."""
        n_in, *hidden, n_out = self.sizes
        columns = [n_in + 1 + self._n_facts, n_out, *(units + 1 for units in hidden for _ in "ves")]
        n_networks = len(self.weights)
        if size > self._reserved:
            self._buffers = [np.zeros(n_networks * size * n, np.float32) for n in columns]
            self._reserved = size
        self._rows, self._logits, *others = (
            buffer[: n_networks * size * n].reshape(n_networks, size, n)
            for buffer, n in zip(self._buffers, columns, strict=True)
        )
        self._hidden, self._errors, self._slopes = others[::3], others[1::3], others[2::3]
        self._inputs = [self._rows[..., : n_in + 1], *self._hidden]
        self.real, self.facts = self._rows[..., n_in], self._rows[..., n_in + 1 :]
        self.size = size

    def forward(self) -> Float32Array:
        """Return the logits of the batch, of shape (n_networks, size, n_outputs)."""
        activate = ACTIVATIONS[self.activation].with_slope
        for i, (above, slope) in enumerate(zip(self._hidden, self._slopes, strict=True)):
            np.matmul(self._inputs[i], self.layers[i], out=above[..., :-1])
            activate(above, slope)
            above[..., -1], slope[..., -1] = 1.0, 0.0
        np.matmul(self._inputs[-1], self.layers[-1], out=self._logits)
        return self._logits

    def backward(self) -> list[tuple[Float32Array, Float32Array]]:
        """Return input and error of each layer; the logits must hold the error of the output."""
        errors = [self._logits]
        for i in range(len(self._errors) - 1, -1, -1):
            weight, below = self.layers[i + 1].swapaxes(1, 2), self._errors[i]
            # matmul is slow with a single column
            product = np.multiply if weight.shape[1] == 1 else np.matmul
            product(errors[0], weight, out=below)
            np.multiply(below, self._slopes[i], out=below)
            errors.insert(0, below[..., :-1])
        return list(zip(self._inputs, errors, strict=True))

    def sum_gradients(self, seen: list[tuple[Float32Array, Float32Array]]) -> None:
        """Fill ``gradient`` with the sum over the batch."""
        for (value, error), gradient in zip(seen, self.gradients, strict=True):
            np.matmul(value[:, :_ROWS].swapaxes(1, 2), error[:, :_ROWS], out=gradient)
            for start in range(_ROWS, self.size, _ROWS):
                part = slice(start, start + _ROWS)
                gradient += np.matmul(value[:, part].swapaxes(1, 2), error[:, part])

    def network(self, index: int, flat: Float32Array | None = None) -> Layers:
        """Return a copy of one network's layers, with weights from ``flat`` if given."""
        views = self.layers if flat is None else layer_views(flat, self.sizes)
        return [(both[index, :-1].copy(), both[index, -1].copy()) for both in views]


def flatten_layers(start: Sequence[Layers]) -> tuple[list[int], Float32Array]:
    """Return the sizes of the layers, and all weights as a matrix with a row for each network."""
    sizes = [len(start[0][0][0]), *(len(bias) for _, bias in start[0])]
    flat = [np.concatenate([np.vstack(layer).ravel() for layer in layers]) for layers in start]
    return sizes, np.array(flat, dtype=np.float32)


def layer_views(flat: Any, sizes: Sequence[int]) -> list[Any]:
    """Return views of a matrix of weights, numpy's or torch's, for each layer."""
    views, first = [], 0
    for fan_in, fan_out in pairwise(sizes):
        last = first + (fan_in + 1) * fan_out
        views.append(flat[:, first:last].reshape(-1, fan_in + 1, fan_out))
        first = last
    return views


def append_columns(X: Float32Array, *facts: NDArray[np.generic]) -> Float32Array:
    """Return records with a column of ones (zeros in padding) and further columns appended."""
    rows = np.empty((len(X), X.shape[1] + 1 + len(facts)), np.float32)
    rows[:, : X.shape[1]] = X
    rows[:, X.shape[1]] = 1.0
    for column, fact in enumerate(facts, X.shape[1] + 1):
        rows[:, column] = fact
    return rows


def count_numbers(sizes: Sequence[int], batch: int) -> int:
    """Return how many numbers training a network holds: moments, activations and errors."""
    return 5 * sum(a * b for a, b in pairwise(sizes)) + 2 * batch * sum(sizes)


def count_multiplications(sizes: Sequence[int], batch: int) -> float:
    """Return the multiplications of a step: forward, backward and the sum of gradients."""
    return 3.0 * batch * sum(a * b for a, b in pairwise(sizes))


def logistic_error(
    logits: Float32Array, label: NDArray[np.intp], loss: bool
) -> Float32Array | None:
    """Turn logits (..., 1) into gradients of the cross-entropy; return the losses if asked for."""
    z, losses = logits[..., 0], None
    if loss:
        losses = np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0.0) - z * label
    _logistic(logits)
    np.subtract(z, label, out=z, casting="same_kind")
    return losses


def softmax_error(logits: Float32Array, label: NDArray[np.intp], loss: bool) -> Float32Array | None:
    """Turn logits (..., n_classes) into gradients, as :func:`logistic_error` does."""
    top = logits.max(initial=-np.inf)
    if not top - logits.min(initial=np.inf) < _RANGE:
        top = logits.max(axis=-1, keepdims=True)
    np.subtract(logits, top, out=logits)
    np.exp(logits, out=logits)
    np.divide(logits, logits @ np.ones((logits.shape[-1], 1), np.float32), out=logits)
    chosen = np.arange(0, logits.size, logits.shape[-1]) + label.ravel()
    flat, losses = logits.reshape(-1), None
    if loss:
        proba = np.maximum(flat[chosen], np.finfo(np.float32).tiny)
        losses = -np.log(proba).reshape(label.shape)
    flat[chosen] -= 1.0
    return losses


class Momentum:
    """Stochastic gradient descent with momentum on all weights of a stack."""

    def __init__(self, stack: Any, momentum: float) -> None:
        self.stack, self.momentum = stack, momentum
        self.velocity = _zeros_like(stack.weights)

    def step(self, rate: Any) -> None:
        """Update by the stack's gradient; ``rate`` has the shape (n_networks, 1)."""
        weights, gradient = self.stack.weights, self.stack.gradient
        self.velocity *= self.momentum
        self.velocity += gradient
        if isinstance(weights, np.ndarray):
            weights -= np.multiply(self.velocity, rate, out=gradient)
        else:
            weights.addcmul_(self.velocity, rate, value=-1.0)


class Adam:
    """Adam (Kingma and Ba 2015) on all weights of a stack; it overwrites the stack's gradient.

    The moments are stored without their constant factors. ``epsilon`` is added before the bias
    correction, as in scikit-learn. With ``noise``, the variance of the noise in each network's
    gradient, that variance is subtracted from the second moment (DP-AdamBC, Tang et al. 2024), and
    ``epsilon`` is added after the correction.
    """

    def __init__(
        self,
        stack: Any,
        betas: tuple[float, float],
        epsilon: float,
        noise: Sequence[float] | None = None,
    ) -> None:
        self.stack, self.betas, self.epsilon = stack, betas, epsilon
        self.noise: Any = None
        if noise is not None:
            self.noise = _column_like(stack.weights, noise)
        self.mean, self.square = _zeros_like(stack.weights), _zeros_like(stack.weights)
        self.steps = 0
        self._scratch = np.zeros(0, np.float32)

    def step(self, rate: Any, pull: Any = None) -> None:
        """Update by the stack's gradient plus, in numpy, ``pull`` times the weights."""
        self.steps += 1
        (first, second), epsilon, variance = self.betas, self.epsilon, None
        correction = math.sqrt(1 - second**self.steps)
        last = math.sqrt(1 - second)
        rate = rate * correction
        rate = rate * ((1 - first) / (1 - first**self.steps) / last)
        if self.noise is not None:
            # Tang et al. 2024: subtract the variance of the DP noise; floor as in PrivateAdam
            variance = self.noise * (correction / last) ** 2
            epsilon *= correction
        independent = min(self.steps, (1 + second) / (1 - second))
        terms = rate, epsilon / last, variance, math.sqrt(2 / independent)
        if isinstance(self.stack.weights, np.ndarray):
            self._step_in_slices(*terms, pull)
        else:
            self._step_on_device(*terms)

    def _step_in_slices(
        self, rate: Any, epsilon: float, variance: Any, least: float, pull: Any
    ) -> None:
        stack, (first, second) = self.stack, self.betas
        if not len(self._scratch):
            self._scratch = np.zeros(max(_CHUNK, stack.weights.shape[1]), np.float32)
        for part in self._slices():
            rows = part[0]
            w, g, m, v = (x[part] for x in (stack.weights, stack.gradient, self.mean, self.square))
            t = self._scratch[: w.size].reshape(w.shape)
            if pull is not None:
                g += np.multiply(w, pull[rows], out=t)
            m *= first
            m += g
            g *= g
            v *= second
            v += g
            if variance is None:
                np.sqrt(v, out=t)
            else:
                np.subtract(v, variance[rows], out=t)
                np.sqrt(np.maximum(t, variance[rows] * least, out=t), out=t)
            t += epsilon
            np.divide(m, t, out=t)
            t *= rate[rows] if isinstance(rate, np.ndarray) else rate
            w -= t

    def _step_on_device(self, rate: Any, epsilon: float, variance: Any, least: float) -> None:
        weights, gradient, (first, second) = self.stack.weights, self.stack.gradient, self.betas
        self.mean.mul_(first).add_(gradient)
        self.square.mul_(second).addcmul_(gradient, gradient)
        if variance is None:
            root = self.square.sqrt()
        else:
            root = (self.square - variance).maximum(variance * least).sqrt_()
        root.add_(epsilon)
        if isinstance(rate, float):
            weights.addcdiv_(self.mean, root, value=-rate)
        else:
            weights.addcmul_(self.mean / root, rate, value=-1.0)

    def _slices(self) -> Iterator[tuple[slice, slice]]:
        """Yield slices of a few whole networks, or of a part of one; contiguous either way."""
        n_networks, n_parameters = self.stack.weights.shape
        whole = max(1, _CHUNK // n_parameters)
        for top in range(0, n_networks, whole):
            for left in range(0, n_parameters, _CHUNK):
                yield slice(top, top + whole), slice(left, left + _CHUNK)


def _zeros_like(weights: Any) -> Any:
    if isinstance(weights, np.ndarray):
        return np.zeros_like(weights)
    return weights.new_zeros(weights.shape)


def _column_like(weights: Any, values: Sequence[float]) -> Any:
    column = np.array(values, np.float32)[:, None]
    return column if isinstance(weights, np.ndarray) else weights.new_tensor(column)
