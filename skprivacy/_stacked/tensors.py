"""TensorStack: several perceptrons of one shape side by side on a torch device.

The same networks as in ``perceptrons``, as tensors. No step synchronises with the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from .perceptrons import Float32Array, Layers, flatten_layers, layer_views

_ATEN = torch.ops.aten
# Each activation in place, and the product of a gradient with its slope, given the activation.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "identity": (lambda z: z, lambda g, value: g),
    "logistic": (torch.sigmoid_, _ATEN.sigmoid_backward),
    "tanh": (torch.tanh_, _ATEN.tanh_backward),
    "relu": (torch.relu_, lambda g, value: _ATEN.threshold_backward(g, value, 0)),
}


class TensorStack:
    """Networks of one shape, with all their weights in one matrix on a device."""

    def __init__(self, start: Sequence[Layers], activation: str, device: str) -> None:
        self.activation = activation
        self.sizes, flat = flatten_layers(start)
        self.weights = torch.from_numpy(flat).to(device)
        self.gradient = torch.zeros_like(self.weights)
        self.layers = layer_views(self.weights, self.sizes)
        self.gradients = layer_views(self.gradient, self.sizes)

    def forward(self, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return each layer's input, shape (n_networks, batch, n_in), and the logits."""
        seen, (activate, _) = [inputs], _ACTIVATIONS[self.activation]
        for both in self.layers[:-1]:
            seen.append(activate(torch.baddbmm(both[:, -1:], seen[-1], both[:, :-1])))
        last = self.layers[-1]
        return seen, torch.baddbmm(last[:, -1:], seen[-1], last[:, :-1])

    def backward(self, seen: list[Tensor], error: Tensor) -> list[Tensor]:
        """Return the loss gradient at the output of each layer, given the last one."""
        errors, (_, times_slope) = [error], _ACTIVATIONS[self.activation]
        for both, value in zip(self.layers[:0:-1], seen[:0:-1], strict=True):
            errors.insert(0, times_slope(torch.bmm(errors[0], both[:, :-1].mT), value))
        return errors

    def sum_gradients(self, seen: list[Tensor], errors: list[Tensor]) -> None:
        """Fill ``gradient`` with the sum over the batch."""
        for value, error, both in zip(seen, errors, self.gradients, strict=True):
            both[:, :-1] = torch.bmm(value.mT, error)
            both[:, -1] = error.sum(1)

    def networks(self, flat: Tensor | None = None) -> list[Layers]:
        """Return a copy of each network's layers, with weights from ``flat`` if given."""
        here = (self.weights if flat is None else flat).cpu()
        views = [view.numpy() for view in layer_views(here, self.sizes)]
        return [
            [(both[i, :-1].copy(), both[i, -1].copy()) for both in views] for i in range(len(here))
        ]


def gather_records(records: Sequence[Float32Array], device: str) -> tuple[Tensor, list[int]]:
    """Return records on a device after a blank row 0, and the first row of each network's records.

    Records that several networks share are in the table once.
    """
    first: dict[int, int] = {}
    parts, size = [np.zeros((1, records[0].shape[1]), np.float32)], 1
    for rows in records:
        if id(rows) not in first:
            first[id(rows)] = size
            parts.append(rows)
            size += len(rows)
    table = torch.empty((size, records[0].shape[1]), device=device)
    for part, end in zip(parts, np.cumsum([len(part) for part in parts]), strict=True):
        table[end - len(part) : end] = torch.from_numpy(part)
    return table, [first[id(rows)] for rows in records]


def logistic_error(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the cross-entropy at logits of shape (..., 1), and the losses."""
    z = logits[..., 0]
    losses = (-z.abs()).exp().log1p() + z.clamp(min=0.0) - z * label
    return (z.sigmoid() - label)[..., None], losses


def softmax_error(logits: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the cross-entropy at logits (..., n_classes), and the losses."""
    error = torch.softmax(logits, -1)
    place = label.long()[..., None]
    chosen = error.gather(-1, place)
    losses = -chosen[..., 0].clamp(min=torch.finfo(torch.float32).tiny).log()
    return error.scatter_(-1, place, chosen - 1.0), losses
