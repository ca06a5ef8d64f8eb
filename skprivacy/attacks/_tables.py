"""A table of predictions that passes for a model, on the records that it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._records import as_records, fingerprints

__all__ = ["PredictionTable", "check_table", "check_trained"]

Float64Array = NDArray[np.float64]
_TOLERANCE = 0.01  # probabilities that were printed with few digits


class PredictionTable:
    """Probabilities of classes by record; nothing can be trained.

    Parameters
    ----------
    X : records
    proba : ndarray of shape (n_records, n_classes)
    classes : ndarray of shape (n_classes,)
        The class of each column, in any order.
    """

    def __init__(self, X: Any, proba: Float64Array, classes: NDArray[Any]) -> None:
        order = np.argsort(classes)
        self.classes_ = np.asarray(classes)[order]
        # of rows that are alike, the first is taken
        self._prints, first = np.unique(fingerprints(as_records(X)), return_index=True)
        self._proba = proba[first][:, order]

    def predict_proba(self, X: Any) -> Float64Array:
        prints = fingerprints(as_records(X))
        rows = np.minimum(np.searchsorted(self._prints, prints), len(self._prints) - 1)
        if unknown := int((self._prints[rows] != prints).sum()):
            raise ValueError(
                f"X holds {unknown} records of which the table has no predictions; expected those "
                "that it was made of. Leave the others out."
            )
        return self._proba[rows]

    def predict(self, X: Any) -> NDArray[Any]:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __repr__(self) -> str:
        return f"table of {len(self._proba):,} x {len(self.classes_)} probabilities"


def check_table(name: str, proba: Any, *, ndim: int = 2) -> Float64Array:
    """Return probabilities as an array whose rows sum to one.

    Raises
    ------
    ValueError
        Naming ``name``, if they are no such array.
    """
    axes = "(n_records, n_classes)" if ndim == 2 else "(n_shadows, n_records, n_classes)"
    try:
        table = np.asarray(proba, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, of shape {axes}: {error}") from error
    if table.ndim != ndim or table.shape[-1] < 2 or 0 in table.shape:
        raise ValueError(
            f"{name} has shape {table.shape}; expected probabilities of shape {axes}, with a "
            "column for each of at least two classes."
        )
    if np.isnan(table).any():
        where = tuple(int(i) for i in np.argwhere(np.isnan(table))[0])
        raise ValueError(
            f"{name} holds NaN, first at {where}; expected a probability. Leave such records out."
        )
    wrong = (table < 0) | (table > 1 + _TOLERANCE)
    if wrong.any():
        raise ValueError(
            f"{name} holds {table[wrong][0]:g}, which is no probability; expected values between "
            "0 and 1. Pass probabilities, not logits."
        )
    sums = table.sum(axis=-1)
    if np.abs(sums - 1).max() > _TOLERANCE:
        at = tuple(int(i) for i in np.argwhere(np.abs(sums - 1) > _TOLERANCE)[0])
        raise ValueError(
            f"{name} has rows that do not sum to one: row {at if ndim == 3 else at[0]} sums to "
            f"{sums[at]:.4g}. Pass the probabilities of all classes."
        )
    return table


def check_trained(name: str, trained: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which shadow models trained on which records, as an array of bool."""
    inside = np.asarray(trained)
    if inside.shape != shape or not np.isin(inside, (0, 1)).all():
        raise ValueError(
            f"{name} has shape {inside.shape} and type {inside.dtype}; expected a bool for each of "
            f"{shape[0]} shadow models and {shape[1]} records: whether the one trained on the "
            "other."
        )
    inside = inside.astype(bool)
    if always := int(inside.all(axis=0).sum()):
        raise ValueError(
            f"{name} says that every shadow model trained on {always} of the records; expected a "
            "model that did not, for each. Train further ones, in pairs: one on a random half, one "
            "on the other half."
        )
    return inside
