"""Answers of all models of a shadow pool, with the work that they share done once.

First steps of a pipeline that learn nothing from records run once for all shadow models. An
:class:`AnswerTable` of stored answers replaces a model on a fixed set of records. Start reading at
:class:`PoolAnswers`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .._clones import name_failing_model
from .._sklearn import safe_indexing
from .._stacked import StackedMember
from .._validation import num_samples, raise_alone, sequence
from ..preprocessing.pipeline import PrivatePipeline
from .model_answers import (
    FLOOR,
    KINDS,
    PROBABILITIES,
    Answers,
    choose_answers,
    class_list,
    predict_aligned,
)
from .record_tables import as_records, fingerprints, split_rows

_OWN = ("random_state", "noise_seed", "budget")  # parameters that differ between shadow models
Float64Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
_TOLERANCE = 0.01  # allows for probabilities printed with few digits
LEAVE_OUT_ADVICE = "Leave them out."
_COMPARED_FIRST = 200  # records on which models are compared before all records


@dataclass
class PoolAnswers:
    """The models of a pool, and the kind of their answers."""

    models: list[Any]  # models of records without preprocessing
    shared: Pipeline | RecordIndex | None  # first steps or look-up of records that all share
    asks: Answers
    classes: Any  # ndarray of shape (n_classes,), or None if models do not predict one class
    scale: tuple[float, float] = (0.0, 1.0)  # location and scale of answers that are not log-odds

    def set_scale(self, X: Any, y: NDArray[Any], prints: NDArray[np.uint64]) -> None:
        """Learn the scale of answers that are not log-odds from all records of the pool."""
        if self.asks.log_odds is None:
            signals = self.signals(X, y, prints)
            low, centre, high = np.quantile(signals, [0.25, 0.5, 0.75])
            # the interquartile range of a normal law is 1.349 standard deviations
            unit = (high - low) / 1.349 or float(signals.std())
            self.scale = float(centre), float(unit) or 1.0

    def proba(self, X: Any, classes: Any) -> Iterator[Float64Array]:
        """Yield the probabilities of each model, with a column for each of ``classes``."""
        columns = self.classes if classes is None else np.asarray(sequence("classes", classes))
        models, X = self._without_shared(X)
        for model in models:
            yield predict_aligned(model, X, columns)

    def vary(self, X: Any) -> bool:
        """Return False if all models give the same answers, and these differ between records."""
        rows = np.arange(0, num_samples(X), max(1, num_samples(X) // _COMPARED_FIRST))
        for records in (safe_indexing(X, rows), X):
            models, seen = self._without_shared(records)
            answers = (self._ask(model, seen) for model in models)
            first = next(answers)
            if any(not np.array_equal(first, other) for other in answers):
                return True
        return bool((first == first[0]).all())

    def _ask(self, model: Any, X: Any) -> NDArray[Any]:
        answer = self.asks.ask(model, X, self.classes)
        return np.hstack(answer) if isinstance(answer, list) else np.asarray(answer)

    def signals(
        self, X: Any, y: NDArray[Any], prints: NDArray[np.uint64] | None = None
    ) -> Float64Array:
        """Return the signals of each model, of shape (n_models, n_records)."""
        classes = None if self.classes is None else class_list(self.classes, y)
        models, seen = self._without_shared(X, prints)
        return np.stack([self.asks.signal(model, seen, y, classes) for model in models])

    def _without_shared(
        self, X: Any, prints: NDArray[np.uint64] | None = None
    ) -> tuple[list[Any], Any]:
        """Return the models without their shared first steps, and the output of these for ``X``."""
        if self.shared is None:
            return self.models, X
        if isinstance(self.shared, RecordIndex):
            places = self.shared.find_rows(fingerprints(X) if prints is None else prints)
            return [table.by_place for table in self.models], places
        models = [remove_shared_steps(self.shared, model) for model in self.models]
        return models, self.shared.transform(X)

    def as_log_odds(self, signal: Float64Array) -> Float64Array:
        """Rescale a model's signal to the scale of log-odds; log-odds are returned unchanged."""
        centre, unit = self.scale
        limit = -math.log(FLOOR)
        return signal if self.asks.log_odds else np.clip((signal - centre) / unit, -limit, limit)


