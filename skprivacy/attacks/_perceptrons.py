"""Several perceptrons of one shape, stepped side by side: what all stacked training shares.

Everything is written out in NumPy on buffers made once: for networks this small, the work lies in
the matrix products, and what surrounds them must neither allocate nor leave the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Floats",
    "Layers",
    "PerceptronStack",
    "count_numbers",
    "logistic_error",
    "softmax_error",
]

Floats = NDArray[np.float32]
Layers = list[tuple[Floats, Floats]]  # weights (n_in, n_out) and biases (n_out,) of each layer

# Differences between logits that single precision can take the exponential of.
_RANGE = 80.0


def _logistic(z: Floats) -> None:
    np.negative(z, out=z)
    np.exp(z, out=z)
    np.add(z, 1.0, out=z)
    np.reciprocal(z, out=z)


def _with_logistic(z: Floats, slope: Floats) -> None:
    _logistic(z)
    np.multiply(z, z, out=slope)
    np.subtract(z, slope, out=slope)


def _with_tanh(z: Floats, slope: Floats) -> None:
    np.tanh(z, out=z)
    np.multiply(z, z, out=slope)
    np.subtract(1.0, slope, out=slope)


def _with_relu(z: Floats, slope: Floats) -> None:
    np.greater(z, 0.0, out=slope)
    np.multiply(z, slope, out=z)


# In place, from a layer's output to its value; beside it the slope.
_ACTIVATIONS: dict[str, Callable[[Floats, Floats], None]] = {
    "identity": lambda z, slope: slope.fill(1.0),
    "logistic": _with_logistic,
    "tanh": _with_tanh,
    "relu": _with_relu,
}


class PerceptronStack:
    """Networks of one shape, with all their weights in one matrix.

    Parameters
    ----------
    start : list of list of (weights, biases)
        Initial layers of each network, weights of shape (n_in, n_out).
    activation : {"identity", "logistic", "tanh", "relu"}
        Of the hidden layers; the output layer has none.

    Attributes
    ----------
    weights : float32 ndarray of shape (n_networks, n_parameters)
        The weights of all layers, then the biases of all layers.
    gradient : float32 ndarray of shape (n_networks, n_parameters)
        Filled by :meth:`sum_gradients`.
    n_weights : int
        How many of the parameters are not biases.
    """

    def __init__(self, start: Sequence[Layers], activation: str) -> None:
        self.activation = activation
        self.sizes = [len(start[0][0][0]), *(len(bias) for _, bias in start[0])]
        flat = [
            [weight.ravel() for weight, _ in layers] + [bias for _, bias in layers]
            for layers in start
        ]
        self.weights = np.array([np.concatenate(parts) for parts in flat], dtype=np.float32)
        self.gradient = np.zeros_like(self.weights)
        self.n_weights = sum(a * b for a, b in pairwise(self.sizes))
        self._layers = self._views(self.weights)
        self._grads = self._views(self.gradient)
        self._reserve(0)

    def _views(self, flat: Floats) -> list[tuple[Floats, Floats]]:
        """Return the weights (n_networks, n_in, n_out) and biases (n_networks, 1, n_out)."""
        views, first, last = [], 0, self.n_weights
        for fan_in, fan_out in pairwise(self.sizes):
            weight = flat[:, first : first + fan_in * fan_out].reshape(-1, fan_in, fan_out)
            views.append((weight, flat[:, None, last : last + fan_out]))
            first, last = first + fan_in * fan_out, last + fan_out
        return views

    def _reserve(self, width: int) -> None:
        shape = len(self.weights), width
        self._values = [np.zeros((*shape, size), np.float32) for size in self.sizes]
        self._errors = [np.zeros((*shape, size), np.float32) for size in self.sizes[1:-1]]
        self._slopes = [np.zeros((*shape, size), np.float32) for size in self.sizes[1:-1]]
        self._ones = np.ones((1, width), np.float32)

    def load(self, records: Sequence[Floats], chosen: Sequence[NDArray[np.intp]]) -> None:
        """Make a batch of the chosen rows of each network's records, padded with zeros."""
        self.size = max(map(len, chosen))
        if self.size > self._ones.size:
            self._reserve(self.size)
        for rows, own, places in zip(self._values[0], records, chosen, strict=True):
            np.take(own, places, axis=0, out=rows[: len(places)], mode="clip")
            rows[len(places) : self.size] = 0.0

    def forward(self) -> Floats:
        """Return the logits of the batch, of shape (n_networks, size, n_outputs)."""
        activate = _ACTIVATIONS[self.activation]
        values = [value[:, : self.size] for value in self._values]
        for place, (weight, bias) in enumerate(self._layers):
            out = values[place + 1]
            np.matmul(values[place], weight, out=out)
            np.add(out, bias, out=out)
            if place + 1 < len(self._layers):
                activate(out, self._slopes[place][:, : self.size])
        return values[-1]

    def backward(self) -> list[tuple[Floats, Floats]]:
        """Return input and error of each layer, from the error put in place of the logits."""
        values = [value[:, : self.size] for value in self._values]
        errors = [*(error[:, : self.size] for error in self._errors), values[-1]]
        for place in range(len(errors) - 1, 0, -1):
            weight, below = self._layers[place][0].swapaxes(1, 2), errors[place - 1]
            # a product with one term only is slow as a matrix product
            product = np.multiply if weight.shape[1] == 1 else np.matmul
            product(errors[place], weight, out=below)
            np.multiply(below, self._slopes[place - 1][:, : self.size], out=below)
        return list(zip(values, errors, strict=False))

    def sum_gradients(self, seen: list[tuple[Floats, Floats]]) -> None:
        """Fill ``gradient`` with the sum over the batch."""
        ones = self._ones[:, : self.size]
        for (value, error), (weight, bias) in zip(seen, self._grads, strict=True):
            np.matmul(value.swapaxes(1, 2), error, out=weight)
            np.matmul(ones, error, out=bias)

    def layers(self, place: int, flat: Floats | None = None) -> Layers:
        """Return a copy of one network's layers (``flat``: other numbers than its weights)."""
        views = self._layers if flat is None else self._views(flat)
        return [(weight[place].copy(), bias[place, 0].copy()) for weight, bias in views]


