"""Records in the gradient of a first linear layer: that of a weight over that of its bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._loss_gradients import LossGradients

__all__ = ["first_layer", "rows_of_neurons"]

_TOLERANCE = 1e-3  # relative error in single precision, where gradients nearly cancel
_SAME = 1e-3
_ZERO = 1e-5  # of the largest gradient: what is below it is rounding


def first_layer(gradients: LossGradients, n_features: int) -> tuple[str, str]:
    """Return the names of the weight and of the bias of the layer that takes the records.

    Raises
    ------
    ValueError
        If the first layer is not linear, has no bias, or takes something else.
    """
    trained = gradients.weights
    for name, layer in gradients.module.named_modules():
        if not any(True for _ in layer.parameters(False)):
            continue
        weight, bias = (f"{name}.{part}".lstrip(".") for part in ("weight", "bias"))
        if not isinstance(layer, nn.Linear):
            raise ValueError(
                f"The target's first layer with weights, {name!r}, is a {type(layer).__name__}; "
                "expected a Linear one. Use GradientInversion."
            )
        if bias not in trained or weight not in trained:
            raise ValueError(
                f"The target's first layer {name!r} has no bias that is trained, by whose gradient "
                "that of the weights would be divided. Use GradientInversion."
            )
        if layer.in_features != n_features:
            raise ValueError(
                f"The target's first layer takes {layer.in_features} numbers; records have "
                f"{n_features}."
            )
        return weight, bias
    raise ValueError("The target has no layer with weights.")


def rows_of_neurons(
    gradients: LossGradients, observed: Tensor, n_records: int, n_features: int, labels: Tensor
) -> Tensor:
    """Return the different records that alone activate a neuron, of shape (n_found, n_features).

    The gradient of a neuron's weights is the sum over records of a factor times the record, that
    of its bias the sum of the factors. If one record activates the neuron, the quotient is that
    record. Such a record, put through the network with one of the ``labels``, gives the observed
    gradient of that neuron, which a mixture of several does not. What is found is subtracted with
    all its gradient, after which other records may be alone.

    **Guarantees.** Only what reproduces a neuron's gradient is returned, the best founded first.

    **Edge cases.** Neurons without a gradient say nothing. Noise leaves nothing to return.
    """
    layer = first_layer(gradients, n_features)
    rest, found = observed.clone(), observed.new_empty((0, n_features))
    floor = _ZERO * gradients.parts(observed)[layer[1]].abs().max()
    while len(found) < n_records:
        rows, label = _alone(gradients, layer, rest, float(floor), n_records, labels)
        new = _different(rows, found, n_records)
        if not new:
            break
        found = torch.cat([found, rows[new]])
        rest = rest - gradients.per_record(rows[new], label[new]).sum(0) / n_records
    return found


def _alone(
    gradients: LossGradients,
    layer: tuple[str, str],
    rest: Tensor,
    floor: float,
    n_records: int,
    labels: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return quotients that reproduce their neuron, and with which label; the surest first."""
    weight, bias = layer
    parts = gradients.parts(rest)
    neurons = (parts[bias].abs() > floor).nonzero()[:, 0]
    by_bias = parts[bias][neurons]
    rows = parts[weight][neurons] / by_bias[:, None]
    error = torch.full((len(rows),), torch.inf, dtype=rows.dtype)
    which = labels[0].repeat(len(rows))
    for label in labels:
        tried = _at_neurons(gradients, bias, rows, label, neurons) / n_records
        off = (tried / by_bias - 1).abs()
        which = torch.where(off < error, label, which)
        error = torch.minimum(error, off)
    sure = error.argsort()[: int((error < _TOLERANCE).sum())]
    return rows[sure], which[sure]


def _at_neurons(
    gradients: LossGradients, bias: str, rows: Tensor, label: Tensor, neurons: Tensor
) -> Tensor:
    """Return the gradient of each row at the bias of its neuron."""
    found = []
    for part, own in zip(rows.split(64), neurons.split(64), strict=True):
        each = gradients.parts(gradients.per_record(part, label.expand(len(part))))[bias]
        found.append(each[torch.arange(len(part)), own])
    return torch.cat(found) if found else rows[:, 0]


def _different(rows: Tensor, found: Tensor, most: int) -> list[int]:
    """Return which rows are not found yet and repeat no other; at most so many in all."""
    new: list[int] = []
    for i, row in enumerate(rows):
        known = torch.cat([found, rows[new]])
        near = _SAME * row.abs().max().clamp(min=1e-12)
        if len(known) < most and not ((known - row).abs().amax(1) < near).any():
            new.append(i)
    return new
