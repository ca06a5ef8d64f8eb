"""Prediction methods of a search or a sweep, delegated to the model that it has kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._clones import call_model


def kept_model_has(method: str) -> Callable[[Any], bool]:
    """Return whether the kept model has a method."""

    def check(self: Any) -> bool:
        return hasattr(self._kept_model(), method)

    return check


class DelegatingMixin:
    """Prediction methods that call the model in the attribute ``_kept``."""

    estimator: Any
    _kept: ClassVar[str]

    def _kept_model(self) -> Any:
        """Return the kept model, or the estimator before the fit."""
        return getattr(self, self._kept, self.estimator)

    def _call(self, method: str, X: Any) -> NDArray[Any]:
        check_is_fitted(self, self._kept)
        found: NDArray[Any] = call_model(self._kept_model(), method, X)
        return found

    @available_if(kept_model_has("predict"))
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions of the kept model, of shape (n_samples,)."""
        return self._call("predict", X)

    @available_if(kept_model_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probabilities of the kept model, of shape (n_samples, n_classes)."""
        return self._call("predict_proba", X)

    @available_if(kept_model_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the log-probabilities of the kept model, of shape (n_samples, n_classes)."""
        return self._call("predict_log_proba", X)

    @available_if(kept_model_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores of the kept model, of shape (n_samples,) or (n_samples, n_classes)."""
        return self._call("decision_function", X)

    @property
    def classes_(self) -> NDArray[Any]:
        """Class labels of the kept model."""
        check_is_fitted(self, self._kept)
        return self._kept_model().classes_
