"""Arithmetic of a perceptron's pass: numpy's for small matrices in main memory, torch's for others.

What torch does before each operation takes longer than the arithmetic of a small batch; numpy does
less. Its products are slower than torch's where they are large.
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
    "multiply_by_slope",
    "numpy_sees",
    "product",
    "products",
    "softmax_gradient",
    "squared_lengths",
    "tiny_numbers_as_zeros",
]

_SMALL = 1 << 22  # multiplications of a product
_FEW = 1 << 16  # numbers that are worked on one by one
_FEW_THREADS = 2  # of torch's, which take no less time than one of numpy's
# Numbers whose squares are added up one after another: over a million of equal size the norm came
# out too small by 8e-4, over four million by 2e-3.
SUMMED = 1 << 12
# Rows that numpy adds up: over more, its products of few columns round off more than torch's.
_SUMMED_ROWS = 512
# Where numpy takes part: it sees the memory of no other device.
NUMPY_ON = {"cpu"}

_SMALLEST = np.finfo(np.float32).tiny
np.finfo(np.float64)  # numpy remembers it, and would warn where there are no tiny numbers

_ATEN = torch.ops.aten
ACTIVATIONS = frozenset({nn.Tanh, nn.ReLU, nn.Sigmoid})


@contextmanager
def tiny_numbers_as_zeros() -> Iterator[None]:
    """Let this thread take numbers below 1e-38 for zero, which processors are slow with.

    The gradients of records that a network is sure of are such numbers when they are squared: a
    fifth of the time of a run went there. Norms allow for what squares lose (``contributions.py``);
    what a contribution loses makes it shorter.
    """
    with np.errstate(all="ignore"):  # what overflows adds nothing; torch says nothing of it either
        before = bool(_SMALLEST * np.float32(0.5) == 0)
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(before)


def affine(bias: Tensor, a: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Return ``a @ weight.T + bias`` in ``out``."""
    if _is_small(a, weight.shape[0]):
        values = out.numpy()
        np.matmul(a.numpy(), weight.detach().numpy().T, out=values)
        values += bias.detach().numpy()
        return out
    return torch.addmm(bias, a, weight.T, out=out)


def product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """Return ``a @ b`` in ``out``."""
    if _is_small(a, b.shape[1]):
        np.matmul(a.numpy(), b.detach().numpy(), out=out.numpy())
        return out
    return torch.mm(a, b, out=out)


def products(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Put the product of each matrix of ``a`` and the one of ``b`` into ``out``.

    numpy takes half the time of torch over small ones, on one thread.
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
    """Add the products of each row of ``d`` and of ``a`` times a factor up, to ``weight``.

    To ``bias`` the rows of ``d`` are added likewise. ``out``, if there is one, is overwritten, and
    may be ``d``. What ``weight`` and ``bias`` hold counts for nothing if these are the ``first``.
    """
    # As in _is_small, the number of rows chooses the rounding alone.
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
    """Return the squared L2 norm of each row and ``lost``.

    **Guarantees.** Right to 6e-5, however long a row is and wherever it lies; to 3e-4 if all errors
    point one way: norms are to 3e-5 and 1.3e-4.
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
        # numpy's takes a sixth of the time of torch's.
        array = values.numpy()
        np.tanh(array, out=array)
        return values
    return _IN_PLACE[kind](values)


def multiply_by_slope(kind: type[nn.Module], grad: Tensor, value: Tensor) -> None:
    """Multiply a gradient, in place, by the slope of an activation that had ``value``."""
    if _is_few(grad):
        d, v = grad.numpy(), value.numpy()
        d *= _SLOPES[kind](v)
    else:
        TIMES_SLOPE[kind](grad, value)


def softmax_gradient(outputs: Tensor, targets: Tensor, out: Tensor) -> Tensor:
    """Return each example's gradient of the cross-entropy by its outputs, in ``out``.

    One whose target is negative has none: ``nn.CrossEntropyLoss`` ignores it.
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
    """Whether numpy can work on the memory of a tensor."""
    return values.device.type in NUMPY_ON


def _is_small(a: Tensor, n: int) -> bool:
    """Whether numpy is to multiply a matrix by another one of ``n`` columns.

    The number of rows chooses how gradients are rounded, as shapes of products do anyway. Zero-out
    keeps it; under add-remove no margin is proved for it (SECURITY.md).
    """
    return numpy_sees(a) and a.dtype == torch.float32 and a.numel() * n <= _SMALL


def _is_few(values: Tensor) -> bool:
    return values.numel() <= _FEW and values.dtype == torch.float32 and numpy_sees(values)


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
