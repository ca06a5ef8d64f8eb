"""Multiple testing: Holm's and Benjamini-Hochberg adjusted p-values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._samples import Float64Array

__all__ = ["benjamini_hochberg", "holm"]


def holm(p_values: ArrayLike) -> Float64Array:
    """Return Holm's (1979) adjusted p-values, which control the family-wise error.

    The tests may depend on one another in any way. NaN marks a test that was not made; it stays NaN
    and does not count.
    """
    p, order = _sort_p_values(p_values)
    # Holm 1979: the i-th smallest of n p-values times n - i + 1
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1))
    return _restore_order(len(p), order, steps)


def benjamini_hochberg(p_values: ArrayLike) -> Float64Array:
    """Return adjusted p-values of Benjamini and Hochberg (1995), for the false discovery rate.

    Valid for independent tests and for positively dependent p-values, such as ranks among one
    sample of non-members (Bates et al. 2023, "Testing for outliers with conformal p-values"). If
    all hypotheses are true, the probability of any discovery is at most alpha.
    """
    p, order = _sort_p_values(p_values)
    n = len(order)
    # Benjamini and Hochberg 1995: the i-th smallest of n p-values times n / i
    steps = np.minimum.accumulate((p[order] * n / np.arange(1, n + 1))[::-1])[::-1]
    return _restore_order(len(p), order, steps)


def _sort_p_values(p_values: ArrayLike) -> tuple[Float64Array, NDArray[np.intp]]:
    """Return the p-values, and the positions of those that are not NaN in increasing order."""
    p = np.asarray(p_values, dtype=float)
    made = np.flatnonzero(~np.isnan(p))
    return p, made[np.argsort(p[made], kind="stable")]


def _restore_order(n: int, order: NDArray[np.intp], steps: Float64Array) -> Float64Array:
    adjusted = np.full(n, np.nan)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
