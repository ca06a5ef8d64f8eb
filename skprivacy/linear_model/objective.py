"""Objective perturbation: the mechanism, and the proof of its privacy cost."""

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
_MAX_JACOBIAN_EPSILON = 1.0


@dataclass(frozen=True)
class ObjectivePerturbation(Mechanism):
    """Minimise a regularised logistic loss to which a random linear term is added.

    Parameters
    ----------
    epsilon, delta : float
        Privacy loss of one release under add/remove. ``delta=0`` means noise of density
        proportional to exp(-norm / scale), ``delta > 0`` Gaussian noise.
    n_classes : int
        At least 2.
    alpha : float
        Strength of the ridge, in units of the noise. The ridge is never below what the proof needs.

    Notes
    -----
    **Guarantees.** For one record, and not for several of one person. Let record x, in the unit
    ball, be in D' and not in D. The minimiser determines
    the noise b that led to it, b' = b - g with g the record's gradient, so the ratio of densities
    is that of the noise times that of the Jacobians.

    - The Jacobians' ratio is between 1 and det(I + S / ridge), where S is the Hessian of the
      record's loss in its margins. Its log is at most log(1 + 1 / (4 ridge)) for two classes, and
      for k classes, by the mean of S's eigenvalues, (k-1) log(1 + (1 - 1/k) / ((k-1) ridge)). Call
      it J.
    - Gaussian noise, two classes: g = p u with u = +-x fixed by the label and p in (0, 1), though
      p depends on b. The loss (p**2 - 2 p b u) / (2 s**2) is convex in p, hence at most the larger
      of 0 and the loss of a Gaussian release of u. So delta(epsilon) is at most that of a
      Gaussian mechanism of sensitivity 1 at epsilon - J >= 0. (Known proofs lose a factor of 2 in
      delta, Redberg et al. 2023, or more, because they take the sign of g as unknown.)
    - k classes: g = x (p - e_y)', p in the simplex; a convex function is largest at a vertex, so
      delta is at most (k-1) times that of sensitivity sqrt(2).
    - Pure: the ratio of noise densities is at most exp(||g|| / scale).

    Several records, if with weights that add up to 1, have a gradient sum_i w_i p_i(b) u_i whose
    *direction* depends on the noise, where that of one record is known: the convexity in p does not
    carry over, and neither does the rank of S. Whoever protects people lets one record of each take
    part.

    The noise consists of ordinary floating-point numbers and passes through an optimiser. Unlike
    that of the functional mechanism, it is **not hardened** against floating-point attacks.

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
        """Return the share of epsilon for the Jacobian: no more than the desired ridge needs."""
        largest = min(_MAX_JACOBIAN_SHARE * self.epsilon, _MAX_JACOBIAN_EPSILON)
        # a lower bound on the desired ridge, from the least noise
        desired = self.alpha * self._typical_noise(self.epsilon, size)
        if desired == 0:
            return largest
        trace, rank = self._curvature
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
        share = self.delta / (self.n_classes - 1)
        return self.sensitivity * analytic_noise_multiplier(epsilon, share)

    def _typical_noise(self, epsilon: float, size: int) -> float:
        """Return the typical noise of one entry of the random term."""
        outputs = 1 if self.n_classes == 2 else self.n_classes
        return self._scale(epsilon) * (1.0 if self.delta else math.sqrt(size * outputs))

    def scale(self, size: int) -> float:
        """Return the standard deviation of Gaussian noise; for pure noise, its norm's scale."""
        return self._scale(self.epsilon - self._jacobian_epsilon(size))

    def ridge(self, size: int) -> float:
        """Return the ridge for rows of ``size`` columns; it depends only on the parameters."""
        trace, rank = self._curvature
        jacobian = self._jacobian_epsilon(size)
        needed = trace / (rank * math.expm1(jacobian / rank))
        return max(needed, self.alpha * self._typical_noise(self.epsilon - jacobian, size))

    def _release(self, value: Any, random: SecureRandom) -> NDArray[np.float64]:
        rows, targets, weights = value
        shape = (rows.shape[1], targets.shape[1])
        tilt, scale = np.zeros(shape), self.scale(rows.shape[1])
        if scale:
            tilt = scale * random.normal(tilt.size).astype(np.float64).reshape(shape)
            if self.delta == 0:  # a uniform direction, and a norm of Gamma(size, scale)
                norm = -scale * np.log(random.uniform(tilt.size)).sum()
                tilt *= norm / np.linalg.norm(tilt)
        problem = LogisticLoss(rows, targets, weights, self.ridge(rows.shape[1]), tilt)
        return minimize(problem, TOLERANCE)
