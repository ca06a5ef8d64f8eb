"""Area under the ROC curve (AUC), with its confidence interval and p-value.

:func:`holm` and :func:`benjamini_hochberg` adjust p-values for multiple testing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from .._docs import fill_docs
from .._validation import open_unit
from .rates import RATE_DOCS, Float64Array, Interval, check_scores


@fill_docs(RATE_DOCS)
def auc(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """Return the AUC: the probability that a member scores above a non-member, ties counting half.

    Parameters
    ----------
    %(scores)s

    Returns
    -------
    float
        In [0, 1]; 0.5 is chance.

    Examples
    --------
    >>> from skprivacy.metrics import auc
    >>> auc([3, 2], [2, 1])
    0.875
    """
    members, others = check_scores(scores_in, scores_out)
    above, _ = _placements(members, others)
    return float(above.mean())


def auc_interval(scores_in: ArrayLike, scores_out: ArrayLike, *, alpha: float = 0.05) -> Interval:
    """Return a confidence interval of the AUC that is valid for any distribution of scores.

    It is Wilson's score interval with an effective number of records: the number of independent
    pairs of a member and a non-member that would give the variance of the AUC.

    The variance is the larger of two. The first is DeLong's estimate. The second is ``A (1 - A) -
    ties / 4``, the variance of one comparison, divided by the harmonic mean of the sample sizes.
    Here ``ties`` is the probability of a tie. For samples of equal size, the second is the largest
    variance of any distribution of scores (Birnbaum and Klose, extended here to ties).

    On scores without ties and without information, the interval is about 1.2 times as wide as
    necessary, and covers 0.5 in about 98% of samples at ``alpha=0.05``. With two distinct scores it
    is as wide as necessary.

    **Edge cases.** DeLong's estimate alone is zero or far too small for separated samples, rare
    scores, constant scores and few records. Therefore each sample gets two imaginary records, one
    above and one below all others (Agresti and Caffo), before both variances are computed.
    Quantiles come from Student's distribution. The interval never collapses to a point.

    E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson. Comparing the areas under two or more
    correlated receiver operating characteristic curves. Biometrics 44, 1988.
    Z. W. Birnbaum, O. M. Klose. Bounds for the variance of the Mann-Whitney statistic. Annals of
    Mathematical Statistics 28, 1957.
    A. Agresti, B. Caffo. Simple and effective confidence intervals for proportions and differences
    of proportions result from adding two successes and two failures. The American Statistician
    54, 2000.
    """
    open_unit("alpha", alpha)
    members, others = check_scores(scores_in, scores_out)
    area = float(_placements(members, others)[0].mean())
    quantile = -stdtrit(min(len(members), len(others)) + 1, alpha / 2)  # 1 - alpha / 2 may be 1
    per_record = quantile**2 / _effective_records(members, others)
    # Wilson 1927: score interval with the effective number of records
    centre = (area + per_record / 2) / (1 + per_record)
    spread = np.sqrt(per_record * (area * (1 - area) + per_record / 4)) / (1 + per_record)
    # Rounding must not exclude an area of exactly 0 or 1. Of NaN and a number, Python's min and max
    # may return the number, which would turn NaN into the interval (0, 1).
    low, high = np.clip(centre - spread, 0.0, area), np.clip(centre + spread, area, 1.0)
    if not low <= area <= high:
        raise ArithmeticError(
            f"auc_interval computed ({low}, {high}) around an area of {area}, from {len(members)} "
            f"members, {len(others)} non-members and a quantile of {quantile}. This is a bug of "
            "skprivacy or of the installed scipy: update scipy, or report it."
        )
    return float(low), float(high)


def auc_p_value(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """Return the p-value of an AUC of one half against a larger AUC.

    **Guarantees.** It is at most ``alpha / 2`` if the low end of :func:`auc_interval` at ``alpha``
    is above one half, and is conservative for the same reasons.

    **Edge cases.** With fewer than 5 members or non-members large p-values may be too small: two
    members rank first of four by chance with probability 1/6, but the p-value is 0.07.
    """
    members, others = check_scores(scores_in, scores_out)
    area = float(_placements(members, others)[0].mean())
    statistic = (2 * area - 1) * np.sqrt(_effective_records(members, others))
    return float(stdtr(min(len(members), len(others)) + 1, -statistic))


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


def _effective_records(members: Float64Array, others: Float64Array) -> float:
    """Return the number of independent pairs that would give the larger variance."""
    members, others = _add_pseudo_scores(members), _add_pseudo_scores(others)
    n_in, n_out = len(members), len(others)
    above, below = _placements(members, others)
    area = float(above.mean())
    # DeLong, DeLong and Clarke-Pearson 1988: variance from the placements of both samples
    estimate = above.var(ddof=1) / n_in + below.var(ddof=1) / n_out
    scale = area * (1 - area)
    # Birnbaum and Klose 1957: the largest variance of any distribution of scores
    worst = (scale - _tie_probability(members, others) / 4) * (n_in + n_out) / (2 * n_in * n_out)
    return scale / float(np.maximum(estimate, worst))


def _add_pseudo_scores(scores: Float64Array) -> Float64Array:
    # Agresti and Caffo 2000: one success and one failure more in each sample
    return np.concatenate([scores, [-np.inf, np.inf]])


def _tie_probability(members: Float64Array, others: Float64Array) -> float:
    """Return the probability that a member and a non-member have equal scores."""
    ordered = np.sort(others)
    equal = np.searchsorted(ordered, members, "right") - np.searchsorted(ordered, members, "left")
    return float(equal.mean() / len(others))


def _placements(members: Float64Array, others: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the share of non-members below each member, and of members above each non-member."""
    return _share_below(members, others), 1 - _share_below(others, members)


def _share_below(scores: Float64Array, others: Float64Array) -> Float64Array:
    """Return the share of ``others`` below each score, counting ties half.

    ``scipy.stats.rankdata`` is unsuitable for infinite scores: before scipy 1.13 it took a sample
    with both -inf and inf, whose sum is NaN, for a sample with NaN, and returned NaN for all ranks.
    """
    ordered = np.sort(others)
    below = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    return below / (2 * len(others))


def _sort_p_values(p_values: ArrayLike) -> tuple[Float64Array, NDArray[np.intp]]:
    """Return the p-values, and the positions of those that are not NaN in increasing order."""
    p = np.asarray(p_values, dtype=float)
    made = np.flatnonzero(~np.isnan(p))
    return p, made[np.argsort(p[made], kind="stable")]


def _restore_order(n: int, order: NDArray[np.intp], steps: Float64Array) -> Float64Array:
    adjusted = np.full(n, np.nan)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted
