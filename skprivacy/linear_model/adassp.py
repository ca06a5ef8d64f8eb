"""Linear regression by adaptive sufficient statistics perturbation (AdaSSP, Wang 2018)."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._validation import Interval
from ..accounting import PrivacyBudget
from ..base import PrivateFit, public_target_bounds
from ..mechanisms.base import UnitBall
from ..sums import SumTotal
from ..sums.sources import SumRelease, SumSource
from ..sums.sum_plan import TargetRange
from .base import LINEAR_DOCS, PrivateLinearRegressor

# Probability that the ridge is too small, which affects accuracy, not privacy.
_FAILURE_PROBABILITY = 0.05


@fill_docs(LINEAR_DOCS)
class AdaSSPRegressor(PrivateLinearRegressor):
    """Linear regression by adaptive sufficient statistics perturbation (AdaSSP).

    Three statistics are released with noise of one scale: the second moments, the products with
    the target, and the smallest eigenvalue, which determines the ridge.

    Parameters
    ----------
    %(epsilon)s
    delta : float, default=1e-5
        Probability with which ``epsilon`` may be exceeded. Must be above 0.
    %(bounds)s
    target_bounds : tuple (lower, upper), default=None
        Public bounds of the target.
    %(target_scale)s
    %(radius)s
    %(intercept_and_relation)s
    %(budget)s
    %(noise_seed)s

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the features, for the target on its ``target_scale``.
    intercept_ : float
        The constant, on the same scale.
    ridge_ : float
        The ridge used, for records in the unit ball.
    %(bounds_)s
    %(guarantee_attributes)s
    target_bounds_ : tuple of float
        Bounds to which predictions are clipped.
    %(target_scale_)s
    %(feature_attributes)s

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with one record as the unit, or
    one group. Records x are in the unit ball and targets y in [-1, 1], on either scale. Adding or
    removing a record changes the sum of x x' by at most 1, the sum of x y by 1 and the smallest
    eigenvalue by 1 (Weyl). Replacing a record changes them by at most sqrt(2), 2 and 1. Each of
    the m records of a group counts 1 / m. A group thus adds a positive semidefinite matrix of norm
    at most 1 and a vector of norm at most 1, and the same bounds hold. One Gaussian mechanism of
    sensitivity sqrt(3), or sqrt(7), releases all three statistics. This needs less noise than the
    published split of (epsilon, delta) into three. The sums are exact. The eigenvalue is exact to
    one part in 10**15, which a margin of the mechanism covers. The noise is exact on a grid.

    **Edge cases.** A record with NaN contributes nothing and infinity is clipped; neither is
    reported. NaN targets are refused.

    References
    ----------
    Y.-X. Wang, "Revisiting differentially private linear regression: optimal and adaptive
    prediction and estimation in unbounded domain", UAI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.linear_model import AdaSSPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(5000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] + rng.normal(size=5000)
    >>> AdaSSPRegressor(bounds=(0, 1), target_bounds=(-5, 6)).fit(X, y).score(X, y) > 0.2
    True
    """

    _saved_state = {**PrivateLinearRegressor._saved_state, "ridge_": "number"}
    _parameter_constraints: dict = {
        **PrivateLinearRegressor._parameter_constraints,
        "delta": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: ArrayLike | None = None,
        target_bounds: ArrayLike | None = None,
        target_scale: str = "linear",
        radius: float | None = None,
        fit_intercept: bool = True,
        relation: str = "add_remove",
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
        self.budget = budget
        self.noise_seed = noise_seed

    def _make_release(self, fit: PrivateFit, source: SumSource) -> SumRelease:
        self.target_bounds_ = public_target_bounds(fit, source.y, self.target_bounds)
        self.target_scale_ = self.target_scale
        plan = self._make_plan(fit, source, TargetRange(*self.target_bounds_, self.target_scale_))
        # Adding a record changes each of the three statistics by at most 1; replacing one
        # changes them by at most sqrt(2), 2 and 1.
        mechanism = self._single_mechanism(
            math.sqrt(7.0 if self.relation == "replace_one" else 3.0)
        )

        def vector(total: SumTotal) -> NDArray[np.float64]:
            square, cross = plan.matrices(total)
            # Wang 2018, AdaSSP: the smallest eigenvalue, the products with the target, the moments
            smallest = max(0.0, float(np.linalg.eigvalsh(square)[0]))
            return np.concatenate([[smallest], cross[:, 0], square.ravel()])

        def read_statistics(noisy: NDArray[np.float64], _: int) -> None:
            self.coef_, self.intercept_ = self._solution(plan.ball, mechanism.std, noisy)

        return SumRelease(plan, mechanism, vector, read_statistics)

    def _solution(self, ball: UnitBall, std: float, noisy: NDArray) -> tuple[NDArray, float]:
        """Compute the coefficients from noisy statistics; sets ``ridge_``."""
        p = ball.size
        eigenvalue, linear, moments = noisy[0], noisy[1 : p + 1, None], noisy[p + 1 :]
        moments = moments.reshape(p, p)
        # With probability 1 - _FAILURE_PROBABILITY, the noise of the moments has a spectral norm
        # below spread, and the noise of the eigenvalue is below margin.
        spread = std * math.sqrt(p * math.log(2.0 * p * p / _FAILURE_PROBABILITY) / 2.0)
        margin = std * math.sqrt(2.0 * math.log(1.0 / _FAILURE_PROBABILITY))
        # Wang 2018, AdaSSP: the ridge is what the smallest eigenvalue lacks
        self.ridge_ = max(0.0, spread - max(0.0, eigenvalue - margin))
        # Wang 2018, AdaSSP: ridge regression on the noisy statistics
        system = (moments + moments.T) / 2 + self.ridge_ * np.eye(p)
        return self._coefficients(ball, np.linalg.lstsq(system, linear, rcond=2.0**-24)[0])
