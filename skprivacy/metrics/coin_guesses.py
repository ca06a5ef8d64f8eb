"""Lower bounds on epsilon from guesses of fair coins in one training run, with their assumptions.

:func:`refutes_curve` tests a whole trade-off curve by these guesses. Start reading at
:func:`bound_from_guesses`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, log_ndtr, ndtr, ndtri
from scipy.stats import beta, binom

from .._validation import open_unit, whole
from .rates import Float64Array, check_delta

_GAUSSIAN = "the mechanism is Gaussian differentially private"
_INDEPENDENT = "holds only if canaries do not interfere"
BOUNDS: dict[str, tuple[str, ...]] = {
    "approximate": (),
    "gaussian": (_GAUSSIAN,),
    "product": (_GAUSSIAN, _INDEPENDENT),
}

# Maps a true positive rate to the least false positive rate that a trade-off curve allows.
Inverse = Callable[[float], float]
_MIN_EARLIER_RUNS = 10  # whose mean score is accurate enough to compare with
_NODES = 200  # of the quadrature over the share of guesses


@dataclass(frozen=True)
class GuessBound:
    """Lower confidence bound on epsilon with its assumptions, from :func:`bound_from_guesses`.

    Attributes
    ----------
    epsilon : float
        The bound, at least 0.
    delta, alpha : float
        Delta of the bound, and its error probability.
    bound : str
        Name of the bound.
    mu : float or None
        Lower bound on mu of Gaussian differential privacy; None if that is not assumed.
    assumptions : tuple of str
        Assumptions beyond fair, independent coins, a number of guesses fixed before the coins were
        seen, and a single test.
    """

    epsilon: float
    delta: float
    alpha: float
    bound: str
    mu: float | None = None
    assumptions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        given = f" [if {'; '.join(self.assumptions)}]" if self.assumptions else ""
        confidence = f"{100 * (1 - self.alpha):.6g} %"
        return f"epsilon >= {self.epsilon:.3g} at delta={self.delta:g}, {confidence} sure{given}"


def bound_from_guesses(
    right: int,
    guesses: int,
    n_coins: int,
    *,
    bound: str = "approximate",
    delta: float = 0.0,
    alpha: float = 0.05,
) -> GuessBound:
    """Return a lower confidence bound on epsilon from guesses of fair coins, in one training run.

    Parameters
    ----------
    right : int
        Number of right guesses.
    guesses : int
        Number of guesses, fixed before the coins were seen. For Gaussian noise guess about
        ``5 sqrt(n_coins)`` of the canaries with the most extreme scores, or half of them if all
        those guesses may be right; for randomised response all of them. To choose the best of k
        bounds, pass ``alpha / k`` for each.
    n_coins : int
        Number of coins, at least ``guesses``.
    bound : {"approximate", "gaussian", "product"}, default="approximate"
        Assumption of the bound. ``approximate``: none, valid for every (epsilon, delta)-private
        mechanism. ``gaussian``: the trade-off curve is Gaussian, as for one noisy sum; canaries may
        interfere. ``product``: in addition, canaries do not interfere, so guesses are independent.
        The last bound is much tighter, but WRONG if canaries interfere: if they share one noise, it
        refutes true claims in most runs.
    delta : float, default=0.0
        Delta of the bound, in [0, 1); above 0 for a Gaussian curve.
    alpha : float, default=0.05
        Probability, in (0, 1), that the bound exceeds the true epsilon.

    Returns
    -------
    GuessBound
        ``epsilon``, the lower bound ``mu`` if Gaussian differential privacy is assumed, and the
        ``assumptions`` beyond fair and independent coins.

    Raises
    ------
    ValueError
        If the counts are out of order, or a parameter is out of its range.

    References
    ----------
    S. Mahloujifar, L. Melis and K. Chaudhuri, "Auditing f-differential privacy in one run",
    arXiv:2410.22235, 2024.
    T. Steinke, M. Nasr and M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS
    2023.
    Xiang et al., arXiv:2509.08704, 2025.

    Examples
    --------
    >>> from skprivacy.metrics import bound_from_guesses
    >>> bound_from_guesses(180, 200, 2000, delta=1e-5)
    epsilon >= 1.79 at delta=1e-05, 95 % sure
    >>> bound_from_guesses(180, 200, 2000, bound="gaussian", delta=1e-5)
    epsilon >= 2.66 at delta=1e-05, 95 % sure [if the mechanism is Gaussian differentially private]
    """
    _check_arguments(right, guesses, n_coins, bound, delta, alpha)
    delta, alpha = float(delta), float(alpha)
    if bound == "approximate":
        sharper = _sharper_bound(guesses, n_coins, delta, alpha)
        epsilon = sharper(right, guesses, n_coins, delta=delta, alpha=alpha)
        return GuessBound(epsilon, delta, alpha, bound)
    if bound == "gaussian":
        mu = largest_refuted(
            lambda m: refutes_curve(right, guesses, n_coins, inverse_gaussian_curve(m), alpha)
        )
    else:
        mu = largest_refuted(lambda m: independent_p_value(right, guesses, n_coins, m) < alpha)
    shown = gaussian_epsilon(mu, delta)
    return GuessBound(shown, delta, alpha, bound, mu, BOUNDS[bound])


def epsilon_from_guesses(
    right: int, guesses: int, n_coins: int, *, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """Return a lower confidence bound on epsilon from guesses of fair coins, in one training run.

    **Guarantees.** Under (epsilon, 0)-differential privacy a guess is right with probability at
    most e^epsilon / (1 + e^epsilon), whatever the other coins are. So a binomial variable dominates
    the number of right guesses: the bound is exact in one run if the coins are independent, even if
    records are not (Steinke, Nasr and Jagielski 2023, theorem 5.2).
    """
    _check_guesses(right, guesses, n_coins)
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


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Convert mu-Gaussian differential privacy to epsilon at ``delta`` > 0."""

    def excess(epsilon: float) -> float:
        # Dong, Roth and Su 2022: delta(epsilon) of mu-GDP
        beyond = epsilon / mu
        return float(
            np.exp(log_ndtr(mu / 2 - beyond)) - np.exp(epsilon + log_ndtr(-mu / 2 - beyond)) - delta
        )

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu * (mu / 2 + math.sqrt(-2 * math.log(delta))) + 1.0))


