"""What a sweep does by its refitted model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._clones import asked, named_failure
from .._data_validation import check_y
from .._validation import check_one_type
from ._checks import checked_scorers

__all__ = ["RefittedMixin"]


def _refitted(method: str) -> Callable[[Any], bool]:
    """Return whether the refitted model has a method."""

    def check(self: Any) -> bool:
        if not hasattr(self, "estimator_"):
            raise AttributeError(
                "PrivacySweepCV keeps no model with refit=None. Set refit=<epsilon> to keep one."
            )
        return hasattr(self.estimator_, method)

    return check


class RefittedMixin:
    """The methods of a model that a sweep has trained on all records, if it was told to."""

    scoring: Any
    estimator_: Any
    _routed_to_score: Callable[[str, Any], dict[str, Any]]

    @available_if(_refitted("predict"))
    def predict(self, X: Any) -> np.ndarray:
        """Predict with the refitted model."""
        return asked(self.estimator_, "predict", X)

    @available_if(_refitted("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict probabilities with the refitted model."""
        return asked(self.estimator_, "predict_proba", X)

    @available_if(_refitted("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Predict log-probabilities with the refitted model."""
        return asked(self.estimator_, "predict_log_proba", X)

    @available_if(_refitted("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the refitted model."""
        return asked(self.estimator_, "decision_function", X)

    @available_if(_refitted("score"))
    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """Score the refitted model by ``scoring``, the first of several.

        ``params`` are routed to the scorer, with ``enable_metadata_routing``.
        """
        check_y(y)
        if y is not None:
            check_one_type("y", y)
        name, scorer = next(iter(checked_scorers(self.estimator_, self.scoring).items()))
        routed = self._routed_to_score(name, params)
        with named_failure(self.estimator_, "scored on X and y"):
            return scorer(self.estimator_, X, y, **routed)

    @property
    def classes_(self) -> np.ndarray:
        """Class labels of the refitted model."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.classes_
