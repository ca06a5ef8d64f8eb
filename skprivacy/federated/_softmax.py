"""A linear classifier seen by a party: what its records, one by one or together, would change."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

__all__ = ["gradient_factors", "mean_gradient", "usable_rows"]

Floats = NDArray[np.float64]

_LARGEST = 1e100  # of a feature: no product of such numbers overflows


def usable_rows(X: NDArray) -> NDArray[np.bool_]:
    """Return which rows have finite numbers that may be computed with: the others count as zero."""
    fine: NDArray[np.bool_] = (np.abs(X) <= _LARGEST).all(axis=1)  # false for NaN
    return fine


def residuals(scores: Floats, codes: NDArray[np.int64]) -> Floats:
    """Return the predicted probabilities less the truth: one number for two classes."""
    rest: Floats
    if scores.shape[1] == 1:
        return expit(scores) - codes[:, None]
    rest = softmax(scores, axis=1)
    rest[np.arange(len(codes)), codes] -= 1.0
    return rest


def gradient_factors(
    weights: Floats, X: NDArray, codes: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Return the two factors of the gradient of each record.

    **Guarantees.** A record's rows depend on nothing but itself and ``weights``, to the last bit:
    each score is a sum of its own, which a kernel of matrix products would order by how many
    records there are. Rows that are not :func:`usable_rows` have an error of 0.
    """
    fine = usable_rows(X)
    inputs = np.ones((len(X), X.shape[1] + 1))
    inputs[:, :-1] = np.where(fine[:, None], X, 0.0)
    scores = (inputs[:, None, :] * weights).sum(axis=2)
    return residuals(scores, codes) * fine[:, None], inputs


def mean_gradient(weights: Floats, X: NDArray, codes: NDArray[np.int64]) -> Floats:
    """Return the mean gradient of usable records, shape as ``weights``; 0 if there are none."""
    if not len(X):
        return np.zeros_like(weights)
    scores = X @ weights[:, :-1].T + weights[:, -1]
    errors = residuals(scores, codes) / len(X)
    return np.column_stack([errors.T @ X, errors.sum(axis=0)])
