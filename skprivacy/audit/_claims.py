"""What a fitted model claims about its privacy, and which of its steps the claim leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

__all__ = ["auc_ceiling", "guarantee_of", "uncovered_steps"]


def guarantee_of(model: Any) -> Any | None:
    """Return the guarantee of a fitted model or of a pipeline's last step; None without a claim."""
    while True:
        if (guarantee := getattr(model, "privacy_", None)) is not None:
            return guarantee
        inner = model.steps[-1][1] if isinstance(model, Pipeline) else None
        inner = inner or getattr(model, "best_estimator_", None)
        if inner is None:
            return None
        model = inner


def uncovered_steps(model: Any) -> dict[str, str]:
    """Return the transformers that saw private data outside any guarantee, and why.

    **Guarantees.** A step passes only if it says ``data_independent_``, has a ``privacy_`` of its
    own, or needs no ``fit``; an unknown transformer is taken to have read the data.
    """
    return {name: _reason(step) for name, step in _transformers(model) if not _is_covered(step)}


def auc_ceiling(guarantee: Any) -> float:
    """Return the most AUC that any membership attack can reach under a guarantee.

    The area under ``tpr_bound``, taken as an upper sum: the bound grows with the false positive
    rate, so that each strip's right end covers it.
    """
    edges = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 400)])
    return float(min(1.0, np.sum(np.diff(edges) * guarantee.tpr_bound(edges[1:]))))


def _transformers(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and steps before the last one, those inside of unions included."""
    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, Pipeline):
        return
    for name, step in model.steps[:-1]:
        yield from _leaves(name, step)
    yield from _transformers(model.steps[-1][1])


def _leaves(name: str, step: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(step, Pipeline):
        parts = [(part, inner) for part, inner in step.steps]
    elif isinstance(step, ColumnTransformer):
        parts = [(part, inner) for part, inner, _ in getattr(step, "transformers_", [])]
    elif isinstance(step, FeatureUnion):
        parts = [(part, inner) for part, inner in step.transformer_list]
    else:
        yield name, step
        return
    for part, inner in parts:
        yield from _leaves(f"{name}.{part}", inner)


def _is_covered(step: Any) -> bool:
    if step is None or isinstance(step, str):  # "passthrough" and "drop"
        return True
    if hasattr(step, "data_independent_"):
        return bool(step.data_independent_)
    return hasattr(step, "privacy_") or not get_tags(step).requires_fit


def _reason(step: Any) -> str:
    kind = type(step).__name__
    if hasattr(step, "data_independent_"):
        return f"{kind} inferred its schema from the private data; give it a public Schema"
    return (
        f"{kind} was fitted on the private data outside the guarantee; "
        "use SchemaTransformer with public bounds instead"
    )
