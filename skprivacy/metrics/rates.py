"""True and false positive rates, the ROC curve and the area under it, with their intervals.

:func:`holm` and :func:`benjamini_hochberg` adjust p-values for multiple testing. The file also
checks the inputs of all metrics: samples of scores, delta and alpha.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, betaincinv, stdtr, stdtrit

from .._docs import fill_docs
from .._validation import as_array, check_unmasked, is_number, is_whole, open_unit

RATE_DOCS = {
    "scores": """\
scores_in, scores_out : array-like of shape (n_in,) and (n_out,)
    Scores of members and of non-members, higher means member.""",
    "tested_delta": """\
delta : float, default=0.0
    The delta of the guarantee that is tested, in [0, 1).""",
    "bound_alpha": """\
alpha : float, default=0.05
    Probability, in (0, 1), that the bound exceeds the true epsilon.""",
}

# Attacks, kinds of evidence, thresholds and groups each get a share, and intervals need shares of
# at least 1e-100.
_LEAST = 1e-80
Float64Array = NDArray[np.float64]
Interval = tuple[float, float]


def check_alpha(alpha: Any) -> None:
    """Raise ValueError unless ``alpha`` is a probability large enough to be shared."""
    if not (is_number(alpha) and _LEAST <= alpha < 1):
        raise ValueError(
            f"alpha={alpha!r} must be a number below 1 and at least {_LEAST:g}, such as 0.05."
        )


def clopper_pearson(k: Any, n: int, alpha: float = 0.05) -> tuple[Any, Any]:
    """Return the Clopper-Pearson interval (1934) of the rate behind ``k`` hits in ``n`` trials."""
    alpha = open_unit("alpha", alpha)
    if not (is_whole(n) and n >= 1):
        raise ValueError(
            f"n={n!r} must be at least 1: an interval needs trials. Pass more records."
        )
    hits = check_hits("k", k, n)
    low, high = _low_ends(hits, n, alpha), _high_ends(hits, n, alpha)
    if not (low <= high).all():  # False for NaN
        raise _bug_error(f"{low} to {high}", k, n, alpha)
    return (low, high) if hits.ndim else (float(low), float(high))


def low_rates(k: NDArray[np.intp], n: int, alpha: float) -> Float64Array:
    """Return the low ends of :func:`clopper_pearson`, computed once per number of hits."""
    return _compute_per_count(_low_ends, k, n, alpha, lambda low, rate: low <= rate)


def high_rates(k: NDArray[np.intp], n: int, alpha: float) -> Float64Array:
    """Return the high ends of :func:`clopper_pearson`, computed once per number of hits."""
    return _compute_per_count(_high_ends, k, n, alpha, lambda high, rate: rate <= high)


def check_hits(name: str, k: Any, n: int) -> Float64Array:
    """Convert numbers of hits in ``n`` trials to an array, and check them."""
    hits = as_numbers(name, k, "the hits in n trials")
    if np.any((hits < 0) | (hits > n) | np.isnan(hits)):
        raise ValueError(f"{name}={k!r} must lie between 0 and n={n}. Count the hits in n trials.")
    return hits


@dataclass(frozen=True)
class OperatingPoint:
    """True positive rate of an attack at a bounded false positive rate.

    Attributes
    ----------
    fpr : float
        The largest false positive rate allowed.
    tpr : float
        Share of members called members; NaN if refused.
    interval : (float, float)
        Clopper-Pearson interval of ``tpr`` at the threshold used.
    realised_fpr : float
        Share of non-members called members, at most ``fpr``; NaN if refused.
    fpr_interval : (float, float)
        Clopper-Pearson interval of ``realised_fpr``: the threshold was set on the same
        non-members, so the true rate may differ this much.
    threshold : float
        Smallest score called a member; infinity if even the highest would exceed ``fpr``.
    ties : int
        Number of members and non-members that share the next lower score. They can only be called
        members together, so ``realised_fpr`` may be well below ``fpr`` if there are many ties.
    refused : str or None
        Reason for giving no rate; None if a rate is given.
    """

    fpr: float
    tpr: float
    interval: Interval
    realised_fpr: float
    fpr_interval: Interval
    threshold: float
    ties: int
    refused: str | None = None


def roc(
    scores_in: ArrayLike, scores_out: ArrayLike
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return the ROC curve as ``fpr, tpr, thresholds``, by threshold; ties are one step."""
    members, others = check_scores(scores_in, scores_out)
    true_hits, false_hits, thresholds = _count_hits(members, others)
    return false_hits / len(others), true_hits / len(members), thresholds


