"""Lower bounds on epsilon from guesses of coins in one training run, with their assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from .._validation import open_unit
from ._epsilon import epsilon_from_guesses
from ._one_run import (
    independent_p_value,
    inverse_gaussian_curve,
    inverse_line_curve,
    largest_refuted,
    refutes_curve,
)
from ._samples import check_delta, check_guesses

__all__ = ["BOUNDS", "GuessBound", "bound_from_guesses", "gaussian_epsilon"]

_GAUSSIAN = "the mechanism is Gaussian differentially private"
_INDEPENDENT = "holds only if canaries do not interfere"
BOUNDS: dict[str, tuple[str, ...]] = {
    "approximate": (),
    "gaussian": (_GAUSSIAN,),
    "product": (_GAUSSIAN, _INDEPENDENT),
}


@dataclass(frozen=True)
class GuessBound:
    """Lower confidence bound on epsilon with its assumptions, from :func:`bound_from_guesses`.

    Attributes
    ----------
    epsilon : float
        The bound, at least 0.
    delta, alpha : float
        Delta of the bound, and the probability that the bound exceeds the true epsilon.
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
        ``5 sqrt(n_coins)`` of the canaries with the most extreme scores, for randomised response
        all of them.
    n_coins : int
        Number of coins, at least ``guesses``.
    bound : {"approximate", "gaussian", "product"}, default="approximate"
        Assumption of the bound. ``approximate``: none, valid for every (epsilon, delta)-private
        mechanism. ``inverse_gaussian_curve``: the trade-off curve is Gaussian, as for one noisy
        sum; canaries may
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
        With its assumptions.

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
        epsilon = _approximate_epsilon(right, guesses, n_coins, delta, alpha)
        return GuessBound(epsilon, delta, alpha, bound)
    if bound == "gaussian":
        mu = largest_refuted(
            lambda m: refutes_curve(right, guesses, n_coins, inverse_gaussian_curve(m), alpha)
        )
    else:
        mu = largest_refuted(lambda m: independent_p_value(right, guesses, n_coins, m) < alpha)
    shown = gaussian_epsilon(mu, delta)
    return GuessBound(shown, delta, alpha, bound, mu, BOUNDS[bound])


def _approximate_epsilon(
    right: int, guesses: int, n_coins: int, delta: float, alpha: float
) -> float:
    """Return the sharper of two bounds for this number of guesses.

    **Guarantees.** Both bounds hold for every (epsilon, delta)-private mechanism. The choice uses
    only figures fixed before the coins are seen, so it costs no error probability.
    """
    return _sharper_bound(guesses, n_coins, delta, alpha)(right, guesses, n_coins, delta, alpha)


@cache
def _sharper_bound(
    guesses: int, n_coins: int, delta: float, alpha: float
) -> Callable[[int, int, int, float, float], float]:
    usual = round(0.9 * guesses)  # a typical number of right guesses
    candidates = (_binomial_bound, _curve_bound)
    return max(candidates, key=lambda bound: bound(usual, guesses, n_coins, delta, alpha))


def _binomial_bound(right: int, guesses: int, n_coins: int, delta: float, alpha: float) -> float:
    """Return the bound of Steinke, Nasr and Jagielski: exact at delta 0, loose for many coins."""
    return epsilon_from_guesses(right, guesses, n_coins, delta=delta, alpha=alpha)


def _curve_bound(right: int, guesses: int, n_coins: int, delta: float, alpha: float) -> float:
    """Return the bound of Mahloujifar, Melis and Chaudhuri 2024."""
    return largest_refuted(
        lambda e: refutes_curve(right, guesses, n_coins, inverse_line_curve(e, delta), alpha)
    )


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


def _check_arguments(
    right: int, guesses: int, n_coins: int, bound: str, delta: float, alpha: float
) -> None:
    check_guesses(right, guesses, n_coins)
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
