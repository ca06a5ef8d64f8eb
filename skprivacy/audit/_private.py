"""Detection of private estimators, at any depth inside an object."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..accounting import PrivacyGuarantee

__all__ = ["guarantee_in", "holds_private"]


def guarantee_in(estimator: Any) -> PrivacyGuarantee | None:
    """Return the estimator's ``privacy_`` if it is a guarantee, else None."""
    found = getattr(estimator, "privacy_", None)
    return found if isinstance(found, PrivacyGuarantee) else None


def holds_private(value: Any) -> bool:
    """Return whether a value is or contains a private estimator, fitted or not."""
    return _found(value, set())


def _found(value: Any, seen: set[int]) -> bool:
    if isinstance(value, (list, tuple, set)):
        return any(_found(item, seen) for item in value)
    if isinstance(value, dict):
        return any(_found(item, seen) for item in value.values())
    if isinstance(value, np.ndarray):
        return value.dtype == object and any(_found(item, seen) for item in value.flat)
    if id(value) in seen or isinstance(value, type) or not _estimates(value):
        return False
    seen.add(id(value))
    kept = getattr(value, "__dict__", {})
    ours = type(value).__module__.startswith("skprivacy.") and "epsilon" in kept
    return ours or guarantee_in(value) is not None or _found(kept, seen)


def _estimates(value: Any) -> bool:
    return any(hasattr(value, name) for name in ("fit", "predict", "predict_proba"))
