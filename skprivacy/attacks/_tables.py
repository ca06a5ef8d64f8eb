"""Tables of answers that pass for the model that gave them, on the records that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import named_failure
from .._validation import raise_alone
from ._answers import KINDS, PROBABILITIES, Answers, answers_of
from ._records import as_records, fingerprints, num_samples, parts_of, safe_indexing

__all__ = ["AnswerTable", "Listed", "PredictionTable", "check_table", "check_trained"]

Float64Array = NDArray[np.float64]
_TOLERANCE = 0.01  # probabilities that were printed with few digits
LEAVE_OUT = "Leave the others out."


class Listed:
    """Records that are known by their fingerprints; of equal rows the first counts.

    Attributes
    ----------
    first : ndarray of int of shape (n_listed,)
        The row of each.
    """

    def __init__(self, prints: NDArray[np.uint64], advice: str = LEAVE_OUT) -> None:
        self._prints, self.first = np.unique(prints, return_index=True)
        self._advice = advice

    def places(self, prints: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return where each record of these fingerprints is listed.

        Raises
        ------
        ValueError
            If one is not.
        """
        found = np.minimum(np.searchsorted(self._prints, prints), len(self._prints) - 1)
        if unknown := int((self._prints[found] != prints).sum()):
            raise ValueError(
                f"X holds {unknown} records of which the table has no predictions; expected those "
                f"that it was made of. {self._advice}"
            )
        return found


class AnswerTable:
    """What a model answers about listed records, where these are asked for by their places.

    ``of`` passes for the model on the records themselves.

    Parameters
    ----------
    asked : Answers
        What it was asked for.
    answer : ndarray of shape (n_listed, ...) or list of these
        What its method returned.
    classes : ndarray or list of these or None
        Those of a classifier.
    """

    def __init__(self, asked: Answers, answer: Any, classes: Any = None) -> None:
        self.kind, self._answer = asked.name, answer
        if classes is not None:
            self.classes_ = classes

    @classmethod
    def asking(cls, model: Any, X: Any, y: NDArray[Any], rows: NDArray[np.intp]) -> AnswerTable:
        """Ask a fitted model about records, some at a time, and keep what it says of ``rows``."""
        asked = answers_of(model, y)
        few = parts_of(num_samples(X))
        with named_failure(model, "asked about X"):
            ask = getattr(model, asked.method)
            told = [ask(X if len(few) == 1 else safe_indexing(X, part)) for part in few]
        answer: Any
        if isinstance(told[0], list):  # one table for each label
            answer = [np.concatenate(parts)[rows] for parts in zip(*told, strict=True)]
        else:
            answer = np.concatenate(told)[rows]
        return cls(asked, answer, getattr(model, "classes_", None))

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__.get("kind")  # there is none yet while it is unpickled
        if kind is not None and name == KINDS[kind].method:
            return self._at
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def _at(self, places: NDArray[np.intp]) -> Any:
        if isinstance(self._answer, list):
            return [part[places] for part in self._answer]
        return self._answer[places]

    def of(self, listed: Listed) -> AnswerTable:
        """Return the table that is asked about records as the model was."""
        return _TableOf(self, listed)


class _TableOf(AnswerTable):
    def __init__(self, table: AnswerTable, listed: Listed) -> None:
        super().__init__(KINDS[table.kind], table._answer, getattr(table, "classes_", None))
        self.by_place, self._listed = table, listed

    def _at(self, X: Any) -> Any:
        return super()._at(self._listed.places(fingerprints(as_records(X))))


class PredictionTable(_TableOf):
    """Probabilities of classes by record; nothing can be trained.

    Parameters
    ----------
    listed : Listed
        The records.
    proba : ndarray of shape (n_records, n_classes)
    classes : ndarray of shape (n_classes,)
        The class of each column, in any order.
    """

    def __init__(self, listed: Listed, proba: Float64Array, classes: NDArray[Any]) -> None:
        order = np.argsort(classes)
        sorted_ = proba[listed.first][:, order]
        super().__init__(AnswerTable(PROBABILITIES, sorted_, np.asarray(classes)[order]), listed)

    def predict(self, X: Any) -> NDArray[Any]:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __repr__(self) -> str:
        return f"table of {len(self._answer):,} x {len(self.classes_)} probabilities"


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
    except (TypeError, ValueError):
        raise_alone(ValueError(f"{name} must hold numbers, of shape {axes}."))
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
            f"{name} holds a number that is not a probability; expected values between "
            "0 and 1. Pass probabilities, not logits."
        )
    sums = table.sum(axis=-1)
    if np.abs(sums - 1).max() > _TOLERANCE:
        at = tuple(int(i) for i in np.argwhere(np.abs(sums - 1) > _TOLERANCE)[0])
        raise ValueError(
            f"{name} has rows that do not sum to one, first row {at if ndim == 3 else at[0]}. Pass "
            "the probabilities of all classes."
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
