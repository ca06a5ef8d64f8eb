"""Predictions of a model as probabilities over one common list of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import named_failure
from .._config import warn_caller
from .._validation import check_one_type, distinct
from ._records import apply_in_parts

__all__ = ["check_known", "class_list", "predict_aligned"]

Float64Array = NDArray[np.float64]


def class_list(*parts: Any) -> NDArray[Any]:
    """Return the sorted union of several lists of labels."""
    arrays = [np.asarray(part) for part in parts]
    for array in arrays:
        if array.ndim != 1:
            raise ValueError(f"y has shape {array.shape}; expected one label for each record.")
    kinds = {"number" if a.dtype.kind in "biuf" else "text" for a in arrays}
    if len(kinds) > 1:
        raise ValueError(
            "y and the classes of the model have different types: "
            f"{[a.dtype.name for a in arrays]}. Pass y in the form the model was fitted with."
        )
    union = np.concatenate(arrays)
    check_one_type("y", union)
    return distinct(union)


def check_known(y: NDArray[Any], classes: Any) -> None:
    """Warn if some labels are not among the target's classes; ValueError if none is."""
    unknown = ~np.isin(y, classes)
    if not unknown.any():
        return
    known = np.asarray(classes)[:5].tolist()
    if unknown.all():
        raise ValueError(
            f"y holds none of the target's classes; expected labels from {known}. Pass y in the "
            "form the target was fitted with."
        )
    warn_caller(
        f"y holds {int(unknown.sum())} records with labels that are not among the target's "
        f"classes {known}, so their probability is 0 and they score like non-members. Leave them "
        "out, or pass y in the form the target was fitted with.",
        UserWarning,
    )


def predict_aligned(model: Any, X: Any, classes: NDArray[Any]) -> Float64Array:
    """Return ``model.predict_proba(X)`` with one column for each of ``classes``.

    A class that the model was not trained on gets probability 0: the model never predicts it.
    """
    if not hasattr(model, "predict_proba"):
        raise TypeError(
            f"{type(model).__name__} has no predict_proba, which this attack needs. Use "
            "LossThreshold, LiRA, RMIA or StrongestAttack, which accept other scores, or "
            "LabelOnlyAttack, which needs only predicted labels."
        )
    with named_failure(model, "asked about X"):
        proba = apply_in_parts(model.predict_proba, X).astype(float, copy=False)
    if proba.ndim != 2 or proba.shape[1] != len(model.classes_):
        raise ValueError(
            f"{type(model).__name__}.predict_proba returned shape {proba.shape}; expected one "
            f"column for each of its {len(model.classes_)} classes."
        )
    if not np.isfinite(proba).all() or proba.min(initial=0.0) < 0 or proba.max(initial=1.0) > 1.001:
        raise ValueError(
            f"{type(model).__name__}.predict_proba returned values that are not finite or lie "
            "outside [0, 1], so training probably diverged. Refit it with a smaller learning rate "
            "or scaled inputs."
        )
    columns = np.searchsorted(classes, model.classes_)
    known = columns < len(classes)
    known[known] = classes[columns[known]] == np.asarray(model.classes_)[known]
    aligned = np.zeros((len(proba), len(classes)))
    aligned[:, columns[known]] = proba[:, known]
    return aligned
