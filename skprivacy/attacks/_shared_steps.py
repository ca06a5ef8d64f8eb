"""First steps of a pipeline that learn nothing from records: run once for all shadow models."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .._stacked import StackedMember
from ._records import as_records, fingerprints, num_samples, safe_indexing

__all__ = ["add_shared_steps", "remove_shared_steps", "split_stateless_steps"]

_OWN = ("random_state", "noise_seed", "budget")  # parameters that differ between shadow models
_FEW = 16  # records on which steps are checked


def split_stateless_steps(estimator: Any, X: Any) -> tuple[Pipeline | None, Any, Any]:
    """Split a pipeline into its data-independent first steps, fitted, and the rest.

    Returns the shared steps, the rest of the pipeline, and the output of the shared steps for
    ``X``. Shared steps are transformers whose ``data_independent_`` is true after a fit: the
    features of a record do not depend on the other records.

    **Edge cases.** Without such steps, returns None, the estimator and ``X``. The same holds for a
    pipeline with ``memory`` or ``transform_input``, for subclasses of Pipeline, and for steps that
    transform a few records differently when these come alone.
    """
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
        if not _is_row_wise(clone(shared), X, seen):
            return nothing
    return shared, Pipeline(estimator.steps[n_shared:]), seen


def _is_row_wise(steps: Pipeline, X: Any, seen: Any) -> bool:
    """Return whether unfitted steps transform a few records alone as they did among all records.

    This check is needed since a subclass that overrides ``transform`` inherits its parent's
    ``data_independent_``.
    """
    n = num_samples(X)
    few = np.unique(np.linspace(0, n - 1, min(n, _FEW)).astype(int))
    records = safe_indexing(X, few)
    try:
        alone = as_records(steps.fit(records).transform(records))
    except ValueError:  # the steps need more records
        return False
    return np.array_equal(fingerprints(alone), fingerprints(safe_indexing(as_records(seen), few)))


def _is_independent(step: Any) -> bool:
    declared = getattr(step, "data_independent_", False) is True and hasattr(step, "transform")
    return declared and not any(name in step.get_params() for name in _OWN)


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
