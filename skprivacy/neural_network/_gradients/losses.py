"""Losses with one number per example."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

_HUBER_DELTA = 0.1  # of targets in [-1, 1]


class LabelEntropy(nn.Module):
    """Binary cross-entropy of outputs and 0/1 targets of shape (n, labels), summed by row."""

    def __init__(self, weight: Tensor | None = None) -> None:
        super().__init__()
        self.weight: Tensor | None
        self.register_buffer("weight", weight)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(output, target, self.weight, reduction="none")
        return losses.sum(1)


class SquaredError(nn.Module):
    """Half the squared difference between outputs of shape (n, 1) and targets of shape (n,)."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (output.flatten() - target).square()


class AbsoluteError(SquaredError):
    """Absolute difference between outputs of shape (n, 1) and targets of shape (n,)."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return (output.flatten() - target).abs()


class HuberError(SquaredError):
    """Huber's loss: squared up to a difference of 0.1, and of slope 1 beyond."""

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(output.flatten(), target, reduction="none", beta=_HUBER_DELTA)


class PerExample(nn.Module):
    """A loss with one number per output, averaged over the outputs of each example."""

    def __init__(self, criterion: nn.Module) -> None:
        super().__init__()
        self.criterion = criterion

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        if output.shape != target.shape and output.numel() == target.numel():
            raise ValueError(  # torch would broadcast: every output against every target
                f"Outputs of {len(output)} records have shape {tuple(output.shape)}, targets "
                f"{tuple(target.shape)}. Give y the shape of the outputs."
            )
        losses = self.criterion(output, target)
        if losses.dim() > 1 and losses.shape == output.shape == target.shape:
            return losses.flatten(1).mean(1)
        return losses  # another shape may mix examples; the trial refuses it