def guess_top_scores(
    scores: Float64Array, n_guesses: int, random: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the coins with the most extreme scores, and a guess for each.

    A score is extreme if it is far from the mean of the two quartiles. If a model has only two
    scores, that mean lies between them.

    **Guarantees.** Both depend on the scores, not on the coins. Ties are broken at random, since
    the order of the scores may depend on the coins.
    """
    offset = scores - np.quantile(scores, [0.25, 0.75]).mean()
    chosen = np.lexsort((random.random(len(scores)), -np.abs(offset)))[:n_guesses]
    coin_flip = random.random(n_guesses) < 0.5
    return chosen, np.where(offset[chosen] == 0, coin_flip, offset[chosen] > 0)


def refutes_curve(right: int, guesses: int, n_coins: int, inverse: Inverse, alpha: float) -> bool:
    """Return True if ``right`` right guesses refute a trade-off curve, at error ``alpha``.

    **Guarantees.** Exact in one run, for every mechanism that obeys the curve, even if canaries
    interfere (Mahloujifar, Melis and Chaudhuri 2024). Let p_i be the probability of i right guesses
    among g guesses of m coins. Then sum_{i>=k} i p_i / m is at most the curve's value at
    sum_{i>=k-1} (g - i) p_i / m. If ``right`` or more had probability ``alpha``, these inequalities
    from k = ``right`` down would increase the total, and a total above g/m is a contradiction.
    """
    hit, missed = alpha * right / n_coins, alpha * (guesses - right) / n_coins
    # Mahloujifar, Melis and Chaudhuri 2024: the recursion over numbers of right guesses
    for i in range(right - 1, -1, -1):
        least = inverse(hit)
        if least <= missed:
            break
        hit += i / (guesses - i) * (least - missed)
        missed = least
        if hit + missed > guesses / n_coins:
            return True
    return hit + missed > guesses / n_coins


def guess_each(scores: Float64Array) -> NDArray[np.bool_]:
    """Return a guess for every coin, if each coin has a separate run.

    A score is compared with the mean score of earlier runs. If there are only two scores, the mean
    lies between them. The first few scores are compared with 0.

    **Guarantees.** A guess depends on no later run, so each guess is as hard as the first.
    """
    earlier = np.arange(len(scores))
    means = (np.cumsum(scores) - scores) / np.maximum(earlier, 1)
    return np.asarray(scores > np.where(earlier < _MIN_EARLIER_RUNS, 0.0, means))


def refutes_with_separate_runs(right: int, n_coins: int, inverse: Inverse, alpha: float) -> bool:
    """Return True if ``right`` right guesses refute a curve, if each coin has a separate run.

    **Guarantees.** Exact: after any earlier runs, a guess is right with probability at most
    (tpr + 1 - fpr) / 2, at the point of the curve where that is largest.
    """
    rates = np.linspace(0.0, 1.0, 2001)
    largest_advantage = max(rate - inverse(rate) for rate in rates.tolist()) + rates[1]
    return bool(binom.sf(right - 1, n_coins, min((1.0 + largest_advantage) / 2, 1.0)) < alpha)


def inverse_gaussian_curve(mu: float) -> Inverse:
    """Return the inverse trade-off curve of mu-Gaussian differential privacy."""
    return lambda rate: float(ndtr(ndtri(min(rate, 1.0)) - mu))


def inverse_line_curve(epsilon: float, delta: float) -> Inverse:
    """Return the inverse trade-off curve of (epsilon, delta)-differential privacy."""
    grow = np.exp(epsilon)
    return lambda rate: max(0.0, (rate - delta) / grow, 1.0 - delta - grow * (1.0 - rate))


def best_n_guesses(n_coins: int, inverse: Inverse, alpha: float) -> int | None:
    """Return the number of guesses that refutes a false claim of a curve most surely.

    The alternative is a mechanism whose curve is the claimed curve applied twice.

    **Guarantees.** The number depends only on the claimed curve, not on the coins.

    **Edge cases.** None if not even all right guesses could refute the curve.
    """
    options = np.unique(np.geomspace(min(20, n_coins), n_coins, 16).round().astype(int)).tolist()
    surest = max(options, key=lambda guesses: _refutation_margin(n_coins, guesses, inverse, alpha))
    possible = refutes_curve(surest, surest, n_coins, inverse, alpha)
    return surest if possible else None


def default_n_guesses(n_coins: int) -> int:
    """Return the number of guesses for a tight bound on Gaussian noise of moderate size."""
    # Close to the best number for mu of 1 and of 2, from 400 to 10,000 coins.
    return min(n_coins, round(4.9 * np.sqrt(n_coins)))


def default_guess_sizes(n_coins: int) -> tuple[int, ...]:
    """Return numbers of guesses to try without a claim, each with its share of the error.

    Few guesses are best if privacy is strong. If it is weak, all of a few guesses are right, which
    bounds epsilon only by their number. Guessing half of the coins then shows up to twice as large
    an epsilon.

    **Guarantees.** The numbers depend on ``n_coins`` only. If each of k numbers is tested with
    error alpha / k, some bound is wrong with probability alpha at most. So any of them may be
    chosen after looking at the coins. It is not valid to choose a number on one half of the coins
    and test it on the other half. The choice depends on the release, and so may the error of the
    test if canaries interfere.
    """
    few, half = default_n_guesses(n_coins), n_coins // 2
    return (few, half) if half >= 2 * few else (few,)


def independent_p_value(right: int, guesses: int, n_coins: int, mu: float) -> float:
    """Return the p-value of ``right`` right guesses if canaries do not interfere.

    The scores are then independent Gaussians, and the ``guesses`` largest are those beyond some t.
    The share S(t) of scores beyond t has a beta distribution (Xiang et al. 2025).
    """
    wrong = guesses - right
    if guesses == n_coins:
        return float(binom.cdf(wrong, n_coins, ndtr(-mu / 2)))
    # Xiang et al. 2025: mean over the beta-distributed share of guessed scores
    middle = (np.arange(_NODES) + 0.5) / _NODES
    share = beta(guesses + 1, n_coins - guesses).ppf(middle)
    t = _threshold_of_share(share, mu)
    rate = ndtr(-t - mu / 2) / share
    return float(np.mean(1.0 - betainc(wrong + 1, guesses - wrong, rate))) if right else 1.0


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


@cache
def _sharper_bound(guesses: int, n_coins: int, delta: float, alpha: float) -> Callable[..., float]:
    """Return the sharper of two bounds for this number of guesses.

    The bound of Steinke, Nasr and Jagielski is exact at delta 0, and loose for many coins.

    **Guarantees.** Both bounds hold for every (epsilon, delta)-private mechanism. The choice uses
    only figures fixed before the coins are seen, so it costs no error probability.
    """
    usual = round(0.9 * guesses)  # a typical number of right guesses
    given = {"delta": delta, "alpha": alpha}
    candidates = (epsilon_from_guesses, _curve_bound)
    return max(candidates, key=lambda bound: bound(usual, guesses, n_coins, **given))


def _curve_bound(right: int, guesses: int, n_coins: int, *, delta: float, alpha: float) -> float:
    """Return the bound of Mahloujifar, Melis and Chaudhuri 2024."""
    return largest_refuted(
        lambda e: refutes_curve(right, guesses, n_coins, inverse_line_curve(e, delta), alpha)
    )


def _check_guesses(right: int, guesses: int, n_coins: int) -> None:
    whole("n_coins", n_coins, least=0)
    whole("guesses", guesses, least=0)
    whole("right", right, least=0)
    if not right <= guesses <= n_coins:
        raise ValueError(
            f"right={right!r}, guesses={guesses!r}, n_coins={n_coins!r} must be in this order and "
            "not negative. Pass the numbers of right guesses, of guesses and of coins."
        )


def _check_arguments(
    right: int, guesses: int, n_coins: int, bound: str, delta: float, alpha: float
) -> None:
    _check_guesses(right, guesses, n_coins)
    if guesses < 1:
        raise ValueError(f"guesses={guesses!r} must be at least 1. Pass at least one guess.")
    if not isinstance(bound, str) or bound not in BOUNDS:
        raise ValueError(f"bound={bound!r} must be one of {list(BOUNDS)}.")
    check_delta(delta)
    open_unit("alpha", alpha)
    if delta == 0 and bound != "approximate":
        raise ValueError(
            f"delta=0 has no finite epsilon under the Gaussian curve of bound={bound!r}. Pass "
            "delta=1e-5, or bound='approximate'."
        )


def _refutation_margin(n_coins: int, guesses: int, inverse: Inverse, alpha: float) -> float:
    """Return by how many deviations the expected right guesses exceed the refuting number."""
    if not refutes_curve(guesses, guesses, n_coins, inverse, alpha):
        return -np.inf
    least = bisect_left(
        range(guesses), True, lo=1, key=lambda r: refutes_curve(r, guesses, n_coins, inverse, alpha)
    )
    right = n_coins * _tpr_at_share(guesses / n_coins, lambda rate: inverse(inverse(rate)))
    return float((right - least) / np.sqrt(max(right * (1 - right / guesses), 0.25)))


def _tpr_at_share(share: float, inverse: Inverse) -> float:
    """Return the TPR of the point of a curve at which TPR and FPR add up to ``share``."""
    low, high = 0.0, min(1.0, share)
    for _ in range(40):
        rate = (low + high) / 2
        low, high = (rate, high) if rate + inverse(rate) < share else (low, rate)
    return low


def _threshold_of_share(share: Float64Array, mu: float) -> Float64Array:
    """Return the t that a given share of scores exceeds in absolute value, by bisection."""
    low, high = np.zeros_like(share), np.full_like(share, mu / 2 + 40.0)
    for _ in range(60):
        t = (low + high) / 2
        more = ndtr(mu / 2 - t) + ndtr(-mu / 2 - t) > share
        low, high = np.where(more, t, low), np.where(more, high, t)
    return low
