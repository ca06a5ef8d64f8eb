"""Facts that a private fit treats as public: classes, and bounds of features and of targets.

They are parameters. A fact that is not given is read off the data, which is a leak: it raises a
warning, or an error if strict, and becomes an assumption of the guarantee.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._data_validation import check_classification_targets
from ._validation import check_one_type
from .base import PrivateFit
from .mechanisms.bounds import check_bounds

__all__ = ["public_bounds", "public_classes", "public_target_bounds"]


def public_classes(
    fit: PrivateFit, y: NDArray, given: ArrayLike | None
) -> tuple[NDArray, NDArray[np.int64]]:
    """Return the sorted classes, and the labels as indices into them.

    Parameters
    ----------
    fit : PrivateFit
        The fit that is under way.
    y : ndarray of shape (n_samples,)
        Private labels.
    given : array-like of shape (n_classes,) or None
        The parameter ``classes``.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
        The classes, sorted.
    codes : ndarray of shape (n_samples,)
        Indices into them.

    Raises
    ------
    ValueError
        If there are fewer than two classes, or ``y`` holds others; the message does not name them.
    TypeError
        If ``given`` holds classes that have no order.
    """
    if given is None:
        check_classification_targets(y)
        fit.read_off_data(
            "classes=None: the labels are read off y, which reveals whether a rare class occurs. "
            "Pass classes=[...] with all labels that are publicly possible.",
            "the set of class labels is public (it was read off y)",
        )
    if given is not None:
        check_one_type("classes", given)
    classes = np.unique(np.asarray(y if given is None else given))
    if len(classes) < 2:
        raise ValueError(
            f"classes={classes.tolist()!r}: {fit.who} needs at least two classes, got "
            f"{len(classes)} class. Pass classes=[...] with all possible labels."
        )
    if not np.isin(y, classes).all():
        raise ValueError(
            f"y holds labels that are not in classes={classes.tolist()!r}. They are not named here "
            "because labels are private: compare numpy.unique(y) with classes. Add the missing "
            "labels to classes, or drop those records."
        )
    return classes, np.searchsorted(classes, y)


def public_bounds(
    fit: PrivateFit, X: NDArray, given: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and the upper bound of each feature.

    Parameters
    ----------
    fit : PrivateFit
        The fit that is under way.
    X : ndarray of shape (n_samples, n_features)
        Private records; NaN and infinity are allowed.
    given : tuple (lower, upper) or None
        The parameter ``bounds``.

    Returns
    -------
    lower : ndarray of shape (n_features,)
        In the units of the features.
    upper : ndarray of shape (n_features,)
        In the units of the features.

    Raises
    ------
    ValueError
        If ``given`` is not a pair of bounds for this number of features.
    """
    if given is not None:
        lower, upper = check_bounds("bounds", given, X.shape[1])
        return np.array(lower), np.array(upper)
    fit.read_off_data(
        "bounds=None: the bounds of the features are read off X. Pass bounds=(lower, upper), "
        "numbers or one per feature, from public knowledge.",
        "the bounds of the features are public (they were read off X)",
    )
    finite = np.where(np.isfinite(X), X, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any number
        lower, upper = np.nanmin(finite, axis=0), np.nanmax(finite, axis=0)
    return np.nan_to_num(lower), np.nan_to_num(upper)


def public_target_bounds(fit: PrivateFit, y: NDArray, given: Any) -> tuple[float, float]:
    """Return the lower and the upper bound of the target, which are never equal.

    Parameters
    ----------
    fit : PrivateFit
        The fit that is under way.
    y : ndarray of shape (n_samples,)
        Private targets, finite.
    given : tuple (lower, upper) or None
        The parameter ``target_bounds``.

    Returns
    -------
    lower : float
        In the units of the target.
    upper : float
        In the units of the target.

    Raises
    ------
    ValueError
        If ``given`` is not a pair of numbers, the lower one first.
    """
    if given is None:
        fit.read_off_data(
            "target_bounds=None: the bounds of the target are read off y, which reveals its "
            "extremes. Pass target_bounds=(lower, upper) from public knowledge.",
            "the bounds of the target are public (they were read off y)",
        )
        low, high = float(y.min()), float(y.max())
        return (low, high) if low < high else (low - 1.0, high + 1.0)
    lower, upper = check_bounds("target_bounds", given, 1)
    if lower[0] == upper[0]:
        raise ValueError(
            f"target_bounds={given!r} must be a lower bound below an upper one; they are equal, so "
            "there is nothing to learn. Pass the public range of the target."
        )
    return float(lower[0]), float(upper[0])