def count_numbers(sizes: Sequence[int], batch: int) -> int:
    """Return how many numbers a network holds in training: moments, values and errors."""
    return 5 * sum(a * b for a, b in pairwise(sizes)) + 2 * batch * sum(sizes)


def logistic_error(logits: Floats, label: NDArray[np.intp], loss: bool) -> Floats | None:
    """Turn logits of shape (..., 1) into the gradient of the cross-entropy, in place.

    Returns the loss of each record if asked for.
    """
    z, losses = logits[..., 0], None
    if loss:
        losses = np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0.0) - z * label
    _logistic(logits)
    np.subtract(z, label, out=z, casting="same_kind")
    return losses


def softmax_error(logits: Floats, label: NDArray[np.intp], loss: bool) -> Floats | None:
    """Turn logits (n_networks, batch, n_classes) into the gradient of the cross-entropy, in place.

    Returns the loss of each record if asked for.
    """
    top = logits.max(initial=-np.inf)
    if not top - logits.min(initial=np.inf) < _RANGE:
        top = logits.max(axis=-1, keepdims=True)
    np.subtract(logits, top, out=logits)
    np.exp(logits, out=logits)
    np.divide(logits, logits @ np.ones((logits.shape[-1], 1), np.float32), out=logits)
    network, record = np.ogrid[: label.shape[0], : label.shape[1]]
    losses = None
    if loss:
        losses = -np.log(np.maximum(logits[network, record, label], np.finfo(np.float32).tiny))
    logits[network, record, label] -= 1.0
    return losses
