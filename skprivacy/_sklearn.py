"""All private names of scikit-learn that the library uses.

Accounting imports this file, but neither metrics nor searches: those are imported when asked for.
"""

from inspect import signature
from typing import Any

from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    InvalidParameterError,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.validation import _num_samples

__all__ = [
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "asks_predictions_alone",
    "is_search",
    "num_samples",
    "output_container",
    "safe_indexing",
    "takes_weights",
    "validate_parameter_constraints",
]


def asks_predictions_alone(scorer: Any) -> bool:
    """Return whether a scorer does nothing with records but to hand them to the model."""
    from sklearn.metrics._scorer import _PassthroughScorer, _Scorer

    return type(scorer) in (_PassthroughScorer, _Scorer)


def is_search(model: Any) -> bool:
    """Return whether a model is one of scikit-learn's searches, or made after them."""
    from sklearn.model_selection._search import BaseSearchCV

    return isinstance(model, BaseSearchCV)


def num_samples(X: Any, name: str = "X") -> int:
    """Return the number of records; TypeError for what holds none, which is not shown."""
    try:
        return int(_num_samples(X))
    except TypeError:
        pass
    raise TypeError(f"{name} must hold one value or row for each record; got {type(X).__name__}.")


def output_container(transformer: Any) -> str | None:
    """Return the container that ``transformer.set_output`` was called with; None if it was not."""
    found: str | None = getattr(transformer, "_sklearn_output_config", {}).get("transform")
    return found


def takes_weights(scorer: Any) -> bool:
    """Return whether a scorer takes ``sample_weight``."""
    asks = getattr(scorer, "_accept_sample_weight", None)  # since scikit-learn 1.7
    if asks is not None:
        return bool(asks())
    return "sample_weight" in signature(getattr(scorer, "_score_func", scorer)).parameters
