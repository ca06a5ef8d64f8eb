"""Calibration of Gaussian noise: the analytic and the classic noise multiplier."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from scipy.special import log_ndtr, ndtr

from ..accounting._checks import number

__all__ = ["CALIBRATIONS", "analytic_noise_multiplier", "classic_noise_multiplier"]

_UPWARDS = 1.0 + 2.0**-30  # keeps an accountant's rounding below the target epsilon


def analytic_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier for which a Gaussian release is (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Standard deviation over L2 sensitivity, rounded up by one part in 2**30.

    Raises
    ------
    ValueError
        If ``epsilon`` or ``delta`` is out of range.

    References
    ----------
    B. Balle and Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy:
    analytical calibration and optimal denoising", ICML 2018, Theorem 8.

    Examples
    --------
    >>> from skprivacy.mechanisms import analytic_noise_multiplier
    >>> round(analytic_noise_multiplier(1.0, 1e-5), 6)
    3.730632
    """
    number("epsilon", epsilon, "a finite number >= 0")
    if not 0 <= epsilon < math.inf:
        raise ValueError(f"epsilon={epsilon!r} must be a finite number >= 0.")
    _check_gaussian_delta(delta)
    return _solve_noise_multiplier(float(epsilon), float(delta))


@lru_cache(maxsize=256)
def _solve_noise_multiplier(epsilon: float, delta: float) -> float:
    # Balle and Wang 2018, Theorem 8: delta(z) = Phi(1/(2z) - eps z) - e^eps Phi(-1/(2z) - eps z)
    def delta_at(z: float) -> float:
        a, b = 0.5 / z, epsilon * z
        return float(ndtr(a - b) - math.exp(min(epsilon + float(log_ndtr(-a - b)), 0.0)))

    low = high = 1.0
    while delta_at(high) > delta:
        high *= 2.0
    while delta_at(low) <= delta:
        low /= 2.0
    while high > low * (1.0 + 1e-12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high * _UPWARDS


def _check_gaussian_delta(delta: float) -> None:
    number("delta", delta, "a number in (0, 1)")
    if not 0 < delta < 1:
        raise ValueError(
            f"delta={delta!r} must lie in (0, 1): Gaussian noise has no pure guarantee. "
            "Use Laplace for delta=0."
        )


def classic_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the textbook noise multiplier, sqrt(2 ln(1.25/delta)) / epsilon.

    For comparison with published results; :func:`analytic_noise_multiplier` is smaller.

    Parameters
    ----------
    epsilon : float
        Above 0 and at most 1. The theorem does not cover larger values, and from about 9 on (at
        delta 1e-5) the formula gives too little noise.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        Standard deviation over L2 sensitivity, rounded up by one part in 2**30.

    Raises
    ------
    ValueError
        If ``epsilon`` or ``delta`` is out of range.

    References
    ----------
    C. Dwork and A. Roth, "The algorithmic foundations of differential privacy", 2014, theorem 3.22.

    Examples
    --------
    >>> from skprivacy.mechanisms import classic_noise_multiplier
    >>> round(classic_noise_multiplier(1.0, 1e-5), 6)
    4.844805
    """
    number("epsilon", epsilon, "a number in (0, 1]")
    if not 0 < epsilon <= 1:
        raise ValueError(
            f"epsilon={epsilon!r} must lie in (0, 1], the range of the classic theorem. Use "
            "gaussian='analytic' (analytic_noise_multiplier) for larger values."
        )
    _check_gaussian_delta(delta)
    # Dwork and Roth 2014, Theorem 3.22
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon * _UPWARDS


CALIBRATIONS: dict[str, Callable[[float, float], float]] = {
    "analytic": analytic_noise_multiplier,
    "classic": classic_noise_multiplier,
}
