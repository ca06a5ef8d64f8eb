"""Records from a first linear layer: the weights' gradient divided by the bias's (Phong 2018)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..torch_gradients import LossGradients

__all__ = ["name_first_layer", "reconstruct_from_neurons"]

_TOLERANCE = 1e-3  # relative error in single precision, where gradients nearly cancel
_SAME = 1e-3  # relative distance below which two rows are the same record
_ZERO = 1e-5  # relative to the largest gradient; smaller ones are rounding errors


def name_first_layer(gradients: LossGradients, n_features: int) -> tuple[str, str]:
    """Return the names of the first layer's weight and bias; ValueError if it is not suitable."""
    trained = gradients.weights
    for name, layer in gradients.module.named_modules():
        if not any(True for _ in layer.parameters(False)):
            continue
        weight, bias = (f"{name}.{part}".lstrip(".") for part in ("weight", "bias"))
        if not isinstance(layer, nn.Linear):
            raise ValueError(
                f"The target's first layer with weights, {name!r}, is a {type(layer).__name__}; "
                "expected Linear. Use GradientInversion."
            )
        if bias not in trained or weight not in trained:
            raise ValueError(
                f"The target's first layer {name!r} must have a trained bias, because the attack "
                "divides by its gradient. Use GradientInversion."
            )
        if layer.in_features != n_features:
            raise ValueError(
                f"The target's first layer takes {layer.in_features} features; X has {n_features}. "
                "Pass records in the target's input format."
            )
        return weight, bias
    raise ValueError("The target has no layer with weights.")


def reconstruct_from_neurons(
    gradients: LossGradients, observed: Tensor, n_records: int, n_features: int, labels: Tensor
) -> Tensor:
    """Return the distinct records that alone activate some neuron, (n_found, n_features).

    The gradient of a neuron's weights is the sum over records of a factor times the record; that of
    its bias is the sum of the factors. If one record activates the neuron, the quotient is this
    record. Such a record, with one of the ``labels``, reproduces the observed gradient of the
    neuron, which a mixture of several records does not. The gradient of a found record is
    subtracted, after which other records may be alone on a neuron.

    **Guarantees.** Every returned record reproduces a neuron's gradient; the best match is first.

    **Edge cases.** Neurons without a gradient are skipped. With noise, no record is returned.
    """
    layer = name_first_layer(gradients, n_features)
    rest, found = observed.clone(), observed.new_empty((0, n_features))
    floor = _ZERO * gradients.parts(observed)[layer[1]].abs().max()
    while len(found) < n_records:
        rows, label = _single_record_quotients(
            gradients, layer, rest, float(floor), n_records, labels
        )
        new = _select_new_rows(rows, found, n_records)
        if not new:
            break
        found = torch.cat([found, rows[new]])
        rest = rest - gradients.per_record(rows[new], label[new]).sum(0) / n_records
    return found


def _single_record_quotients(
    gradients: LossGradients,
    layer: tuple[str, str],
    rest: Tensor,
    floor: float,
    n_records: int,
    labels: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the quotients that reproduce their neuron's gradient, and their labels, best first."""
    weight, bias = layer
    parts = gradients.parts(rest)
    neurons = (parts[bias].abs() > floor).nonzero()[:, 0]
    by_bias = parts[bias][neurons]
    # Phong et al. 2018; Boenisch et al. 2023: weight gradient divided by bias gradient
    rows = parts[weight][neurons] / by_bias[:, None]
    error = torch.full((len(rows),), torch.inf, dtype=rows.dtype)
    which = labels[0].repeat(len(rows))
    for label in labels:
        tried = _gradients_at_neurons(gradients, bias, rows, label, neurons) / n_records
        off = (tried / by_bias - 1).abs()
        which = torch.where(off < error, label, which)
        error = torch.minimum(error, off)
    sure = error.argsort()[: int((error < _TOLERANCE).sum())]
    return rows[sure], which[sure]


def _gradients_at_neurons(
    gradients: LossGradients, bias: str, rows: Tensor, label: Tensor, neurons: Tensor
) -> Tensor:
    """Return the gradient of each row at the bias of its neuron."""
    found = []
    for part, own in zip(rows.split(64), neurons.split(64), strict=True):
        each = gradients.parts(gradients.per_record(part, label.expand(len(part))))[bias]
        found.append(each[torch.arange(len(part)), own])
    return torch.cat(found) if found else rows[:, 0]


def _select_new_rows(rows: Tensor, found: Tensor, most: int) -> list[int]:
    """Return the indices of distinct rows that were not found before, up to ``most`` in total."""
    new: list[int] = []
    for i, row in enumerate(rows):
        known = torch.cat([found, rows[new]])
        near = _SAME * row.abs().max().clamp(min=1e-12)
        if len(known) < most and not ((known - row).abs().amax(1) < near).any():
            new.append(i)
    return new
