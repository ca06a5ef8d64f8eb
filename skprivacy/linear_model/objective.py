"""Objective perturbation (Chaudhuri et al. 2011): the mechanism and the proof of its cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import ApproxDP, Event, NonPrivate
from ..mechanisms import Mechanism, SecureRandom, analytic_noise_multiplier
from ._logistic import LogisticLoss, minimize

__all__ = ["TOLERANCE", "ObjectivePerturbation"]

TOLERANCE = 1e-6  # largest norm of the gradient at the minimiser, for records of norm 1
_MAX_JACOBIAN_SHARE = 0.1  # largest share of epsilon for the Jacobian of the perturbed problem
_MAX_JACOBIAN_EPSILON = 1.0  # largest epsilon for it


@dataclass(frozen=True)
class ObjectivePerturbation(Mechanism):
    """Minimise a regularised logistic loss plus a random linear term.

    Parameters
    ----------
    epsilon, delta : float
        Privacy loss of one release under add/remove. With ``delta=0`` the noise has a density
        proportional to exp(-norm / scale), with ``delta > 0`` it is Gaussian.
    n_classes : int
        Number of classes, at least 2.
    alpha : float
        Strength of the ridge, in units of the noise. The ridge is never below what the proof needs.

    Notes
    -----
    **Guarantees.** They hold for one record, not for several records of one group. Let record x,
    in the unit ball, be in D' and not in D. A minimiser determines its noise: b for D and
    b' = b - g for D', with g the record's gradient. The ratio of the densities of the minimiser is
    therefore the ratio of noise densities times the ratio of Jacobians.

    - The Jacobians' ratio is between 1 and det(I + S / ridge), where S is the Hessian of the
      record's loss in its margins. Its log is at most log(1 + 1 / (4 ridge)) for two classes, and
      for k classes, by the mean of S's eigenvalues, (k-1) log(1 + (1 - 1/k) / ((k-1) ridge)). Call
      it J.
    - Gaussian noise, two classes: g = p u with u = +-x fixed by the label and p in (0, 1), though
      p depends on b. The privacy loss (p**2 - 2 p b u) / (2 s**2) is convex in p, hence at most the
      larger of 0 and the loss of a Gaussian release of u. So delta(epsilon) is at most the delta of
      a Gaussian mechanism of sensitivity 1 at epsilon - J >= 0. (Known proofs lose a factor of 2 in
      delta, Redberg et al. 2023, or more, because they take the sign of g as unknown.)
    - Gaussian noise, k classes: g = x (p - e_y)', p in the simplex. A convex function is largest at
      a vertex, so delta is at most (k-1) times the delta for sensitivity sqrt(2).
    - Pure privacy: the ratio of noise densities is at most exp(||g|| / scale).

    Several records, even with weights that add up to 1, have a gradient sum_i w_i p_i(b) u_i whose
    *direction* depends on the noise. The convexity in p does not carry over to them, and neither
    does the rank of S. To protect a group, let one of its records take part.

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

    epsilon: float
    delta: float
    n_classes: int
    alpha: float = 1.0

    @property
    def sensitivity(self) -> float:  # type: ignore[override]  # follows from n_classes
        """L2 bound on the gradient of one record."""
        return 1.0 if self.n_classes == 2 else math.sqrt(2.0)

    @property
    def event(self) -> Event:
        """``ApproxDP(epsilon, delta)``; ``NonPrivate()`` for an infinite epsilon."""
        return NonPrivate() if math.isinf(self.epsilon) else ApproxDP(self.epsilon, self.delta)

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
