"""Output defences: classifiers that change their probabilities before showing them.

Temperature, top-k and rounding follow Shokri et al. 2017, section VIII. Start reading at the base,
:class:`OutputDefense`.
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
    "defended_estimator": """\
estimator : classifier with ``predict_proba``
    Cloned and fitted.""",
    "fitted_estimator": """\
estimator_ : classifier
    The fitted clone, unprotected. Share predictions only, not this object.""",
    "shokri": """\
R. Shokri, M. Stronati, C. Song, V. Shmatikov, "Membership inference attacks against machine
learning models", S&P 2017, section VIII.""",
    "still_separate": """\
**Guarantees.** None. The shown probabilities still separate members from non-members, and so do
labels alone.""",
}
CONSTRAINTS: dict[str, list[Any]] = {"estimator": [HasMethods(["fit", "predict_proba"])]}


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
class TemperatureClassifier(OutputDefense):
    """Classifier with probabilities softened by a temperature. It proves nothing.

    Parameters
    ----------
    %(defended_estimator)s
    temperature : float, default=5.0
        Divisor of the log-probabilities: 1 changes nothing, larger is softer.

    Attributes
    ----------
    %(fitted_estimator)s
    %(classes_)s

    Notes
    -----
    **Guarantees.** None. An attacker who knows the temperature undoes it.

    **Edge cases.** Probabilities of 0 stay 0, and labels stay as they are.

    References
    ----------
    %(shokri)s

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skprivacy.defenses import TemperatureClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TemperatureClassifier(DecisionTreeClassifier(max_depth=2, random_state=0)).fit(X, y)
    >>> model.predict_proba(X[60:61]).round(2)
    array([[0.  , 0.61, 0.39]])
    """

    _parameter_constraints = {
        **CONSTRAINTS,
        "temperature": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(self, estimator: Any, *, temperature: float = 5.0) -> None:
        self.estimator = estimator
        self.temperature = temperature

    def _disguise(self, proba: Float64Array) -> Float64Array:
        # Shokri et al. 2017, section VIII: increase the entropy of the prediction vector. Relative
        # to the largest probability, so that no row underflows to zeros.
        softer = (proba / proba.max(axis=1, keepdims=True)) ** (1 / self.temperature)
        return np.asarray(softer / softer.sum(axis=1, keepdims=True))


@fill_docs(DEFENCE_DOCS)
class TopKClassifier(OutputDefense):
    """Classifier that shows the probabilities of the k likeliest classes only. It proves nothing.

    Parameters
    ----------
    %(defended_estimator)s
    k : int, default=1
        Number of probabilities shown; the other classes share the rest equally.

    Attributes
    ----------
    %(fitted_estimator)s
    %(classes_)s

    Notes
    -----
    %(still_separate)s

    **Edge cases.** Of equal probabilities the first classes are shown. With ``k`` of at least the
    number of classes nothing changes.

    References
    ----------
    %(shokri)s

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skprivacy.defenses import TopKClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> TopKClassifier(GaussianNB(), k=1).fit(X, y).predict_proba(X[70:71]).round(2)
    array([[0.08, 0.08, 0.85]])
    """

    _parameter_constraints = {
        **CONSTRAINTS,
        "k": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, estimator: Any, *, k: int = 1) -> None:
        self.estimator = estimator
        self.k = k

    def _disguise(self, proba: Float64Array) -> Float64Array:
        # Shokri et al. 2017, section VIII: restrict the prediction vector to the top k classes
        n_hidden = proba.shape[1] - self.k
        if n_hidden <= 0:
            return proba
        hidden = np.argsort(-proba, axis=1, kind="stable")[:, self.k :]
        rest = np.take_along_axis(proba, hidden, 1).sum(axis=1, keepdims=True)
        shown = proba.copy()
        np.put_along_axis(shown, hidden, rest / n_hidden, 1)
        return shown


@fill_docs(DEFENCE_DOCS)
class RoundedClassifier(OutputDefense):
    """Classifier with rounded probabilities. It proves nothing.

    Parameters
    ----------
    %(defended_estimator)s
    decimals : int, default=1
        Number of decimal digits to keep.

    Attributes
    ----------
    %(fitted_estimator)s
    %(classes_)s

    Notes
    -----
    %(still_separate)s

    **Edge cases.** Rounded probabilities are divided by their sum. Where all of them would be 0,
    the likeliest class gets 1. Of classes that rounding makes equal, ``predict`` takes the first.

    References
    ----------
    %(shokri)s

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skprivacy.defenses import RoundedClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> RoundedClassifier(GaussianNB()).fit(X, y).predict_proba(X[70:71])
    array([[0. , 0.2, 0.8]])
    """

    _parameter_constraints = {
        **CONSTRAINTS,
        "decimals": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(self, estimator: Any, *, decimals: int = 1) -> None:
        self.estimator = estimator
        self.decimals = decimals

    def _disguise(self, proba: Float64Array) -> Float64Array:
        # Shokri et al. 2017, section VIII: coarsen the precision of the prediction vector
        rounded = proba.round(self.decimals)
        empty = rounded.sum(axis=1) == 0
        rounded[empty, proba[empty].argmax(axis=1)] = 1.0
        return np.asarray(rounded / rounded.sum(axis=1, keepdims=True))
