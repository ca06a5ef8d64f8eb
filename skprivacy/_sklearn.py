"""All private names of scikit-learn that the library uses.

scikit-learn's metrics and searches are imported inside functions: accounting imports this module
and needs neither.
"""

from copy import copy
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
from sklearn.utils.validation import _num_samples as count_samples

__all__ = [
    "HasMethods",
    "Interval",
    "InvalidParameterError",
    "StrOptions",
    "count_samples",
    "is_search",
    "output_container",
    "safe_indexing",
    "set_positive_class",
    "takes_weights",
    "uses_predictions_only",
    "validate_parameter_constraints",
]


def uses_predictions_only(scorer: Any) -> bool:
    """Return whether a scorer uses records only to call the model's prediction methods."""
    from sklearn.metrics._scorer import _PassthroughScorer, _Scorer

    return type(scorer) in (_PassthroughScorer, _Scorer)


def set_positive_class(scorer: Any, label: Any) -> Any:
    """Return a scorer of one class, such as "f1", for the class ``label``; None for others."""
    asks = "pos_label" in signature(scorer._score_func).parameters
    if not asks or scorer._kwargs.get("average", "binary") != "binary":
        return None
    found = copy(scorer)
    found._kwargs = {**scorer._kwargs, "pos_label": label}
    return found


def is_search(model: Any) -> bool:
    """Return whether a model is a search of scikit-learn, or derives from one."""
    from sklearn.model_selection._search import BaseSearchCV

    return isinstance(model, BaseSearchCV)


def output_container(transformer: Any) -> str | None:
    """Return the container that ``set_output`` has set for the output of transform, or None."""
    found: str | None = getattr(transformer, "_sklearn_output_config", {}).get("transform")
    return found


def takes_weights(scorer: Any) -> bool:
    """Return whether a scorer takes ``sample_weight``."""
    asks = getattr(scorer, "_accept_sample_weight", None)  # since scikit-learn 1.7
    if asks is not None:
        return bool(asks())
    return "sample_weight" in signature(getattr(scorer, "_score_func", scorer)).parameters
