"""Clipped sums of per-example gradients in one backward pass, without holding the gradients.

The gradient of one example in a linear layer is the outer product of the layer's input ``a`` and of
the loss gradient ``d`` at its output. Its norm is the product of their norms, and the clipped sum
over a batch is one matrix product of ``a`` with reweighted ``d``: "book-keeping" (Bu, Wang, Zha and
Karypis, Differentially private optimization on large model at small cost, ICML 2023, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["ClippedGradientSum", "flatten_parameters"]

# Norms in single precision are off by about 1e-5 relative; clipping this much below the declared
# norm keeps the real one below it.
_SAFETY = 1.0 - 1e-4


def flatten_parameters(module: nn.Module) -> tuple[nn.Parameter, Tensor]:
    """Move all parameters of ``module`` into one vector; return it and its ``grad``.

    The parameters, and their ``grad``, become views of the two.

    One vector makes noise, momentum and averaging one operation each, whatever the layers are.
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


@dataclass
class _Record:
    """What one layer saw in the forward pass, and the loss gradient that came back to it."""

    layer: nn.Linear
    input: Tensor
    output: Tensor

    def squared_norms(self, output_grad: Tensor) -> Tensor:
        norms = self.input.square().sum(1)
        if self.layer.bias is not None:
            norms += 1.0
        return norms.mul_(output_grad.square().sum(1))

    def add_sum(self, weighted_output_grad: Tensor) -> None:
        _buffer(self.layer.weight).addmm_(weighted_output_grad.T, self.input)
        if self.layer.bias is not None:
            _buffer(self.layer.bias).add_(weighted_output_grad.sum(0))


def _buffer(parameter: Tensor) -> Tensor:
    """Return the ``grad`` of a parameter, which :func:`flatten_parameters` has made."""
    assert parameter.grad is not None
    return parameter.grad


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
        self.module = module
        self.per_example_loss = per_example_loss
        self.max_grad_norm = max_grad_norm

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        """Add the clipped sum over this batch to ``grad`` of every parameter."""
        if len(inputs) == 0:
            return
        records, output = self._forward(inputs)
        loss = self.per_example_loss(output, targets).sum()
        grads = list(torch.autograd.grad(loss, [r.output for r in records]))
        with torch.no_grad():
            squared = torch.zeros(len(inputs), device=inputs.device)
            for record, grad in zip(records, grads, strict=True):
                squared += record.squared_norms(grad)
            factors = (self.max_grad_norm * _SAFETY / squared.sqrt()).clamp_(max=1.0)
            finite = torch.isfinite(squared)
            if not finite.all():
                records, grads, factors = _without(~finite, records, grads, factors)
            for record, grad in zip(records, grads, strict=True):
                record.add_sum(factors[:, None] * grad)

    def _forward(self, inputs: Tensor) -> tuple[list[_Record], Tensor]:
        """Run the module; record every layer's input and output, without weight gradients."""
        records: list[_Record] = []

        def record(layer: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
            if not output.requires_grad:
                output.requires_grad_()
            records.append(_Record(layer, args[0].detach(), output))
            return output

        layers = [m for m in self.module.modules() if isinstance(m, nn.Linear)]
        hooks = [layer.register_forward_hook(record) for layer in layers]
        parameters = list(self.module.parameters())
        for p in parameters:
            p.requires_grad_(False)
        try:
            output = self.module(inputs)
        finally:
            for hook in hooks:
                hook.remove()
            for p in parameters:
                p.requires_grad_(True)
        if sorted(map(id, layers)) != sorted(id(r.layer) for r in records):
            raise ValueError(
                f"Every linear layer of {type(self.module).__name__} must be used exactly once in "
                "a forward pass: the norm of an example's gradient cannot be had otherwise."
            )
        return records, output


def _without(
    bad: Tensor, records: list[_Record], grads: list[Tensor], factors: Tensor
) -> tuple[list[_Record], list[Tensor], Tensor]:
    """Blank the examples marked ``bad``: a factor of zero would not do, as 0 * inf is NaN."""
    row = bad[:, None]
    records = [_Record(r.layer, r.input.masked_fill(row, 0.0), r.output) for r in records]
    return records, [g.masked_fill(row, 0.0) for g in grads], factors.masked_fill(bad, 0.0)


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
