"""Base classes of the private linear models: input checks, public bounds and prediction."""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import AbstractContextManager
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import ClassifierMixin, RegressorMixin, read_records, validate_data
from .._sklearn import StrOptions
from .._validation import Interval, check_delta_is_small
from ..accounting import Event, PrivacyBudget
from ..accounting.calibration import analytic_noise_multiplier
from ..accounting.event import check_delta
from ..base import PrivateEstimatorMixin, PrivateFit, public_bounds
from ..mechanisms import Gaussian, Laplace
from ..mechanisms.bounds import TargetScale, UnitBall

LINEAR_DOCS = {
    "radius": """\
radius : float, default=None
    Records whose L2 norm exceeds ``radius``, after each feature is scaled to [-1, 1], get a weight
    below 1. Must not be chosen by looking at the data. ``None`` means sqrt(n_features) / 2. For
    one-hot features with bounds (-1, 1), a better choice is the root of the number of categorical
    plus numeric columns before encoding.""",
    "intercept_and_relation": """\
fit_intercept : bool, default=True
    Whether to fit a constant. It counts towards the radius.
relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
    Neighbouring relation. "replace_one" needs more noise, in some models twice as much.""",
    "coef_": """\
coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    Weights of the features.
intercept_ : ndarray of shape (1,) or (n_classes,)
    The constants.""",
    "bounds_": """\
bounds_ : tuple of two ndarrays of shape (n_features,)
    The bounds used. ``predict`` replaces a missing value by their middle.""",
}

# Value of the constant column, beside features in [-1, 1]. A larger constant adds to the norm of a
# record, and so to the noise; one much smaller than the records is suppressed by the ridge.
_CONSTANT = 0.35
_LARGEST_FEATURE = 1e150  # predictions clip features to it, so that no score overflows


@fill_docs
class PrivateLinearModel(PrivateEstimatorMixin, BaseEstimator):
    """Parameters and methods shared by all private linear models."""

    _constant_share = 0.25  # of the radius: the constant column next to the features

    _parameter_constraints: dict = {
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="left")],
        "bounds": ["array-like", None],
        "radius": [Interval(Real, 0, None, closed="neither"), None],
        "fit_intercept": ["boolean"],
        "relation": [StrOptions({"add_remove", "zero_out", "replace_one"})],
        "budget": [PrivacyBudget, None],
        "noise_seed": [Integral, None],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # refusing a record in fit would reveal its presence
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> Any:
        """Fit to private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,)
            Their targets. A classifier takes labels, each one of ``classes``.
        %(groups)s

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        ValueError
            If a parameter, a shape or a label is not as described. Nothing is released then.
        """
        with self._private_fit() as fit:
            X, y, who = self._read_records(X, y, groups)
            self._train(fit, X, y, who)
        return self

    @abstractmethod
    def _train(self, fit: PrivateFit, X: NDArray, y: NDArray, who: Groups) -> None:
        """Make the one release of the private records, and compute the coefficients from it."""

    def _read_records(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, **checks: Any
    ) -> tuple[NDArray, NDArray, Groups]:
        """Return the checked records; refuse a delta too large for the number of groups."""
        self._validate_params()
        records = self._read_arrays(X, y, groups, **checks)
        check_delta_is_small(self.delta)
        if self.relation != "add_remove" and self.delta > 0:
            check_delta(self.delta, records[2].n)
        return records

    def _read_arrays(
        self, X: Any, y: Any, groups: Any, **checks: Any
    ) -> tuple[NDArray, NDArray, Groups]:
        """Return records in memory, their targets and groups."""
        return read_records(self, X, y, groups, dtype=np.float64, **checks)

    def _unit_ball(self, fit: PrivateFit, X: NDArray) -> UnitBall:
        """Return the map of records into the unit ball, made from public bounds."""
        d = X.shape[1]
        lower, upper = self.bounds_ = public_bounds(fit, X, self.bounds)
        radius = 0.5 * math.sqrt(d) if self.radius is None else float(self.radius)
        radius = min(radius, math.sqrt(d))
        constant = max(_CONSTANT, self._constant_share * radius)
        return UnitBall(
            tuple(lower.tolist()),
            tuple(upper.tolist()),
            radius=radius,
            intercept=constant if self.fit_intercept else 0.0,
        )

    def _single_mechanism(self, sensitivity: float) -> Laplace | Gaussian:
        """Return the mechanism for a single release that spends all of epsilon and delta."""
        return additive_mechanism(float(self.epsilon), float(self.delta), sensitivity)

    def _charge_release(
        self, fit: PrivateFit, event: Event, who: Groups, arithmetic: str
    ) -> AbstractContextManager[None]:
        """Charge the budget and state the guarantee for the release in the with block."""
        return fit.charged(
            event,
            relation=self.relation,
            at_delta=self.delta,
            unit=who.unit,
            arithmetic=arithmetic,
        )

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite="allow-nan")
        X = np.where(np.isnan(X), np.add(*self.bounds_) / 2, X)
        return np.clip(X, -_LARGEST_FEATURE, _LARGEST_FEATURE) @ self.coef_.T + self.intercept_


