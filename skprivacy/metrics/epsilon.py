"""Lower confidence bounds on epsilon from guesses or from scores of an attack."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from .._docs import fill_docs
from .._validation import open_unit
from .evidence import gather_evidence
from .rates import RATE_DOCS, check_delta, check_guesses, check_scores


def epsilon_from_guesses(
    right: int, guesses: int, n_coins: int, *, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """Return a lower confidence bound on epsilon from guesses of fair coins, in one training run.

    Each coin decided between two neighbouring data sets, such as which of two labels a record was
    trained with. Under (epsilon, 0)-differential privacy a guess is right with probability at most
    e^epsilon / (1 + e^epsilon), whatever the other coins are. So a binomial variable dominates the
    number of right guesses.

    **Guarantees.** Exact in one training run, without independence of records: only the coins must
    be independent (Steinke, Nasr and Jagielski 2023, theorem 5.2).
    """
    check_guesses(right, guesses, n_coins)
    delta = check_delta(delta)
    alpha = open_unit("alpha", alpha)
    return largest_refuted(
        lambda e: right > 0 and _guess_p_value(right, guesses, n_coins, e, delta) < alpha, 1e-10
    )


def largest_refuted(is_refuted: Callable[[float], bool], tolerance: float = 1e-6) -> float:
    """Return the largest refuted parameter by bisection; 0 if 0 is not refuted."""
    if not is_refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_refuted(high):
        low, high = high, 2 * high
        if high > 1e3:
            break
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def _guess_p_value(right: int, guesses: int, n_coins: int, epsilon: float, delta: float) -> float:
    """Bound the probability of at least ``right`` right guesses under (epsilon, delta)."""
    # Steinke, Nasr and Jagielski 2023, theorem 5.2: a binomial tail plus a term for delta
    p = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, p))
    if delta == 0:
        return tail
    below = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, p))
    steepest = float((below / np.arange(1, right + 1)).max())
    return min(1.0, tail + 2.0 * n_coins * delta * steepest)


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
