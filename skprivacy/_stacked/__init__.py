"""Many small neural networks trained at once: shadow models, and whatever comes in hundreds."""

from .training import StackedMember, is_stackable, train_stacked

__all__ = ["StackedMember", "is_stackable", "train_stacked"]
