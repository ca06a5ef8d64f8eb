"""Logistic regression by objective or output perturbation (Chaudhuri et al. 2011)."""

from __future__ import annotations

import math
from abc import abstractmethod
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._groups import Groups, check_order
from .._validation import Interval
from ..accounting import ApproxDP, Event, NonPrivate, PrivacyBudget
from ..mechanisms import Gaussian, Laplace, SecureRandom, analytic_noise_multiplier
from ..public_facts import public_classes
from ._base import PrivateLinearClassifier
from ._logistic import LogisticLoss, minimize
from .objective import TOLERANCE, ObjectivePerturbation

__all__ = [
    "ObjectivePerturbationClassifier",
    "OutputPerturbationClassifier",
]

_SOLVER_NOISE_SHARE = 0.01  # of epsilon and delta, for noise that hides the solver's error


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

    def fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None
    ) -> _PerturbedClassifier:
        """Fit to private records.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Private records.
        y : array-like of shape (n_samples,)
            Labels, each one of ``classes``.
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
            check_order(groups, X)
            X, y = self._check_data(X, y)
            who = self._resolve_groups(groups, X)
            self.classes_, labels = public_classes(fit, y, self.classes)
            ball = self._unit_ball(fit, X)
            k = len(self.classes_)
            with self._charge_release(fit, self._event(), who, self._arithmetic()):
                rows, weights = ball.transform(X, self._record_shares(who))
                targets = labels[:, None] == (np.array([1]) if k == 2 else np.arange(k))
                solution = self._solve(
                    rows, targets.astype(np.float64), weights, SecureRandom(self.noise_seed)
                )
            self.coef_, self.intercept_ = ball.coefficients(solution)
        return self

    def _event(self) -> Event:
        if math.isinf(self.epsilon):
            return NonPrivate()
        return ApproxDP(float(self.epsilon), float(self.delta))

    @abstractmethod
    def _arithmetic(self) -> str:
        """Return the arithmetic of the noise."""

    @abstractmethod
    def _record_shares(self, who: Groups) -> NDArray[np.float64]:
        """Return the weight of each record; the weights of a group add up to at most 1."""

    @abstractmethod
    def _solve(self, rows, targets, weights, random) -> NDArray[np.float64]:
        """Return the released weights, of shape (size, n_outputs)."""


def _additive_mechanism(epsilon: float, delta: float, l2: float, size: int) -> Laplace | Gaussian:
    """Return the mechanism for a vector of ``size`` numbers and an L2 sensitivity."""
    if delta == 0:
        multiplier = 0.0 if math.isinf(epsilon) else 1.0 / epsilon
        return Laplace(multiplier, math.sqrt(size) * l2)
    multiplier = 0.0 if math.isinf(epsilon) else analytic_noise_multiplier(epsilon, delta)
    return Gaussian(multiplier, l2)


@fill_docs
class ObjectivePerturbationClassifier(_PerturbedClassifier):
    """Logistic regression, binary or multinomial, by objective perturbation.

    A random linear term is added to the regularised loss, and the sum is minimised (Chaudhuri et
    al. 2011). The term has little effect in directions that many records determine, so this is the
    most accurate of the linear classifiers for a given epsilon.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=0.0
        0 for pure differential privacy, above 0 for Gaussian noise.
    %(classes)s
    %(bounds)s
    %(radius)s
    fit_intercept : bool, default=True
        Whether to fit a constant. It counts towards the radius and the regularisation.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. "replace_one" costs about twice the epsilon.
    alpha : float, default=1.0
        Strength of the ridge, in units of the noise. It is never below what the guarantee needs.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The constants.
    %(bounds_)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with one record as the unit, or
    one group. One record of each group takes part, drawn by a secure generator: the proof needs all
    gradients that a unit may add to lie along one direction, and the gradients of several records
    do not. The proof, in :class:`~skprivacy.linear_model.objective.ObjectivePerturbation`, is about
    the exact minimiser. The computed minimiser has a gradient of norm at most 1e-6, so it is within
    1e-6 / ridge of the exact one. Noise for twice that distance is added, at 1% of epsilon and
    delta. "replace_one" is a removal and an addition, and each gets half of epsilon. The noise in
    the objective consists of floating-point numbers and is not hardened against an adversary who
    reads the lowest bits.

    **Edge cases.** A record with NaN contributes nothing and infinity is clipped; neither is
    reported. A class without records is learned as rare. If the minimum cannot be reached within
    the tolerance, which rounding permits for up to some 10**9 records, RuntimeError is raised.

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
        return epsilon / 2.0, delta / (1.0 + math.exp(epsilon / 2.0))

    def _record_shares(self, who: Groups) -> NDArray[np.float64]:
        shares = np.zeros(len(who.codes))
        shares[who.at_most(1, SecureRandom(self.noise_seed))] = 1.0
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
        last = _additive_mechanism(
            _SOLVER_NOISE_SHARE * epsilon,
            _SOLVER_NOISE_SHARE * delta,
            distance,
            solution.size,
        )
        return last.release(solution, random)


@fill_docs
class OutputPerturbationClassifier(_PerturbedClassifier):
    """Logistic regression, binary or multinomial, with noise added to its weights.

    This is the simplest of the private classifiers (Chaudhuri et al. 2011), and the one that needs
    the most records: the noise is as large in directions that the data determines well as in all
    others.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=0.0
        0 for pure differential privacy (Laplace noise), above 0 for Gaussian noise.
    %(classes)s
    %(bounds)s
    %(radius)s
    fit_intercept : bool, default=True
        Whether to fit a constant. It counts towards the radius and the regularisation.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. "replace_one" costs about twice the epsilon.
    alpha : float, default=1.0
        Strength of the ridge, in units of the noise. Must be above 0.
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    %(classes_)s
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the features.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The constants.
    %(bounds_)s
    %(guarantee_attributes)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy. With a ``delta``, the release is a
    Gaussian mechanism with the least noise for (``epsilon``, ``delta``), and several fits compose
    as Gaussian mechanisms do. The unit is one record, or one group. The loss of a record of norm 1
    has Lipschitz constant 1 (sqrt(2) for three or more classes), and the ridge makes the objective
    strongly convex. So adding a record moves the minimiser by at most Lipschitz / ridge, replacing
    one by twice that. The loss of each of the m records of a group counts 1 / m. Their sum is a
    mean of losses, which is convex and has the same Lipschitz constant; the proof needs no more.
    The gradient is reduced below 1e-6, which adds 2e-6 / ridge. The noise is exact on a grid;
    rounding inside the minimisation (about 1e-12) is within that tolerance.

    **Edge cases.** A record with NaN contributes nothing and infinity is clipped; neither is
    reported. A class without records is learned as rare.

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
        return _additive_mechanism(float(self.epsilon), float(self.delta), l2, size)

    def _record_shares(self, who: Groups) -> NDArray[np.float64]:
        return who.exact_shares()

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
