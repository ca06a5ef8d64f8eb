"""Losses that give one number an example."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["LabelEntropy", "SquaredError"]


class LabelEntropy(nn.Module):
    """Binary cross-entropy of outputs and zeros and ones of shape (n, labels), summed by row."""

    def __init__(self, reduction: str, weight: Tensor | None = None) -> None:
        super().__init__()
        assert reduction == "none"
        self.weight: Tensor | None
        self.register_buffer("weight", weight)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(output, target, self.weight, reduction="none")
        return losses.sum(1)


class SquaredError(nn.Module):
    """Half the squared difference between outputs of shape (n, 1) and targets of shape (n,)."""

    def __init__(self, reduction: str) -> None:
        super().__init__()
        assert reduction == "none"

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (output.flatten() - target).square()
