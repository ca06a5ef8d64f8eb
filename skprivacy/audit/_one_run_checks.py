"""Checks of the arguments of a one-run audit, before any training."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from sklearn.base import is_classifier

from .._data_validation import check_consistent_length
from .._sklearn import num_samples
from .._validation import is_whole
from ._error_probability import check_alpha
from ._gradient_canaries import check_gradient_canaries
from ._private import holds_private_labels

__all__ = ["check_one_run"]

_FEWEST = 20


def check_one_run(
    estimator: Any, X: Any, y: NDArray[Any], n_canaries: Any, canaries: Any, n_guesses: Any,
    score: Any, alpha: Any, random_state: Any,
) -> None:  # fmt: skip
    """Raise TypeError or ValueError for arguments that an audit of one run cannot use."""
    if not hasattr(estimator, "fit"):
        raise TypeError(f"estimator={estimator!r} must be an estimator with fit.")
    if holds_private_labels(estimator):
        raise ValueError(
            f"estimator={type(estimator).__name__} protects labels alone, so canary records show "
            "nothing. Use audit, which flips labels by coins."
        )
    check_consistent_length(X, y)
    if isinstance(canaries, str):
        _check_gradients(estimator, X, n_canaries, canaries, score)
    else:
        _check_records(estimator, X, y, n_canaries, canaries, score)
    if n_guesses is not None and not (is_whole(n_guesses) and 1 <= n_guesses <= n_canaries):
        raise ValueError(
            f"n_guesses={n_guesses!r} must be a whole number from 1 to n_canaries={n_canaries}, "
            "or None for the number that suits the claim."
        )
    check_alpha(alpha)
    if random_state is not None and not is_whole(random_state):
        raise ValueError(
            f"random_state={random_state!r} must be a whole number, or None for fresh coins."
        )


def _check_gradients(estimator: Any, X: Any, n_canaries: Any, canaries: str, score: Any) -> None:
    if canaries != "gradient":
        raise ValueError(
            f"canaries={canaries!r} must be 'gradient', a tuple (X_canaries, y_canaries), or None "
            "for records with wrong labels."
        )
    if score is not None:
        raise ValueError(
            f"score={score!r} scores records, but canaries='gradient' are scored by the noisy sums "
            "of all steps. Leave score out."
        )
    if not is_whole(n_canaries) or n_canaries < _FEWEST:
        raise ValueError(f"n_canaries={n_canaries!r} must be a whole number, at least {_FEWEST}.")
    check_gradient_canaries(estimator, X)


def _check_records(
    estimator: Any, X: Any, y: NDArray[Any], n_canaries: Any, canaries: Any, score: Any
) -> None:
    if not is_classifier(estimator) and (score is None or canaries is None):
        raise TypeError(
            f"estimator={type(estimator).__name__} must be a classifier, for canaries with wrong "
            "labels. Pass canaries=(X_canaries, y_canaries) and score, or a classifier."
        )
    if y.ndim != 1:
        raise ValueError(f"y must have one label for each record; got shape {y.shape}.")
    most = num_samples(X) // 2
    if not is_whole(n_canaries) or not _FEWEST <= n_canaries <= most:
        raise ValueError(
            f"n_canaries={n_canaries!r} must be a whole number from {_FEWEST} to half the number "
            f"of records, {most}. Pass fewer canaries or more records."
        )
    if canaries is not None and not (
        isinstance(canaries, tuple)
        and len(canaries) == 2
        and num_samples(canaries[0]) == num_samples(canaries[1]) == n_canaries
    ):
        raise ValueError(
            f"canaries must be (X_canaries, y_canaries) with n_canaries={n_canaries} records. Pass "
            "as many as n_canaries."
        )
