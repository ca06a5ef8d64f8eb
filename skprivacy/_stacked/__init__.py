"""Train many small neural networks at once, such as shadow models."""

from .training import (
    StackedMember,
    is_mlp,
    is_stackable,
    train_alone,
    train_apart,
    train_stacked,
    usable,
)

__all__ = [
    "StackedMember",
    "is_mlp",
    "is_stackable",
    "train_alone",
    "train_apart",
    "train_stacked",
    "usable",
]
