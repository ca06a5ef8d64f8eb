"""Utility loss: the share of a model's score that protection costs (Yang et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._input_data import check_one_type
from .._validation import as_array

Metric = Callable[[Any, Any], float]
_GROUPS = 50  # of records that the jackknife leaves out in turn; gives the error to 10 %


@dataclass(frozen=True)
class UtilityLoss:
    """Utility loss with its standard error; returned by :func:`utility_loss`.

    Attributes
    ----------
    loss : float
        1 - M(protected) / M(unprotected) for the metric M; negative if protection raised the score.
        NaN if M(unprotected) is not above 0.
    difference : float
        M(unprotected) - M(protected), in units of the metric.
    standard_error : float
        Standard error of the loss, over test records and, if several, draws of noise.
    """

    loss: float
    difference: float
    standard_error: float


def utility_loss(
    y_true: ArrayLike,
    unprotected: ArrayLike,
    protected: ArrayLike,
    *,
    metric: Metric | None = None,
) -> UtilityLoss:
    """Return the utility loss of Yang, Gohari and Topcu (definition 6.1).

    It compares one model before and after noise was added to it. Noise makes the model random: pass
    the predictions of several draws to average their scores. All predictions must be for records
    that no model was trained on.

    Parameters
    ----------
    y_true : array-like of shape (n_records,)
        True labels or targets.
    unprotected : array-like of shape (n_records,)
        Predictions without protection.
    protected : array-like of shape (n_records,) or (n_draws, n_records)
        Predictions with protection, for each draw of the noise.
    metric : callable, default=None
        Takes ``(y_true, y_pred)`` and returns a score for which higher is better, such as
        ``sklearn.metrics.balanced_accuracy_score``. ``None``: accuracy.

    Returns
    -------
    UtilityLoss
        ``loss``, NaN if the unprotected score is not above 0; ``difference`` of the scores; and
        ``standard_error`` of the loss.

    Raises
    ------
    ValueError
        If the arrays do not have one value for each record.

    Notes
    -----
    The standard error due to records comes from a delete-a-group jackknife with up to 50 random
    groups, which evaluates ``metric`` 50 times for each array of predictions.

    References
    ----------
    Y. Yang, P. Gohari, U. Topcu, "Additive logistic mechanism for privacy-preserving
    self-supervised learning", 2022.

    Examples
    --------
    >>> from skprivacy.metrics.utility import utility_loss
    >>> found = utility_loss([0, 1, 1, 0], [0, 1, 1, 1], [[0, 1, 0, 1], [1, 1, 0, 1]])
    >>> found.loss, found.difference
    (0.5, 0.375)
    """
    truth, before = _check_labels("y_true", y_true), _check_labels("unprotected", unprotected)
    after = np.atleast_2d(_check_labels("protected", protected))
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
    if not (metric is None or callable(metric)):
        raise TypeError(f"metric={metric!r} must be a function of y_true and y_pred, or None.")
    score = _accuracy if metric is None else metric
    base, protected_scores = _score_predictions(score, truth, before, after)
    losses = _utility_losses(base, protected_scores)
    left_out = [
        float(
            _utility_losses(
                *_score_predictions(score, truth[kept], before[kept], after[:, kept])
            ).mean()
        )
        for kept in _leave_one_group_out(len(truth))
    ]
    n = len(left_out)  # groups of the jackknife
    variance = (n - 1) * float(np.var(left_out)) if n else 0.0
    variance += float(losses.var(ddof=1) / len(losses)) if len(losses) > 1 else 0.0
    return UtilityLoss(
        float(losses.mean()), base - float(protected_scores.mean()), math.sqrt(variance)
    )


def _check_labels(name: str, labels: Any) -> NDArray[Any]:
    found = as_array(name, labels)
    if found.dtype.kind == "O":
        check_one_type(name, found)  # some objects cannot be compared
    return found


def _accuracy(truth: NDArray[Any], predicted: NDArray[Any]) -> float:
    return float(np.mean(truth == predicted))  # the jackknife calls it often


def _score_predictions(
    score: Metric, truth: NDArray[Any], before: NDArray[Any], after: NDArray[Any]
) -> tuple[float, NDArray[np.float64]]:
    """Return the score without protection, and the score of each draw of the noise."""
    return score(truth, before), np.array([score(truth, draw) for draw in after])


def _utility_losses(base: float, protected_scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the utility loss of each draw."""
    # Yang, Gohari and Topcu 2022, definition 6.1
    return 1.0 - protected_scores / (base if base > 0 else math.nan)


def _leave_one_group_out(n: int) -> Iterator[NDArray[np.intp]]:
    """Yield the remaining records when each of up to 50 random groups is left out."""
    order = np.random.default_rng(0).permutation(n)
    n_groups = min(n, _GROUPS) if n > 1 else 0
    for group in range(n_groups):
        yield np.delete(order, np.s_[group::n_groups])
