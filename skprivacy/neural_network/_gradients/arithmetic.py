"""Arithmetic of a perceptron's pass: numpy for small matrices on the CPU, torch otherwise.

On a small batch, torch's overhead per operation exceeds the arithmetic; numpy's is smaller. On
large matrices torch is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = [
    "ACTIVATIONS",
    "NUMPY_ON",
    "SUMMED",
    "activate",
    "add_weighted",
    "affine",
    "flush_denormals",
    "multiply_by_slope",
    "numpy_sees",
    "product",
    "products",
    "softmax_gradient",
    "squared_lengths",
]

_SMALL_PRODUCT = 1 << 22  # multiplications of a product below which numpy is faster
_SMALL_ARRAY = 1 << 16  # numbers of an elementwise operation below which numpy is faster
_FEW_THREADS = 2  # threads of torch that are no faster than one of numpy
# Numbers whose squares are added up in sequence: over a million of equal size the norm came out too
# small by 8e-4, over four million by 2e-3.
SUMMED = 1 << 12
# Rows that numpy adds up: over more, its products of few columns round more than torch's.
_SUMMED_ROWS = 512
# Devices whose memory numpy can access.
NUMPY_ON = {"cpu"}

_SMALLEST = np.finfo(np.float32).tiny
np.finfo(np.float64)  # cached here: computed later, with denormals flushed, it would warn

_ATEN = torch.ops.aten
ACTIVATIONS = frozenset({nn.Tanh, nn.ReLU, nn.Sigmoid})


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush numbers below 1e-38 to zero in this thread, because CPUs are slow with them.

    Squared gradients of confidently learned records are such numbers, and took a fifth of a run's
    time. Norms allow for the loss in squares (``contributions.py``); a loss in a contribution
    shortens it.
    """
    with np.errstate(all="ignore"):  # gradients that overflow add nothing, and torch does not warn
        before = bool(_SMALLEST * np.float32(0.5) == 0)
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(before)


