"""The area under the ROC curve and its confidence interval."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, ndtri
from scipy.stats import rankdata

from ._samples import Floats, Interval, check_open_unit, check_scores

__all__ = ["auc", "auc_interval"]


def auc(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """Probability that a member scores above a non-member, ties counted half.

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
    """Confidence interval of :func:`auc`, after DeLong on the logit scale.

    Parameters
    ----------
    scores_in, scores_out : array-like of shape (n_in,) and (n_out,)
        Scores of members and of non-members, higher means member.
    alpha : float, default=0.05
        Probability, in (0, 1), that the interval misses.

    Notes
    -----
    **Edge cases.** DeLong's variance is zero or undefined for separated samples, for constant
    scores and for a single member or non-member. Newcombe's interval, which needs no variance
    estimate, is used there, so that the interval never collapses to a point.

    References
    ----------
    E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson. Comparing the areas under two or more
    correlated receiver operating characteristic curves. Biometrics 44, 1988.
    R. G. Newcombe. Confidence intervals for an effect size measure based on the Mann-Whitney
    statistic, part 2. Statistics in Medicine 25, 2006.

    Examples
    --------
    >>> from skprivacy.metrics import auc_interval
    >>> low, high = auc_interval(range(10, 30), range(20))
    >>> round(low, 3), round(high, 3)
    (0.733, 0.947)
    """
    z = float(ndtri(1 - check_open_unit("alpha", alpha) / 2))
    members, others = check_scores(scores_in, scores_out)
    n_in, n_out = len(members), len(others)
    above, below = _placements(members, others)
    area = float(above.mean())
    variance = 0.0
    if min(n_in, n_out) > 1:
        variance = float(above.var(ddof=1) / n_in + below.var(ddof=1) / n_out)
    if variance <= 0 or not 0 < area < 1:
        return _newcombe(area, n_in, n_out, z)
    half_width = z * np.sqrt(variance) / (area * (1 - area))
    return float(expit(logit(area) - half_width)), float(expit(logit(area) + half_width))


def _placements(members: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Share of others below each member, and of members above each other, ties half."""
    n_in, n_out = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))
    above = (ranks[:n_in] - rankdata(members)) / n_out
    below = 1 - (ranks[n_in:] - rankdata(others)) / n_in
    return above, below


def _newcombe(area: float, n_in: int, n_out: int, z: float) -> Interval:
    """Invert the Hanley-McNeil variance in the true area by bisection."""
    weight = (n_in + n_out) / 2 - 1

    def excess(true_area: float) -> float:
        spread = 1 + weight * ((1 - true_area) / (2 - true_area) + true_area / (1 + true_area))
        variance = true_area * (1 - true_area) * spread / (n_in * n_out)
        return float((true_area - area) ** 2 - z * z * variance)

    def edge(far: float) -> float:
        outside, inside = far, area
        if excess(outside) <= 0:
            return far
        for _ in range(60):
            middle = (outside + inside) / 2
            outside, inside = (middle, inside) if excess(middle) > 0 else (outside, middle)
        return outside

    return edge(0.0), edge(1.0)
