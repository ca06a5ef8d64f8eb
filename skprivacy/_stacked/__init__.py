"""Training of many small neural networks at once, such as shadow models.

Read ``perceptrons.py`` (a stack of networks in numpy), ``mlp.py`` and ``dpsgd.py`` (the two
training algorithms), then ``training.py`` (distribution over processes). ``tensors.py``,
``device_*.py`` and ``devices.py`` are their versions for torch devices; ``apart.py`` isolates the
networks.
"""

from .scheduling import (
    StackedMember,
    is_mlp,
    is_stackable,
    resolve_device,
    train_alone,
    train_isolated_networks,
    train_stacked,
)

__all__ = [
    "StackedMember",
    "is_mlp",
    "is_stackable",
    "resolve_device",
    "train_alone",
    "train_isolated_networks",
    "train_stacked",
]
