"""Lower bounds on epsilon from guesses of coins, with what each of them assumes."""

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
from ._one_run import gaussian, largest_refuted, line, refutes, surprise_apart
from ._samples import check_delta, check_guesses

__all__ = ["BOUNDS", "GuessBound", "bound_from_guesses", "gaussian_epsilon"]

_GAUSSIAN = "the mechanism is Gaussian differentially private"
_APART = "holds only if canaries do not interfere"
BOUNDS: dict[str, tuple[str, ...]] = {
    "approximate": (),
    "gaussian": (_GAUSSIAN,),
    "product": (_GAUSSIAN, _APART),
}


@dataclass(frozen=True)
class GuessBound:
    """A lower confidence bound on epsilon, and what must be true for it to hold.

    Returned by :func:`bound_from_guesses`.

    Attributes
    ----------
    epsilon : float
        At least 0.
    delta, alpha : float
        The delta that it is for, and the probability that it exceeds the true epsilon.
    bound : str
        Which bound it is.
    mu : float or None
        Lower bound on mu of Gaussian differential privacy; None if that is not assumed.
    assumptions : tuple of str
        Beside fair and independent coins, a number of guesses that was fixed before they were
        looked at, and one look.
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
        How many guesses were right.
    guesses : int
        How many were made, fixed before the coins were looked at: about ``5 sqrt(n_coins)`` of the
        most conspicuous canaries is good for Gaussian noise, all of them for randomised response.
    n_coins : int
        How many coins were thrown, at least ``guesses``.
    bound : {"approximate", "gaussian", "product"}, default="approximate"
        What is assumed. ``approximate``: nothing; every (epsilon, delta)-private mechanism keeps to
        it. ``gaussian``: the trade-off curve is a Gaussian one, as of one noisy sum; canaries may
        interfere. ``product``: also that they do not, so that guesses are independent. It is much
        tighter, and WRONG where the assumption is: for canaries that share one noise, it refutes
        true claims in most runs.
    delta : float, default=0.0
        In [0, 1); above 0 for a Gaussian curve.
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
    _check(right, guesses, n_coins, bound, delta, alpha)
    delta, alpha = float(delta), float(alpha)
    if bound == "approximate":
        epsilon = _approximate(right, guesses, n_coins, delta, alpha)
        return GuessBound(epsilon, delta, alpha, bound)
    if bound == "gaussian":
        mu = largest_refuted(lambda m: refutes(right, guesses, n_coins, gaussian(m), alpha))
    else:
        mu = largest_refuted(lambda m: surprise_apart(right, guesses, n_coins, m) < alpha)
    shown = gaussian_epsilon(mu, delta)
    return GuessBound(shown, delta, alpha, bound, mu, BOUNDS[bound])


def _approximate(right: int, guesses: int, n_coins: int, delta: float, alpha: float) -> float:
    """Return the bound of the theorem that is the sharper one for so many guesses.

    **Guarantees.** Two theorems hold for every (epsilon, delta)-private mechanism. Which one is
    used is settled by what is fixed before the coins are looked at, so the choice costs no error.
    """
    return _sharper(guesses, n_coins, delta, alpha)(right, guesses, n_coins, delta, alpha)


@cache
def _sharper(
    guesses: int, n_coins: int, delta: float, alpha: float
) -> Callable[[int, int, int, float, float], float]:
    usual = round(0.9 * guesses)
    return max((_binomial, _whole_curve), key=lambda of: of(usual, guesses, n_coins, delta, alpha))


def _binomial(right: int, guesses: int, n_coins: int, delta: float, alpha: float) -> float:
    """Return the bound of Steinke, Nasr and Jagielski: exact at delta 0, worse for many coins."""
    return epsilon_from_guesses(right, guesses, n_coins, delta=delta, alpha=alpha)


def _whole_curve(right: int, guesses: int, n_coins: int, delta: float, alpha: float) -> float:
    """Return the bound of Mahloujifar, Melis and Chaudhuri."""
    return largest_refuted(lambda e: refutes(right, guesses, n_coins, line(e, delta), alpha))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon at ``delta`` > 0 of mu-Gaussian differential privacy."""

    def excess(epsilon: float) -> float:
        beyond = epsilon / mu
        return float(
            np.exp(log_ndtr(mu / 2 - beyond)) - np.exp(epsilon + log_ndtr(-mu / 2 - beyond)) - delta
        )

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, mu * (mu / 2 + math.sqrt(-2 * math.log(delta))) + 1.0))


def _check(right: int, guesses: int, n_coins: int, bound: str, delta: float, alpha: float) -> None:
    check_guesses(right, guesses, n_coins)
    if guesses < 1:
        raise ValueError(f"guesses={guesses!r} must be in this order, with a guess at least.")
    if not isinstance(bound, str) or bound not in BOUNDS:
        raise ValueError(f"bound={bound!r} must be one of {list(BOUNDS)}.")
    check_delta(delta)
    open_unit("alpha", alpha)
    if delta == 0 and bound != "approximate":
        raise ValueError(
            f"delta=0 has no finite epsilon under the Gaussian curve of bound={bound!r}. Pass "
            "delta=1e-5, or bound='approximate'."
        )
