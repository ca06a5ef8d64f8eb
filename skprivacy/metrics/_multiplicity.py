"""P-values of many tests, adjusted so that few of them, or none, are false alarms."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._samples import Float64Array

__all__ = ["benjamini_hochberg", "holm"]


def holm(p_values: ArrayLike) -> Float64Array:
    """Return adjusted p-values: those up to alpha hold together, with error probability alpha.

    Holm's method controls the family-wise error however the tests depend on one another. NaN marks
    a test that was not made; it stays NaN and does not count.

    References
    ----------
    S. Holm. A simple sequentially rejective multiple test procedure. Scandinavian Journal of
    Statistics 6, 1979.
    """
    p, order = _in_order(p_values)
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    return _put_back(len(p), order, steps)


def benjamini_hochberg(p_values: ArrayLike) -> Float64Array:
    """Return adjusted p-values: among those up to alpha, a share of alpha is expected to be false.

    It controls the false discovery rate of independent tests and of p-values that depend on one
    another positively, such as ranks among one sample of non-members (Bates et al. 2023). If all
    hypotheses are true, the probability of any discovery is at most alpha.

    References
    ----------
    Y. Benjamini, Y. Hochberg. Controlling the false discovery rate. Journal of the Royal
    Statistical Society B 57, 1995.
    S. Bates, E. Candès, L. Lei, Y. Romano, M. Sesia. Testing for outliers with conformal
    p-values. Annals of Statistics 51, 2023.
    """
    p, order = _in_order(p_values)
    n = len(order)
    steps = np.minimum.accumulate((p[order] * n / np.arange(1, n + 1))[::-1])[::-1]
    return _put_back(len(p), order, steps)


def _in_order(p_values: ArrayLike) -> tuple[Float64Array, NDArray[np.intp]]:
    """Return the p-values, and the positions of the tests that were made by increasing p-value."""
    p = np.asarray(p_values, dtype=float)
    made = np.flatnonzero(~np.isnan(p))
    return p, made[np.argsort(p[made], kind="stable")]


def _put_back(n: int, order: NDArray[np.intp], steps: Float64Array) -> Float64Array:
    adjusted = np.full(n, np.nan)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
