"""Training of many small neural networks at once, such as shadow models or the fits of a sweep.

Files, in reading order:

- ``perceptrons``: stack of networks in numpy; Adam and momentum, in numpy or on a torch device
- ``stacked_mlp``: training as :class:`~sklearn.neural_network.MLPClassifier` does
- ``stacked_dpsgd``: training by DP-SGD
- ``scheduling``: distribution over processes or onto a device, as one stack or each alone
- ``device_networks``: both on a torch device, and networks that must not influence each other
- ``joint_fits``: private fits charged one by one, and trained side by side
"""

from .joint_fits import MAX_FITS, PlannedFit, can_wait, fit_together
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
    "MAX_FITS",
    "PlannedFit",
    "StackedMember",
    "can_wait",
    "fit_together",
    "is_mlp",
    "is_stackable",
    "resolve_device",
    "train_alone",
    "train_isolated_networks",
    "train_stacked",
]
