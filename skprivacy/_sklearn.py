"""All private names of scikit-learn that the library uses."""

from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import _safe_indexing as safe_indexing
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.validation import _num_samples as num_samples

__all__ = [
    "BaseSearchCV",
    "HasMethods",
    "Interval",
    "StrOptions",
    "num_samples",
    "safe_indexing",
    "validate_parameter_constraints",
]
