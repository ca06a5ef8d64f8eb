"""Events of additive noise: Gaussian, Laplace and logistic, continuous or discrete.

Also the releases known only by an (epsilon, delta) bound, and those without protection. The
logistic mechanism is by Yang, Gohari and Topcu 2022. Gaussian noise scaled to smooth sensitivity is
mechanism GNSS of Papernot et al. 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..._validation import is_number, number, positive, probability, whole
from ..event import Event, NoLossDistributionError, Orders, Pairs, allows_replacement
from ..pld.pairs import (
    MOST_ATOMS,
    WORK_PER_ATOM,
    AtomPair,
    GaussianPair,
    SlopePair,
    pure_pair,
    symmetric_pairs,
)
from ..pld.sampled_pairs import ReplacedGaussian
from ..renyi import ROUNDING, binomial_rdp, pure_rdp, rdp, sampled_gaussian_rdp
from ..work_limit import CLOSED_FORM_WORK, closed_form_work


@dataclass(frozen=True)
class GaussianEvent(Event, tag="Gaussian", knows_label=True):
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
        # PoissonSampledEvent asks at rate 1 only if records are replaced: a contribution may
        # change its sign, which is twice its norm.
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
class DiscreteGaussianEvent(Event, tag="DiscreteGaussian", knows_label=True):
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
        if rate == 1 and allows_replacement(relation):  # its sign may change: twice its norm
            return rdp(self.grouped(2), orders, relation)
        return _integer_order_rdp(
            "discrete Gaussian", self.sigma / self.sensitivity, rate, orders, relation
        )

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


@dataclass(frozen=True)
class NonPrivateEvent(Event, tag="NonPrivate", knows_label=True):
    """Release without any protection."""

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        return np.full(orders.shape, np.inf)

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(AtomPair((0.0,), (0.0,), (1.0,), infinity=1.0))

    def grouped(self, size: int) -> NonPrivateEvent:
        return self


@dataclass(frozen=True)
class ApproxDPEvent(Event, tag="ApproxDP", knows_label=True):
    """Release of which only (epsilon, delta)-differential privacy is known.

    Parameters
    ----------
    epsilon : float
        At least 0.
    delta : float, default=0.0
        In [0, 1).
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        number("epsilon", self.epsilon, "a finite number >= 0")
        if self.epsilon != 0:
            positive("epsilon", self.epsilon)
        probability("delta", self.delta)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        if self.delta > 0:
            return np.full(orders.shape, np.inf)
        return pure_rdp(self.epsilon, orders)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(pure_pair(self.epsilon, self.delta))

    def grouped(self, size: int) -> Event:
        # Dwork and Roth 2014, group privacy: k steps are (k epsilon, delta')-DP with
        # delta' = delta (1 + e^epsilon + ... + e^((k - 1) epsilon)).
        with np.errstate(over="ignore"):
            steps = np.expm1(size * self.epsilon) / np.expm1(self.epsilon) if self.epsilon else size
        delta = self.delta * float(steps) * (1 + 1e-14)  # for rounding
        return ApproxDPEvent(size * self.epsilon, delta) if delta < 1 else NonPrivateEvent()


