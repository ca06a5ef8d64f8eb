"""Base classes of the private linear models: public bounds, exact sums and polynomial losses.

AdaSSP and the functional mechanism release second moments of records, and products with slopes of
the target, in :class:`PolynomialObjective`. :class:`GramPlan` computes these sums, and
:class:`GramModel` fits to them.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import RegressorMixin, read_records, validate_data
from .._sklearn import StrOptions
from .._validation import Interval
from ..accounting import PrivacyBudget
from ..accounting.calibration import analytic_noise_multiplier
from ..base import PrivateEstimatorMixin, PrivateFit, public_bounds
from ..mechanisms import Gaussian, Laplace
from ..mechanisms.base import TargetScale, UnitBall, quantize
from ..sums import SumTotal
from ..sums.batch_columns import read_numbers
from ..sums.sources import SumSource
from ..sums.sum_estimator import SUM_DOCS, SumEstimator
from ..sums.sum_plan import Integers, Labels, TargetPlan, TargetRange

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
_INWARDS = 1.0 - 2.0**-40  # outweighs the rounding of a norm
_LARGEST_FEATURE = 1e150  # predictions clip features to it, so that no score overflows


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


@dataclass(frozen=True)
class PolynomialObjective:
    """Quadratic loss of a record, ``sum_k slope_k(y) t_k + curvature t_k**2`` with t_k = x @ w_k.

    Order 1 releases only the diagonal of the second moments, and replaces ``(x @ w)**2`` by
    ``sum_i (x_i w_i)**2``: less noise, but features are treated as uncorrelated.
    """

    n_classes: int | None  # None: a number as target
    curvature: float
    slope_l1: float  # bounds on the norms of one record's slopes
    slope_l2: float
    order: int = 2

    def sensitivity(self, size: int, l1_radius: float, relation: str, pure: bool) -> float:
        """Return the sensitivity of :meth:`coefficients`: in L1 if ``pure``, else in L2.

        Rows x have ``size`` columns p, an L2 norm of at most 1 and an L1 norm of at most r =
        ``l1_radius``. Slopes are scaled to norm 1 and multiplied by a power of two a. For order 2:

        - L1, one record: the linear part is at most a r, and the upper triangle of x x' is
          (``||x||_1**2 + ||x||_2**2) / 2 <= (r**2 + 1) / 2``. Both bounds are attained jointly.
        - L1, two records: the linear part is at most 2 a r. For M = x x' - z z', the sum over the
          triangle is the maximum over sign matrices S of <S, M> / 2, with the diagonal of S
          counted twice. It is at most the spread of the eigenvalues of S, which is at most sqrt(2)
          times its Frobenius norm (Mirsky 1956): sqrt((p**2 + 3 p) / 2), about 0.71 times twice
          the bound for one record.
        - L2, one record: the whole matrix has Frobenius norm ``||x||**2 <= 1``.
        - L2, two records: ``||x x' - z z'||_F**2 = |x|^4 + |z|^4 - 2 (x z)^2 <= 2``.

        For order 1 the diagonal has ``sum x_i**2 <= 1`` in L1, hence in L2; two records with
        disjoint support differ by 2 in L1 and by sqrt(2) in L2.
        """
        # Zhang et al. 2012, Algorithm 1, line 1: the sensitivity Delta
        a, r, p = self.balance(pure), l1_radius, size
        if relation == "replace_one":
            if not pure:
                return math.sqrt(4.0 * a * a + 2.0)
            two = 2.0 if self.order == 1 else min(r * r + 1.0, math.sqrt((p * p + 3.0 * p) / 2.0))
            return 2.0 * a * r + two
        if not pure:
            return math.hypot(a, 1.0)
        return a * r + (1.0 if self.order == 1 else (r * r + 1.0) / 2.0)

    def balance(self, pure: bool) -> float:
        """Return the power of two nearest to the slope bound over twice the curvature."""
        # It is the scale of a solution, so it balances the noise of the linear and the quadratic
        # part. On public tables it is more accurate than the published weighting, twice as large.
        return 2.0 ** round(math.log2(self.unit(pure)))

    def unit(self, pure: bool) -> float:
        """Return the slope bound over twice the curvature: the scale of a solution."""
        return (self.slope_l1 if pure else self.slope_l2) / (2.0 * self.curvature)

    def coefficients(
        self, quadratic: NDArray[np.float64], linear: NDArray[np.float64], pure: bool
    ) -> NDArray[np.float64]:
        """Return the released coefficients, from sums of x x' and of x s' with bounded slopes s."""
        # Zhang et al. 2012, Algorithm 1, lines 2 to 4: coefficients of degree 1 and 2
        entries = self.released_entries(len(quadratic), pure)
        return np.concatenate([self.balance(pure) * linear.ravel(), quadratic[entries]])

    def released_entries(self, p: int, pure: bool) -> tuple[NDArray, ...]:
        """Return the indices of the released entries of the quadratic part."""
        # Gaussian noise is added to both triangles, because the Frobenius norm of the whole matrix
        # is the tightest bound for one record. The mean of both triangles has half the variance.
        if self.order == 1:
            return np.diag_indices(p)
        if pure:
            return np.triu_indices(p)
        return tuple(np.indices((p, p)).reshape(2, -1))

    def bounded_slopes(self, target: NDArray, pure: bool) -> NDArray[np.float64]:
        """Return slopes at t = 0, divided by their bound and clipped to norm 1, (n, n_outputs)."""
        labels, k = target[:, None], self.n_classes
        if k is None:
            slopes = -2.0 * labels
        else:
            slopes = 0.5 - labels if k == 2 else 1.0 / k - (labels == np.arange(k))
        slopes /= self.slope_l1 if pure else self.slope_l2
        norms = np.linalg.norm(slopes, ord=1 if pure else 2, axis=1)
        slopes *= (_INWARDS / np.maximum(norms, 1.0))[:, None]
        return slopes


def squared_objective() -> PolynomialObjective:
    """Return the squared loss ``(y - t)**2`` for targets in [-1, 1]."""
    # Zhang et al. 2012, linear regression: the loss is a polynomial of degree 2 without expansion
    return PolynomialObjective(n_classes=None, curvature=1.0, slope_l1=2.0, slope_l2=2.0)


def multinomial_objective(n_classes: int, order: int = 2) -> PolynomialObjective:
    """Return the second-order expansion of the logistic loss at t = 0, for labels 0 .. k-1.

    Two classes have one margin: ``log(1 + exp(t)) - y t``, about ``(1/2 - y) t + t**2 / 8``.
    More classes have one margin each, summing to 0:
    ``sum_k (1/k - [y = k]) t_k + t_k**2 / (2 k)``.
    """
    k = n_classes
    # Zhang et al. 2012, logistic regression: Taylor expansion of log(1 + exp(t)), cut after t**2
    two = k == 2
    return PolynomialObjective(
        n_classes=k,
        curvature=0.125 if two else 0.5 / k,
        slope_l1=0.5 if two else 2.0 * (1.0 - 1.0 / k),
        slope_l2=0.5 if two else math.sqrt(1.0 - 1.0 / k),
        order=order,
    )


@dataclass(frozen=True)
class GramPlan(TargetPlan):
    """Sums of x x' and x s', for x in the unit ball and slopes s; incomplete records add 0."""

    ball: UnitBall
    encoding: TargetRange | Labels
    objective: PolynomialObjective | None = None  # None: the target itself is the slope
    pure: bool = False  # norm of the slopes: L1 if True, else L2

    @property
    def n_slopes(self) -> int:
        """Number of slopes of a record."""
        return self._slopes(np.zeros(1)).shape[1]

    @property
    def n_sums(self) -> int:
        return self.ball.size * (self.ball.size + self.n_slopes)

    def facts(self) -> dict[str, Any]:
        ball = self.ball
        return {
            "columns": self.record_columns,
            "ball": [ball.lower, ball.upper, ball.radius, ball.intercept],
            "target": self.encoding.facts(),
            "slopes": None if self.objective is None else [*astuple(self.objective), self.pure],
        }

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        return read_numbers(batch, self.features), self.encoding.read_target(batch, self.target)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        X, target = records[0], self.encoding.encode(records[1])
        shares = np.ones(len(X)) if sizes is None else Groups.exact_shares_of(sizes)
        missing = np.isnan(target)
        shares[missing] = 0.0
        rows, weights = self.ball.transform(X, shares)
        slopes = quantize(self._slopes(np.where(missing, 0.0, target)) * weights[:, None])
        return self._as_integers(
            np.concatenate([(rows.T @ rows).ravel(), (rows.T @ slopes).ravel()])
        )

    def _slopes(self, target: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.objective is None:
            return target[:, None]
        return self.objective.bounded_slopes(target, self.pure)

    def matrices(self, total: SumTotal) -> tuple[NDArray, NDArray]:
        """Return the second moments (size, size) and the products (size, n_slopes)."""
        p = self.ball.size
        moments, products = np.split(self.sums(total), [p * p])
        return moments.reshape(p, p), products.reshape(p, -1)


@fill_docs(SUM_DOCS)
class GramModel(PrivateLinearModel, SumEstimator):
    """Private linear model that releases a :class:`GramPlan` once."""

    def fit(self, X: Any, y: ArrayLike | str, *, groups: ArrayLike | str | None = None) -> Any:
        """Fit to private records in memory, or to a table where it lies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or table
            Private records. A table of pandas, polars, pyarrow, DuckDB, Dask, Ray or Spark stays in
            its engine, which computes sums. All of its columns but ``y`` and ``groups`` are
            features.
        y : array-like of shape (n_samples,) or str
            Targets, or the column of a table that holds them. A classifier takes labels, each one
            of ``classes``.
        %(table_groups)s

        Returns
        -------
        %(fit_returns)s

        Raises
        ------
        %(table_raises)s

        Notes
        -----
        %(table_edge_cases)s
        """
        return self._fit_table(X, y, groups)

    def _make_plan(
        self,
        fit: PrivateFit,
        source: SumSource,
        encoding: TargetRange | Labels,
        objective: PolynomialObjective | None = None,
    ) -> GramPlan:
        """Return the plan of the sums, from public facts."""
        return GramPlan(
            features=self._feature_names(source),
            target=source.target,
            ball=self._unit_ball(fit, source.rows),
            encoding=encoding,
            objective=objective,
            pure=self.delta == 0,
            unit=source.unit,
        )


class PrivateLinearRegressor(RegressorMixin, GramModel):
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

    def _read_arrays(self, X: Any, y: Any, groups: Any) -> tuple[NDArray, NDArray, Groups]:
        rows, target, units = read_records(self, X, y, groups, dtype=np.float64, y_numeric=True)
        try:
            return rows, target.astype(np.float64), units
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
