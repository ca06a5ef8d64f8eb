"""Polynomial loss functions and their released coefficients (Zhang et al. 2012, Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..mechanisms import Gaussian, Laplace

_INWARDS = 1.0 - 2.0**-40  # outweighs the rounding of a norm
# Tuned on public tables for epsilons from 0.0001 to 10; they do not depend on private data.
_RIDGE = 0.6
_STEIN = 0.5
_EVIDENCE = 2.0
_DOUBT = 0.5
_DOUBT_AROUND = 0.35
_DOUBT_CONSTANT = 1.5


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
        a, r, p = self._balance(pure), l1_radius, size
        if relation == "replace_one":
            if not pure:
                return math.sqrt(4.0 * a * a + 2.0)
            two = 2.0 if self.order == 1 else min(r * r + 1.0, math.sqrt((p * p + 3.0 * p) / 2.0))
            return 2.0 * a * r + two
        if not pure:
            return math.hypot(a, 1.0)
        return a * r + (1.0 if self.order == 1 else (r * r + 1.0) / 2.0)

    def _balance(self, pure: bool) -> float:
        """Return the power of two nearest to the slope bound over twice the curvature."""
        # This is the scale of a solution, so it balances the noise of the linear and the quadratic
        # part. On public tables it is more accurate than the published weighting, twice as large.
        bound = self.slope_l1 if pure else self.slope_l2
        return 2.0 ** round(math.log2(bound / (2.0 * self.curvature)))

    def coefficients(
        self, quadratic: NDArray[np.float64], linear: NDArray[np.float64], pure: bool
    ) -> NDArray[np.float64]:
        """Return the released coefficients, from sums of x x' and of x s' with bounded slopes s."""
        # Zhang et al. 2012, Algorithm 1, lines 2 to 4: coefficients of degree 1 and 2
        entries = self._released_entries(len(quadratic), pure)
        return np.concatenate([self._balance(pure) * linear.ravel(), quadratic[entries]])

    def read_release(
        self, noisy: NDArray[np.float64], size: int, n_outputs: int, mechanism: Laplace | Gaussian
    ) -> NoisyPolynomial:
        """Return the noisy sum of the polynomials of all records, with slopes of norm 1."""
        pure = isinstance(mechanism, Laplace)
        a, p, n_linear = self._balance(pure), size, size * n_outputs
        quadratic = np.zeros((p, p))
        quadratic[self._released_entries(p, pure)] = noisy[n_linear:]
        quadratic = quadratic + np.triu(quadratic, 1).T if pure else (quadratic + quadratic.T) / 2
        halved = self.order == 2 and not pure
        std = mechanism.std / math.sqrt(2.0) if halved else mechanism.std
        bound = self.slope_l1 if pure else self.slope_l2
        # Zhang et al. 2012, Algorithm 1, line 5: the noisy objective
        return NoisyPolynomial(
            linear=noisy[:n_linear].reshape(p, n_outputs) / a,
            quadratic=quadratic,
            linear_std=mechanism.std / a,
            quadratic_std=std,
            # Typical norms of a symmetric random matrix and of a diagonal one.
            quadratic_norm=std * math.sqrt(4.0 * p if self.order == 2 else 2.0 * math.log(2.0 * p)),
            trace_std=mechanism.std * math.sqrt(p),
            unit=bound / (2.0 * self.curvature),
        )

    def _released_entries(self, p: int, pure: bool) -> tuple[NDArray, ...]:
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
        solve = self._solve_around_constant if constant else self._solve_all_columns
        return np.stack([-self.unit * solve(alpha) for alpha in np.asarray(alphas, np.float64)])

    def _solve_all_columns(self, alpha: float) -> NDArray[np.float64]:
        """Return the weights, with the same penalty on all columns."""
        return self._solve_regularized(alpha, _DOUBT, float(np.trace(self.quadratic)))

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

    def _solve_regularized(self, alpha: float, doubt: float, trace: float) -> NDArray[np.float64]:
        """Return the weights, with a ridge of ``doubt`` times the noise in the quadratic part."""
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
