"""Gradients of softmax regression at a party: for each record, or their mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

__all__ = ["gradient_factors", "mean_gradient", "usable_rows"]

Floats = NDArray[np.float64]

_LARGEST = 1e100  # largest absolute feature: products of two do not overflow


def usable_rows(X: NDArray) -> NDArray[np.bool_]:
    """Return which rows are finite and not huge; the other rows count as zero."""
    fine: NDArray[np.bool_] = (np.abs(X) <= _LARGEST).all(axis=1)  # False for NaN
    return fine


def residuals(scores: Floats, codes: NDArray[np.int64]) -> Floats:
    """Return predicted probabilities minus indicators of the true class; one column for two."""
    rest: Floats
    if scores.shape[1] == 1:
        return expit(scores) - codes[:, None]
    rest = softmax(scores, axis=1)
    rest[np.arange(len(codes)), codes] -= 1.0
    return rest


def gradient_factors(
    weights: Floats, X: NDArray, codes: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return the errors and the inputs of each record; its gradient is their outer product.

    **Guarantees.** A record's rows depend only on the record and ``weights``, to the last bit: each
    score is a separate sum, whereas a matrix product would order sums by the number of records.
    Records that are not :func:`usable_rows` have an error of 0.
    """
    fine = usable_rows(X)
    inputs = np.ones((len(X), X.shape[1] + 1))
    inputs[:, :-1] = np.where(fine[:, None], X, 0.0)
    scores = (inputs[:, None, :] * weights).sum(axis=2)
    return residuals(scores, codes) * fine[:, None], inputs


def mean_gradient(weights: Floats, X: NDArray, codes: NDArray[np.int64]) -> Floats:
    """Return the mean gradient of usable records, in the shape of ``weights``; 0 without any."""
    if not len(X):
        return np.zeros_like(weights)
    scores = X @ weights[:, :-1].T + weights[:, -1]
    errors = residuals(scores, codes) / len(X)
    return np.column_stack([errors.T @ X, errors.sum(axis=0)])
