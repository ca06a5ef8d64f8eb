"""Evidence from two samples of scores: simultaneous bounds on test rates, on the AUC, on epsilon.

:func:`mean_lower_bound` bounds the mean of values in [0, 1] (Hoeffding 1963). Start reading at
:func:`epsilon_lower_bound`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betainc

from .._docs import fill_docs
from .._validation import generator, open_unit, whole
from .rates import (
    RATE_DOCS,
    Float64Array,
    auc,
    check_delta,
    check_scores,
    count_above,
    high_rates,
    low_rates,
)

Curve = Callable[[Float64Array], Float64Array]
# Share of the area's error probability for members that score LOW. Exchanged samples are a gross
# mistake, which a small share detects; it costs the usual direction little.
REVERSED_SHARE = 0.1
# Error probability at which a threshold is promising enough to be tested against the claim.
PROMISING_ALPHA = 0.5
CANDIDATES = 50  # numbers t at which the bound is tried


class Rates(NamedTuple):
    """Lower bound on the true positive rate and upper bound on the false positive rate of a test.

    **Edge cases.** A reversed test calls low scores members. ``tpr`` is then the rate at which
    non-members score high, and ``fpr`` the rate at which members do.
    """

    tpr: float
    fpr: float
    reverse: bool = False

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon that allows a test with these rates."""
        return float(epsilon_of_rates(self.tpr, self.fpr, delta))


@dataclass(frozen=True)
class Evidence:
    """Bounds on the rates of membership tests and on the AUC.

    **Guarantees.** All bounds hold simultaneously with the probability chosen in
    :func:`gather_evidence`, and so do all conclusions from them: at any delta and for any curve.
    """

    points: tuple[Rates, ...]
    area: float  # lower bound on the AUC
    mirrored: bool = False  # whether ``area`` is for members that score lower

    def strongest(self, delta: float) -> Rates | None:
        """Return the test that refutes the largest epsilon; None if only the AUC does."""
        best = max(self.points, key=lambda rates: rates.epsilon(delta), default=None)
        return best if best and 0 < best.epsilon(delta) == self.epsilon(delta) else None

    def epsilon(self, delta: float) -> float:
        """Return the largest epsilon that is refuted at this delta, at least 0."""
        # Under (epsilon, delta) the area is at most 1 - (1 - delta)^2 / (1 + e^epsilon).
        odds = (1 - delta) ** 2 / (1 - self.area) - 1
        area_epsilon = float(np.log(odds)) if odds > 1 else 0.0
        return max([area_epsilon, *(rates.epsilon(delta) for rates in self.points)])


def epsilon_of_rates(tpr: Any, fpr: Any, delta: float) -> Any:
    """Return the least epsilon that allows tests with these rates, at least 0."""
    # TPR <= e^epsilon FPR + delta and 1 - FPR <= e^epsilon (1 - TPR) + delta, solved for epsilon
    tiny = np.finfo(float).tiny
    hit = np.log(np.maximum(tpr - delta, tiny)) - np.log(fpr)
    reject = np.log(np.maximum(1 - np.asarray(fpr) - delta, tiny)) - np.log(1 - np.asarray(tpr))
    return np.maximum(np.maximum(hit, reject), 0.0)


def gather_evidence(
    members: Float64Array,
    others: Float64Array,
    *,
    delta: float,
    alpha: float,
    curve: Curve | None = None,
    random_state: int = 0,
) -> Evidence:
    """Bound test rates and the AUC, with error probability ``alpha / 2`` for each kind.

    Thresholds and their direction are chosen on one half of the records and tested on the other
    half. The first threshold has the largest epsilon at ``delta``. A second threshold goes furthest
    beyond ``curve``, if it may refute the curve and the first does not. They share the error
    probability. Ties are not broken: records with equal scores pass a threshold together, and count
    one half in the AUC.

    **Edge cases.** With fewer than two records of a kind the evidence is empty, with an area of 0.
    """
    if min(len(members), len(others)) < 2:
        return Evidence((), 0.0)
    rng = generator("random_state", random_state)
    points = bound_split_rates(members, others, delta=delta, alpha=alpha / 2, curve=curve, rng=rng)
    return Evidence(points, bound_area(members, others, alpha / 2), auc(members, others) < 0.5)


