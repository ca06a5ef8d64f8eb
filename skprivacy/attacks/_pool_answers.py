"""Answers of all models of a shadow pool, with the work that they share done once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from .._validation import sequence
from . import scores
from ._answers import Answers
from ._predictions import class_list, predict_aligned
from ._records import fingerprints, num_samples, safe_indexing
from ._shared_steps import remove_shared_steps
from ._tables import RecordIndex

__all__ = ["PoolAnswers"]

Float64Array = NDArray[np.float64]
_COMPARED_FIRST = 200  # records on which models are compared before all records


@dataclass
class PoolAnswers:
    """The models of a pool, and the kind of their answers."""

    models: list[Any]  # models of records without preprocessing
    shared: (
        Pipeline | RecordIndex | None
    )  # first steps, or look-up of records, that all models share
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
        """Return whether models differ on some record, or answer all records with one constant."""
        few = safe_indexing(
            X, np.arange(0, num_samples(X), max(1, num_samples(X) // _COMPARED_FIRST))
        )
        for records in (few, X):
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
        limit = -math.log(scores.FLOOR)
        return signal if self.asks.log_odds else np.clip((signal - centre) / unit, -limit, limit)
