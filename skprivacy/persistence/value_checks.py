"""What a file says is looked at before it is believed, and what is common to all models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee

__all__ = [
    "check_names",
    "classes_told",
    "common",
    "make",
    "number",
    "restore_classes",
    "restore_common",
    "restore_guarantee",
    "whole",
]

_MOST = 1 << 40  # no count in a file is larger
_LABELS: dict[str, type | tuple[type, ...]] = {
    "bool": bool, "int8": int, "int16": int, "int32": int, "int64": int, "uint8": int,
    "uint16": int, "uint32": int, "uint64": int, "float32": float, "float64": float,
    "str": str, "object": (str, bool, int, float),
}  # fmt: skip


def check_names(facts: Any, expected: Iterable[str]) -> dict[str, Any]:
    """Return the facts if they have these names and no others."""
    if not isinstance(facts, dict):
        raise ValueError(f"there are facts expected, and it says {facts!r}")
    missing, unknown = sorted(set(expected) - set(facts)), sorted(set(facts) - set(expected))
    if missing or unknown:
        raise ValueError(f"the facts {missing} are missing, and {unknown} are unknown")
    return facts


def number(facts: Mapping[str, Any], name: str) -> float:
    """Return a finite number."""
    value = facts[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, not a finite number")
    return float(value)


def whole(facts: Mapping[str, Any], name: str) -> int:
    """Return a whole number of at least 1."""
    value = facts[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise ValueError(f"{name} is {value!r}, not a whole number of at least 1")
    return value


def make(kind: type, params: Any, names: Iterable[str], **more: Any) -> Any:
    """Return an estimator of these parameters, which its class has found to be right."""
    model = kind(**check_names(params, names), **more)
    model._validate_params()
    return model


def common(model: Any) -> dict[str, Any]:
    """Return what scikit-learn keeps of the columns of any estimator."""
    return {
        "n_features_in_": int(model.n_features_in_),
        "feature_names": getattr(model, "feature_names_in_", None),
    }


def restore_common(model: Any, facts: Mapping[str, Any]) -> int:
    """Set what :func:`common` returned; return the number of features."""
    d, names = whole(facts, "n_features_in_"), facts["feature_names"]
    model.n_features_in_ = d
    if names is not None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the names of the features are not all text")
        if len(names) != d:
            raise ValueError(f"there are {len(names)} names of {d} features")
        model.feature_names_in_ = np.array(names, dtype=object)
    return d


def restore_guarantee(model: Any, facts: Mapping[str, Any]) -> None:
    """Set the guarantee, and compute again the numbers that say it in short."""
    model.privacy_ = PrivacyGuarantee.from_dict(facts["privacy"])
    model.privacy_event_ = model.privacy_.event
    model.epsilon_ = model.privacy_.epsilon()
    model.delta_ = float(model.privacy_.at_delta or 0.0)


def classes_told(classes: NDArray) -> dict[str, Any]:
    """Return labels as JSON knows them, and their type."""
    kind = "str" if classes.dtype.kind == "U" else classes.dtype.name
    labels = classes.tolist()
    if kind not in _LABELS or not all(isinstance(label, _LABELS[kind]) for label in labels):
        raise ValueError(
            f"The labels must be numbers or text to be saved; classes_ holds {classes.dtype}."
        )
    return {"type": kind, "values": labels}


def restore_classes(told: Any) -> NDArray:
    """Return the labels that :func:`classes_told` described: sorted, and at least two."""
    kind, values = check_names(told, ["type", "values"]).values()
    if kind not in list(_LABELS) or not isinstance(values, list):
        raise ValueError(f"the labels are of no known type, {kind!r}")
    if not all(isinstance(value, _LABELS[kind]) for value in values):
        raise ValueError(f"the labels are not all of the type {kind!r}")
    classes = np.array(values, dtype=kind)
    if len(classes) < 2 or not np.array_equal(np.unique(classes), classes):
        raise ValueError(f"the labels {values!r} are fewer than two, or not sorted")
    return classes