def bound_split_rates(
    members: Float64Array,
    others: Float64Array,
    *,
    delta: float,
    alpha: float,
    rng: np.random.Generator,
    curve: Curve | None = None,
) -> tuple[Rates, ...]:
    """Bound the rates of thresholds on one random half of the records, chosen on the other half.

    **Guarantees.** All bounds hold simultaneously with probability ``1 - alpha``.
    """
    choose_in, test_in = np.array_split(rng.permutation(members), 2)
    choose_out, test_out = np.array_split(rng.permutation(others), 2)
    tests = _choose_tests(choose_in, choose_out, delta, alpha, curve)
    return tuple(_bound_test(test_in, test_out, test, alpha / len(tests)) for test in tests)


def bound_area(members: Float64Array, others: Float64Array, alpha: float) -> float:
    """Return a lower confidence bound on the AUC, mirrored if members score lower."""
    area, n = auc(members, others), min(len(members), len(others))
    if area >= 0.5:
        return mean_lower_bound(area, n, (1 - REVERSED_SHARE) * alpha)
    return mean_lower_bound(1 - area, n, REVERSED_SHARE * alpha)


def mean_lower_bound(mean: float, n: int, alpha: float) -> float:
    """Return a lower confidence bound on the expectation of any values in [0, 1].

    ``mean`` is the average of ``n`` independent values, or a mean of several of these averages. The
    AUC is an example: a mean over all ways to pair members with non-members.

    **Guarantees.** In the convex order, no average of ``n`` independent values in [0, 1] exceeds
    the average of ``n`` coins of the same mean (Hoeffding 1963, theorem 1 and section 5). So for
    every number t below x, Markov's inequality gives P[n mean >= x] <= E[max(B - t, 0)] / (x - t)
    with B binomial. The bound is the largest expectation that the smallest of these quotients
    refutes. Ties count one half and are not broken.

    **Edge cases.** 0 for a mean of 0; the Clopper-Pearson bound for a mean of 1.
    """
    if mean <= 0:
        return 0.0
    return float(brentq(lambda p: _bound_tail(mean * n, n, p) - alpha, 0.0, mean, xtol=1e-12))


@fill_docs(RATE_DOCS)
def epsilon_lower_bound(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    random_state: int = 0,
) -> float:
    """Return a lower confidence bound on epsilon from the scores of an attack.

    It is the larger of two bounds, with ``alpha / 2`` for each:

    - The first uses a threshold, and detects strong leakage of few records. The threshold is chosen
      on one random half of the records and tested on the other half. (The best of many thresholds
      on one sample would show an epsilon above 3 on pure noise.)
    - The second uses the area under the ROC curve, and detects slight leakage of many records.

    Both also detect leakage if members score LOWER than non-members.

    Parameters
    ----------
    %(scores)s
    %(tested_delta)s
    %(bound_alpha)s
    random_state : int, default=0
        Seed of the split. To try several seeds and report the best voids the bound.

    Returns
    -------
    float
        At least 0. It is 0 with fewer than two members or two non-members, which cannot be split.

    Notes
    -----
    The bound treats records as independent trials of one attack on one trained model. It is
    evidence against a claimed epsilon, not a proof, because records of one training run interact.

    Every (epsilon, delta)-private model has ``TPR <= e^epsilon FPR + delta`` and
    ``1 - FPR <= e^epsilon (1 - TPR) + delta``. An ROC curve below both lines has an area of at most
    ``1 - (1 - delta)^2 / (1 + e^epsilon)``. The area of the sample is the share of
    (member, non-member) pairs in which the member scores higher, where a tie counts one half. It is
    an average over all ways to match members with non-members. A tail bound for a binomial variable
    also holds for this average, if it follows from Markov's inequality for the excess over a number
    (Hoeffding 1963).

    Records with equal scores pass a threshold together. Ties are never broken at random, so the
    bound holds for every kind of scores and every number of records.

    References
    ----------
    M. Nasr et al. Adversary instantiation: lower bounds for differentially private machine
    learning. IEEE S&P 2021.
    W. Hoeffding. Probability inequalities for sums of bounded random variables. Journal of the
    American Statistical Association 58, 1963.

    Examples
    --------
    >>> from skprivacy.metrics import epsilon_lower_bound
    >>> member, other = [1.0] * 1000, [0.0] * 1000
    >>> round(epsilon_lower_bound(member, other, delta=1e-5), 5)
    5.57235
    """
    delta, alpha = check_delta(delta), open_unit("alpha", alpha)
    members, others = check_scores(scores_in, scores_out)
    # Nasr et al. 2021: pessimistic ends of Clopper-Pearson intervals, within gather_evidence
    found = gather_evidence(members, others, delta=delta, alpha=alpha, random_state=random_state)
    return found.epsilon(delta)


