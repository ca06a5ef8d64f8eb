"""Records as each part of a model sees them, inside pipelines and ensembles."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.pipeline import Pipeline

from .._validation import all_numbers
from ..attacks._records import as_records
from ._alarms import is_alarm
from ._contents import collect_contents

__all__ = ["as_table", "iter_tables"]

MOST_VIEWS = 200  # a bagging of columns shows each of its parts a different table


def iter_tables(X: Any, parts: list[Any]) -> Iterator[Any]:
    """Yield the records as given, and as the parts of a model pass them to each other."""
    seen: dict[int, Any] = {}
    for view in _views(as_records(X), parts):
        if id(view) not in seen and (table := as_table(view)) is not None:
            seen[id(view)] = view
            yield table
        if len(seen) > MOST_VIEWS:
            return


def _views(X: Any, parts: list[Any]) -> Iterator[Any]:
    yield X
    entered: set[int] = set()
    for part in parts:
        if id(part) in entered:
            continue
        inside: list[tuple[Any, Any]] = []  # pairs: a view, and the part that sees it
        if isinstance(part, Pipeline):
            inside = list(_steps(part, X))
        elif getattr(part, "estimators_features_", None) is not None:
            inside = list(_columns(part, X))
        elif hasattr(part, "transform") and not hasattr(part, "predict"):
            inside = [(view, None) for view in _try_transform(part, X)]
        if inside:
            entered |= {id(inner) for inner in collect_contents(part).parts}
        for view, inner in inside:
            yield from _views(view, [p for p in collect_contents(inner).parts if p is not part])


def _steps(pipeline: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each step of a pipeline with the records that it sees."""
    for _, step in pipeline.steps:
        if step is None or isinstance(step, str):
            continue
        yield X, step
        if not (after := _try_transform(step, X)):
            return
        [X] = after
    yield X, None


def _columns(bagging: Any, X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each part of a bagging with the columns that it sees."""
    table = as_table(X)
    for columns, part in zip(bagging.estimators_features_, bagging.estimators_, strict=True):
        every = np.array_equal(columns, np.arange(0 if table is None else table.shape[1]))
        if table is not None:
            yield (X if every else table[:, columns]), part


def _try_transform(step: Any, view: Any) -> list[Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            after = step.transform(view)
    except Exception as error:  # a step for other columns, or one that is not fitted
        if is_alarm(error):
            raise
        return []
    return [after] if hasattr(after, "shape") else []


def as_table(view: Any) -> Any:
    """Return records as a two-dimensional array or CSR matrix; None if they are neither."""
    if sparse.issparse(view):
        return sparse.csr_matrix(view)
    if isinstance(view, pd.DataFrame):
        return view.to_numpy(dtype=float if all_numbers(view) else object, na_value=np.nan)
    values = np.asarray(view)
    if values.ndim < 2 or not values.size or values.dtype.kind not in "biufOUS":
        return None
    flat = values.reshape(len(values), -1)
    return flat if flat.dtype.kind in "biuf" else flat.astype(object)
