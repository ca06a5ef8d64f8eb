"""Logistic regression by objective or output perturbation (Chaudhuri et al. 2011).

:class:`ObjectivePerturbation` is the mechanism, with the proof of its cost.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from .._docs import fill_docs
from .._groups import Groups
from .._input_data import read_records
from .._validation import Interval, check_delta_is_small
from ..accounting import ApproxDPEvent, Event, PrivacyBudget
from ..accounting.calibration import analytic_noise_multiplier
from ..accounting.event import check_delta
from ..accounting.events import NonPrivateEvent
from ..base import public_classes
from ..mechanisms import Gaussian, Laplace, Mechanism, SecureRandom
from .base import LINEAR_DOCS, additive_mechanism
from .logistic_regression import LogisticLoss, PrivateLinearClassifier, minimize

TOLERANCE = 1e-6  # largest norm of the gradient at the minimiser, for records of norm 1
_MAX_JACOBIAN_SHARE = 0.1  # largest share of epsilon for the Jacobian of the perturbed problem
_MAX_JACOBIAN_EPSILON = 1.0  # largest epsilon for it
_SOLVER_NOISE_SHARE = 0.01  # of epsilon and delta, for noise that hides the solver's error


@dataclass(frozen=True)
class ObjectivePerturbation(Mechanism):
    """Minimise a regularised logistic loss plus a random linear term.

    Notes
    -----
    **Guarantees.** The guarantees hold for one record, not for several records of one group. Let
    the record x, in the unit ball, be in D' and not in D. A released minimiser determines its
    noise: b for D, and b' = b - g for D', where g is the record's gradient. The ratio of the
    densities of the minimiser is therefore the ratio of noise densities times the ratio of
    Jacobians.

    - The Jacobians' ratio is between 1 and det(I + S / ridge), where S is the Hessian of the
      record's loss in its margins. Its log is at most log(1 + 1 / (4 ridge)) for two classes, and
      for k classes, by the mean of S's eigenvalues, (k-1) log(1 + (1 - 1/k) / ((k-1) ridge)). Call
      it J.
    - Gaussian noise, two classes: g = p u with u = +-x fixed by the label and p in (0, 1), though p
      depends on b. The privacy loss (p**2 - 2 p b u) / (2 s**2) is convex in p, hence at most the
      larger of 0 and the loss of a Gaussian release of u. So delta(epsilon) is at most the delta of
      a Gaussian mechanism of sensitivity 1 at epsilon - J >= 0. (Known proofs treat the sign of g
      as unknown, and lose a factor of 2 in delta or more: Redberg et al. 2023.)
    - Gaussian noise, k classes: g = x (p - e_y)', p in the simplex. A convex function is largest at
      a vertex, so delta is at most (k-1) times the delta for sensitivity sqrt(2).
    - Pure privacy: the ratio of noise densities is at most exp(||g|| / scale).

    A group of records has a gradient sum_i w_i p_i(b) u_i, whose *direction* depends on the noise,
    even with weights that add up to 1. Neither the convexity in p nor the rank of S carries over.
    To protect a group, let one of its records take part.

    The noise consists of ordinary floating-point numbers and passes through an optimiser. It is
    **not hardened** against floating-point attacks, unlike the noise of the functional mechanism.

    References
    ----------
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially private empirical risk
    minimization", JMLR 12, 2011.
    D. Kifer, A. Smith and A. Thakurta, "Private convex empirical risk minimization and
    high-dimensional regression", COLT 2012.
    R. Redberg, A. Koskela and Y.-X. Wang, "Improving the privacy and practicality of objective
    perturbation for differentially private linear learners", NeurIPS 2023.
    """

    arithmetic = "floating_point"

    epsilon: float  # of one release under add/remove
    delta: float  # 0: noise of density exp(-norm / scale); above 0: Gaussian noise
    n_classes: int
    alpha: float = 1.0  # ridge in units of the noise, never below the minimum of the proof

    @property
    def sensitivity(self) -> float:  # type: ignore[override]  # follows from n_classes
        """L2 bound on the gradient of one record."""
        return 1.0 if self.n_classes == 2 else math.sqrt(2.0)

    @property
    def event(self) -> Event:
        """``ApproxDPEvent(epsilon, delta)``; ``NonPrivateEvent()`` for an infinite epsilon."""
        return (
            NonPrivateEvent()
            if math.isinf(self.epsilon)
            else ApproxDPEvent(self.epsilon, self.delta)
        )

    def _jacobian_epsilon(self, size: int) -> float:
        """Return the part of epsilon spent on the Jacobian: what the desired ridge needs."""
        largest = min(_MAX_JACOBIAN_SHARE * self.epsilon, _MAX_JACOBIAN_EPSILON)
        # Lower bound on the desired ridge: the noise is least if all of epsilon is spent on it.
        desired = self.alpha * self._typical_noise(self.epsilon, size)
        if desired == 0:
            return largest
        trace, rank = self._curvature
        # log det(I + S / ridge), bounded by the mean of S's eigenvalues (see Notes)
        return min(largest, rank * math.log1p(trace / (rank * desired)))

    @property
    def _curvature(self) -> tuple[float, int]:
        """Largest trace and rank of the Hessian of one record's loss in its margins."""
        k = self.n_classes
        return (0.25, 1) if k == 2 else (1.0 - 1.0 / k, k - 1)

    def _scale(self, epsilon: float) -> float:
        if math.isinf(epsilon):
            return 0.0
        if self.delta == 0:
            return self.sensitivity / epsilon
        share = self.delta / (self.n_classes - 1)  # a union bound over k - 1 vertices (see Notes)
        return self.sensitivity * analytic_noise_multiplier(epsilon, share)

    def _typical_noise(self, epsilon: float, size: int) -> float:
        """Return the typical noise of one entry of the random term."""
        outputs = 1 if self.n_classes == 2 else self.n_classes
        return self._scale(epsilon) * (1.0 if self.delta else math.sqrt(size * outputs))

    def scale(self, size: int) -> float:
        """Return the standard deviation of Gaussian noise, or the scale of pure noise's norm."""
        # Chaudhuri et al. 2011, objective perturbation: the noise gets epsilon less the Jacobian's
        return self._scale(self.epsilon - self._jacobian_epsilon(size))

    def ridge(self, size: int) -> float:
        """Return the ridge for rows of ``size`` columns; it depends only on the parameters."""
        trace, rank = self._curvature
        jacobian = self._jacobian_epsilon(size)
        # Chaudhuri et al. 2011, objective perturbation: more ridge if the Jacobian needs it
        needed = trace / (rank * math.expm1(jacobian / rank))
        return max(needed, self.alpha * self._typical_noise(self.epsilon - jacobian, size))

    def _release(self, value: Any, random: SecureRandom) -> NDArray[np.float64]:
        rows, targets, weights = value
        shape = (rows.shape[1], targets.shape[1])
        tilt, scale = np.zeros(shape), self.scale(rows.shape[1])
        if scale:
            tilt = scale * random.normal(tilt.size).astype(np.float64).reshape(shape)
            # Chaudhuri et al. 2011: density exp(-norm / scale), that is a uniform direction and a
            # norm of Gamma(size, scale). Kifer et al. 2012 take Gaussian noise for delta > 0.
            if self.delta == 0:
                norm = -scale * np.log(random.uniform(tilt.size)).sum()
                tilt *= norm / np.linalg.norm(tilt)
        # Chaudhuri et al. 2011, objective perturbation: minimise the loss plus <b, W>
        problem = LogisticLoss(rows, targets, weights, self.ridge(rows.shape[1]), tilt)
        return minimize(problem, TOLERANCE)


