"""Train many small neural networks at once, such as shadow models."""

from .training import StackedMember, is_stackable, train_stacked

__all__ = ["StackedMember", "is_stackable", "train_stacked"]
