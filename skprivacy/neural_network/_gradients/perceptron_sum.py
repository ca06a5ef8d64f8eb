"""Clipped gradient sum of a perceptron in numpy, for small batches.

On a small batch, torch's overhead per operation exceeds the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._blas import MUCH_WORK
from .arithmetic import SUMMED, TIMES_SLOPE, numpy_sees
from .clipping import Clip
from .contributions import LOST

__all__ = ["PerceptronSum"]

Array = NDArray[np.float32]
# Multiplications by weights from which on torch's threads are worth starting.
_MUCH_WORK = MUCH_WORK // 2
# Rows that one product adds up: over more, products of few columns round more than torch's.
_ROWS = 512


class PerceptronSum:
    """Backpropagation, norms, clipping and the sum in one pass of numpy arrays.

    ``layers`` are (weight, bias) of the linear layers, whose ``grad`` is added to, and
    ``activations`` the types between them: ``nn.Tanh``, ``nn.ReLU`` or ``nn.Sigmoid``.

    **Guarantees.** Those of ``ClippedGradientSum``, for examples that are records.
    """

    def __init__(
        self, layers: Sequence[tuple[Tensor, Tensor]], activations: Sequence[type[nn.Module]]
    ) -> None:
        self._layers = layers
        self._activations = activations
        self._work = sum(weight.numel() for weight, _ in layers)
        self._widest = max(size for weight, _ in layers for size in weight.shape)
        self._kept: dict[Any, Array] = {}

    def takes(self, inputs: Tensor) -> bool:
        """Return True if these rows are summed here."""
        grad = self._layers[0][0].grad
        single = inputs.dtype == torch.float32 and grad is not None and grad.dtype == torch.float32
        # The number of rows decides the rounding of gradients, as shapes of products always do.
        # Zero-out keeps it; under add-remove no margin is proved for it (SECURITY.md).
        short = len(inputs) * self._work < _MUCH_WORK and self._widest <= SUMMED
        return single and short and numpy_sees(inputs)

    def __call__(
        self, inputs: Tensor, targets: Tensor, clip: Clip, norm: float, first: bool
    ) -> None:
        """Add the clipped sum to ``grad``, or overwrite ``grad`` if it is the ``first``."""
        # Abadi et al. 2016, Algorithm 1, "Compute gradient", by book-keeping (Bu et al. 2023)
        terms = self._terms(inputs.numpy(), targets.numpy())
        squared = np.stack([_squared_norms(a, d) for a, d in terms])
        total = squared.sum(0)
        # Algorithm 1, "Clip gradient"
        factors = clip(squared, total, norm).astype(np.float32, copy=False)
        if not math.isfinite(float(total.sum())):
            bad = ~np.isfinite(total)
            factors[..., bad] = 0.0
            terms = [(_zero_rows(a, bad), _zero_rows(d, bad)) for a, d in terms]
        each = factors if factors.ndim == 2 else [factors] * len(terms)
        for (a, d), scale, (weight, bias) in zip(terms, each, reversed(self._layers), strict=True):
            _add_product(bias, scale, d, first)
            torch.from_numpy(d).mul_(torch.from_numpy(scale)[:, None])
            _add_product(weight, d.T, a, first)

    def _terms(self, inputs: Array, targets: NDArray[np.int64]) -> list[tuple[Array, Array]]:
        """Return each layer's input and the gradient at its output, from the last one down."""
        weights = [(w.detach().numpy(), b.detach().numpy()) for w, b in self._layers]
        seen, n = [inputs], len(inputs)
        for i, (weight, bias) in enumerate(weights):
            out = np.matmul(seen[-1], weight.T, out=self._room("out", i, n, len(weight)))
            torch.from_numpy(out).add_(torch.from_numpy(bias))
            seen.append(out)
            if i < len(self._activations):
                _IN_PLACE[self._activations[i]](out)
        errors = [seen.pop()]
        _subtract_targets(_softmax(errors[0]), targets)
        for i in range(len(self._activations) - 1, -1, -1):
            below = np.matmul(
                errors[-1], weights[i + 1][0], out=self._room("error", i, n, len(weights[i][0]))
            )
            grad, value = torch.from_numpy(below), torch.from_numpy(seen[i + 1])
            TIMES_SLOPE[self._activations[i]](grad, value)
            errors.append(below)
        return list(zip(reversed(seen), errors, strict=True))

    def _room(self, name: str, layer: int, rows: int, columns: int) -> Array:
        """Return a reused array to compute into, since Poisson batches differ in length."""
        kept = self._kept.get((name, layer))
        if kept is None or len(kept) < rows:
            kept = self._kept[name, layer] = np.empty((rows + rows // 8, columns), np.float32)
        return kept[:rows]


def _softmax(logits: Array) -> Array:
    """Turn logits into probabilities in place, row by row.

    On rows of few numbers torch's softmax takes several times as long.
    """
    logits -= torch.amax(torch.from_numpy(logits), 1, keepdim=True).numpy()
    np.exp(logits, out=logits)
    logits /= logits @ np.ones((logits.shape[1], 1), np.float32)
    return logits


def _subtract_targets(probabilities: Array, targets: NDArray[np.int64]) -> None:
    """Subtract 1 at each row's target; rows with a negative target become zero.

    A target without a column raises, and affects no other row.
    """
    probabilities[np.arange(len(probabilities)), np.maximum(targets, 0)] -= np.float32(1.0)
    if targets.min(initial=0) < 0:
        probabilities[targets < 0] = 0.0


def _squared_norms(a: Array, d: Array) -> Array:
    """Return squared norms of outer products with a bias, plus the possible loss in squares."""
    inputs, errors = _row_products(a, a), _row_products(d, d)
    inputs += 1.0
    errors += np.float32(LOST * d.shape[1])
    inputs *= errors
    return inputs


def _row_products(a: Array, b: Array) -> Array:
    """Return the product of each row of one array with the same row of another."""
    found: Array = np.vecdot(a, b) if hasattr(np, "vecdot") else np.einsum("ij,ij->i", a, b)
    return found


def _zero_rows(values: Array, bad: NDArray[np.bool_]) -> Array:
    return np.where(bad[:, None], np.float32(0.0), values)


def _add_product(parameter: Tensor, left: Array, rows: Array, first: bool) -> None:
    assert parameter.grad is not None
    total = parameter.grad.numpy()
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        if first and start == 0:
            np.matmul(left[..., part], rows[part], out=total)
        else:
            total += left[..., part] @ rows[part]


# In place, torch takes less than half the time of numpy on many numbers, except for tanh.
_IN_PLACE: dict[type[nn.Module], Callable[[Array], Any]] = {
    nn.Tanh: lambda z: np.tanh(z, out=z),
    nn.ReLU: lambda z: torch.relu_(torch.from_numpy(z)),
    nn.Sigmoid: lambda z: torch.sigmoid_(torch.from_numpy(z)),
}
