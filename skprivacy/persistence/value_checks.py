"""Values as JSON and their checks, and the facts that all models share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import PrivacyGuarantee
from .file_format import Arrays

BY_DEFAULT = {"default": True}  # replaces a value that no file holds
NUMBER_TYPES = {"float32": np.float32, "float64": np.float64}
_OPTIONS = ("Clipping", "Optimizer")  # of networks, which need torch
_SETTINGS = "skprivacy.neural_network.settings"
_MAX_COUNT = 1 << 40  # no count in a file is larger
_LABEL_TYPES: dict[str, type | tuple[type, ...]] = {
    "bool": bool, "int8": int, "int16": int, "int32": int, "int64": int, "uint8": int,
    "uint16": int, "uint32": int, "uint64": int, "float32": float, "float64": float,
    "str": str, "object": (str, bool, int, float),
}  # fmt: skip


def check_names(facts: Any, expected: Iterable[str]) -> dict[str, Any]:
    """Return the facts if their names are exactly the expected ones."""
    if not isinstance(facts, dict):
        raise ValueError(f"expected facts by name, found {facts!r}")
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
    """Return an integer of at least 1."""
    value = facts[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_COUNT:
        raise ValueError(f"{name} is {value!r}, not a whole number of at least 1")
    return value


def make(kind: type, params: Any, names: Iterable[str], **more: Any) -> Any:
    """Return an estimator with these parameters, validated by its class."""
    model = kind(**check_names(params, names), **more)
    model._validate_params()
    return model


def common_to_state(model: Any) -> dict[str, Any]:
    """Return the number and the names of the features of an estimator."""
    return {
        "n_features_in_": int(model.n_features_in_),
        "feature_names": getattr(model, "feature_names_in_", None),
    }


def common_from_state(model: Any, facts: Mapping[str, Any]) -> int:
    """Set the attributes that :func:`common_to_state` returned; return the number of features."""
    d, names = whole(facts, "n_features_in_"), facts["feature_names"]
    model.n_features_in_ = d
    if names is not None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the feature names must all be text")
        if len(names) != d:
            raise ValueError(f"there are {len(names)} feature names, expected {d}")
        model.feature_names_in_ = np.array(names, dtype=object)
    return d


def restore_guarantee(model: Any, facts: Mapping[str, Any]) -> None:
    """Set the guarantee, and recompute the attributes derived from it."""
    model.privacy_ = PrivacyGuarantee.from_dict(facts["privacy"])
    model.privacy_event_ = model.privacy_.event
    model.epsilon_ = model.privacy_.epsilon()
    model.delta_ = float(model.privacy_.at_delta or 0.0)


def classes_to_state(classes: NDArray) -> dict[str, Any]:
    """Return labels as JSON values, with their type."""
    kind = "str" if classes.dtype.kind == "U" else classes.dtype.name
    labels = classes.tolist()
    if kind not in _LABEL_TYPES or not all(
        isinstance(label, _LABEL_TYPES[kind]) for label in labels
    ):
        raise ValueError(
            f"The labels must be numbers or text to be saved; classes_ holds {classes.dtype}."
        )
    return {"type": kind, "values": labels}


def classes_from_state(stated: Any, of_columns: bool = False) -> NDArray:
    """Return the labels of :func:`classes_to_state`; checks order, unless of columns."""
    kind, values = check_names(stated, ["type", "values"]).values()
    if kind not in list(_LABEL_TYPES) or not isinstance(values, list):
        raise ValueError(f"the labels have the unknown type {kind!r}")
    if not all(isinstance(value, _LABEL_TYPES[kind]) for value in values):
        raise ValueError(f"some labels do not have the type {kind!r}")
    classes = np.array(values, dtype=kind)
    in_order = np.sort(classes) if of_columns else classes
    if len(classes) < 2 - of_columns or not np.array_equal(np.unique(classes), in_order):
        raise ValueError(f"the labels are {values!r}, expected at least two sorted labels")
    return classes


def restore_bins(arrays: Arrays, name: str, n_cells: int) -> NDArray[np.int64]:
    """Return the bin of each cell, checked: numbers from 0 without gaps."""
    bins = arrays.take(name, (n_cells,))
    numbers = np.unique(bins)
    if not np.array_equal(numbers, np.arange(len(numbers))):
        raise ValueError(f"the bins {name!r} are not numbered from 0")
    return bins.astype(np.int64)


def saved_value(value: Any) -> Any:
    """Return a value in JSON types, or ``BY_DEFAULT`` if it has no such form."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type) and value in NUMBER_TYPES.values():
        return {"dtype": np.dtype(value).name}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        inner = {key: saved_value(each) for key, each in value.items()}
        return BY_DEFAULT if BY_DEFAULT in inner.values() else {"mapping": inner}
    if type(value).__module__ == _SETTINGS and type(value).__name__ in _OPTIONS:
        return {type(value).__name__: saved_value(value.get_params())}
    if isinstance(value, list | tuple | range):
        each = [saved_value(inner) for inner in value]
        return BY_DEFAULT if BY_DEFAULT in each else each
    return BY_DEFAULT


def restored_value(stated: Any) -> Any:
    """Invert :func:`saved_value`; a sequence becomes a tuple."""
    if isinstance(stated, list):
        return tuple(restored_value(each) for each in stated)
    if not isinstance(stated, dict):
        return stated
    ((kind, value),) = stated.items()
    if kind == "mapping":
        return {str(key): restored_value(each) for key, each in value.items()}
    if kind == "dtype":
        return NUMBER_TYPES[value]
    if kind in _OPTIONS:
        option = getattr(import_module(_SETTINGS), kind)(**restored_value(value))
        option._validate_params()
        return option
    raise ValueError(f"expected a value, found {stated!r}")
