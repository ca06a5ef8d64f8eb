"""Training of many small neural networks at once, such as shadow models.

Read ``perceptrons.py`` (a stack of networks in numpy), ``mlp.py`` and ``dpsgd.py`` (the two
training algorithms), then ``training.py`` (distribution over processes). ``tensors.py``,
``device_*.py`` and ``devices.py`` are their versions for torch devices; ``apart.py`` isolates the
networks.

Files, in reading order:

- ``perceptrons``: stack of networks in numpy
- ``tensors``: the same as tensors
- ``stacked_mlp``: the recipe of MLPClassifier; also networks that must not reach one another
- ``stacked_dpsgd``: the recipe of DP-SGD
- ``scheduling``: train_stacked, train_alone: models to processes or a device
- ``device_dpsgd``: DP-SGD for several networks side by side on a torch device; the noise is drawn
  there
- ``device_mlp``: Training of MLPClassifier for several networks on a torch device, as ``mlp`` up
  to rounding
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
