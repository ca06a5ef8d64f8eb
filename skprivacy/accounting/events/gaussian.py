"""Gaussian mechanism, with continuous or discrete noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import allows_replacement, positive, whole
from .._event import Event, NoLossDistributionError, Orders, Pairs
from .._renyi import ROUNDING, binomial_rdp, rdp, sampled_gaussian_rdp
from .._work import CLOSED_FORM_WORK, closed_form_work
from ..pld.pairs import MOST_ATOMS, WORK_PER_ATOM, AtomPair, GaussianPair, symmetric_pairs
from ..pld.sampled import ReplacedGaussian

__all__ = ["DiscreteGaussianEvent", "GaussianEvent"]


@dataclass(frozen=True)
class GaussianEvent(Event, tag="Gaussian", stored=("noise_multiplier",), knows_label=True):
    """Gaussian mechanism: a value of bounded L2 sensitivity plus Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by the L2 sensitivity.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        return orders / (2 * self.noise_multiplier**2)  # Mironov 2017, Gaussian mechanism

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        # PoissonSampled asks at rate 1 only if records are replaced: a contribution may change its
        # sign, which is twice its norm.
        if rate == 1:
            return rdp(GaussianEvent(self.noise_multiplier / 2), orders, relation)
        return sampled_gaussian_rdp(self.noise_multiplier, rate, orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(GaussianPair(self.noise_multiplier))

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        if not allows_replacement(relation):
            return None
        z = self.noise_multiplier
        return symmetric_pairs(ReplacedGaussian(z, rate) if rate < 1 else GaussianPair(z / 2))

    def zcdp(self, relation: str) -> float:
        return 1 / (2 * self.noise_multiplier**2)  # Bun and Steinke 2016, Proposition 1.6

    def gdp(self) -> tuple[float, bool]:
        return 1 / self.noise_multiplier, True

    def grouped(self, size: int) -> GaussianEvent:
        return GaussianEvent(self.noise_multiplier / size)


@dataclass(frozen=True)
class DiscreteGaussianEvent(
    Event, tag="DiscreteGaussian", stored=("sigma", "sensitivity", "dimension"), knows_label=True
):
    """Discrete Gaussian mechanism: integers of bounded L2 sensitivity plus discrete noise.

    Parameters
    ----------
    sigma : float
        The probability of x is proportional to exp(-x**2 / (2 sigma**2)).
    sensitivity : float, default=1
        L2 sensitivity; a whole number if ``dimension`` is 1.
    dimension : int, default=1
        Number of integers. A privacy loss distribution is known only for one.

    Notes
    -----
    On a Poisson sample the Renyi divergence at integer orders a is the continuous Gaussian's. Let Q
    be the noise, P the noise moved by v, a vector of integers, r = P/Q, and m(r) = 1 - q + q r. By
    joint convexity the two directions are E_Q[m(r)^a] and E_Q[m(r)^(1-a)].

    The first is a sum over k of binomial weights times E_Q[r^k] = exp(k (k-1) v^2 / (2 sigma^2)).
    This is exact, since the grid moved by k v is the same grid. Each term is the continuous
    Gaussian's, and grows with the norm of v.

    The second is never larger (as Mironov, Talwar and Zhang show for the Gaussian, Theorem 5). As
    x -> v - x turns P into Q, E_Q[g(r)] = E_Q[g(r) + r g(1/r)] / 2. Let g(r) = f(m(r)) and
    f(m) = m^a - m^(1-a). With b = (1-q) r + q, g(r) + r g(1/r) = f(m(r)) - b f(r/b), because
    f(1/m) = -f(m) / m. Let r >= 1, which covers its inverse. Then b (r/b - 1) = m(r) - 1, so the
    difference is (m(r) - 1) (s(m(r)) - s(r/b)) with s(m) = f(m) / (m - 1). From 1 on f is convex,
    so s grows with m, and m(r) b >= r.

    Fractional orders are rounded up, because the divergence does not decrease with the order.

    References
    ----------
    C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS
    2020, arXiv:2004.00010.
    I. Mironov, K. Talwar and L. Zhang, "Renyi differential privacy of the sampled Gaussian
    mechanism", 2019, arXiv:1908.10530.
    """

    sigma: float
    sensitivity: float = 1
    dimension: int = 1

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        positive("sensitivity", self.sensitivity)
        whole("dimension", self.dimension)
        if self.dimension == 1 and self.sensitivity != int(self.sensitivity):
            raise ValueError(
                f"sensitivity={self.sensitivity!r} must be a whole number if dimension=1. Round "
                "it up."
            )

    def work(self) -> float:
        atoms = 76 * self.sigma + 3 * self.sensitivity if self.dimension == 1 else 0.0
        return CLOSED_FORM_WORK + WORK_PER_ATOM * min(atoms, MOST_ATOMS)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Canonne, Kamath and Steinke 2020, Proposition 5
        return orders * self.sensitivity**2 / (2 * self.sigma**2)

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        if allows_replacement(relation):
            if rate == 1:  # a contribution may change its sign, which is twice its norm
                return rdp(self.grouped(2), orders, relation)
            raise TypeError(
                "No Renyi bound is known for Poisson-sampled discrete Gaussian noise under "
                f"relation={relation!r}. Use 'add_remove' or 'zero_out'."
            )
        z = self.sigma / self.sensitivity
        # Mironov, Talwar and Zhang 2019, the sum for integer orders; see Notes of the class
        return np.array([binomial_rdp(math.ceil(a), rate, z) for a in orders]) * ROUNDING

    def dominating_pairs(self, relation: str) -> Pairs:
        shift = int(self.sensitivity)
        reach = math.ceil(38 * self.sigma) + shift
        if self.dimension > 1 or reach > MOST_ATOMS:
            raise NoLossDistributionError(
                f"No privacy loss distribution is available for {self!r}. Use Renyi accounting."
            )
        x = np.arange(-reach, reach + shift + 1)
        p = np.exp(-((x - shift) ** 2) / (2 * self.sigma**2))
        q = np.exp(-(x**2) / (2 * self.sigma**2))
        losses = shift * (2 * x - shift) / (2 * self.sigma**2)
        total = max(p.sum(), q.sum())  # each is the whole mass but for its truncated tails
        gap = shift / (2 * self.sigma**2)
        return symmetric_pairs(
            AtomPair(tuple(losses), tuple(p / total), tuple(q / total), gap=gap, unbounded=True)
        )

    def zcdp(self, relation: str) -> float:
        # Canonne, Kamath and Steinke 2020: the zCDP of the continuous Gaussian
        return self.sensitivity**2 / (2 * self.sigma**2)

    def grouped(self, size: int) -> DiscreteGaussianEvent:
        return DiscreteGaussianEvent(self.sigma, size * self.sensitivity, self.dimension)
