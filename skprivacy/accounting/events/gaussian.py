"""Gaussian noise, continuous and discrete."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._checks import positive, replaces, whole
from .._event import Event, NoLossDistributionError, Orders, Pairs
from .._renyi import ROUNDING, binomial_rdp, rdp, sampled_gaussian_rdp
from .._work import CLOSED_FORM_WORK, closed_form_work
from ..pld.pairs import MOST_ATOMS, WORK_PER_ATOM, AtomPair, GaussianPair, both
from ..pld.sampled import ReplacedGaussian

__all__ = ["DiscreteGaussianEvent", "GaussianEvent"]


@dataclass(frozen=True)
class GaussianEvent(Event, tag="Gaussian", stored=("noise_multiplier",), knows_label=True):
    """A value of bounded L2 sensitivity plus Gaussian noise.

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
        return orders / (2 * self.noise_multiplier**2)

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        if rate == 1:  # replaced: a contribution may change sign, which is twice its norm
            return rdp(GaussianEvent(self.noise_multiplier / 2), orders, relation)
        return sampled_gaussian_rdp(self.noise_multiplier, rate, orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        return both(GaussianPair(self.noise_multiplier))

    def sampled_pairs(self, rate: float, relation: str) -> Pairs | None:
        if not replaces(relation):
            return None
        z = self.noise_multiplier
        return both(ReplacedGaussian(z, rate) if rate < 1 else GaussianPair(z / 2))

    def zcdp(self, relation: str) -> float:
        return 1 / (2 * self.noise_multiplier**2)

    def gdp(self) -> tuple[float, bool]:
        return 1 / self.noise_multiplier, True

    def grouped(self, size: int) -> GaussianEvent:
        return GaussianEvent(self.noise_multiplier / size)


@dataclass(frozen=True)
class DiscreteGaussianEvent(
    Event, tag="DiscreteGaussian", stored=("sigma", "sensitivity", "dimension"), knows_label=True
):
    """Integers of bounded L2 sensitivity plus discrete Gaussian noise.

    Parameters
    ----------
    sigma : float
        The probability of x is proportional to exp(-x**2 / (2 sigma**2)).
    sensitivity : float, default=1
        L2 sensitivity; a whole number if ``dimension`` is 1.
    dimension : int, default=1
        Number of integers. A privacy loss distribution is known only for one.

    References
    ----------
    Canonne, Kamath, Steinke (2020), "The discrete Gaussian for differential privacy".
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
        return orders * self.sensitivity**2 / (2 * self.sigma**2)

    def sampled_renyi(self, rate: float, orders: Orders, relation: str) -> Orders:
        """Return the Renyi divergence of a Poisson sample: at integer orders the Gaussian's.

        Let Q be the noise, P the same moved by v, a vector of integers, r = P/Q, and m(r) =
        1 - q + q r. By joint convexity the two directions are E_Q[m(r)^a] and E_Q[m(r)^(1-a)].

        The first is a sum over k of binomial weights times E_Q[r^k] = exp(k (k-1) v^2 / (2
        sigma^2)), exactly, as the grid moved by k v is the same grid: term by term the continuous
        Gaussian's, and growing with the norm of v.

        The second is never larger (Mironov et al., Theorem 5). As x -> v - x turns P into Q,
        E_Q[g(r)] = E_Q[g(r) + r g(1/r)] / 2; let g(r) = f(m(r)), f(m) = m^a - m^(1-a). With
        b = (1-q) r + q, g(r) + r g(1/r) = f(m(r)) - b f(r/b), because f(1/m) = -f(m) / m. Let
        r >= 1, which covers its inverse. Then b (r/b - 1) = m(r) - 1, so that the difference is
        (m(r) - 1) (s(m(r)) - s(r/b)) with s(m) = f(m) / (m - 1). From 1 on f is convex, so s grows
        with m, and m(r) b >= r.

        Fractional orders are rounded up: the divergence does not decrease with the order.

        Parameters
        ----------
        rate : float
            The probability q with which each record is in the sample, in (0, 1].
        orders : ndarray of shape (n_orders,)
            Renyi orders, above 1.
        relation : str
            The neighbouring relation.

        Returns
        -------
        ndarray of shape (n_orders,)
            In nats.

        References
        ----------
        Mironov, Talwar, Zhang (2019), "Renyi differential privacy of the sampled Gaussian
        mechanism", arXiv:1908.10530.
        """
        if replaces(relation):
            if rate == 1:  # a contribution may change sign, which is twice its norm
                return rdp(self.grouped(2), orders, relation)
            raise TypeError(
                "No Renyi bound is known for Poisson-sampled discrete Gaussian noise under "
                f"relation={relation!r}, where a sample holds one of two contributions. Use "
                "'add_remove' or 'zero_out'."
            )
        z = self.sigma / self.sensitivity
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
        total = max(p.sum(), q.sum())
        gap = shift / (2 * self.sigma**2)
        return both(
            AtomPair(tuple(losses), tuple(p / total), tuple(q / total), gap=gap, unbounded=True)
        )

    def zcdp(self, relation: str) -> float:
        return self.sensitivity**2 / (2 * self.sigma**2)

    def grouped(self, size: int) -> DiscreteGaussianEvent:
        return DiscreteGaussianEvent(self.sigma, size * self.sensitivity, self.dimension)
