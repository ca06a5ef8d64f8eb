"""What a private search does by its best model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

__all__ = ["BestModelMixin"]


def _best_has(name: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "best_estimator_", self.estimator), name)


class BestModelMixin:
    """The methods of the model that a search has released."""

    best_estimator_: Any

    @available_if(_best_has("predict"))
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

    @available_if(_best_has("predict_proba"))
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

    @available_if(_best_has("decision_function"))
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

    @available_if(_best_has("score"))
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
