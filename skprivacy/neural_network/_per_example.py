"""Clipped sums of per-example gradients in one backward pass, without holding the gradients.

The gradient of one example in a linear layer is the outer product of the layer's input ``a`` and of
the loss gradient ``d`` at its output. Its norm is the product of their norms, and the clipped sum
over a batch is one matrix product of ``a`` with reweighted ``d``: "book-keeping" (Bu, Wang, Zha and
Karypis, Differentially private optimization on large model at small cost, ICML 2023, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ._backward import LayerRecord, backward_of

__all__ = ["ClippedGradientSum", "flatten_parameters"]

# Norms in single precision are off by about 1e-5 relative; clipping this much below the declared
# norm keeps the real one below it.
_SAFETY = 1.0 - 1e-4


def flatten_parameters(module: nn.Module) -> tuple[nn.Parameter, Tensor]:
    """Move all parameters of ``module`` into one vector; return it and its ``grad``.

    The parameters, and their ``grad``, become views of the two. One vector makes noise, momentum
    and averaging one operation each, whatever the layers are.
    """
    parameters = list(module.parameters())
    flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
    grad = flat.grad = torch.zeros_like(flat)
    start = 0
    for p in parameters:
        stop = start + p.numel()
        p.data = flat.data[start:stop].view_as(p)
        p.grad = grad[start:stop].view_as(p)
        start = stop
    return flat, grad


class ClippedGradientSum:
    """Add the clipped per-example gradients of a module to its ``grad`` buffers.

    Parameters
    ----------
    module : torch.nn.Module
        Its parameters must all belong to :class:`torch.nn.Linear` layers, each used once in a
        forward pass, on inputs of shape (batch, features).
    per_example_loss : callable
        Maps (output, target) to a vector of one loss per example.
    max_grad_norm : float
        L2 norm to which each example's gradient, over all parameters jointly, is clipped.

    Notes
    -----
    **Guarantees.** Each example adds a vector of L2 norm at most ``max_grad_norm``, whatever the
    other examples of the batch are, up to the rounding of a single-precision sum. Hence it does
    not matter how a batch is cut into parts.

    **Edge cases.** An empty batch adds nothing. An example whose gradient is not finite (or whose
    squared norm overflows) adds nothing and leaves the others untouched.
    """

    def __init__(
        self,
        module: nn.Module,
        per_example_loss: Callable[[Tensor, Tensor], Tensor],
        max_grad_norm: float,
    ) -> None:
        _check_layers(module)
        self.backward = backward_of(module, per_example_loss)
        self.max_grad_norm = max_grad_norm

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        """Add the clipped sum over this batch to ``grad`` of every parameter."""
        if len(inputs) == 0:
            return
        records = self.backward(inputs, targets)
        with torch.no_grad():
            squared = squared_norms(records)
            factors = (self.max_grad_norm * _SAFETY / squared.sqrt()).clamp_(max=1.0)
            finite = torch.isfinite(squared)
            if not finite.all():
                records, factors = _without(~finite, records, factors)
            for record in records:
                _add_sum(record, factors)


def squared_norms(records: list[LayerRecord]) -> Tensor:
    """Return the squared norm of each example's gradient over all layers, shape (batch,)."""
    total = torch.zeros(len(records[0].input), device=records[0].input.device)
    for r in records:
        inputs = r.input.square().sum(1)
        if r.layer.bias is not None:
            inputs += 1.0
        total.addcmul_(inputs, r.output_grad.square().sum(1))
    return total


def _add_sum(record: LayerRecord, factors: Tensor) -> None:
    weighted = record.output_grad * factors[:, None]
    _buffer(record.layer.weight).addmm_(weighted.T, record.input)
    if record.layer.bias is not None:
        _buffer(record.layer.bias).add_(weighted.sum(0))


def _buffer(parameter: Tensor) -> Tensor:
    """Return the ``grad`` of a parameter, which :func:`flatten_parameters` has made."""
    assert parameter.grad is not None
    return parameter.grad


def _without(
    bad: Tensor, records: list[LayerRecord], factors: Tensor
) -> tuple[list[LayerRecord], Tensor]:
    """Blank the examples marked ``bad``: a factor of zero would not do, as 0 * inf is NaN."""
    row = bad[:, None]
    blank = [
        LayerRecord(r.layer, r.input.masked_fill(row, 0.0), r.output_grad.masked_fill(row, 0.0))
        for r in records
    ]
    return blank, factors.masked_fill(bad, 0.0)


def _check_layers(module: nn.Module) -> None:
    """Refuse a module whose per-example gradients this file cannot know."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ValueError(
                f"Layer {name!r} is a {type(layer).__name__}: it mixes the examples of a batch, so "
                "one record reaches every other record's gradient. Use LayerNorm or GroupNorm."
            )
        own = list(layer.parameters(recurse=False))
        if own and not isinstance(layer, nn.Linear):
            raise ValueError(
                f"Layer {name!r} is a {type(layer).__name__}, whose per-example gradients are not "
                "supported. Use torch.nn.Linear layers."
            )
    named = [p for layer in module.modules() for p in layer.parameters(recurse=False)]
    if len(named) != len({id(p) for p in named}):
        raise ValueError("The module shares a parameter between layers, which is not supported.")
