"""Base of output defences: classifiers that change their probabilities before showing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._clones import named_failure
from .._data_validation import ClassifierMixin, check_readable, check_y
from .._docs import fill_docs
from .._sklearn import HasMethods
from ..base import undone_on_error

__all__ = ["CONSTRAINTS", "Float64Array", "OutputDefence"]

Float64Array = NDArray[np.float64]
Self = TypeVar("Self", bound="OutputDefence")

CONSTRAINTS: dict[str, list[Any]] = {"estimator": [HasMethods(["fit", "predict_proba"])]}


@fill_docs
class OutputDefence(MetaEstimatorMixin, ClassifierMixin, BaseEstimator, ABC):
    """Base of output defences; a subclass implements ``_disguise``.

    Notes
    -----
    **Guarantees.** None: the model has learned the same as without the defence. ``claim_of`` says
    "no claim".

    **Edge cases.** ``predict`` takes the class of the largest disguised probability, so it reveals
    nothing that ``predict_proba`` does not.
    """

    _parameter_constraints: dict[str, list[Any]] = CONSTRAINTS
    estimator: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags

    def fit(self: Self, X: Any, y: ArrayLike) -> Self:
        """Fit a clone of the classifier, and the defence.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Training records.
        y : array-like of shape (n_samples,)
            Their labels.

        Returns
        -------
        %(fit_returns)s
        """
        self._validate_params()
        with undone_on_error(self):  # an error leaves an earlier fit unchanged
            self._fit_estimator(X, y)
            self.classes_ = self.estimator_.classes_
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self.estimator_, name):
                    setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict_proba(self, X: Any) -> Float64Array:
        """Return the disguised probabilities.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities; each row adds up to 1.
        """
        return self._disguise(self._model_probabilities(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of the largest disguised probability.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        shown = self.predict_proba(X)
        return np.asarray(self.classes_[shown.argmax(axis=1)])

    def _model_probabilities(self, X: Any) -> Float64Array:
        """Return the unchanged probabilities of the model."""
        check_is_fitted(self, "estimator_")
        check_readable(X)
        with named_failure(self.estimator_, "asked about X"):
            return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def _fit_estimator(self, X: Any, y: Any) -> None:
        check_readable(X)
        check_y(y)
        with named_failure(self.estimator, "trained on X and y"):
            self.estimator_ = clone(self.estimator).fit(X, y)

    @abstractmethod
    def _disguise(self, proba: Float64Array) -> Float64Array:
        """Return the probabilities to show, given the model's, of shape (n_samples, n_classes)."""
