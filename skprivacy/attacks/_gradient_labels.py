"""Labels in the gradient of the last layer's bias: one label exactly, of a batch their counts."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor, nn

from ._loss_gradients import LossGradients

__all__ = ["label_counts"]

Float64Array = NDArray[np.float64]


def label_counts(
    gradients: LossGradients, observed: Tensor, n_records: int, reference: Tensor, n_classes: int
) -> NDArray[np.intp]:
    """Return how many records of each class a batch had, of shape (n_classes,), summing to n.

    Of one record, the gradient of a logit is its probability, minus 1 for the class (iDLG). Of a
    batch it is the mean of these, which depends on the features little: it is solved for the
    shares of classes, as if records were those of the ``reference`` with every label in turn. They
    are clipped as the party's are.

    **Guarantees.** The label of one record is exact if its gradient has no noise.

    **Edge cases.** One logit, the log-odds of class 1, has a gradient of that class's sign.
    """
    bias = _last_bias(gradients)
    at_logits = gradients.parts(observed)[bias].double().numpy()
    if n_records == 1:
        label = int(at_logits[0] < 0) if len(at_logits) == 1 else int(at_logits.argmin())
        return np.bincount([label], minlength=n_classes)
    expected = np.column_stack(
        [
            gradients.parts(gradients.per_record(reference, _all(label, reference)))[bias]
            .double()
            .mean(0)
            .numpy()
            for label in range(n_classes)
        ]
    )
    # Shares sum to one, a line as heavy as all logits together.
    heavy = np.sqrt(len(at_logits)) * max(float(np.abs(expected).max()), 1e-12)
    shares = nnls(np.vstack([expected, np.full(n_classes, heavy)]), np.append(at_logits, heavy))[0]
    return _rounded(shares, n_records)


def _all(label: int, reference: Tensor) -> Tensor:
    return torch.full((len(reference),), label)


def _rounded(shares: Float64Array, n: int) -> NDArray[np.intp]:
    """Return whole numbers near n times the shares that sum to n, by largest remainders."""
    exact = (
        shares * (n / shares.sum()) if shares.sum() > 0 else np.full(len(shares), n / len(shares))
    )
    counts = np.floor(exact).astype(np.intp)
    counts[np.argsort(counts - exact)[: n - counts.sum()]] += 1
    return counts


def _last_bias(gradients: LossGradients) -> str:
    layers = [
        (name, layer)
        for name, layer in gradients.module.named_modules()
        if any(True for _ in layer.parameters(False))
    ]
    name, layer = layers[-1]
    bias = f"{name}.bias".lstrip(".")
    if not isinstance(layer, nn.Linear) or bias not in gradients.weights:
        raise ValueError(
            f"The target's last layer, {name!r}, is no Linear one with a bias that is "
            "trained, from whose gradient labels are read. Pass labels."
        )
    return bias