@fill_docs
class _PerturbedClassifier(PrivateLinearClassifier):
    """Base of logistic regressions whose one release is the minimiser of a perturbed problem."""

    _parameter_constraints: dict = {
        **PrivateLinearClassifier._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left")],
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
        self.alpha = alpha
        self.budget = budget
        self.noise_seed = noise_seed

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> Any:
        """Fit to private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,)
            Their labels, each one of ``classes``.
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
            self._validate_params()
            records, target, units = read_records(self, X, y, groups, dtype=np.float64)
            check_delta_is_small(self.delta)
            if self.relation != "add_remove" and self.delta > 0:
                check_delta(self.delta, units.n)
            self.classes_, labels = public_classes(fit, target, self.classes)
            ball = self._unit_ball(fit, records)
            k = len(self.classes_)
            with fit.charged(
                self._event(), relation=self.relation, at_delta=self.delta, unit=units.unit,
                arithmetic=self._arithmetic(),
            ):  # fmt: skip
                rows, weights = ball.transform(records, self._record_shares(units))
                targets = labels[:, None] == (np.array([1]) if k == 2 else np.arange(k))
                solution = self._solve(
                    rows, targets.astype(np.float64), weights, SecureRandom(self.noise_seed)
                )
            self.coef_, self.intercept_ = ball.coefficients(solution)
        return self

    def _event(self) -> Event:
        if math.isinf(self.epsilon):
            return NonPrivateEvent()
        return ApproxDPEvent(float(self.epsilon), float(self.delta))

    @abstractmethod
    def _arithmetic(self) -> str:
        """Return the arithmetic of the noise."""

    @abstractmethod
    def _record_shares(self, units: Groups) -> NDArray[np.float64]:
        """Return the weight of each record; the weights of a group add up to at most 1."""

    @abstractmethod
    def _solve(self, rows, targets, weights, random) -> NDArray[np.float64]:
        """Return the released weights, of shape (size, n_outputs)."""


@fill_docs(LINEAR_DOCS)
class ObjectivePerturbationClassifier(_PerturbedClassifier):
    """Logistic regression, binary or multinomial, by objective perturbation.

    A random linear term is added to the regularised loss, and the sum is minimised (Chaudhuri et
    al. 2011). The term has little effect in directions that many records determine.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=0.0
        0 for pure differential privacy, above 0 for Gaussian noise.
    %(classes)s
    %(bounds)s
    %(radius)s
    %(intercept_and_relation)s
    alpha : float, default=1.0
        Strength of the ridge, also on the constant, in units of the noise. It is never below the
        minimum of the proof.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    %(coef_)s
    %(bounds_)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with one record as the unit, or
    one group. One record of each group takes part, drawn by a secure generator. The proof needs all
    gradients that a unit may add to lie along one direction, which the gradients of several records
    do not. The proof, in ``skprivacy/linear_model/perturbation.py``, is
    about the exact minimiser. The computed minimiser has a gradient of norm at most 1e-6, so it is
    within 1e-6 / ridge of the exact one. Additional noise covers twice this distance, at 1% of
    epsilon and delta. "replace_one" is a removal and an addition, and each gets half of epsilon.
    The noise in the objective consists of floating-point numbers and is not hardened against an
    adversary who reads the lowest bits.

    **Edge cases.** A record with NaN contributes nothing and infinity is clipped; neither is
    reported. A class without records gets low probabilities. If rounding prevents the minimum
    within the tolerance, as may happen beyond some 10**9 records, RuntimeError is raised.

    References
    ----------
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially private empirical risk
    minimization", JMLR 12, 2011.
    R. Iyengar et al., "Towards practical differentially private convex optimization", S&P 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.linear_model import ObjectivePerturbationClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(2000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] > 0
    >>> model = ObjectivePerturbationClassifier(bounds=(-1, 1), classes=[False, True]).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> model.privacy_
    1.00-DP, add-remove, floating-point noise, proved
    """

    def _arithmetic(self) -> str:
        return ObjectivePerturbation.arithmetic

    def _add_remove_target(self) -> tuple[float, float]:
        """Return the epsilon and delta to spend under add/remove for the stated guarantee."""
        epsilon, delta = float(self.epsilon), float(self.delta)
        if self.relation != "replace_one" or math.isinf(epsilon):
            return epsilon, delta
        return epsilon / 2.0, delta * float(expit(-epsilon / 2.0))

    def _record_shares(self, units: Groups) -> NDArray[np.float64]:
        if units.unit == "record":
            return np.ones(len(units.codes))
        shares = np.zeros(len(units.codes))
        shares[units.at_most(1, SecureRandom(self.noise_seed))] = 1.0
        return shares

    def _solve(self, rows, targets, weights, random) -> NDArray[np.float64]:
        epsilon, delta = self._add_remove_target()
        mechanism = ObjectivePerturbation(
            (1.0 - _SOLVER_NOISE_SHARE) * epsilon,
            (1.0 - _SOLVER_NOISE_SHARE) * delta,
            len(self.classes_),
            float(self.alpha),
        )
        solution = mechanism.release((rows, targets, weights), random)
        distance = 2.0 * TOLERANCE / mechanism.ridge(rows.shape[1])
        spare = _SOLVER_NOISE_SHARE * delta
        last = additive_mechanism(
            _SOLVER_NOISE_SHARE * epsilon,
            spare,
            distance * (1.0 if spare else math.sqrt(solution.size)),
        )
        return last.release(solution, random)


@fill_docs(LINEAR_DOCS)
class OutputPerturbationClassifier(_PerturbedClassifier):
    """Logistic regression, binary or multinomial, with noise added to its weights.

    This is the simplest of the private classifiers (Chaudhuri et al. 2011). The noise is equally
    large in all directions, including directions that the data determines well.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=0.0
        0 for pure differential privacy (Laplace noise), above 0 for Gaussian noise.
    %(classes)s
    %(bounds)s
    %(radius)s
    %(intercept_and_relation)s
    alpha : float, default=1.0
        Strength of the ridge, also on the constant, in units of the noise. Must be above 0.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    %(coef_)s
    %(bounds_)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy. With a ``delta``, the release is a
    Gaussian mechanism with the least noise for (``epsilon``, ``delta``), and several fits compose
    as Gaussian mechanisms do. The unit is one record, or one group. The loss of a record of norm 1
    has Lipschitz constant 1 (sqrt(2) for three or more classes), and the ridge makes the objective
    strongly convex. So adding a record moves the minimiser by at most Lipschitz / ridge, and
    replacing a record by twice as much. The loss of each of the m records of a group counts 1 / m.
    Their sum is a mean of losses, which is convex and has the same Lipschitz constant, as the proof
    requires. The computed minimiser has a gradient of norm below 1e-6, which adds 2e-6 / ridge.
    This tolerance includes rounding inside the minimisation (about 1e-12). The noise is exact on a
    grid.

    **Edge cases.** A record with NaN contributes nothing and infinity is clipped; neither is
    reported. A class without records gets low probabilities.

    References
    ----------
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially private empirical risk
    minimization", JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.linear_model import OutputPerturbationClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] > 0
    >>> model = OutputPerturbationClassifier(bounds=(-1, 1), classes=[False, True]).fit(X, y)
    >>> model.score(X, y) > 0.7
    True
    """

    _parameter_constraints: dict = {
        **_PerturbedClassifier._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither")],
    }

    def _event(self) -> Event:
        return self._output_mechanism(1.0, 1).event if self.delta else super()._event()

    def _arithmetic(self) -> str:
        return self._output_mechanism(1.0, 1).arithmetic

    def _output_mechanism(self, l2: float, size: int) -> Laplace | Gaussian:
        return self._single_mechanism(l2 * (1.0 if self.delta else math.sqrt(size)))

    def _record_shares(self, units: Groups) -> NDArray[np.float64]:
        return units.exact_shares()

    def _solve(self, rows, targets, weights, random) -> NDArray[np.float64]:
        size = rows.shape[1] * targets.shape[1]
        lipschitz = 1.0 if targets.shape[1] == 1 else math.sqrt(2.0)
        # Change of the gradient between neighbours: one record's, or two if one is replaced.
        changed = lipschitz * (2.0 if self.relation == "replace_one" else 1.0)
        noise = self._output_mechanism(changed, size).std
        # The noise of a weight is noise / ridge; this ridge makes it about 1 / 4 in the unit ball.
        ridge = float(self.alpha) * max(4.0 * noise, 1e-3)
        # Chaudhuri et al. 2011, output perturbation: the minimiser moves by Lipschitz / ridge
        sensitivity = (changed + 2.0 * TOLERANCE) / ridge
        mechanism = self._output_mechanism(sensitivity, size)
        problem = LogisticLoss(
            rows, targets, weights, ridge, np.zeros((rows.shape[1], targets.shape[1]))
        )
        # Chaudhuri et al. 2011, output perturbation: minimise, then add noise
        return mechanism.release(minimize(problem, TOLERANCE), random)
