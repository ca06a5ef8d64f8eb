"""Detection of private estimators, at any depth inside an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..accounting import PrivacyGuarantee

__all__ = ["guarantee_in", "holds_private", "holds_private_labels", "looks_private"]


def guarantee_in(estimator: Any) -> PrivacyGuarantee | None:
    """Return the estimator's ``privacy_`` if it is a guarantee, else None."""
    found = getattr(estimator, "privacy_", None)
    return found if isinstance(found, PrivacyGuarantee) else None


def holds_private(value: Any) -> bool:
    """Return whether a value is or contains a private estimator, fitted or not."""
    return _contains(value, set(), _is_private)


def holds_private_labels(value: Any) -> bool:
    """Return whether a value is or contains an estimator of ours that protects labels only."""
    return _contains(value, set(), lambda estimator: getattr(estimator, "_protects_labels", False))


def looks_private(estimator: Any) -> bool:
    """Return whether an estimator has an epsilon that may be a privacy parameter.

    In scikit-learn's estimators, such as SVR and HuberRegressor, epsilon means something else.
    """
    return hasattr(estimator, "epsilon") and not type(estimator).__module__.startswith("sklearn.")


def _is_private(estimator: Any) -> bool:
    ours = type(estimator).__module__.startswith("skprivacy.")
    keeps = "epsilon" in getattr(estimator, "__dict__", {})
    return (ours and keeps) or guarantee_in(estimator) is not None


def _contains(value: Any, seen: set[int], is_it: Callable[[Any], bool]) -> bool:
    if isinstance(value, (list, tuple, set)):
        return any(_contains(item, seen, is_it) for item in value)
    if isinstance(value, dict):
        return any(_contains(item, seen, is_it) for item in value.values())
    if isinstance(value, np.ndarray):
        return value.dtype == object and any(_contains(item, seen, is_it) for item in value.flat)
    if id(value) in seen or isinstance(value, type) or not _is_estimator(value):
        return False
    seen.add(id(value))
    return is_it(value) or _contains(getattr(value, "__dict__", {}), seen, is_it)


def _is_estimator(value: Any) -> bool:
    return any(hasattr(value, name) for name in ("fit", "predict", "predict_proba"))
