"""Tables of stored answers that replace a model on a fixed set of records."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._clones import named_failure
from .._validation import raise_alone
from ._answers import KINDS, PROBABILITIES, Answers, choose_answers
from ._records import as_records, fingerprints, num_samples, safe_indexing, split_rows

__all__ = ["AnswerTable", "PredictionTable", "RecordIndex", "check_table", "check_trained"]

Float64Array = NDArray[np.float64]
_TOLERANCE = 0.01  # allows for probabilities printed with few digits
LEAVE_OUT_ADVICE = "Leave them out."


class RecordIndex:
    """Index from a record's fingerprint to its row in a table; of equal records, the first row."""

    def __init__(self, prints: NDArray[np.uint64], advice: str = LEAVE_OUT_ADVICE) -> None:
        self._prints, self.first = np.unique(prints, return_index=True)
        self._advice = advice

    def find_rows(self, prints: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the position of each fingerprint in the index; ValueError if one is missing."""
        found = np.minimum(np.searchsorted(self._prints, prints), len(self._prints) - 1)
        if unknown := int((self._prints[found] != prints).sum()):
            raise ValueError(
                f"X holds {unknown} records without stored predictions; expected records of the "
                f"table. {self._advice}"
            )
        return found


class AnswerTable:
    """A model's stored answers, by position; :meth:`with_index` takes records, as the model does.

    ``answer`` is the output of the model's method: an array, or a list with an array per label.
    """

    def __init__(self, asked: Answers, answer: Any, classes: Any = None) -> None:
        self.kind, self._answer = asked.name, answer
        if classes is not None:
            self.classes_ = classes

    @classmethod
    def from_fitted_model(
        cls, model: Any, X: Any, y: NDArray[Any], rows: NDArray[np.intp]
    ) -> AnswerTable:
        """Query a fitted model about records, in parts, and store its answers for ``rows``."""
        asked = choose_answers(model, y)
        slices = split_rows(num_samples(X))
        with named_failure(model, "asked about X"):
            ask = getattr(model, asked.method)
            found = [ask(X if len(slices) == 1 else safe_indexing(X, part)) for part in slices]
        answer: Any
        if isinstance(found[0], list):  # one table for each label
            answer = [np.concatenate(parts)[rows] for parts in zip(*found, strict=True)]
        else:
            answer = np.concatenate(found)[rows]
        return cls(asked, answer, getattr(model, "classes_", None))

    def __getattr__(self, name: str) -> Any:
        kind = self.__dict__.get("kind")  # not set yet while the object is unpickled
        if kind is not None and name == KINDS[kind].method:
            return self._look_up
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def _look_up(self, places: NDArray[np.intp]) -> Any:
        if isinstance(self._answer, list):
            return [part[places] for part in self._answer]
        return self._answer[places]

    def with_index(self, listed: RecordIndex) -> AnswerTable:
        """Return the table that takes records, as the model does."""
        return _IndexedAnswers(self, listed)


class _IndexedAnswers(AnswerTable):
    def __init__(self, table: AnswerTable, listed: RecordIndex) -> None:
        super().__init__(KINDS[table.kind], table._answer, getattr(table, "classes_", None))
        self.by_place, self._listed = table, listed

    def _look_up(self, X: Any) -> Any:
        return super()._look_up(self._listed.find_rows(fingerprints(as_records(X))))


class PredictionTable(_IndexedAnswers):
    """Stored class probabilities of records; the columns of ``proba`` may be in any order."""

    def __init__(self, listed: RecordIndex, proba: Float64Array, classes: NDArray[Any]) -> None:
        order = np.argsort(classes)
        sorted_ = proba[listed.first][:, order]
        super().__init__(AnswerTable(PROBABILITIES, sorted_, np.asarray(classes)[order]), listed)

    def predict(self, X: Any) -> NDArray[Any]:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __repr__(self) -> str:
        return f"table of {len(self._answer):,} x {len(self.classes_)} probabilities"


def check_table(name: str, proba: Any, *, ndim: int = 2) -> Float64Array:
    """Return probabilities as an array whose rows sum to one; ValueError otherwise."""
    axes = "(n_records, n_classes)" if ndim == 2 else "(n_shadows, n_records, n_classes)"
    try:
        table = np.asarray(proba, dtype=float)
    except (TypeError, ValueError):
        raise_alone(ValueError(f"{name} must be an array of numbers of shape {axes}."))
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
            f"{name} has rows that do not sum to one, the first at {at if ndim == 3 else at[0]}. "
            "Pass the probabilities of all classes."
        )
    return table


def check_trained(name: str, trained: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return ``call_train`` as a bool array in which each record has a model not trained on it."""
    inside = np.asarray(trained)
    if inside.shape != shape or not np.isin(inside, (0, 1)).all():
        raise ValueError(
            f"{name} has shape {inside.shape} and type {inside.dtype}; expected a bool for each of "
            f"{shape[0]} shadow models and {shape[1]} records: whether the model trained on the "
            "record."
        )
    inside = inside.astype(bool)
    if always := int(inside.all(axis=0).sum()):
        raise ValueError(
            f"{name} marks {always} records as training records of every shadow model; expected a "
            "model not trained on it for each record. Train models in pairs, each pair on a random "
            "half and the other half."
        )
    return inside