@fill_docs(RATE_DOCS)
def tpr_at_fpr(
    scores_in: ArrayLike, scores_out: ArrayLike, fpr: float, *, alpha: float = 0.05
) -> OperatingPoint:
    """Return the true positive rate at the largest realised false positive rate up to ``fpr``.

    Parameters
    ----------
    %(scores)s
    fpr : float
        False positive rate allowed, in (0, 1).
    alpha : float, default=0.05
        Error probability of the intervals.

    Returns
    -------
    OperatingPoint
        ``tpr`` and ``realised_fpr`` with their intervals ``interval`` and ``fpr_interval``, the
        ``threshold``, and the number of ``ties`` at the next lower score. Refused (with the reason
        in ``refused``) if ``n_out * fpr < 1``: so few non-members cannot distinguish such a rate
        from zero.

    Examples
    --------
    >>> from skprivacy.metrics import tpr_at_fpr
    >>> tpr_at_fpr(range(50, 150), range(100), fpr=0.1).tpr
    0.6
    >>> tpr_at_fpr([1.0], [0.0], fpr=0.01).refused
    'n_out=1 non-members cannot measure a false positive rate of 0.01: at least 100 are needed'
    """
    fpr = open_unit("fpr", fpr)
    members, others = check_scores(scores_in, scores_out)
    n_in, n_out = len(members), len(others)
    nan = float("nan")
    if n_out * fpr < 1 - 1e-9:
        reason = (
            f"n_out={n_out} non-members cannot measure a false positive rate of {fpr:g}: "
            f"at least {np.ceil(1 / fpr - 1e-9):.15g} are needed"
        )
        return OperatingPoint(fpr, nan, (nan, nan), nan, (nan, nan), nan, 0, reason)
    true_hits, false_hits, thresholds = _count_hits(members, others)
    last = int(np.flatnonzero(false_hits <= n_out * fpr + 1e-9)[-1])
    ties = 0
    if last + 1 < len(thresholds):
        left_out = thresholds[last + 1]
        ties = int(np.sum(members == left_out) + np.sum(others == left_out))
    return OperatingPoint(
        fpr,
        float(true_hits[last] / n_in),
        clopper_pearson(int(true_hits[last]), n_in, alpha),
        float(false_hits[last] / n_out),
        clopper_pearson(int(false_hits[last]), n_out, alpha),
        float(thresholds[last]),
        ties,
    )


def advantage(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """Return the largest TPR minus FPR over all thresholds (Yeom et al. 2018), in [0, 1].

    It is biased upwards, to about ``1 / sqrt(n)`` on pure noise: the best of many thresholds is
    evaluated on the same sample.
    """
    # Yeom et al. 2018, membership advantage
    fpr, tpr, _ = roc(scores_in, scores_out)
    return float(np.max(tpr - fpr))


def check_scores(scores_in: ArrayLike, scores_out: ArrayLike) -> tuple[Float64Array, Float64Array]:
    return _check_sample("scores_in", scores_in), _check_sample("scores_out", scores_out)


def as_numbers(name: str, values: ArrayLike, expected: str) -> Float64Array:
    """Convert to an array of floats; ValueError if some value is not a number."""
    check_unmasked(values, name)
    found = as_array(name, values)
    try:
        kind = found.dtype.kind
        if kind in "biuf" or (kind == "O" and not (found == None).any()):  # noqa: E711 - of each
            return found.astype(float)
    except (TypeError, ValueError, OverflowError):  # objects that are not numbers
        pass
    raise ValueError(
        f"{name} must be numbers, {expected}; got {type(values).__name__}. Convert it to a "
        "numeric array."
    )


def check_delta(delta: float) -> float:
    if not (is_number(delta) and 0 <= delta < 1):
        raise ValueError(
            f"delta={delta!r} must lie in [0, 1). Pass the delta of the guarantee that is tested."
        )
    return float(delta)


def _compute_per_count(
    end: Callable[..., Float64Array],
    k: NDArray[np.intp],
    n: int,
    alpha: float,
    right: Callable[[Float64Array, Float64Array], NDArray[np.bool_]],
) -> Float64Array:
    hits, places = np.unique(k, return_inverse=True)
    ends = end(hits, n, open_unit("alpha", alpha))
    if not right(ends, hits / n).all():  # False for NaN
        raise _bug_error(f"ends of {ends}", k, n, alpha)
    return ends[places]


# Clopper and Pearson 1934: beta quantiles. The inverses need positive parameters; the two clipped
# cases are overwritten by 0 and 1.
def _low_ends(hits: Any, n: int, alpha: float) -> Float64Array:
    return np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), n - hits + 1, alpha / 2))


