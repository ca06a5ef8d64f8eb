"""Prediction methods of a search or a sweep, delegated to the model that it has kept."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._clones import call_model, delegates_to


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
