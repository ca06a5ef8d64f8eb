"""What counts of independent runs on two neighbours say of a trade-off curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import bdtr, bdtrc, betaincinv, ndtr, ndtri

from ._one_run import largest_refuted
from ._samples import Float64Array

__all__ = ["Counts", "Curve", "gaussian_curve", "line_curve", "refuted_epsilon", "refuted_mu"]

# The highest true positive rate that a claim allows at each false positive rate.
Curve = Callable[[Float64Array], Float64Array]

# Where the unknown false positive rate is looked at: quantiles of what the counts make likely.
_LEVELS = ndtr(np.linspace(-8.0, 8.0, 801))
_TINY = 1e-300


@dataclass(frozen=True)
class Counts:
    """How often ONE event, settled beforehand, came about in independent runs.

    Attributes
    ----------
    hits, n_in : int
        With the record: how often, in how many runs.
    false, n_out : int
        Without it.
    """

    hits: int
    n_in: int
    false: int
    n_out: int

    def surprise(self, curve: Curve) -> float:
        """Return a p-value for "both rates keep to a curve", an increasing and concave one.

        **Guarantees.** At most ``alpha`` with probability ``alpha`` at most, whatever the rates
        are: the probabilities of so few false and so many true events, at the true rates, are
        independent and not smaller than uniform, so that Fisher's rule combines them. The true
        rates are not known; the worst that the curve allows take their place. Between two rates
        that are looked at, each probability is that of its worse end.
        """
        rates, few = self._rates
        allowed = np.clip(curve(rates[1:]), 0.0, 1.0)
        many = bdtrc(self.hits - 1, self.n_in, allowed) if self.hits else np.ones(1)
        product = max(float((few * many).max()), _TINY)
        return min(1.0, product * (1.0 - np.log(product)))

    @cached_property
    def _rates(self) -> tuple[Float64Array, Float64Array]:
        """False positive rates, and between each two the chance of so few false events at most."""
        quantiles = betaincinv(self.false + 0.5, self.n_out - self.false + 0.5, _LEVELS)
        rates = np.unique(np.r_[0.0, quantiles, 1.0])
        return rates, bdtr(self.false, self.n_out, rates[:-1])


def line_curve(epsilon: float, delta: float) -> Curve:
    """Return the curve of (epsilon, delta)-differential privacy, and of nothing more."""

    def curve(fpr: Float64Array) -> Float64Array:
        grow = np.exp(min(epsilon, 700.0))
        return np.minimum(1.0, np.minimum(grow * fpr + delta, 1.0 - (1.0 - delta - fpr) / grow))

    return curve


def gaussian_curve(mu: float) -> Curve:
    """Return the curve of mu-Gaussian differential privacy."""
    return lambda fpr: np.asarray(ndtr(ndtri(fpr) + mu))


def refuted_epsilon(counts: Sequence[Counts], delta: float, alpha: float) -> float:
    """Return the largest epsilon that some event refutes at ``delta``; each takes its share."""
    return max(_largest(one, lambda e: line_curve(e, delta), alpha / len(counts)) for one in counts)


def refuted_mu(counts: Sequence[Counts], alpha: float) -> float:
    """Return the largest mu of Gaussian differential privacy that some event refutes."""
    return max(_largest(one, gaussian_curve, alpha / len(counts)) for one in counts)


def _largest(counts: Counts, family: Callable[[float], Curve], alpha: float) -> float:
    return largest_refuted(lambda value: counts.surprise(family(value)) < alpha, tolerance=1e-4)
