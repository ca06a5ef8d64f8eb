"""Linear and logistic regression by the functional mechanism (Zhang et al. 2012).

The loss of a record is a ``PolynomialObjective``. Start reading at :class:`FunctionalMechanism`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._docs import fill_docs
from .._validation import Interval
from ..accounting import PrivacyBudget
from ..base import PrivateFit, public_classes, public_target_bounds
from ..mechanisms import Gaussian, Laplace
from ..sums import SumTotal
from ..sums.sources import SumRelease, SumSource
from ..sums.sum_plan import Labels, TargetRange
from .base import (
    LINEAR_DOCS,
    GramModel,
    GramPlan,
    PolynomialObjective,
    PrivateLinearRegressor,
    multinomial_objective,
    squared_objective,
)
from .logistic_regression import PrivateLinearClassifier

# Tuned on public tables for epsilons from 0.0001 to 10; they do not depend on private data.
_RIDGE = 0.6
_STEIN = 0.5
_EVIDENCE = 2.0
_DOUBT = 0.5
_DOUBT_AROUND = 0.35
_DOUBT_CONSTANT = 1.5


class FunctionalMechanism(GramModel):
    """Base of estimators that release one noisy polynomial and minimise it."""

    _spares_constant = False  # from the penalty of the other weights
    _saved_state = {"_ball_": "ball", "polynomial_": "polynomial"}
    _parameter_constraints: dict = {"alpha": [Interval(Real, 0, None, closed="left")]}

    @abstractmethod
    def _encode_target(
        self, fit: PrivateFit, y: NDArray
    ) -> tuple[TargetRange | Labels, PolynomialObjective]:
        """Return the encoding of targets by public facts, and the loss of a record."""

    def _make_release(self, fit: PrivateFit, source: SumSource) -> SumRelease:
        encoding, objective = self._encode_target(fit, source.y)
        plan = self._make_plan(fit, source, encoding, objective)
        self._ball_ = plan.ball
        # Zhang et al. 2012, Algorithm 1, line 1: noise for the sensitivity of the coefficients
        mechanism = self._single_mechanism(
            objective.sensitivity(plan.ball.size, plan.ball.l1_radius, self.relation, plan.pure)
        )

        def vector(total: SumTotal) -> NDArray[np.float64]:
            return objective.coefficients(*plan.matrices(total), plan.pure)

        def read_coefficients(noisy: NDArray[np.float64], _: int) -> None:
            self.polynomial_ = NoisyPolynomial.from_release(noisy, objective, plan, mechanism)
            # Zhang et al. 2012, Algorithm 1, line 6: the model is a minimiser of the noisy loss
            self.coef_, self.intercept_ = self._solutions([self.alpha])[0]

        return SumRelease(plan, mechanism, vector, read_coefficients)

    def _solutions(self, alphas: ArrayLike) -> list[tuple[Any, Any]]:
        """Return coefficients and intercept for each regularisation strength."""
        constant = self._spares_constant and self._ball_.intercept > 0
        return [self._solution(s) for s in self.polynomial_.minimize(alphas, constant=constant)]

    def _solution(self, solution: NDArray) -> tuple[Any, Any]:
        """Return coefficients and intercept in the units of the features and the target."""
        return self._ball_.coefficients(solution)

    def regularization_path(self, alphas: ArrayLike) -> tuple[NDArray, NDArray]:
        """Return the coefficients for other values of ``alpha``, at no privacy cost.

        A choice among them by their score on *private* records costs privacy. Use public records,
        or account for the choice.

        Parameters
        ----------
        alphas : array-like of shape (n_alphas,)
            Regularisation strengths, at least 0.

        Returns
        -------
        coefs : ndarray of shape (n_alphas, n_features) or (n_alphas, n_outputs, n_features)
            ``coef_`` for each alpha.
        intercepts : ndarray of shape (n_alphas,) or (n_alphas, n_outputs)
            ``intercept_`` for each alpha.
        """
        check_is_fitted(self, "polynomial_")
        try:
            values = np.asarray(alphas, np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim != 1 or not (np.isfinite(values) & (values >= 0)).all() or not values.size:
            raise ValueError(
                f"alphas={alphas!r} must be a non-empty sequence of finite numbers >= 0."
            )
        coefs, intercepts = zip(*self._solutions(values), strict=True)
        return np.array(coefs), np.array(intercepts)


@fill_docs(LINEAR_DOCS)
class FunctionalMechanismRegressor(FunctionalMechanism, PrivateLinearRegressor):
    """Linear regression by the functional mechanism (Zhang et al. 2012).

    The squared loss summed over all records is a polynomial of the weights. Its coefficients are
    released once, with noise; everything else is computed from them.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=0.0
        0 for pure differential privacy (Laplace noise). Above 0 (Gaussian noise), the noise is
        several times smaller; the advantage grows with the number of features.
    %(bounds)s
        Tighter bounds mean less noise.
    target_bounds : tuple (lower, upper), default=None
        Public bounds of the target. If noise hides the mean of the target, predictions are the
        middle of the bounds. If it hides only the features, predictions are the mean.
    %(target_scale)s
    %(radius)s
    %(intercept_and_relation)s
    alpha : float, default=1.0
        Regularisation. 1 is the strength that matches the noise, which does not depend on data.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the features, for the target on its ``target_scale``.
    intercept_ : float
        The constant, on the same scale.
    polynomial_ : NoisyPolynomial
        The released polynomial.
    %(bounds_)s
    %(guarantee_attributes)s
    target_bounds_ : tuple of float
        Bounds to which predictions are clipped.
    %(target_scale_)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** The fitted attributes are (``epsilon``, ``delta``)-differentially private with
    one record as the unit, or one group. Each of the m records of a group counts 1 / m. A group
    thus contributes a mean of single records' contributions, whose norm is no larger than theirs.
    Records are clipped to the bounds, scaled into a ball, and rounded to a grid on which sums are
    exact. Targets are in [-1, 1], on either scale. The noise is exact on a grid as well, so the
    guarantee holds in floating point. Sensitivities are at most half of the published
    2 (d + 1)**2, for three reasons: the constant term is never released, the radius bounds all
    features jointly, and no record is counted twice under "add_remove".

    **Edge cases.** A record with NaN contributes nothing and infinity is clipped. Neither is
    reported, since a report would reveal the record's presence. NaN targets are refused. A feature
    with equal bounds gets weight 0. One row is enough to fit, though the result is noise.

    References
    ----------
    J. Zhang, Z. Zhang, X. Xiao, Y. Yang and M. Winslett, "Functional mechanism: regression
    analysis under differential privacy", PVLDB 5, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.linear_model import FunctionalMechanismRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(5000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] + rng.normal(size=5000)
    >>> model = FunctionalMechanismRegressor(epsilon=1.0, bounds=(0, 1), target_bounds=(-5, 6))
    >>> model.fit(X, y).score(X, y) > 0.3
    True
    >>> model.privacy_
    1.00-DP, add-remove, exact noise, proved
    """

    # Relative to features of norm 1. With few records the mean, which the constant column finds,
    # is worth more than any feature.
    _constant_share = 0.7
    _spares_constant = True

    _saved_state = PrivateLinearRegressor._saved_state | FunctionalMechanism._saved_state
    _parameter_constraints: dict = {
        **PrivateLinearRegressor._parameter_constraints,
        **FunctionalMechanism._parameter_constraints,
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        bounds: ArrayLike | None = None,
        target_bounds: ArrayLike | None = None,
        target_scale: str = "linear",
        radius: float | None = None,
        fit_intercept: bool = True,
        relation: str = "add_remove",
        alpha: float = 1.0,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.target_scale = target_scale
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.relation = relation
        self.alpha = alpha
        self.budget = budget
        self.noise_seed = noise_seed

    def _encode_target(
        self, fit: PrivateFit, y: NDArray
    ) -> tuple[TargetRange, PolynomialObjective]:
        self.target_bounds_ = public_target_bounds(fit, y, self.target_bounds)
        self.target_scale_ = self.target_scale
        return TargetRange(*self.target_bounds_, self.target_scale_), squared_objective()

    def _solution(self, solution: NDArray) -> tuple[NDArray, float]:
        return self._coefficients(self._ball_, solution)


@fill_docs(LINEAR_DOCS)
class FunctionalMechanismClassifier(FunctionalMechanism, PrivateLinearClassifier):
    """Logistic regression, binary or multinomial, by the functional mechanism (Zhang et al. 2012).

    The logistic loss is replaced by its Taylor expansion around 0, a polynomial of the weights.
    The polynomial summed over all records is released once, with noise; everything else is
    computed from it. It has a coefficient for each pair of columns. With more than a few dozen
    columns, pass a ``delta`` or use :class:`ObjectivePerturbationClassifier`.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=0.0
        0 for pure differential privacy (Laplace noise). Above 0 (Gaussian noise), the noise is
        several times smaller; the advantage grows with the number of features.
    %(classes)s
    %(bounds)s
        Tighter bounds mean less noise.
    %(radius)s
    %(intercept_and_relation)s
    order : {1, 2}, default=2
        Order of the released expansion: 2 includes the whole matrix of second moments, 1 only its
        diagonal. 1 has less noise but treats features as uncorrelated.
    alpha : float, default=1.0
        Regularisation. 1 is the strength that matches the noise, which does not depend on data.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    %(coef_)s
    polynomial_ : NoisyPolynomial
        The released polynomial.
    %(bounds_)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** Those of :class:`FunctionalMechanismRegressor`, from the same paper.

    **Approximation.** With t the margin, log(1 + exp(t)) is replaced by log 2 + t/2 + t**2/8. The
    error per record is below t**4/192: 0.005 at abs(t) = 1, 0.08 at 2, but 1.2 at 4. Order 3 is
    not offered because its term is 0, order 4 because with -t**4/192 the loss has no minimum. The
    expansion never underestimates a loss. Confident probabilities are therefore estimated too near
    1/2, while the decision boundary changes little.

    **Edge cases.** A record with NaN contributes nothing and infinity is clipped. Neither is
    reported, since a report would reveal the record's presence. A class without records
    gets low probabilities. A feature with equal bounds gets weight 0.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.linear_model import FunctionalMechanismClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] > 0
    >>> model = FunctionalMechanismClassifier(bounds=(-1, 1), classes=[False, True]).fit(X, y)
    >>> model.score(X, y) > 0.8
    True
    """

    _saved_state = PrivateLinearClassifier._saved_state | FunctionalMechanism._saved_state
    _parameter_constraints: dict = {
        **PrivateLinearClassifier._parameter_constraints,
        **FunctionalMechanism._parameter_constraints,
        "order": [Interval(Integral, 1, 2, closed="both")],
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 0.0,
        classes: ArrayLike | None = None,
        bounds: ArrayLike | None = None,
        radius: float | None = None,
        fit_intercept: bool = True,
        relation: str = "add_remove",
        order: int = 2,
        alpha: float = 1.0,
        budget: PrivacyBudget | None = None,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.bounds = bounds
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.relation = relation
        self.order = order
        self.alpha = alpha
        self.budget = budget
        self.noise_seed = noise_seed

    def _encode_target(self, fit: PrivateFit, y: NDArray) -> tuple[Labels, PolynomialObjective]:
        self.classes_ = public_classes(fit, y, self.classes)[0]
        objective = multinomial_objective(len(self.classes_), int(self.order))
        return Labels(tuple(self.classes_)), objective


@dataclass(frozen=True)
class NoisyPolynomial:
    """Released polynomial; anything computed from it is post-processing and costs nothing."""

    linear: NDArray[np.float64]  # (size, n_outputs): sums of slope times row, slopes of norm 1
    quadratic: NDArray[np.float64]  # (size, size): sum of the rows' outer products
    linear_std: float  # of the noise of each entry
    quadratic_std: float
    quadratic_norm: float  # typical spectral norm of the noise of ``quadratic``
    trace_std: float  # of the noise of the trace of ``quadratic``
    unit: float  # factor of the solutions: slope bound over twice the curvature

    @classmethod
    def from_release(
        cls,
        noisy: NDArray[np.float64],
        objective: PolynomialObjective,
        plan: GramPlan,
        mechanism: Laplace | Gaussian,
    ) -> NoisyPolynomial:
        """Return the noisy sum of the polynomials of all records, with slopes of norm 1."""
        pure, p, n_outputs = plan.pure, plan.ball.size, plan.n_slopes
        a, n_linear = objective.balance(pure), p * n_outputs
        quadratic = np.zeros((p, p))
        quadratic[objective.released_entries(p, pure)] = noisy[n_linear:]
        quadratic = quadratic + np.triu(quadratic, 1).T if pure else (quadratic + quadratic.T) / 2
        diagonal = objective.order == 1
        std = mechanism.std if diagonal or pure else mechanism.std / math.sqrt(2.0)
        # Zhang et al. 2012, Algorithm 1, line 5: the noisy objective
        return cls(
            linear=noisy[:n_linear].reshape(p, n_outputs) / a,
            quadratic=quadratic,
            linear_std=mechanism.std / a,
            quadratic_std=std,
            # Typical norms of a symmetric random matrix and of a diagonal one.
            quadratic_norm=std * math.sqrt(2.0 * math.log(2.0 * p) if diagonal else 4.0 * p),
            trace_std=mechanism.std * math.sqrt(p),
            unit=objective.unit(pure),
        )

    def minimize(self, alphas: ArrayLike, constant: bool = False) -> NDArray[np.float64]:
        """Return the minimisers for several strengths of regularisation.

        ``constant`` says that the last column is the constant one. It is solved for separately, as
        in an ordinary ridge regression, whose penalty spares the intercept. Where noise dominates
        the features, the prediction is then the mean, not the public midpoint.

        Negative eigenvalues of the other columns are noise and are set to 0. Let s be half the
        typical spectral norm of the noise (0.35 of it beside a constant). An eigenvalue e becomes
        t = e + 0.6 s, a ridge, and its direction is weighted by t / (t**2 + s**2) instead of 1 / t.
        Directions that the data determine well are unchanged, directions dominated by noise shrink
        towards 0. As in the James-Stein estimator, the solution shrinks by half the share of noise
        in the square of the linear part. It also shrinks by twice the share of noise in the square
        of the trace, a noisy measure of the number of records. If everything is noise, the
        prediction is the midpoint. All of this reads only released numbers.
        """
        # Zhang et al. 2012, Algorithm 1, line 6: minimise, with the regularisation and the
        # spectral trimming of their section on unbounded noisy objectives
        solve = self._solve_around_constant if constant else self._solve_regularized
        return np.stack([-self.unit * solve(alpha) for alpha in np.asarray(alphas, np.float64)])

    def _solve_around_constant(self, alpha: float) -> NDArray[np.float64]:
        """Return the weights: solve for the constant, then for the features on the residual."""
        cross, count = self.quadratic[:-1, -1:], float(self.quadratic[-1, -1])
        noise = alpha * self.trace_std / math.sqrt(len(self.quadratic))
        kept = _regularized_inverses(np.array([count]), _DOUBT_CONSTANT * noise, 0.0)[0]
        mean = kept * _evidence_factor(count, noise) * self.linear[-1:]
        features = replace(
            self,
            linear=self.linear[:-1] - cross @ mean,
            quadratic=self.quadratic[:-1, :-1] - kept * cross @ cross.T,
        )._solve_regularized(alpha, _DOUBT_AROUND, float(np.trace(self.quadratic)))
        return np.vstack([features, mean - kept * cross.T @ features])

    def _solve_regularized(
        self, alpha: float, doubt: float = _DOUBT, trace: float | None = None
    ) -> NDArray[np.float64]:
        """Return the weights, with a ridge of ``doubt`` times the noise in the quadratic part."""
        trace = float(np.trace(self.quadratic)) if trace is None else trace
        eigenvalues, vectors = np.linalg.eigh(self.quadratic)
        # The floor matters without noise: directions below the rounding of rows carry no data.
        gains = _regularized_inverses(
            eigenvalues, doubt * alpha * self.quadratic_norm, 2.0**-24 * trace
        )
        noise = _STEIN * self.linear.size * (alpha * self.linear_std) ** 2
        gains *= max(0.0, 1.0 - noise / max(float(np.sum(self.linear**2)), 1e-300))
        gains *= _evidence_factor(trace, alpha * self.trace_std)
        return vectors @ (gains[:, None] * (vectors.T @ self.linear))


def _regularized_inverses(eigenvalues: NDArray, doubt: float, floor: float) -> NDArray[np.float64]:
    """Return regularised inverses of noisy eigenvalues; 0 at or below the floor."""
    # Zhang et al. 2012, spectral trimming: negative eigenvalues are noise
    trimmed = np.maximum(eigenvalues, 0.0) + _RIDGE * doubt
    power = trimmed**2 + doubt**2
    return np.divide(trimmed, power, out=np.zeros_like(power), where=trimmed > max(floor, 0.0))


def _evidence_factor(records: float, noise: float) -> float:
    """Return a shrinkage factor from 0 to 1, near 0 if ``records`` is small beside ``noise``."""
    return max(0.0, 1.0 - _EVIDENCE * (noise / max(records, 1e-9 * noise, 1e-300)) ** 2)