def multi_split_bound(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    n_splits: int = 20,
    random_state: int = 0,
) -> float:
    """Return the median of the bounds of many splits of the records, and the bound from the AUC.

    **Guarantees.** Let each of ``n`` bounds exceed the truth with probability ``a``. However the
    bounds depend on each other, at least ``n / 2`` of them exceed it with probability at most
    ``2 a``, by Markov's inequality. The result varies less than the bound of one split, but is not
    larger on average.
    """
    delta = check_delta(delta)
    alpha = open_unit("alpha", alpha)
    whole("n_splits", n_splits)
    members, others = check_scores(scores_in, scores_out)
    if min(len(members), len(others)) < 2:
        return 0.0
    rng = generator("random_state", random_state)
    found = []
    for _ in range(n_splits):
        points = bound_split_rates(members, others, delta=delta, alpha=alpha / 4, rng=rng)
        found.append(Evidence(points, 0.0).epsilon(delta))
    # Markov: half of the bounds exceed the truth with at most twice their error probability
    split_epsilon = sorted(found, reverse=True)[(n_splits + 1) // 2 - 1]
    area_epsilon = Evidence((), bound_area(members, others, alpha / 2)).epsilon(delta)
    return max(split_epsilon, area_epsilon)


class _Test(NamedTuple):
    """Test that calls scores from ``cut`` on members, or non-members if it is reversed."""

    cut: float
    reverse: bool


def _choose_tests(
    members: Float64Array, others: Float64Array, delta: float, alpha: float, curve: Curve | None
) -> list[_Test]:
    cuts = np.unique(np.concatenate([members, others]))
    chosen = [
        int(np.argmax(epsilon_of_rates(*_bound_all_rates(members, others, cuts, alpha), delta)))
    ]
    if curve is not None:
        tpr, fpr = _bound_all_rates(members, others, cuts, PROMISING_ALPHA)
        beyond = tpr - curve(fpr)
        if beyond.max() > 0 >= beyond[chosen[0]]:
            chosen.append(int(np.argmax(beyond)))
    # The rates list every cut twice: first forward, then reversed.
    return [_Test(float(cuts[i % len(cuts)]), i >= len(cuts)) for i in chosen]


def _bound_all_rates(
    members: Float64Array, others: Float64Array, cuts: Float64Array, alpha: float
) -> tuple[Float64Array, Float64Array]:
    """Return the bounds on both rates of every threshold, first forward, then reversed."""
    forward = _bound_rates(members, others, cuts, alpha)
    backward = _bound_rates(others, members, cuts, alpha)
    return np.r_[forward[0], backward[0]], np.r_[forward[1], backward[1]]


def _bound_test(members: Float64Array, others: Float64Array, test: _Test, alpha: float) -> Rates:
    sides = (others, members) if test.reverse else (members, others)
    tpr, fpr = _bound_rates(*sides, np.array([test.cut]), alpha)
    return Rates(float(tpr[0]), float(fpr[0]), test.reverse)


def _bound_rates(
    hit: Float64Array, missed: Float64Array, cuts: Float64Array, alpha: float
) -> tuple[Float64Array, Float64Array]:
    """Return lower bounds on the rate of ``hit`` above each cut, and upper bounds of ``missed``."""
    low = low_rates(count_above(hit, cuts), len(hit), alpha)
    return low, high_rates(count_above(missed, cuts), len(missed), alpha)


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
