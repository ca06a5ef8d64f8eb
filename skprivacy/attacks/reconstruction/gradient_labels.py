"""Label inference from the gradient of the last layer's bias: iDLG, and counts for batches."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor, nn

from ..torch_gradients import LossGradients

__all__ = ["label_counts"]

Float64Array = NDArray[np.float64]


def label_counts(
    gradients: LossGradients, observed: Tensor, n_records: int, reference: Tensor, n_classes: int
) -> NDArray[np.intp]:
    """Return the number of records of each class in a batch, (n_classes,), summing to n.

    For one record, the gradient of a logit is its probability, minus 1 for the true class (iDLG).
    For a batch it is the mean of these gradients, which depends little on the features. It is
    solved for the shares of classes, with the ``reference`` records under each label in turn, and
    their gradients clipped as the party's are.

    **Guarantees.** The label of one record is exact if its gradient has no noise.

    **Edge cases.** A single logit, the log-odds of class 1, has a negative gradient for class 1.
    """
    bias = _name_last_bias(gradients)
    at_logits = gradients.parts(observed)[bias].double().numpy()
    if n_records == 1:
        # Zhao et al. 2020 (iDLG): the true label is the one logit with a negative gradient
        label = int(at_logits[0] < 0) if len(at_logits) == 1 else int(at_logits.argmin())
        return np.bincount([label], minlength=n_classes)
    expected = np.column_stack(
        [
            gradients.parts(gradients.per_record(reference, _constant_labels(label, reference)))[
                bias
            ]
            .double()
            .mean(0)
            .numpy()
            for label in range(n_classes)
        ]
    )
    # a further equation, that shares sum to one, with the weight of all logits together
    heavy = np.sqrt(len(at_logits)) * max(float(np.abs(expected).max()), 1e-12)
    shares = nnls(np.vstack([expected, np.full(n_classes, heavy)]), np.append(at_logits, heavy))[0]
    return _round_counts(shares, n_records)


def _constant_labels(label: int, reference: Tensor) -> Tensor:
    return torch.full((len(reference),), label)


def _round_counts(shares: Float64Array, n: int) -> NDArray[np.intp]:
    """Round n times the shares to whole numbers that sum to n, by largest remainders."""
    exact = (
        shares * (n / shares.sum()) if shares.sum() > 0 else np.full(len(shares), n / len(shares))
    )
    counts = np.floor(exact).astype(np.intp)
    counts[np.argsort(counts - exact)[: n - counts.sum()]] += 1
    return counts


def _name_last_bias(gradients: LossGradients) -> str:
    layers = [
        (name, layer)
        for name, layer in gradients.module.named_modules()
        if any(True for _ in layer.parameters(False))
    ]
    name, layer = layers[-1]
    bias = f"{name}.bias".lstrip(".")
    if not isinstance(layer, nn.Linear) or bias not in gradients.weights:
        raise ValueError(
            f"The target's last layer {name!r} must be Linear with a trained bias, whose gradient "
            "reveals the labels. Pass labels instead."
        )
    return bias