def split_stateless_steps(estimator: Any, X: Any) -> tuple[Pipeline | None, Any, Any]:
    """Split a pipeline into its data-independent first steps, fitted, the rest, and their output.

    **Edge cases.** Returns None, the estimator and ``X`` without such steps, with ``memory`` or
    ``transform_input``, and for subclasses of Pipeline.
    """
    if type(estimator) is PrivatePipeline:
        estimator = estimator.settle_bins(num_samples(X) // 2)  # a shadow model trains on half
    nothing = None, estimator, X
    whole = type(estimator) is not Pipeline or estimator.memory is not None
    if whole or getattr(estimator, "transform_input", None) is not None:
        return nothing
    n_shared, last = 0, len(estimator.steps) - 1
    while n_shared < last and _is_independent(estimator.steps[n_shared][1]):
        n_shared += 1
    if not n_shared:
        return nothing
    shared = Pipeline([(name, clone(step)) for name, step in estimator.steps[:n_shared]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the target raised the same ones
        shared.fit(X)
        # a fit may have changed the attribute
        if not all(step.data_independent_ for _, step in shared.steps):
            return nothing
        seen = shared.transform(X)
    return shared, Pipeline(estimator.steps[n_shared:]), seen


def add_shared_steps(shared: Pipeline | None, model: Any) -> Any:
    """Put the shared steps in front of a model."""
    if shared is None:
        return model
    if isinstance(model, StackedMember):
        own = [] if model.preprocessing is None else model.preprocessing.steps
        return replace(model, preprocessing=Pipeline([*shared.steps, *own]))
    return Pipeline([*shared.steps, *model.steps])


def remove_shared_steps(shared: Pipeline, model: Any) -> Any:
    """Remove the shared steps from a model."""
    n_shared = len(shared.steps)
    if isinstance(model, StackedMember):
        own = model.preprocessing.steps[n_shared:]
        return replace(model, preprocessing=Pipeline(own) if own else None)
    return model[n_shared:]


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
    """A model's stored answers, by position; the table of ``with_index`` takes records."""

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
        with name_failing_model(model, "asked about X"):
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
        """Return the table with an index, which answers about records as the model does."""
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
    in_range = ((table >= 0) & (table <= 1 + _TOLERANCE)).all(axis=-1)  # False for NaN
    usable = in_range & (np.abs(table.sum(axis=-1) - 1) <= _TOLERANCE)
    if not usable.all():
        first = tuple(np.argwhere(~usable)[0].tolist())
        raise ValueError(
            f"{name} has rows that are not probabilities with the sum one, the first at "
            f"{first if ndim == 3 else first[0]}. Pass the probabilities of all classes, not "
            "logits, and leave out records with NaN."
        )
    return table


def check_trained(name: str, trained: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return ``trained`` as a bool array in which each record has a model not trained on it."""
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


def _is_independent(step: Any) -> bool:
    declared = getattr(step, "data_independent_", False) is True and hasattr(step, "transform")
    return declared and not any(name in step.get_params() for name in _OWN)


class PoolLogits(NamedTuple):
    """Log-odds of records under all models of a pool, and the membership of each record."""

    prints: NDArray[np.uint64]  # fingerprints of the records, (n_records,)
    logits: NDArray[np.float64]  # (n_shadows, n_records)
    trained: Mask  # which models trained on the record, (n_shadows, n_records)
    known: Mask  # which records the pool was trained on, (n_records,)
    out: Mask  # which models count as OUT models of the record, (n_shadows, n_records)
