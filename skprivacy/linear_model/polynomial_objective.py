"""Polynomial loss functions and their released coefficients (Zhang et al. 2012, Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import is_number
from ..mechanisms import Gaussian, Laplace

_INWARDS = 1.0 - 2.0**-40  # outweighs the rounding of a norm
# Tuned on public tables for epsilons from 0.0001 to 10; they do not depend on private data.
_RIDGE = 0.6
_STEIN = 0.5
_EVIDENCE = 2.0
_DOUBT = 0.5
_DOUBT_AROUND = 0.35
_DOUBT_CONSTANT = 1.5
# Number of public targets on which a slope is tried, and the relative tolerance for equal slopes:
# rounding differs by less, a function that mixes records by far more.
_N_TRIAL_TARGETS, _SLOPE_TOLERANCE = 100, 2.0**-40


@dataclass(frozen=True)
class PolynomialObjective:
    """Quadratic loss of a record for the functional mechanism.

    The loss is ``sum_k slope_k(y) * t_k + curvature * t_k**2`` with margins ``t_k = x @ w_k``. Many
    convex losses have a good approximation of this form: expand them around t = 0, or fit a
    parabola over the range of t.

    Parameters
    ----------
    slope : callable
        Maps targets of shape (n_samples,) to slopes of shape (n_samples, n_outputs). It must
        treat each record separately, and must not contain information about private records.
    curvature : float
        Coefficient of the square, above 0.
    slope_l1, slope_l2 : float
        Bounds on the L1 and L2 norm of one record's slopes, enforced by clipping.
    order : {1, 2}, default=2
        2 releases the whole matrix of second moments. 1 releases only its diagonal, and replaces
        ``(x @ w)**2`` by ``sum_i (x_i w_i)**2``: less noise, but features are treated as
        uncorrelated.

    Examples
    --------
    Poisson regression, expanded to ``exp(t) - y t = 1 + t + t**2 / 2 - y t``, for counts up to 10:

    >>> from skprivacy.linear_model import PolynomialObjective
    >>> poisson = PolynomialObjective(
    ...     slope=lambda y: (1 - y)[:, None], curvature=0.5, slope_l1=9.0, slope_l2=9.0
    ... )
    """

    slope: Callable[[NDArray], NDArray]
    curvature: float
    slope_l1: float
    slope_l2: float
    order: int = 2

    def __post_init__(self) -> None:
        if not callable(self.slope):
            raise TypeError(f"slope={self.slope!r} must be a function of the targets.")
        for name in ("curvature", "slope_l1", "slope_l2"):
            number = getattr(self, name)
            if not (is_number(number) and 0 < number < math.inf):
                raise ValueError(f"{name}={number!r} must be a finite number > 0.")
        if not is_number(self.order) or self.order not in (1, 2):
            raise ValueError(
                f"order={self.order!r} must be 1 (diagonal of the second moments) or 2 (whole "
                "matrix)."
            )

    @property
    def assumption(self) -> str:
        """Assumption of a guarantee that rests on a user-defined objective."""
        return "the objective treats each record by itself (tried on random numbers)"

    def check_records_apart(self, lower: float = -1.0, upper: float = 1.0) -> None:
        """Check on random public targets that ``slope`` treats each record separately.

        Parameters
        ----------
        lower, upper : float, default=-1.0 and 1.0
            Bounds of the targets.

        Raises
        ------
        ValueError
            If the slope of a target depends on the other targets or on earlier calls, or if the
            result does not have one row for each target.

        Notes
        -----
        **Edge cases.** A function that mixes records only for other targets, or for more than two
        hundred of them, is not detected. Hence :attr:`assumption`.
        """
        random = np.random.default_rng(0).uniform(lower, upper, _N_TRIAL_TARGETS)
        ends = np.array([lower, upper, (lower + upper) / 2])
        # Whole numbers, many of them twice, for slopes of labels and of counts.
        targets = np.concatenate([random, ends, np.clip(np.round(random), lower, upper)])
        for together in (targets, targets[::-1]):
            slopes = self._slopes(together)
            for i, target in enumerate(together):
                alone = self._slopes(together[i : i + 1])[0]
                if alone.shape != slopes[i].shape or not np.allclose(
                    alone,
                    slopes[i],
                    _SLOPE_TOLERANCE,
                    _SLOPE_TOLERANCE * self.slope_l2,
                    equal_nan=True,
                ):
                    raise ValueError(
                        f"objective.slope returns {slopes[i]} for a target of {target:.6g} among "
                        f"{len(together)} targets, but {alone} for this target alone: one record "
                        "would change the contributions of others, and the guarantee would be "
                        "false. Compute each slope only from its own target."
                    )

    def sensitivity(self, size: int, l1_radius: float, relation: str, pure: bool) -> float:
        """Return the sensitivity of :meth:`coefficients`.

        Parameters
        ----------
        size : int
            Number of columns p of the rows, each row of L2 norm at most 1.
        l1_radius : float
            Bound r on the L1 norm of a row.
        relation : {"add_remove", "zero_out", "replace_one"}
            The neighbouring relation.
        pure : bool
            Whether to return the L1 sensitivity, for pure differential privacy, instead of L2.

        Returns
        -------
        float
            The sensitivity, in L1 if ``pure``, else in L2.

        Notes
        -----
        Slopes are scaled to norm 1 and multiplied by a power of two a. For order 2:

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
        """Return the vector of coefficients that is released.

        Parameters
        ----------
        quadratic : ndarray of shape (size, size)
            Sum of x x' over records x in the unit ball.
        linear : ndarray of shape (size, n_outputs)
            Sum of x s' with the bounded slopes s of their targets.
        pure : bool
            Whether the noise is Laplace noise.

        Returns
        -------
        ndarray of shape (n_coefficients,)
            Coefficients of degree 1, scaled, and of degree 2.
        """
        # Zhang et al. 2012, Algorithm 1, lines 2 to 4: coefficients of degree 1 and 2
        entries = self._released_entries(len(quadratic), pure)
        return np.concatenate([self._balance(pure) * linear.ravel(), quadratic[entries]])

    def read_release(
        self, noisy: NDArray[np.float64], size: int, n_outputs: int, mechanism: Laplace | Gaussian
    ) -> NoisyPolynomial:
        """Return the noisy sum of the polynomials of all records.

        Parameters
        ----------
        noisy : ndarray of shape (n_coefficients,)
            The released coefficients.
        size : int
            Number of columns p of the rows.
        n_outputs : int
            Number of slopes of a record.
        mechanism : Laplace or Gaussian
            Noise with the sensitivity from :meth:`sensitivity`.

        Returns
        -------
        NoisyPolynomial
            The released polynomial.
        """
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

    def facts(self) -> list[Any]:
        """Return what determines the loss, in types of JSON.

        Returns
        -------
        list
            Name and parameters of the slope, the curvature, the bounds and the order.

        Raises
        ------
        TypeError
            If the slope is a function of the user, of which no text states what it computes.
        """
        if not isinstance(self.slope, SquaredSlope | LogisticSlope):
            raise TypeError(
                "objective has a user-defined slope, and a plan of sums must state its slope. Fit "
                "to records in memory."
            )
        slope = [type(self.slope).__name__, *vars(self.slope).values()]
        return [slope, self.curvature, self.slope_l1, self.slope_l2, self.order]

    def _released_entries(self, p: int, pure: bool) -> tuple[NDArray, ...]:
        """Return the indices of the released entries of the quadratic part."""
        # Gaussian noise is added to both triangles, because the Frobenius norm of the whole matrix
        # is the tightest bound for one record. The mean of both triangles has half the variance.
        if self.order == 1:
            return np.diag_indices(p)
        if pure:
            return np.triu_indices(p)
        return tuple(np.indices((p, p)).reshape(2, -1))

    def _slopes(self, target: NDArray) -> NDArray[np.float64]:
        slopes = np.array(self.slope(target.copy()), np.float64, order="C")
        if slopes.ndim != 2 or len(slopes) != len(target):
            raise ValueError(
                f"objective.slope must return shape ({len(target)}, n_outputs); got "
                f"{slopes.shape}. Return one row for each target."
            )
        return slopes

    def bounded_slopes(self, target: NDArray, pure: bool) -> NDArray[np.float64]:
        """Return slopes divided by their bound and clipped to norm 1.

        Parameters
        ----------
        target : ndarray of shape (n_samples,)
            Labels or numbers, in the form that ``slope`` takes.
        pure : bool
            Whether the norm is L1, instead of L2.

        Returns
        -------
        ndarray of shape (n_samples, n_outputs)
            The slopes.
        """
        slopes = self._slopes(target)
        slopes /= self.slope_l1 if pure else self.slope_l2
        norms = np.linalg.norm(slopes, ord=1 if pure else 2, axis=1)
        slopes *= (_INWARDS / np.maximum(norms, 1.0))[:, None]
        return np.nan_to_num(slopes, nan=0.0, posinf=0.0, neginf=0.0)


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
        """Return the weights: the constant first, then the features on what it leaves."""
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


