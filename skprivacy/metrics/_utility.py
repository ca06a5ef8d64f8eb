"""What protection costs in accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import as_array, check_one_type

__all__ = ["UtilityLoss", "utility_loss"]


@dataclass(frozen=True)
class UtilityLoss:
    """Accuracy that protection costs; returned by :func:`utility_loss`.

    Attributes
    ----------
    loss : float
        Accuracy without protection less that with it; negative if protection has gained.
    relative : float
        The loss as a share of the accuracy without protection; NaN if that is 0.
    standard_error : float
        Of the loss, for new test records and, if there are several draws of noise, for new draws.
    """

    loss: float
    relative: float
    standard_error: float


def utility_loss(y_true: ArrayLike, unprotected: ArrayLike, protected: ArrayLike) -> UtilityLoss:
    """Return how much accuracy protection costs, on records that no model was trained on.

    The utility loss of Yang, Gohari and Topcu compares one model before and after noise was added
    to it. Noise makes it random: pass the predictions of several draws for its mean.

    Parameters
    ----------
    y_true : array-like of shape (n_records,)
        The right labels.
    unprotected : array-like of shape (n_records,)
        Labels predicted without protection.
    protected : array-like of shape (n_records,) or (n_draws, n_records)
        Labels predicted with protection, for each draw of the noise.

    Returns
    -------
    UtilityLoss
        The difference, and its standard error.

    Raises
    ------
    ValueError
        If the arrays do not have one label a record.

    References
    ----------
    Y. Yang, P. Gohari, U. Topcu, "Additive logistic mechanism for privacy-preserving
    self-supervised learning", 2022.

    Examples
    --------
    >>> from skprivacy.metrics import utility_loss
    >>> found = utility_loss([0, 1, 1, 0], [0, 1, 1, 1], [[0, 1, 0, 1], [1, 1, 0, 1]])
    >>> found.loss, found.relative
    (0.375, 0.5)
    """
    truth, before = _read("y_true", y_true), _read("unprotected", unprotected)
    after = np.atleast_2d(_read("protected", protected))
    if truth.ndim != 1 or not len(truth):
        raise ValueError(f"y_true has shape {truth.shape}; expected one label for each record.")
    if before.shape != truth.shape:
        raise ValueError(
            f"unprotected has shape {before.shape}; expected a label for each of the {len(truth)} "
            "records of y_true."
        )
    if after.ndim != 2 or after.shape[1] != len(truth) or not len(after):
        raise ValueError(
            f"protected has shape {np.shape(protected)}; expected a label for each of the "
            f"{len(truth)} records of y_true, for one draw of noise or in a row for each draw."
        )
    lost = (before == truth).astype(float) - (after == truth)
    loss, accuracy = float(lost.mean()), float((before == truth).mean())
    variance = _variance_of_mean(lost.mean(axis=0)) + _variance_of_mean(lost.mean(axis=1))
    return UtilityLoss(loss, loss / accuracy if accuracy else math.nan, math.sqrt(variance))


def _read(name: str, labels: Any) -> np.ndarray:
    found = as_array(name, labels)
    if found.dtype.kind == "O":
        check_one_type(name, found)  # some objects cannot even be compared
    return found


def _variance_of_mean(values: np.ndarray) -> float:
    return float(values.var(ddof=1) / len(values)) if len(values) > 1 else 0.0
