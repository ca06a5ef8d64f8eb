"""Check whether clones of an estimator can be trained in threads of one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

__all__ = ["trains_in_threads"]

# Parts of scikit-learn whose fits release Python's lock most of the time and share no state.
# Support vector machines share state: libsvm and liblinear draw from one global generator.
_PARTS = (
    "calibration",
    "compose",
    "ensemble",
    "impute",
    "linear_model",
    "multiclass",
    "multioutput",
    "pipeline",
    "preprocessing",
    "tree",
)
_USES_ALL_CORES = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)


def trains_in_threads(estimator: Any) -> bool:
    """Return whether training clones of an estimator in threads is safe and worthwhile.

    **Guarantees.** True only for scikit-learn's estimators, nested ones included, whose parameters
    are plain values. Subclasses, functions and third-party objects may not be thread-safe.

    **Edge cases.** False for estimators that train on several cores by themselves.
    """
    if not _is_of_sklearn(estimator):
        return False
    params = estimator.get_params(deep=False)
    if params.get("n_jobs") not in (None, 1) or params.get("solver") == "liblinear":
        return False
    return all(map(_is_safe, params.values()))


def _is_of_sklearn(estimator: Any) -> bool:
    home = type(estimator).__module__.split(".")
    known = home[0] == "sklearn" and len(home) > 1 and home[1] in _PARTS
    return known and not isinstance(estimator, _USES_ALL_CORES)


def _is_safe(value: Any) -> bool:
    if isinstance(value, BaseEstimator):
        return trains_in_threads(value)
    if isinstance(value, (list, tuple)):
        return all(map(_is_safe, value))
    if isinstance(value, Mapping):
        return all(map(_is_safe, value.values()))
    plain = (type(None), bool, int, float, str, np.generic, np.ndarray, np.random.RandomState, type)
    return isinstance(value, (*plain, slice))