def _high_ends(hits: Any, n: int, alpha: float) -> Float64Array:
    # The upper tail is used, since 1 - alpha / 2 rounds to 1 for a small alpha.
    return np.where(hits == n, 1.0, betainccinv(hits + 1, np.maximum(n - hits, 1), alpha / 2))


def _bug_error(found: str, k: Any, n: int, alpha: float) -> ArithmeticError:
    return ArithmeticError(
        f"clopper_pearson computed {found} for k={k} hits in n={n} trials at alpha={alpha}. This "
        "is a bug of skprivacy or of betaincinv in the installed scipy: update scipy, or report it."
    )


def count_above(scores: Float64Array, cuts: Float64Array) -> NDArray[np.intp]:
    """Count the scores at or above each cut."""
    return np.asarray(len(scores) - np.searchsorted(np.sort(scores), cuts))


def _count_hits(members: Float64Array, others: Float64Array) -> tuple[Any, Any, Float64Array]:
    """Count members and others at or above each distinct score, in decreasing order."""
    values = np.concatenate([members, others])
    order = np.argsort(values)[::-1]
    values, inside = values[order], order < len(members)
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # of equal scores
    true_hits = np.append(0, np.cumsum(inside)[last])
    false_hits = np.append(0, last + 1) - true_hits
    return true_hits, false_hits, np.append(np.inf, values[last])


def _check_sample(name: str, scores: ArrayLike) -> Float64Array:
    values = as_numbers(name, scores, "one score per record")
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"{name} has shape {values.shape}; expected a non-empty 1-dimensional array. Pass one "
            "score per record."
        )
    wrong = int(np.sum(~np.isfinite(values)))
    if wrong:
        raise ValueError(
            f"{name} holds {wrong} NaN or infinite values; expected finite scores. Give records "
            "that could not be scored a finite score, or leave them out of both samples."
        )
    return values


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
    above, _ = _rank_across(members, others)
    return float(above.mean())


def auc_interval(scores_in: ArrayLike, scores_out: ArrayLike, *, alpha: float = 0.05) -> Interval:
    """Return a confidence interval of the AUC that is valid for any distribution of scores.

    It is Wilson's score interval with an effective number of records: the number of independent
    pairs of a member and a non-member that would give the variance of the AUC. The variance is the
    larger of two. The first is DeLong's estimate (1988). The second is ``A (1 - A) - ties / 4``,
    the variance of one comparison, divided by the harmonic mean of the sample sizes. Here ``ties``
    is the probability of a tie. For samples of equal size, the second is the largest variance of
    any distribution of scores (Birnbaum and Klose 1957, extended here to ties).

    **Edge cases.** DeLong's estimate alone is zero or far too small for separated samples, rare
    scores, constant scores and few records. Therefore each sample gets two imaginary records, one
    above and one below all others (Agresti and Caffo 2000), before both variances are computed.
    Quantiles come from Student's distribution. The interval never collapses to a point.
    """
    open_unit("alpha", alpha)
    members, others = check_scores(scores_in, scores_out)
    area = float(_rank_across(members, others)[0].mean())
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
    area = float(_rank_across(members, others)[0].mean())
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
    above, below = _rank_across(members, others)
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


def _rank_across(members: Float64Array, others: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Return the share of non-members below each member, and of members above each non-member."""
    return _share_below(members, others), 1 - _share_below(others, members)


def _share_below(scores: Float64Array, others: Float64Array) -> Float64Array:
    """Return the share of ``others`` below each score, counting ties half.

    ``scipy.stats.rankdata`` returned NaN for samples with both infinities before scipy 1.13.
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
