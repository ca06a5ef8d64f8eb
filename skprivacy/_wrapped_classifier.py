"""Estimators that answer by a model that they hold: predictions, and the constant model.

A search or a sweep passes calls on to its model. A classifier may fit an unprotected model, to
noisy labels or synthetic records, on the indices 0 .. k-1 of its classes, and answer with
``classes_``. A class without any label is not known to that model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MetaEstimatorMixin
from sklearn.dummy import DummyClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ._clones import call_model, name_failing_model
from ._input_data import ClassifierMixin
from ._validation import num_samples


def constant_model(code: int) -> DummyClassifier:
    """Return a fitted model that always predicts one class, for labels of that class only."""
    return DummyClassifier(strategy="constant", constant=code).fit([[0.0]], [code])


def feed_constant_model(model: Any, rows: Any) -> Any:
    """Return the rows, or as many zeros for a constant model, which uses no feature."""
    return np.zeros((num_samples(rows), 1)) if isinstance(model, DummyClassifier) else rows


def delegates_to(method: str) -> Callable[..., Any]:
    """Return a decorator that hides a method if the wrapped model lacks ``method``."""

    def has(self: Any) -> bool:
        fitted = hasattr(self, self._wrapped)
        return hasattr(getattr(self, self._wrapped) if fitted else self._unfitted_model(), method)

    return available_if(has)


class DelegatingMixin:
    """Prediction methods that call the model in the attribute ``_wrapped``."""

    estimator: Any
    _wrapped: ClassVar[str]

    def _unfitted_model(self) -> Any:
        """Return the model whose methods exist before a fit."""
        return self.estimator

    def _call(self, method: str, X: Any) -> NDArray[Any]:
        check_is_fitted(self, self._wrapped)
        found: NDArray[Any] = call_model(getattr(self, self._wrapped), method, X)
        return found

    @delegates_to("predict")
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions of the kept model, of shape (n_samples,)."""
        return self._call("predict", X)

    @delegates_to("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probabilities of the kept model, of shape (n_samples, n_classes)."""
        return self._call("predict_proba", X)

    @delegates_to("predict_log_proba")
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the log-probabilities of the kept model, of shape (n_samples, n_classes)."""
        return self._call("predict_log_proba", X)

    @delegates_to("decision_function")
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores of the kept model, of shape (n_samples,) or (n_samples, n_classes)."""
        return self._call("decision_function", X)

    @property
    def classes_(self) -> NDArray[Any]:
        """Class labels of the kept model."""
        check_is_fitted(self, self._wrapped)
        return getattr(self, self._wrapped).classes_


class WrappedClassifier(MetaEstimatorMixin, ClassifierMixin):
    """Mixin that predicts by a fitted model of indices of ``classes_``."""

    _wrapped: ClassVar[str] = "estimator_"  # name of the attribute that holds the fitted model

    if TYPE_CHECKING:  # real methods would hide methods of a subclass's other bases

        def _unfitted_model(self) -> Any:
            """Return a model with the methods of the one that will be fitted."""

        def _rows(self, X: Any) -> Any:
            """Check that a model is fitted; return records in the form that it takes."""

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        rows = self._rows(X)
        model = getattr(self, self._wrapped)
        with name_failing_model(model, "asked about X"):
            return self.classes_[model.predict(feed_constant_model(model, rows))]

    @delegates_to("predict_proba")
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class; 0 for a class without any label.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        rows = self._rows(X)
        model = getattr(self, self._wrapped)
        found = np.zeros((num_samples(rows), len(self.classes_)))
        with name_failing_model(model, "asked about X"):
            found[:, model.classes_] = model.predict_proba(feed_constant_model(model, rows))
        return found
