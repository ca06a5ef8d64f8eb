"""Stacked training on a torch device, with as many networks at once as its memory holds.

torch is imported when needed: training on the CPU works without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier

from .._validation import label_columns
from .mlp import MLPTask
from .perceptrons import Float32Array

if TYPE_CHECKING:
    from .training import Prepared, StackedMember

__all__ = ["resolve_device", "train_isolated_networks", "train_on_device"]

# Devices on which ``dpsgd`` and ``mlp`` train, and the numbers that a device of unknown memory may
# hold.
_PROCESSORS = {"cpu"}
_DEFAULT_FREE_NUMBERS = 1 << 28


def resolve_device(device: str) -> str | None:
    """Return the torch device to train on; None for the CPU, ValueError if it is not usable."""
    if device in _PROCESSORS:
        return None
    from ..neural_network._training.environment import usable_device

    device = usable_device(device)
    return None if device in _PROCESSORS else device


def train_on_device(
    prepared: Iterator[Prepared], device: str
) -> Iterator[tuple[int, StackedMember]]:
    """Yield models with their indices, trained on a device in groups that fit its memory."""
    import torch

    from ..neural_network._training.environment import ordinary_torch
    from . import device_dpsgd, device_mlp

    for group in _groups_within_memory(prepared, _free_numbers(device)):
        tasks: list[Any] = [model.task for model in group]
        kind: Any = device_mlp.train_mlps if isinstance(tasks[0], MLPTask) else None
        with ordinary_torch(device), torch.no_grad(), np.errstate(all="ignore"):
            trained = (kind or device_dpsgd.train_private)(tasks, device)
        for model, layers in zip(group, trained, strict=True):
            yield model.position, model.member(layers)


def _free_numbers(device: str) -> int:
    """Return how many numbers may be on a device: a quarter of its free memory."""
    import torch

    if torch.device(device).type != "cuda":
        return _DEFAULT_FREE_NUMBERS
    free, _ = torch.cuda.mem_get_info(device)
    return int(free // 16)


def _groups_within_memory(prepared: Iterator[Prepared], room: int) -> Iterator[list[Prepared]]:
    """Yield groups of models of one kind within ``room`` numbers, or single models."""
    groups: dict[Hashable, list[Prepared]] = {}
    for model in prepared:
        group = groups.setdefault(model.task.kind, [])
        if group and _numbers([*group, model]) > room:
            yield list(group)
            group.clear()
        group.append(model)
    yield from groups.values()


def _numbers(group: list[Prepared]) -> int:
    sources = {id(model.task.source): model.task.source.size for model in group}
    return sum(model.task.numbers for model in group) + sum(sources.values())


def train_isolated_networks(
    estimator: MLPClassifier,
    parts: Sequence[tuple[Any, NDArray[Any]]],
    n_features: int,
    classes: NDArray[Any],
    seeds: Sequence[int] | NDArray[np.int64],
    device: str,
) -> list[StackedMember | None]:
    """Train a plain ``MLPClassifier`` on each part (records, labels), all at once on a device.

    The networks have an output for each of the sorted ``classes``. None stands for a part that
    :func:`train_alone` would refuse.

    **Guarantees.** Those of :func:`train_alone`: a network is a function of its own part, to the
    last bit.
    """
    import torch

    from ..neural_network._training.environment import ordinary_torch
    from . import apart
    from .training import StackedMember

    net = clone(estimator)
    net._validate_params()
    records = [_records_of(X, y, n_features, classes) for X, y in parts]
    with ordinary_torch(device), torch.no_grad(), np.errstate(all="ignore"):
        trained = apart.train_isolated(net, records, n_features, classes, seeds, device)
    return [
        StackedMember(classes, layers, net.activation)
        if layers is not None and all(np.isfinite(v).all() for layer in layers for v in layer)
        else None
        for layers in trained
    ]


def _records_of(
    X: Any, y: NDArray[Any], n_features: int, classes: NDArray[Any]
) -> Float32Array | None:
    """Return records in the form of the networks, or None if they are invalid."""
    from .training import as_dense_records

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            records = as_dense_records(X, y, label_columns(y, classes))
    except ValueError:  # caused by a private record, so the error must not be shown
        return None
    return records if records.shape[1] == n_features + 2 else None
