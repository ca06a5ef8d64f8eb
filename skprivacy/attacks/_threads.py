"""Which estimators train at the same time in threads of one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

__all__ = ["trains_in_threads"]

# Those parts of scikit-learn whose fits release Python's lock for most of their time, and have
# nothing in common. Support vector machines have: libsvm and liblinear draw from one generator.
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
_BY_THEMSELVES = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)  # on all cores


def trains_in_threads(estimator: Any) -> bool:
    """Return whether clones of an estimator can be, and are worth being, trained in threads.

    **Guarantees.** True only for estimators of scikit-learn all the way down whose parameters are
    plain values: a subclass, a function or an object of somebody else's may not be safe in threads.

    **Edge cases.** False for what trains on several cores by itself.
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
    return known and not isinstance(estimator, _BY_THEMSELVES)


def _is_safe(value: Any) -> bool:
    if isinstance(value, BaseEstimator):
        return trains_in_threads(value)
    if isinstance(value, (list, tuple)):
        return all(map(_is_safe, value))
    if isinstance(value, Mapping):
        return all(map(_is_safe, value.values()))
    plain = (type(None), bool, int, float, str, np.generic, np.ndarray, np.random.RandomState, type)
    return isinstance(value, (*plain, slice))