@dataclass(frozen=True)
class SquaredSlope:
    """Slope of ``(y - t)**2`` at t = 0."""

    def __call__(self, y: NDArray) -> NDArray[np.float64]:
        return -2.0 * np.asarray(y, np.float64)[:, None]


@dataclass(frozen=True)
class LogisticSlope:
    """Slopes of the logistic loss of labels 0 .. k-1 at t = 0: one margin for two classes."""

    n_classes: int

    def __call__(self, y: NDArray) -> NDArray[np.float64]:
        k, labels = self.n_classes, np.asarray(y)[:, None]
        slopes: NDArray[np.float64] = 0.5 - labels if k == 2 else 1.0 / k - (labels == np.arange(k))
        return slopes


def squared_objective() -> PolynomialObjective:
    """Return the squared loss ``(y - t)**2`` for targets in [-1, 1]."""
    # Zhang et al. 2012, linear regression: the loss is a polynomial of degree 2 without expansion
    return PolynomialObjective(slope=SquaredSlope(), curvature=1.0, slope_l1=2.0, slope_l2=2.0)


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
        slope=LogisticSlope(k),
        curvature=0.125 if two else 0.5 / k,
        slope_l1=0.5 if two else 2.0 * (1.0 - 1.0 / k),
        slope_l2=0.5 if two else math.sqrt(1.0 - 1.0 / k),
        order=order,
    )
