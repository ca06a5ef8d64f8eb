"""How much a membership attack learned: pure functions of two samples of scores.

Throughout, ``scores_in`` are the scores of members, ``scores_out`` those of non-members,
HIGHER means MEMBER, and a record is called a member when its score is at least the threshold.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, expit, logit, ndtri
from scipy.stats import rankdata

__all__ = [
    "OperatingPoint",
    "advantage",
    "auc",
    "auc_interval",
    "clopper_pearson",
    "epsilon_from_counts",
    "epsilon_lower_bound",
    "roc",
    "tpr_at_fpr",
]

Floats = NDArray[np.float64]
Interval = tuple[float, float]


def clopper_pearson(k: Any, n: int, alpha: float = 0.05) -> tuple[Any, Any]:
    """Exact two-sided confidence interval for the probability behind ``k`` hits in ``n`` draws.

    Parameters
    ----------
    k : int or array of int
        Hits, between 0 and ``n``.
    n : int
        Independent draws, at least 1.
    alpha : float, default=0.05
        Probability, in (0, 1), that the interval misses; half of it on each side.

    Returns
    -------
    low, high : float or ndarray, shaped as ``k``

    Raises
    ------
    ValueError
        If ``n < 1``, ``k`` is outside [0, n] or ``alpha`` outside (0, 1).

    References
    ----------
    C. J. Clopper, E. S. Pearson. The use of confidence or fiducial limits illustrated in the
    case of the binomial. Biometrika 26, 1934.

    Examples
    --------
    >>> from skprivacy.metrics import clopper_pearson
    >>> low, high = clopper_pearson(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.0362)
    """
    alpha = _check_open_unit("alpha", alpha)
    if n < 1:
        raise ValueError(f"n={n!r} must be at least 1: no interval follows from no draws.")
    hits = np.asarray(k, dtype=float)
    if np.any((hits < 0) | (hits > n) | np.isnan(hits)):
        raise ValueError(f"k={k!r} must lie between 0 and n={n}.")
    # betaincinv wants positive shapes; the two clipped corners are overwritten right after.
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), n - hits + 1, alpha / 2))
    high = np.where(hits == n, 1.0, betaincinv(hits + 1, np.maximum(n - hits, 1), 1 - alpha / 2))
    return (low, high) if hits.ndim else (float(low), float(high))


@dataclass(frozen=True)
class OperatingPoint:
    """The true positive rate of an attack at a bounded false positive rate.

    Attributes
    ----------
    fpr : float
        The false positive rate asked for.
    tpr : float
        Share of members called members; NaN if refused.
    interval : (float, float)
        Clopper-Pearson interval of ``tpr`` at the threshold used.
    realised_fpr : float
        Share of non-members called members, at most ``fpr``; NaN if refused.
    fpr_interval : (float, float)
        Clopper-Pearson interval of ``realised_fpr``: the threshold was set on the same
        non-members, so this is how far the true rate may be off.
    threshold : float
        Smallest score called a member; infinity if even the highest would break ``fpr``.
    ties : int
        Members and non-members that share the next lower score. Only taking all of them or none
        is possible, so ``realised_fpr`` may fall well short of ``fpr`` when this is large.
    refused : str or None
        Why no rate is given, or None.
    """

    fpr: float
    tpr: float
    interval: Interval
    realised_fpr: float
    fpr_interval: Interval
    threshold: float
    ties: int
    refused: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of plain Python values."""
        return asdict(self)


