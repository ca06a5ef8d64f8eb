"""Steps of a pipeline that learn nothing from records: taken once, for all shadow models."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .._stacked import StackedMember

__all__ = ["behind", "inside", "split"]

_OWN = ("random_state", "noise_seed", "budget")  # what each shadow model has of its own


def split(estimator: Any, X: Any) -> tuple[Pipeline | None, Any]:
    """Return the first steps of a pipeline that are alike in all its clones, fitted, and the rest.

    These are transformers whose ``data_independent_`` is true: they turn each record into the same
    features, whatever other records there are. A step that has not been fitted does not say so.

    **Edge cases.** None and the estimator itself, if there are no such steps. A pipeline that keeps
    results in a ``memory``, that transforms more than X, or a subclass, stays whole.
    """
    whole = type(estimator) is not Pipeline or estimator.memory is not None
    if whole or getattr(estimator, "transform_input", None) is not None:
        return None, estimator
    n_shared, last = 0, len(estimator.steps) - 1
    while n_shared < last and _is_independent(estimator.steps[n_shared][1]):
        n_shared += 1
    if not n_shared:
        return None, estimator
    shared = Pipeline([(name, clone(step)) for name, step in estimator.steps[:n_shared]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the target raised the same ones
        shared.fit(X)
    if not all(step.data_independent_ for _, step in shared.steps):  # changed since it was fitted
        return None, estimator
    return shared, Pipeline(estimator.steps[n_shared:])


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
