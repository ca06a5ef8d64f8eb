"""Test of the noise in a network's sums: its size, its distribution and its independence.

A canary that is not trained on adds nothing to its weight. The noisy sum there is the contribution
of the other records, which is known, and noise. Start reading at :class:`NoiseTest`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, chdtr, chdtrc, erfc, ndtri_exp

if TYPE_CHECKING:
    from ...neural_network._training.training_config import TrainingConfig

NEVER = 1e-6  # probability of a false alarm
NOISE_FAULTS = {
    "one step": "at least one step has less noise than claimed",
    "all steps": "the steps together have less noise than claimed",
    "shape": "the noise has another distribution than claimed",
    "reuse": "the noise of two steps is correlated",
    "shift": "the weights of a step share a part of their noise",
}
_MAX_VALUES = 1 << 20  # kept of all steps together
_BLOCK = 1024  # steps whose correlations are computed at a time
Float64Array = NDArray[np.float64]


class NoiseTest:
    """Five p-values of the noise at the weights of canaries that are not trained on.

    **Guarantees.** If every step adds fresh Gaussian noise of the claimed size, independent of the
    records' sum, each p-value is below p with probability p at most. With logistic noise this holds
    nearly. More noise than claimed raises no alarm.
    """

    def __init__(self, config: TrainingConfig, absent: NDArray[np.bool_]) -> None:
        self._std = config.noise_multiplier * float(config.max_grad_norm)
        self._to_normal = _TO_NORMAL[config.noise]
        self._weights = np.flatnonzero(absent)[: max(2, _MAX_VALUES // config.n_steps)]
        self._normal: list[Float64Array] = []

    def add(self, noisy: Float64Array, clean: Float64Array) -> None:
        """Add a step: its noisy sum, and the sum of the other records without noise."""
        if len(self._weights) < 3:
            return  # one of them is given up for the records, and a direction takes two
        noisy, clean = noisy[self._weights], clean[self._weights]
        normal = self._to_normal(subtract_records(noisy, clean) / self._std)
        self._normal.append(_drop_direction(normal, clean))

    def p_values(self) -> dict[str, float]:
        """Return the p-value of each key of ``NOISE_FAULTS``."""
        if not self._normal:
            return dict.fromkeys(NOISE_FAULTS, 1.0)
        normal = np.stack(self._normal)
        n_steps, df = normal.shape
        # The records' sum is fixed before its noise is drawn. So, given all earlier steps, these
        # are ``df`` independent standard normals, and steps are independent of each other.
        squares = np.sum(normal**2, axis=1)
        # Bonferroni: the least of n p-values is below p / n with probability p at most.
        of_a_step = min(1.0, n_steps * float(chdtr(df, squares).min()))
        of_all = float(chdtr(df * n_steps, squares.sum()))
        with np.errstate(invalid="ignore"):  # a step without noise has no direction
            directions = np.nan_to_num(normal / np.sqrt(squares)[:, None])
        return {
            "one step": of_a_step,
            "all steps": of_all,
            "shape": _test_shape(normal),
            "reuse": _test_reuse(directions),
            "shift": _test_shift(directions),
        }


def subtract_records(noisy: Float64Array, clean: Float64Array) -> Float64Array:
    """Return noisy sums minus their projection on the records' contributions.

    The projection removes the records at any scale. An engine that scales sums before it adds noise
    is then detected by its canaries, and not hidden by its records.
    """
    length = float(clean @ clean)
    return noisy - clean * (float(noisy @ clean) / length) if length > 0 else noisy


def _drop_direction(values: Float64Array, direction: Float64Array) -> Float64Array:
    """Return the coordinates of ``values`` in a basis of the complement of ``direction``.

    A reflection maps ``direction`` to the first axis, which is left out. It keeps independent
    normals of equal variance independent and of equal variance.
    """
    length = float(np.linalg.norm(direction))
    if length == 0:
        return values[1:]
    # Householder reflection I - 2 u u' / u'u, with the sign that cancels nothing in u
    u = direction / length
    u[0] += math.copysign(1.0, u[0])
    return (values - u * (2.0 * float(u @ values) / float(u @ u)))[1:]


def _test_shape(normal: Float64Array) -> float:
    """Return the p-value of the Anderson-Darling test of normality, free of each step's variance.

    **Guarantees.** Let g_1, ... be independent normals of mean 0 and one variance. The share of
    g_k^2 in g_1^2 + ... + g_k^2 has the distribution Beta(1/2, (k - 1)/2). It is independent of
    that sum, and thus of all later shares. So the shares, through their distributions, are
    independent uniforms.
    """
    squares = normal**2
    with np.errstate(invalid="ignore"):
        shares = (squares / np.cumsum(squares, axis=1))[:, 1:]
    shares = np.nan_to_num(shares)
    k = np.arange(2, normal.shape[1] + 1)
    uniform = np.sort(betainc(0.5, (k - 1) / 2, shares), axis=None)
    uniform = np.clip(uniform, 1e-300, 1 - 1e-16)
    n = len(uniform)
    # Anderson and Darling 1954
    logs = np.log(uniform) + np.log1p(-uniform[::-1])
    statistic = -n - float(np.mean((2.0 * np.arange(n) + 1.0) * logs))
    if statistic <= 0:
        return 1.0
    # The statistic is asymptotically sum Z_j^2 / (j (j + 1)). Its tail is the tail of Z_1^2 / 2,
    # times prod_{j>1} (1 - 2 / (j (j + 1)))^(-1/2) = sqrt(3) (Zolotarev 1961). The next term adds
    # sum_{j>1} 1 / ((j - 1) (j + 2)) = 11/18, divided by twice the statistic.
    tail = math.sqrt(3.0) * (1.0 + 11.0 / (36.0 * statistic)) * float(erfc(math.sqrt(statistic)))
    return min(1.0, tail)


def _test_reuse(directions: Float64Array) -> float:
    """Return the p-value of the largest squared correlation of two steps."""
    n_steps, df = directions.shape
    if n_steps < 2:
        return 1.0
    largest = 0.0
    for start in range(0, n_steps, _BLOCK):
        squared = (directions[start : start + _BLOCK] @ directions[: start + _BLOCK].T) ** 2
        row, column = np.indices(squared.shape, sparse=True)
        largest = max(largest, float(squared[column < start + row].max(initial=0.0)))
    # Given one of two steps, the direction of the other is uniform: Bonferroni over the pairs.
    return min(1.0, n_steps * (n_steps - 1) / 2 * float(_tail_of_square(largest, df)))


def _test_shift(directions: Float64Array) -> float:
    """Return the p-value of the sums over the weights of all steps, by Fisher's method."""
    n_steps, df = directions.shape
    of_steps = _tail_of_square(directions.sum(axis=1) ** 2 / df, df)
    # Fisher 1925: the p-values of independent steps are uniform
    statistic = -2.0 * float(np.log(np.maximum(of_steps, 1e-300)).sum())
    return float(chdtrc(2 * n_steps, statistic))


def _tail_of_square(squared: Float64Array | float, df: int) -> Float64Array:
    """Return the probability that a uniform direction has at least this squared coordinate."""
    rest = np.clip(1.0 - np.asarray(squared, dtype=float), 0.0, 1.0)
    # The squared coordinate has the distribution Beta(1/2, (df - 1) / 2).
    return np.asarray(betainc((df - 1) / 2, 0.5, rest), dtype=np.float64)


def _logistic_to_normal(values: Float64Array) -> Float64Array:
    """Return the normal numbers of the same quantiles as these logistic ones."""
    lower = -np.logaddexp(0.0, np.abs(values))  # logarithm of the smaller tail
    return np.asarray(-np.sign(values) * ndtri_exp(lower), dtype=np.float64)


_TO_NORMAL: dict[str, Callable[[Float64Array], Float64Array]] = {
    "gaussian": np.asarray,
    "exact": np.asarray,
    "logistic": _logistic_to_normal,
}
