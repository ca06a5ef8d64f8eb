"""Tests of a trade-off curve by event counts in independent runs on two neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv, ndtr, ndtri

from .coin_guesses import largest_refuted
from .rates import Float64Array

# The highest true positive rate that a claim allows at each false positive rate.
Curve = Callable[[Float64Array], Float64Array]

# Grid of the unknown false positive rate: quantiles of its posterior given the counts.
_LEVELS = ndtr(np.linspace(-8.0, 8.0, 801))
_TINY = 1e-300


@dataclass(frozen=True)
class Counts:
    """Number of runs in which ONE event, fixed beforehand, happened."""

    hits: int  # with the record, in ``n_in`` runs
    n_in: int
    false: int  # without the record, in ``n_out`` runs
    n_out: int

    def surprise(self, curve: Curve) -> float:
        """Return a p-value for the hypothesis that both rates obey an increasing, concave curve.

        **Guarantees.** Valid for all rates: at most ``alpha`` with probability at most ``alpha``.
        At the true rates, the probabilities of at most this many false events and at least this
        many true events are independent and not smaller than uniform. Fisher's rule combines them.
        The true rates are unknown, so the maximum over all rates that the curve allows is taken.
        Between two grid points, each probability is taken at the end where it is larger.
        """
        rates, few = self._rates
        allowed = np.clip(curve(rates[1:]), 0.0, 1.0)
        many = bdtrc(self.hits - 1, self.n_in, allowed) if self.hits else np.ones(1)
        # Fisher's rule for two p-values with product t: t (1 - ln t)
        product = max(float((few * many).max()), _TINY)
        return min(1.0, product * (1.0 - np.log(product)))

    @cached_property
    def _rates(self) -> tuple[Float64Array, Float64Array]:
        """Grid of false positive rates, and a bound on P(so few false events) in each cell."""
        quantiles = betaincinv(self.false + 0.5, self.n_out - self.false + 0.5, _LEVELS)
        rates = np.unique(np.r_[0.0, quantiles, 1.0])
        return rates, bdtr(self.false, self.n_out, rates[:-1])


def line_curve(epsilon: float, delta: float) -> Curve:
    """Return the trade-off curve of (epsilon, delta)-differential privacy."""

    def curve(fpr: Float64Array) -> Float64Array:
        grow = np.exp(min(epsilon, 700.0))
        return np.minimum(1.0, np.minimum(grow * fpr + delta, 1.0 - (1.0 - delta - fpr) / grow))

    return curve


def gaussian_curve(mu: float) -> Curve:
    """Return the trade-off curve of mu-Gaussian differential privacy."""
    # Dong, Roth and Su 2022: Phi(Phi^-1(fpr) + mu)
    return lambda fpr: np.asarray(ndtr(ndtri(fpr) + mu))


def refuted_epsilon(counts: Sequence[Counts], delta: float, alpha: float) -> float:
    """Return the largest epsilon that some event refutes at ``delta`` (Bonferroni)."""
    return max(
        _largest_refuted_by(one, lambda e: line_curve(e, delta), alpha / len(counts))
        for one in counts
    )


def refuted_mu(counts: Sequence[Counts], alpha: float) -> float:
    """Return the largest mu of Gaussian differential privacy that some event refutes."""
    return max(_largest_refuted_by(one, gaussian_curve, alpha / len(counts)) for one in counts)


def _largest_refuted_by(counts: Counts, family: Callable[[float], Curve], alpha: float) -> float:
    return largest_refuted(lambda value: counts.surprise(family(value)) < alpha, tolerance=1e-4)
