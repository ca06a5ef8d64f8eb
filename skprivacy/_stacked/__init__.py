"""Train many small neural networks at once, such as shadow models."""

from .devices import train_apart, usable
from .training import StackedMember, is_mlp, is_stackable, train_alone, train_stacked

__all__ = [
    "StackedMember",
    "is_mlp",
    "is_stackable",
    "train_alone",
    "train_apart",
    "train_stacked",
    "usable",
]