def roc(scores_in: ArrayLike, scores_out: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return the ROC curve as ``fpr, tpr, thresholds``, from nobody called to everybody.

    Tied scores make one step: no point is interpolated.

    Examples
    --------
    >>> from skprivacy.metrics import roc
    >>> fpr, tpr, thresholds = roc([3, 2, 2], [2, 1])
    >>> fpr, tpr, thresholds
    (array([0. , 0. , 0.5, 1. ]), array([0.        , 0.33333333, 1.        , 1.        ]),
     array([inf,  3.,  2.,  1.]))
    """
    members, others = _check_scores(scores_in, scores_out)
    true_hits, false_hits, thresholds = _hits(members, others)
    return false_hits / len(others), true_hits / len(members), thresholds


def tpr_at_fpr(
    scores_in: ArrayLike, scores_out: ArrayLike, fpr: float, *, alpha: float = 0.05
) -> OperatingPoint:
    """True positive rate at the largest realised false positive rate not above ``fpr``.

    Parameters
    ----------
    scores_in, scores_out : array-like of shape (n_in,) and (n_out,)
        Scores of members and of non-members, higher means member.
    fpr : float
        False positive rate allowed, in (0, 1).
    alpha : float, default=0.05
        Error probability of the intervals.

    Returns
    -------
    OperatingPoint
        Refused (with the reason in ``refused``) if ``n_out * fpr < 1``: fewer non-members than
        that cannot tell such a rate from zero.

    Examples
    --------
    >>> from skprivacy.metrics import tpr_at_fpr
    >>> tpr_at_fpr(range(50, 150), range(100), fpr=0.1).tpr
    0.6
    >>> tpr_at_fpr([1.0], [0.0], fpr=0.01).refused
    'n_out=1 non-members cannot measure a false positive rate of 0.01: at least 100 are needed'
    """
    fpr = _check_open_unit("fpr", fpr)
    members, others = _check_scores(scores_in, scores_out)
    n_in, n_out = len(members), len(others)
    nan = float("nan")
    if n_out * fpr < 1 - 1e-9:
        reason = (
            f"n_out={n_out} non-members cannot measure a false positive rate of {fpr:g}: "
            f"at least {int(np.ceil(1 / fpr - 1e-9))} are needed"
        )
        return OperatingPoint(fpr, nan, (nan, nan), nan, (nan, nan), nan, 0, reason)
    true_hits, false_hits, thresholds = _hits(members, others)
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


def auc(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """Probability that a member scores above a non-member, ties counted half.

    Examples
    --------
    >>> from skprivacy.metrics import auc
    >>> auc([3, 2], [2, 1])
    0.875
    """
    members, others = _check_scores(scores_in, scores_out)
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
    z = float(ndtri(1 - _check_open_unit("alpha", alpha) / 2))
    members, others = _check_scores(scores_in, scores_out)
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


def advantage(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """Largest TPR minus FPR over all thresholds (Yeom et al. 2018), in [0, 1].

    It is the best of many thresholds on the very sample it is measured on, hence biased upwards:
    on pure noise it is about ``1 / sqrt(n)``, not 0. Judge leakage by intervals and by
    :func:`epsilon_lower_bound`.

    Examples
    --------
    >>> from skprivacy.metrics import advantage
    >>> advantage([3, 2], [2, 1])
    0.5
    """
    fpr, tpr, _ = roc(scores_in, scores_out)
    return float(np.max(tpr - fpr))


def epsilon_from_counts(
    true_positives: Any,
    n_in: int,
    false_positives: Any,
    n_out: int,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
) -> Any:
    """Lower confidence bound on epsilon from the counts of ONE threshold fixed beforehand.

    Every (epsilon, delta)-private model has ``TPR <= e^epsilon FPR + delta`` and
    ``1 - FPR <= e^epsilon (1 - TPR) + delta``. Both rates are replaced by the pessimistic ends
    of their Clopper-Pearson intervals, ``alpha / 2`` on each.

    Parameters
    ----------
    true_positives, false_positives : int or array of int
        Members, and non-members, called members.
    n_in, n_out : int
        Members and non-members tried.
    delta : float, default=0.0
        The delta of the guarantee that is tested, in [0, 1).
    alpha : float, default=0.05
        Probability, in (0, 1), that the bound exceeds the true epsilon.

    Returns
    -------
    epsilon : float or ndarray
        At least 0.

    Examples
    --------
    >>> from skprivacy.metrics import epsilon_from_counts
    >>> round(epsilon_from_counts(500, 1000, 10, 1000, delta=1e-5), 5)
    3.242
    """
    if not 0 <= delta < 1:
        raise ValueError(f"delta={delta!r} must lie in [0, 1).")
    tpr = np.asarray(clopper_pearson(true_positives, n_in, alpha)[0])
    fpr = np.asarray(clopper_pearson(false_positives, n_out, alpha)[1])
    tiny = np.finfo(float).tiny
    hit = np.log(np.maximum(tpr - delta, tiny)) - np.log(fpr)
    reject = np.log(np.maximum(1 - fpr - delta, tiny)) - np.log(1 - tpr)
    bound = np.maximum(np.maximum(hit, reject), 0.0)
    return bound if bound.ndim else float(bound)


def epsilon_lower_bound(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    thresholds: ArrayLike | None = None,
    random_state: int = 0,
) -> float:
    """Lower confidence bound on epsilon from the scores of an attack.

    The best of many thresholds on one sample shows an epsilon above 3 on pure noise. So the
    threshold is chosen on one random half of the records and judged on the other half.
    Thresholds fixed BEFORE the scores were seen need no split; they are judged on all records
    with ``alpha`` shared among them (Bonferroni).

    Parameters
    ----------
    scores_in, scores_out : array-like of shape (n_in,) and (n_out,)
        Scores of members and of non-members, higher means member.
    delta : float, default=0.0
        The delta of the guarantee that is tested, in [0, 1).
    alpha : float, default=0.05
        Probability that the bound exceeds the true epsilon.
    thresholds : array-like, default=None
        Thresholds fixed beforehand. None splits the records.
    random_state : int, default=0
        Seed of the split. Trying several and keeping the best voids the bound.

    Returns
    -------
    epsilon : float
        At least 0. It is 0 when there are too few records to split (two of each are needed).

    Notes
    -----
    The bound treats records as independent trials of one attack on one trained model. It is
    evidence against a claimed epsilon, not a proof: records of one training run interact.

    References
    ----------
    M. Nasr et al. Adversary instantiation: lower bounds for differentially private machine
    learning. IEEE S&P 2021.

    Examples
    --------
    >>> from skprivacy.metrics import epsilon_lower_bound
    >>> member, other = [1.0] * 1000, [0.0] * 1000
    >>> round(epsilon_lower_bound(member, other, delta=1e-5, thresholds=[0.5]), 5)
    5.60058
    >>> round(epsilon_lower_bound(member, other, delta=1e-5), 5)
    4.90558
    """
    members, others = _check_scores(scores_in, scores_out)
    if thresholds is not None:
        cuts = np.unique(np.asarray(thresholds, dtype=float))
        if not cuts.size or np.isnan(cuts).any():
            raise ValueError("thresholds must be a non-empty list of numbers without NaN.")
        return _best_epsilon(members, others, cuts, delta, alpha / len(cuts))[0]
    if min(len(members), len(others)) < 2:
        return 0.0
    rng = np.random.default_rng(random_state)
    choose_in, judge_in = np.array_split(rng.permutation(members), 2)
    choose_out, judge_out = np.array_split(rng.permutation(others), 2)
    candidates = np.unique(np.concatenate([choose_in, choose_out]))
    _, cut = _best_epsilon(choose_in, choose_out, candidates, delta, alpha)
    return _best_epsilon(judge_in, judge_out, np.array([cut]), delta, alpha)[0]


def _best_epsilon(
    members: Floats, others: Floats, cuts: Floats, delta: float, alpha: float
) -> tuple[float, float]:
    """Return the largest bound over ``cuts`` and the cut it is reached at."""
    n_in, n_out = len(members), len(others)
    bounds = epsilon_from_counts(
        n_in - np.searchsorted(np.sort(members), cuts),
        n_in,
        n_out - np.searchsorted(np.sort(others), cuts),
        n_out,
        delta=delta,
        alpha=alpha,
    )
    best = int(np.argmax(bounds))
    return float(bounds[best]), float(cuts[best])


def _hits(members: Floats, others: Floats) -> tuple[Any, Any, Floats]:
    """Count members and others at or above each distinct score, from the highest down."""
    thresholds = np.append(np.unique(np.concatenate([members, others])), np.inf)[::-1]
    true_hits = len(members) - np.searchsorted(np.sort(members), thresholds)
    false_hits = len(others) - np.searchsorted(np.sort(others), thresholds)
    return true_hits, false_hits, thresholds


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


def _check_scores(scores_in: ArrayLike, scores_out: ArrayLike) -> tuple[Floats, Floats]:
    return _check_sample("scores_in", scores_in), _check_sample("scores_out", scores_out)


def _check_sample(name: str, scores: ArrayLike) -> Floats:
    try:
        values = np.asarray(scores, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, one score per record.") from None
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"{name} has shape {values.shape}; expected a non-empty 1-dimensional array."
        )
    wrong = int(np.sum(~np.isfinite(values)))
    if wrong:
        raise ValueError(
            f"{name} holds {wrong} NaN or infinite values; expected finite scores. Give records "
            "that could not be scored a finite score, or leave them out of both samples."
        )
    return values


def _check_open_unit(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name}={value!r} must lie strictly between 0 and 1.")
    return float(value)
