"""Additive logistic mechanism (Yang, Gohari and Topcu 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..._validation import is_number
from .._checks import allows_replacement, positive
from .._event import Event, Orders, Pairs
from .._renyi import ROUNDING, binomial_rdp
from .._work import closed_form_work
from ..pld.pairs import LooseGaussianPair, SlopePair, symmetric_pairs

__all__ = ["LogisticEvent"]


@dataclass(frozen=True)
class LogisticEvent(Event, tag="Logistic", stored=("noise_multiplier", "norm"), knows_label=True):
    """Additive logistic mechanism: a scalar or vector plus independent logistic noise.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by the sensitivity. The variance is (pi * scale)**2 / 3.
    norm : {1, 2}, default=1
        Norm of the sensitivity.

    Notes
    -----
    On a Poisson sample the Renyi bound of the Gaussian with the same zCDP is valid at integer
    orders. Fractional orders are rounded up, because the divergence does not decrease
    with the order.

    Under L2 sensitivity a Gaussian pair dominates, in any dimension. Logistic noise x of scale 1 is
    g(y) for standard normal y, with g = F^-1(Phi) and the logistic F. To move x by t is to move y
    by at most t max F(1-F)/phi = t sqrt(pi/8). Here F(1-F) <= e^(-y^2/2)/4 follows from erf(u)^2 >=
    1 - e^(-u^2): a square contains more of a bivariate normal law than its inscribed disc. So
    the trade-off curve of each coordinate lies above that of a normal coordinate with that shift.
    Trade-off curves of normal coordinates compose, and the squares of their shifts add up.

    References
    ----------
    Y. Yang, P. Gohari and U. Topcu, "Additive logistic mechanism for privacy-preserving
    self-supervised learning", 2022.
    """

    noise_multiplier: float
    norm: int = 1

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        if not is_number(self.norm) or self.norm not in (1, 2):
            raise ValueError(f"norm={self.norm!r} must be 1 or 2, the norm of the sensitivity.")

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        t = 1 / self.noise_multiplier
        if self.norm == 2:  # D_a(t) <= a t^2 / 6 in each coordinate, and the squares add up
            return orders * t**2 / 6
        return (_log_sinhc((2 * orders - 1) * t / 2) - _log_sinhc(t / 2)) / (orders - 1)

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        if allows_replacement(relation):
            raise TypeError(
                "No Renyi bound is known for Poisson-sampled logistic noise under "
                f"relation={relation!r}. Use 'add_remove' or 'zero_out'."
            )
        z = math.sqrt(3) * self.noise_multiplier
        return np.array([binomial_rdp(math.ceil(a), rate, z) for a in orders]) * ROUNDING

    def dominating_pairs(self, relation: str) -> Pairs:
        if self.norm == 2:  # see Notes of the class
            return symmetric_pairs(
                LooseGaussianPair(math.sqrt(8 / math.pi) * self.noise_multiplier)
            )
        return symmetric_pairs(SlopePair(1 / self.noise_multiplier))

    def zcdp(self, relation: str) -> float:
        return 1 / (6 * self.noise_multiplier**2)

    def gdp(self) -> tuple[float, bool]:
        # The mu of the L2 pair also holds for L1, since the L2 norm is at most the L1 norm.
        return math.sqrt(math.pi / 8) / self.noise_multiplier, True

    def grouped(self, size: int) -> LogisticEvent:
        return LogisticEvent(self.noise_multiplier / size, self.norm)


def _log_sinhc(values: ArrayLike) -> Orders:
    """Return ln(sinh(y)/y) for y > 0."""
    y = np.asarray(values, dtype=float)
    small = y**2 / 6 - y**4 / 180
    return np.where(y < 1e-2, small, y + np.log1p(-np.exp(-2 * y)) - np.log(2 * y))
