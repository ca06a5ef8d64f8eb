"""The first step of a pipeline, where it learns nothing: taken once for all models of a sweep."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .._sklearn import output_container
from ..preprocessing import SchemaTransformer

__all__ = ["FirstStep", "first_step"]

_MOST = 1 << 30  # bytes of features that are kept


@dataclass(frozen=True)
class FirstStep:
    """A fitted step, and what it makes of records.

    Notes
    -----
    **Guarantees.** The step is of the class :class:`~skprivacy.preprocessing.SchemaTransformer`
    itself, no subclass, with a schema that was not read off data. Its fit reads no value, and each
    row that it makes is a function of one record: a model that is fitted to these rows is the model
    that its pipeline would be, and no record is in another one's fold by it.
    """

    step: SchemaTransformer
    features: NDArray[Any]

    def begins(self, model: Any) -> bool:
        """Return whether a model, fitted or not, begins with this step."""
        other = _of(model)
        return other is not None and _params(other) == _params(self.step)

    def before(self, model: Pipeline, name: str) -> Pipeline:
        """Return the model that takes records as they are: this step, fitted, before the others.

        ``name`` is the step's in that model: in another one it may be that of a later step.
        """
        return Pipeline([(name, self.step), *model.steps])

    def part(self, rows: Any) -> FirstStep:
        """Return what it makes of some of the records."""
        return replace(self, features=np.asarray(self.features[rows]))


def first_step(model: Any, X: Any) -> FirstStep | None:
    """Return the first step of a model, taken on all records, if models may share it.

    **Edge cases.** None if there is no such step, if it warns or fails, which each model shall do
    by itself, or if its features are too many to keep, or not an array.
    """
    step = _of(model)
    if step is None or type(X) not in (pd.DataFrame, np.ndarray):
        return None  # of a list, the type of a column depends on who else is in it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted = clone(step).fit(X)
            width = fitted.schema_.n_features_out * np.dtype(step.dtype).itemsize
            if len(X) * width > _MOST:
                return None
            features = fitted.transform(X)
    except Exception:
        return None
    if type(features) is not np.ndarray:
        return None
    return FirstStep(fitted, features)


def _of(model: Any) -> SchemaTransformer | None:
    """Return the first step of a pipeline that does nothing but transform and fit."""
    if type(model) is not Pipeline or len(model.steps) < 2 or model.memory is not None:
        return None
    if model.verbose or getattr(model, "transform_input", None) is not None:
        return None
    step = model.steps[0][1]
    if type(step) is not SchemaTransformer or step.schema is None or step.schema.unconfirmed:
        return None
    plain = get_config()["transform_output"] == "default" and output_container(step) is None
    return step if plain else None


def _params(step: SchemaTransformer) -> tuple[Any, ...]:
    return step.schema, tuple(step.feature_range), np.dtype(step.dtype)