def affine(bias: Tensor, a: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Compute ``a @ weight.T + bias`` into ``out``."""
    if _is_small(a, weight.shape[0]):
        values = out.numpy()
        np.matmul(a.numpy(), weight.detach().numpy().T, out=values)
        values += bias.detach().numpy()
        return out
    return torch.addmm(bias, a, weight.T, out=out)


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Compute ``a @ b`` into ``out``."""
    if _is_small(a, b.shape[1]):
        np.matmul(a.numpy(), b.detach().numpy(), out=out.numpy())
        return out
    return torch.mm(a, b, out=out)


def products(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Compute the product of each matrix of ``a`` and its matrix of ``b`` into ``out``.

    On small matrices, numpy takes half the time of torch on one thread.
    """
    if numpy_sees(a) and torch.get_num_threads() <= _FEW_THREADS:
        np.matmul(a.numpy(), b.numpy(), out=out.numpy())
    else:
        torch.bmm(a, b, out=out)


def add_weighted(
    weight: Tensor,
    bias: Tensor | None,
    d: Tensor,
    a: Tensor,
    factors: Tensor,
    out: Tensor | None,
    first: bool = False,
) -> None:
    """Add the outer products of the rows of ``d`` and ``a``, times factors, to ``weight``.

    The rows of ``d`` times factors are added to ``bias``. ``out`` is overwritten if given, and may
    be ``d``. With ``first``, ``weight`` and ``bias`` are overwritten.
    """
    # As in _is_small, the number of rows affects the rounding only.
    short = len(d) <= _SUMMED_ROWS and weight.dtype == torch.float32
    if out is not None and short and _is_small(a, d.shape[1]):
        rows, scale, weighted, sums = d.numpy(), factors.numpy(), out.numpy(), weight.numpy()
        if bias is not None:
            _add_product(bias.numpy(), scale, rows, first)
        np.multiply(rows, scale[:, None], out=weighted)
        _add_product(sums, weighted.T, a.numpy(), first)
        return
    kept = 0.0 if first else 1.0
    if bias is not None:
        bias.addmv_(d.T, factors, beta=kept)
    weight.addmm_(torch.mul(d, factors[:, None], out=out).T, a, beta=kept)


def _add_product(total: NDArray, left: NDArray, right: NDArray, first: bool) -> None:
    if first:
        np.matmul(left, right, out=total)
    else:
        total += left @ right


def squared_lengths(rows: Tensor, lost: float) -> Tensor:
    """Return the squared L2 norm of each row, plus ``lost``.

    **Guarantees.** Right to 6e-5 for any length and position of a row, and to 3e-4 if all errors
    point one way: norms are right to 3e-5 and 1.3e-4.
    """
    if rows.shape[1] > SUMMED:
        parts = torch.stack([squared_lengths(part, 0.0) for part in rows.split(SUMMED, dim=1)])
        return parts.sum(0).add_(lost)
    if numpy_sees(rows):
        values = rows.numpy()
        with np.errstate(all="ignore"):
            found = np.matmul(values[:, None], values[:, :, None])[:, 0, 0]
        found += lost
        return torch.from_numpy(found)
    return torch.linalg.vector_norm(rows, dim=1).square_().add_(lost)


def activate(kind: type[nn.Module], values: Tensor) -> Tensor:
    """Apply an activation in place."""
    if kind is nn.Tanh and numpy_sees(values):
        # numpy's tanh takes a sixth of the time of torch's.
        array = values.numpy()
        np.tanh(array, out=array)
        return values
    return _IN_PLACE[kind](values)


def multiply_by_slope(kind: type[nn.Module], grad: Tensor, value: Tensor) -> None:
    """Multiply a gradient in place by the slope of an activation with output ``value``."""
    if _is_few(grad):
        d, v = grad.numpy(), value.numpy()
        d *= _SLOPES[kind](v)
    else:
        TIMES_SLOPE[kind](grad, value)


def softmax_gradient(outputs: Tensor, targets: Tensor, out: Tensor) -> Tensor:
    """Compute each example's gradient of the cross-entropy by its outputs into ``out``.

    An example with a negative target has none, as in ``nn.CrossEntropyLoss``.
    """
    grad = torch.softmax(outputs, 1, out=out)
    if numpy_sees(grad) and targets.numpy().min(initial=0) >= 0:
        if _is_few(grad):
            grad.numpy()[np.arange(len(grad)), targets.numpy()] -= 1.0
            return grad
        return grad.scatter_add_(1, targets[:, None], grad.new_full((len(grad), 1), -1.0))
    counted = (targets >= 0)[:, None].to(grad.dtype)
    return grad.scatter_add_(1, targets.clamp(min=0)[:, None], -counted).mul_(counted)


def numpy_sees(values: Tensor) -> bool:
    """Return True if numpy can access the memory of a tensor."""
    return values.device.type in NUMPY_ON


def _is_small(a: Tensor, n: int) -> bool:
    """Return True if numpy should multiply a matrix by another one of ``n`` columns.

    The number of rows decides the rounding of gradients, as shapes of products always do. Zero-out
    keeps it; under add-remove no margin is proved for it (SECURITY.md).
    """
    return numpy_sees(a) and a.dtype == torch.float32 and a.numel() * n <= _SMALL_PRODUCT


def _is_few(values: Tensor) -> bool:
    return values.numel() <= _SMALL_ARRAY and values.dtype == torch.float32 and numpy_sees(values)


def _slope_of_tanh(value: NDArray) -> NDArray:
    slope = value * value
    return np.subtract(1.0, slope, out=slope)


_IN_PLACE = {nn.Tanh: torch.tanh_, nn.ReLU: torch.relu_, nn.Sigmoid: torch.sigmoid_}
_SLOPES = {
    nn.Tanh: _slope_of_tanh,
    nn.ReLU: lambda value: value > 0,
    nn.Sigmoid: lambda value: value - value * value,
}
TIMES_SLOPE = {
    nn.Tanh: lambda g, value: _ATEN.tanh_backward.grad_input(g, value, grad_input=g),
    nn.ReLU: lambda g, value: _ATEN.threshold_backward.grad_input(g, value, 0, grad_input=g),
    nn.Sigmoid: lambda g, value: _ATEN.sigmoid_backward.grad_input(g, value, grad_input=g),
}