@dataclass(frozen=True)
class LaplaceEvent(Event, tag="Laplace", knows_label=True):
    """Laplace mechanism: a scalar or vector of bounded L1 sensitivity plus Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by the L1 sensitivity; its inverse is the pure epsilon.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Mironov 2017, Proposition 6
        t = 1 / self.noise_multiplier
        a = orders
        up = np.log(a / (2 * a - 1)) + (a - 1) * t
        down = np.log((a - 1) / (2 * a - 1)) - a * t
        return np.maximum(np.logaddexp(up, down), 0) / (a - 1)

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        # Half of P has the largest loss: outcomes on the far side of its centre
        return symmetric_pairs(SlopePair(1 / self.noise_multiplier, atoms=True))

    def grouped(self, size: int) -> LaplaceEvent:
        return LaplaceEvent(self.noise_multiplier / size)


@dataclass(frozen=True)
class DiscreteLaplaceEvent(Event, tag="DiscreteLaplace", knows_label=True):
    """Geometric mechanism: integers of bounded L1 sensitivity plus discrete Laplace noise.

    Parameters
    ----------
    scale : float
        The probability of x is proportional to exp(-abs(x) / scale).
    sensitivity : int, default=1
        L1 sensitivity.
    """

    scale: float
    sensitivity: int = 1

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        whole("sensitivity", self.sensitivity)

    def work(self) -> float:
        return CLOSED_FORM_WORK + WORK_PER_ATOM * min(self.sensitivity, MOST_ATOMS)

    def renyi(self, orders: Orders, relation: str) -> Orders:
        losses, p, _ = self.dominating_pairs(relation)[0].sketch()
        moments = np.logaddexp.reduce(np.outer(orders - 1, losses) + np.log(p), axis=1)
        divergence: Orders = np.maximum(moments, 0) / (orders - 1)
        return divergence

    has_bounded_loss = True

    def dominating_pairs(self, relation: str) -> Pairs:
        t, step = self.sensitivity, 1 / self.scale
        if t > MOST_ATOMS:
            raise NoLossDistributionError(
                f"{self!r} has more than {MOST_ATOMS} distinct losses. Account for it as "
                "ApproxDPEvent(sensitivity / scale)."
            )
        # P moves the noise Q by t. Outcomes left of 0 or right of t share one loss, -t or t steps.
        ratio = math.exp(-step)
        inner = np.exp(-step * np.arange(1, t)) * (1 - ratio) / (1 + ratio)
        p = np.r_[1 / (1 + ratio), inner, ratio**t / (1 + ratio)][::-1]
        losses = step * (2 * np.arange(t + 1.0) - t)
        return symmetric_pairs(AtomPair(tuple(losses), tuple(p), tuple(p[::-1]), gap=step))

    def grouped(self, size: int) -> Event:
        distance = size * self.sensitivity
        if distance > MOST_ATOMS:
            return ApproxDPEvent(distance / self.scale)
        return DiscreteLaplaceEvent(self.scale, distance)


@dataclass(frozen=True)
class LogisticEvent(Event, tag="Logistic", knows_label=True):
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
    orders. Fractional orders are rounded up, since the divergence does not decrease with the order.

    Under L2 sensitivity a Gaussian pair dominates, in any dimension. Logistic noise x of scale 1 is
    g(y) for standard normal y, with g = F^-1(Phi) and the logistic F. To move x by t is to move y
    by at most t max F(1-F)/phi = t sqrt(pi/8). Here F(1-F) <= e^(-y^2/2)/4 follows from erf(u)^2 >=
    1 - e^(-u^2): a square contains more of a bivariate normal law than its inscribed disc. So
    the trade-off curve of each coordinate lies above the curve of a normal coordinate so shifted.
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
        z = math.sqrt(3) * self.noise_multiplier  # of the Gaussian with the same zCDP
        return _integer_order_rdp("logistic", z, rate, orders, relation)

    def dominating_pairs(self, relation: str) -> Pairs:
        if self.norm == 2:  # see Notes of the class
            z = math.sqrt(8 / math.pi) * self.noise_multiplier
            return symmetric_pairs(GaussianPair(z, loose=True))
        return symmetric_pairs(SlopePair(1 / self.noise_multiplier))

    def zcdp(self, relation: str) -> float:
        return 1 / (6 * self.noise_multiplier**2)

    def gdp(self) -> tuple[float, bool]:
        # The mu of the L2 pair also holds for L1, since the L2 norm is at most the L1 norm.
        return math.sqrt(math.pi / 8) / self.noise_multiplier, True

    def grouped(self, size: int) -> LogisticEvent:
        return LogisticEvent(self.noise_multiplier / size, self.norm)


@dataclass(frozen=True)
class SmoothGaussianEvent(Event, tag="SmoothGaussian", knows_label=True):
    """Gaussian noise scaled to the smooth sensitivity of a number (GNSS, Papernot et al. 2018).

    A number with smooth sensitivity S is released plus ``lift`` S plus Gaussian noise of standard
    deviation ``noise_multiplier`` S.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise, divided by the smooth sensitivity.
    smoothness : float
        S changes by a factor of at most e^smoothness between neighbouring data sets.
    lift : float, default=0.0
        Multiple of S that is added to the number, so that it rarely falls below the true value.

    Notes
    -----
    Let b be the smoothness. The standard deviations of the two normal distributions may differ by a
    factor r between e^-b and e^b. With s the smaller of the two values of S, their means may differ
    by s (1 + lift (e^b - 1)). Both terms of their divergence are largest at r = e^-b. The bound is
    infinite from order 1 / (1 - e^-2b) on. The published bound is slightly larger: its term e^2b /
    z^2 is at most about twice the term used here.

    References
    ----------
    N. Papernot et al., "Scalable private learning with PATE", ICLR 2018, appendix B, mechanism
    GNSS (Theorem 23).
    """

    noise_multiplier: float
    smoothness: float
    lift: float = 0.0

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        positive("smoothness", self.smoothness)
        number("lift", self.lift, "a finite number >= 0")
        if self.lift != 0:
            positive("lift", self.lift)

    work = closed_form_work

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Papernot et al. 2018, Theorem 23, with the exact Renyi divergence of normal distributions
        a, b, z = orders, self.smoothness, self.noise_multiplier
        with np.errstate(over="ignore"):
            distance = 1 + self.lift * float(np.expm1(b))  # may be infinite, as is the bound then
        variance = 1 + a * math.expm1(-2 * b)
        means = a * (distance * math.exp(-b) / z) ** 2 / (2 * variance)
        spreads = (-a * b - np.log(variance) / 2) / (a - 1)
        return np.where(variance > 0, means + spreads, np.inf)


def _integer_order_rdp(noise: str, z: float, rate: float, orders: Orders, relation: str) -> Orders:
    """Return the divergence of a sampled Gaussian at the orders, rounded up to integers."""
    if allows_replacement(relation):
        raise TypeError(
            f"No Renyi bound is known for Poisson-sampled {noise} noise under "
            f"relation={relation!r}. Use 'add_remove' or 'zero_out'."
        )
    # Mironov, Talwar and Zhang 2019, the sum for integer orders; see Notes of both classes
    return np.array([binomial_rdp(math.ceil(a), rate, z) for a in orders]) * ROUNDING


def _log_sinhc(values: ArrayLike) -> Orders:
    """Return ln(sinh(y)/y) for y > 0."""
    y = np.asarray(values, dtype=float)
    small = y**2 / 6 - y**4 / 180
    return np.where(y < 1e-2, small, y + np.log1p(-np.exp(-2 * y)) - np.log(2 * y))
