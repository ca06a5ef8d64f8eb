"""A lower confidence bound on the mean of values between 0 and 1, from an average of them."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc

from ._samples import Float64Array

__all__ = ["mean_lower_bound"]

CANDIDATES = 50


def mean_lower_bound(mean: float, n: int, alpha: float) -> float:
    """Return a lower confidence bound on an expectation, without assuming a distribution.

    Parameters
    ----------
    mean : float
        The average of ``n`` independent values in [0, 1], or an average of such averages: the area
        under the ROC curve is one, over all ways to pair members with non-members.
    n : int
        Number of values, at least 1.
    alpha : float
        One-sided error probability.

    Notes
    -----
    **Guarantees.** No average of ``n`` independent values in [0, 1] is more spread out, in the
    convex order, than the average of ``n`` coins of the same mean (Hoeffding 1963, theorem 1 and
    section 5). So for every number t below x, P[n mean >= x] is at most E[max(B - t, 0)] / (x - t)
    with B binomial, by Markov's inequality. The bound is the largest expectation that the least of
    these refutes. It needs no coin for ties, which are one half.

    **Edge cases.** 0 for a mean of 0. For a mean of 1 it is that of Clopper and Pearson.
    """
    if mean <= 0:
        return 0.0
    return float(brentq(lambda p: _tail(mean * n, n, p) - alpha, 0.0, mean, xtol=1e-12))


def _tail(total: float, n: int, mean: float) -> float:
    """Return a bound on the probability that ``n`` values of this mean sum to ``total``."""
    # On each interval between whole numbers the quotient is monotone, so its least value is at
    # one of them. A selection of them gives a bound that is valid too.
    first, last = int(np.floor(n * mean)), int(np.ceil(total)) - 1
    t = np.unique(np.linspace(min(first, last), last, CANDIDATES).astype(int))
    excess = n * mean * _at_least(t, n - 1, mean) - t * _at_least(t + 1, n, mean)
    return float(np.min(np.maximum(excess, 0.0) / (total - t)))


def _at_least(k: Float64Array, n: int, p: float) -> Float64Array:
    """Return the probability of at least ``k`` hits in ``n`` trials, for 0 <= k <= n."""
    return np.where(k <= 0, 1.0, betainc(np.maximum(k, 1), n - k + 1, p))
