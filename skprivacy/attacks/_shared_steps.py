"""Steps of a pipeline that learn nothing from records: taken once, for all shadow models."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .._stacked import StackedMember
from ._records import as_records, fingerprints, num_samples, safe_indexing

__all__ = ["behind", "inside", "split"]

_OWN = ("random_state", "noise_seed", "budget")  # what each shadow model has of its own
_FEW = 16  # records on which steps are tried


def split(estimator: Any, X: Any) -> tuple[Pipeline | None, Any, Any]:
    """Return the first steps of a pipeline that are alike in all its clones, fitted, and the rest.

    The last of the three is what the first steps make of ``X``.

    These are transformers whose ``data_independent_`` is true: they turn each record into the same
    features, whatever other records there are. A step that has not been fitted does not say so.

    **Edge cases.** None, the estimator itself and ``X``, if there are no such steps. A pipeline
    that keeps results in a ``memory``, that transforms more than X, or a subclass, stays whole, and
    so does one that makes something else of a few records when they come alone.
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
        if not all(step.data_independent_ for _, step in shared.steps):  # changed since its fit
            return nothing
        seen = shared.transform(X)
        if not _is_of_each_by_itself(clone(shared), X, seen):
            return nothing
    return shared, Pipeline(estimator.steps[n_shared:]), seen


def _is_of_each_by_itself(steps: Pipeline, X: Any, seen: Any) -> bool:
    """Return whether new steps make of a few records what others made of them among all.

    A subclass that overrides ``transform`` inherits what its parent says of itself.
    """
    n = num_samples(X)
    few = np.unique(np.linspace(0, n - 1, min(n, _FEW)).astype(int))
    records = safe_indexing(X, few)
    try:
        alone = as_records(steps.fit(records).transform(records))
    except ValueError:  # so few will not do
        return False
    return np.array_equal(fingerprints(alone), fingerprints(safe_indexing(as_records(seen), few)))


def _is_independent(step: Any) -> bool:
    told = getattr(step, "data_independent_", False) is True and hasattr(step, "transform")
    return told and not any(name in step.get_params() for name in _OWN)


def behind(shared: Pipeline | None, model: Any) -> Any:
    """Return the model that takes records as they are before the shared steps."""
    if shared is None:
        return model
    if isinstance(model, StackedMember):
        own = [] if model.preprocessing is None else model.preprocessing.steps
        return replace(model, preprocessing=Pipeline([*shared.steps, *own]))
    return Pipeline([*shared.steps, *model.steps])


def inside(shared: Pipeline, model: Any) -> Any:
    """Return the model that takes records as they are after the shared steps."""
    n_shared = len(shared.steps)
    if isinstance(model, StackedMember):
        own = model.preprocessing.steps[n_shared:]
        return replace(model, preprocessing=Pipeline(own) if own else None)
    return model[n_shared:]
