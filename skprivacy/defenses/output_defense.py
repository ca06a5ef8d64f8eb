"""Output defences: classifiers that change their probabilities before showing them.

Temperature, top-k and rounding follow Shokri et al. 2017, section VIII.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._clones import name_failing_model
from .._docs import fill_docs
from .._input_data import ClassifierMixin, check_readable, check_y
from .._sklearn import HasMethods
from .._validation import Interval
from ..base import roll_back_on_error

Float64Array = NDArray[np.float64]
Self = TypeVar("Self", bound="OutputDefense")
DEFENCE_DOCS = {
    "fitted_estimator": """\
estimator_ : classifier
    The fitted clone, unprotected. Share predictions only, not this object."""
}


@fill_docs
class OutputDefense(MetaEstimatorMixin, ClassifierMixin, BaseEstimator, ABC):
    """Base of output defences; a subclass implements ``_disguise``.

    Notes
    -----
    **Guarantees.** None: the model has learned the same as without the defence. ``claim_of`` says
    "no claim".

    **Edge cases.** ``predict`` takes the class of the largest disguised probability, so it reveals
    nothing that ``predict_proba`` does not.
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "predict_proba"])]
    }
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
        with roll_back_on_error(self):  # an error leaves an earlier fit unchanged
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
        with name_failing_model(self.estimator_, "asked about X"):
            return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def _fit_estimator(self, X: Any, y: Any) -> None:
        check_readable(X)
        check_y(y)
        with name_failing_model(self.estimator, "trained on X and y"):
            self.estimator_ = clone(self.estimator).fit(X, y)

    @abstractmethod
    def _disguise(self, proba: Float64Array) -> Float64Array:
        """Return the probabilities to show, given the model's, of shape (n_samples, n_classes)."""


@fill_docs(DEFENCE_DOCS)
class CoarsenedClassifier(OutputDefense):
    """Classifier with softened, truncated or rounded probabilities. It proves nothing.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``
        Cloned and fitted.
    temperature : float, default=1.0
        Divisor of the log-probabilities: 1 changes nothing, larger is softer.
    top_k : int, default=None
        Number of probabilities shown; the other classes share the rest equally. ``None`` shows all.
    decimals : int, default=None
        Number of decimal digits to keep; 0 shows only the label. ``None`` keeps all.

    Attributes
    ----------
    %(fitted_estimator)s
    %(classes_)s

    Notes
    -----
    **Guarantees.** None. Even labels without probabilities separate members from non-members. An
    attacker who knows the temperature undoes it.

    **Edge cases.** The changes are made in the order of the parameters. Probabilities of 0 stay 0
    under a temperature. Of equal probabilities the first ``top_k`` are shown. Rounded probabilities
    are divided by their sum. Where all of them would be 0, the likeliest class gets 1. Of classes
    that rounding makes equal, ``predict`` takes the first.

    References
    ----------
    R. Shokri, M. Stronati, C. Song, V. Shmatikov, "Membership inference attacks against machine
    learning models", S&P 2017, section VIII.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skprivacy.defenses import CoarsenedClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> CoarsenedClassifier(GaussianNB(), top_k=1).fit(X, y).predict_proba(X[70:71]).round(2)
    array([[0.08, 0.08, 0.85]])
    """

    _parameter_constraints = OutputDefense._parameter_constraints | {
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "top_k": [Interval(Integral, 1, None, closed="left"), None],
        "decimals": [Interval(Integral, 0, None, closed="left"), None],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        decimals: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.temperature = temperature
        self.top_k = top_k
        self.decimals = decimals

    def _disguise(self, proba: Float64Array) -> Float64Array:
        # Shokri et al. 2017, section VIII: increase the entropy of the prediction vector, restrict
        # it to the top k classes, coarsen its precision
        if self.temperature != 1:
            # relative to the largest probability, so that no row underflows to zeros
            softer = (proba / proba.max(axis=1, keepdims=True)) ** (1 / self.temperature)
            proba = softer / softer.sum(axis=1, keepdims=True)
        if self.top_k is not None and self.top_k < proba.shape[1]:
            hidden = np.argsort(-proba, axis=1, kind="stable")[:, self.top_k :]
            rest = np.take_along_axis(proba, hidden, 1).mean(axis=1, keepdims=True)
            proba = proba.copy()
            np.put_along_axis(proba, hidden, rest, 1)
        if self.decimals is not None:
            rounded = proba.round(self.decimals)
            empty = rounded.sum(axis=1) == 0
            rounded[empty, proba[empty].argmax(axis=1)] = 1.0
            proba = rounded / rounded.sum(axis=1, keepdims=True)
        return proba
