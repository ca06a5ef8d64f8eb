"""Lower confidence bound on the mean of values in [0, 1] (Hoeffding 1963)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc

from ._samples import Float64Array

__all__ = ["mean_lower_bound"]

CANDIDATES = 50  # numbers t at which the bound is tried


def mean_lower_bound(mean: float, n: int, alpha: float) -> float:
    """Return a lower confidence bound on the expectation of any values in [0, 1].

    ``mean`` is the average of ``n`` independent values, or a mean of several such averages: the AUC
    is one, over all ways to pair members with non-members.

    **Guarantees.** In the convex order, no average of ``n`` independent values in [0, 1] exceeds
    the average of ``n`` coins of the same mean (Hoeffding 1963, theorem 1 and section 5). So for
    every number t below x, Markov's inequality gives P[n mean >= x] <= E[max(B - t, 0)] / (x - t)
    with B binomial. The bound is the largest expectation that the least of these quotients refutes.
    Ties count one half and are not broken.

    **Edge cases.** 0 for a mean of 0; the Clopper-Pearson bound for a mean of 1.
    """
    if mean <= 0:
        return 0.0
    return float(brentq(lambda p: _bound_tail(mean * n, n, p) - alpha, 0.0, mean, xtol=1e-12))


def _bound_tail(total: float, n: int, mean: float) -> float:
    """Bound the probability that ``n`` values of this mean sum to at least ``total``."""
    # On each interval between whole numbers the quotient is monotone in t, so its least value is at
    # a whole number. A selection of whole numbers also gives a valid bound.
    first, last = int(np.floor(n * mean)), int(np.ceil(total)) - 1
    t = np.unique(np.linspace(min(first, last), last, CANDIDATES).astype(int))
    # Hoeffding 1963: E[max(B - t, 0)] / (total - t), B binomial
    excess = n * mean * _binomial_tail(t, n - 1, mean) - t * _binomial_tail(t + 1, n, mean)
    return float(np.min(np.maximum(excess, 0.0) / (total - t)))


def _binomial_tail(k: Float64Array, n: int, p: float) -> Float64Array:
    """Return the probability of at least ``k`` hits in ``n`` trials, for 0 <= k <= n."""
    return np.where(k <= 0, 1.0, betainc(np.maximum(k, 1), n - k + 1, p))
