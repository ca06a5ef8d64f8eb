"""Prediction methods of a search or a sweep, delegated to its best or refitted model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._clones import call_model, name_failing_model
from .._input_data import check_one_type, check_y
from .sweep_plan import validate_scorers


def _best_model_has(name: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), name)


class BestModelMixin:
    """Prediction methods of a search, which call its best model."""

    best_estimator_: Any

    @available_if(_best_model_has("predict"))
    def predict(self, X: Any) -> NDArray:
        """Predict with the best model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    @available_if(_best_model_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray:
        """Predict probabilities with the best model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    @available_if(_best_model_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray:
        """Return the scores of the best model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    @available_if(_best_model_has("score"))
    def score(self, X: Any, y: Any) -> float:
        """Return the best model's score on these records, which is not protected.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        float
        """
        check_is_fitted(self)
        return self.best_estimator_.score(X, y)

    @property
    def classes_(self) -> NDArray:
        """Class labels of the best model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.classes_


def _refitted_model_has(method: str) -> Callable[[Any], bool]:
    """Return whether the refitted model has a method."""

    def check(self: Any) -> bool:
        if not hasattr(self, "estimator_"):
            raise AttributeError(
                "PrivacySweepCV keeps no model with refit=None. Set refit=<epsilon> to keep one."
            )
        return hasattr(self.estimator_, method)

    return check


class RefittedMixin:
    """Prediction methods of a sweep with ``refit``, which call the model fitted to all records."""

    scoring: Any
    estimator_: Any
    _routed_to_score: Callable[[str, Any], dict[str, Any]]

    @available_if(_refitted_model_has("predict"))
    def predict(self, X: Any) -> np.ndarray:
        """Predict with the refitted model."""
        return call_model(self.estimator_, "predict", X)

    @available_if(_refitted_model_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict probabilities with the refitted model."""
        return call_model(self.estimator_, "predict_proba", X)

    @available_if(_refitted_model_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Predict log-probabilities with the refitted model."""
        return call_model(self.estimator_, "predict_log_proba", X)

    @available_if(_refitted_model_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores of the refitted model."""
        return call_model(self.estimator_, "decision_function", X)

    @available_if(_refitted_model_has("score"))
    def score(self, X: Any, y: Any = None, **params: Any) -> float:
        """Score the refitted model by ``scoring``, the first of several.

        ``params`` are routed to the scorer, with ``enable_metadata_routing``.
        """
        check_y(y)
        if y is not None:
            check_one_type("y", y)
        name, scorer = next(iter(validate_scorers(self.estimator_, self.scoring).items()))
        routed = self._routed_to_score(name, params)
        with name_failing_model(self.estimator_, "scored on X and y"):
            return scorer(self.estimator_, X, y, **routed)

    @property
    def classes_(self) -> np.ndarray:
        """Class labels of the refitted model."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.classes_