def additive_mechanism(epsilon: float, delta: float, sensitivity: float) -> Laplace | Gaussian:
    """Return Laplace noise for an L1 sensitivity if delta is 0, else Gaussian noise for L2."""
    if delta == 0:
        return Laplace(0.0 if math.isinf(epsilon) else 1.0 / epsilon, sensitivity)
    multiplier = 0.0 if math.isinf(epsilon) else analytic_noise_multiplier(epsilon, delta)
    return Gaussian(multiplier, sensitivity)


class PrivateLinearRegressor(RegressorMixin, PrivateLinearModel):
    """Private linear regression with public bounds of the target."""

    # attributes that save_model writes; persistence.attribute_states explains the words
    _saved_state = {
        "bounds_": "bounds",
        "target_bounds_": "interval",
        "target_scale_": "choice linear log",
        "coef_": "array features",
        "intercept_": "number",
        "privacy_": "guarantee",
    }
    _parameter_constraints: dict = {
        **PrivateLinearModel._parameter_constraints,
        "target_bounds": ["array-like", None],
        "target_scale": [StrOptions({"linear", "log"})],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # epsilon=1 is too small for the few rows of a check
        return tags

    def _read_arrays(
        self, X: Any, y: Any, groups: Any, **checks: Any
    ) -> tuple[NDArray, NDArray, Groups]:
        rows, target, who = super()._read_arrays(X, y, groups, y_numeric=True, **checks)
        try:
            return rows, target.astype(np.float64), who
        except ValueError:
            raise ValueError(
                f"y holds {target.dtype.type.__name__} values; {type(self).__name__} expects "
                "numbers. Convert them with y.astype(float), or use a classifier for labels."
            ) from None

    def _coefficients(self, ball: UnitBall, solution: NDArray) -> tuple[NDArray, float]:
        """Map weights (size, 1) for targets in [-1, 1] to coefficients for the scaled target."""
        coef, intercept = ball.coefficients(solution)
        lower, upper = self._target_scale().limits
        half, middle = (upper - lower) / 2, (upper + lower) / 2
        return coef[0] * half, float(intercept[0] * half + middle)

    def _target_scale(self) -> TargetScale:
        lower, upper = self.target_bounds_
        return TargetScale(lower, upper, self.target_scale_)

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the target, clipped to its public bounds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predictions in the units of the target.
        """
        scores = self._scores(X)  # checks that the model is fitted
        return self._target_scale().from_scaled(scores)


class LinearScores(ClassifierMixin):
    """Predictions of a linear classifier.

    A subclass has ``classes_`` and the method ``_scores``, which returns one column for two
    classes.
    """

    classes_: NDArray[Any]

    if TYPE_CHECKING:  # a real method would hide the ones of the subclass's other bases

        def _scores(self, X: ArrayLike) -> NDArray[np.float64]: ...

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the log-odds of the second class, or one score per class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            The scores; one column for two classes.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``.
        """
        scores = self.decision_function(X)
        if scores.ndim == 2:
            return softmax(scores, axis=1)
        second = expit(scores)
        return np.column_stack([1.0 - second, second])

    def predict(self, X: ArrayLike) -> NDArray:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.

        Returns
        -------
        ndarray of shape (n_samples,)
            Elements of ``classes_``.
        """
        scores = self.decision_function(X)
        chosen = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
        return self.classes_[chosen]


class PrivateLinearClassifier(LinearScores, PrivateLinearModel):
    """Private linear classifier with a public set of labels."""

    _saved_state = {
        "bounds_": "bounds",
        "classes_": "labels",
        "coef_": "array outputs features",
        "intercept_": "array outputs",
        "privacy_": "guarantee",
    }
    _parameter_constraints: dict = {
        **PrivateLinearModel._parameter_constraints,
        "classes": ["array-like", None],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # epsilon=1 is too small for the few rows of a check
        return tags
