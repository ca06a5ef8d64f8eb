"""Clipped sums of per-example gradients in one backward pass, without holding the gradients.

The gradient of one example in a linear layer is the outer product of the layer's input ``a`` and of
the loss gradient ``d`` at its output. Its norm is the product of their norms, and the clipped sum
over a batch is one matrix product of ``a`` with reweighted ``d``: "book-keeping" (Bu, Wang, Zha and
Karypis, Differentially private optimization on large model at small cost, ICML 2023, algorithm 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ._clipping import CLIPPING, Clip
from ._gradients import Probe, flatten_parameters, gradients_of

__all__ = ["ClippedGradientSum", "flatten_parameters"]


class ClippedGradientSum:
    """Add the clipped per-example gradients of a module to its ``grad`` buffers.

    Parameters
    ----------
    module : torch.nn.Module
        Any module whose examples do not meet. ``gradients.name`` says how its per-example gradients
        are computed: by book-keeping, by ``torch.func``, or one by one.
    per_example_loss : callable
        Maps (output, target) to a vector of one loss per example.
    max_grad_norm : float
        L2 norm to which each example's gradient, over all parameters jointly, is clipped.
    clipping : {"flat", "per-layer", "automatic"} or callable, default="flat"
        How, see ``_clipping.py``.
    probe : Probe, default=None
        Public numbers of the shape of the data, to try the module out on.

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
        clipping: str | Clip = "flat",
        probe: Probe | None = None,
    ) -> None:
        self.gradients = gradients_of(module, per_example_loss, probe)
        self.max_grad_norm = max_grad_norm
        self.clip = CLIPPING[clipping] if isinstance(clipping, str) else clipping
        self.numbers_an_example = 0.0
        if probe is not None:
            found = self.gradients(probe.inputs, probe.targets)
            self.numbers_an_example = sum(c.numbers() for c in found) / len(probe.targets)

    def __call__(self, inputs: Tensor, targets: Tensor) -> None:
        """Add the clipped sum over this batch to ``grad`` of every parameter.

        There are as many rows of ``inputs`` for each target as the probe has views.
        """
        if targets.shape[0] == 0:
            return
        contributions = self.gradients(inputs, targets)
        with torch.no_grad():
            squared = torch.stack([c.squared_norms() for c in contributions])
            total = squared.sum(0)
            factors = self.clip(squared, total, self.max_grad_norm)
            if not math.isfinite(float(total.sum())):
                bad = ~torch.isfinite(total)
                contributions = [c.without(bad) for c in contributions]
                factors = factors.masked_fill(bad, 0.0)
            for contribution, factor in zip(contributions, factors, strict=True):
                contribution.add_sum(factor)
