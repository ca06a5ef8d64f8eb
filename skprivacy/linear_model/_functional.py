"""Functional mechanism (Zhang et al. 2012): the release shared by classifier and regressor."""

from __future__ import annotations

from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._groups import Groups
from .._validation import Interval
from ..base import PrivateFit
from ..mechanisms import SecureRandom
from ._base import PrivateLinearModel
from .polynomial import PolynomialObjective

__all__ = ["FunctionalMechanism", "check_alphas"]


class FunctionalMechanism(PrivateLinearModel):
    """Base of estimators that release one noisy polynomial and minimise it."""

    _parameter_constraints: dict = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "objective": [PolynomialObjective, None],
    }

    def _release(
        self,
        fit: PrivateFit,
        X: NDArray,
        target: NDArray,
        objective: PolynomialObjective,
        who: Groups,
    ) -> None:
        """Release the noisy polynomial, the only access to the private records."""
        self._ball_ = self._unit_ball(fit, X)
        # Zhang et al. 2012, Algorithm 1, line 1: noise for the sensitivity of the coefficients
        mechanism = self._single_mechanism(
            objective.sensitivity(
                self._ball_.size, self._ball_.l1_radius, self.relation, pure=self.delta == 0
            )
        )
        with self._charge_release(fit, mechanism.event, who, mechanism.arithmetic):
            rows, weights = self._ball_.transform(X, who.exact_shares())
            self.polynomial_ = objective.release(
                rows, weights, target, mechanism, SecureRandom(self.noise_seed)
            )


def check_alphas(alphas: ArrayLike) -> NDArray[np.float64]:
    """Check the regularisation strengths and return them as an array of shape (n_alphas,)."""
    try:
        values = np.asarray(alphas, np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 1 or not (np.isfinite(values) & (values >= 0)).all() or not values.size:
        raise ValueError(f"alphas={alphas!r} must be a non-empty sequence of finite numbers >= 0.")
    return values
