"""One-shot releases: discrete noise, randomised response and private choices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ._pairs import AtomPair, LooseGaussianPair, SlopePair
from .events import ApproxDP, Event, Laplace, Logistic, PoissonSampled, positive
from .pld import NoLossDistributionError, pairs
from .rdp import _rdp, _sampled_rdp, pure_rdp

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "RandomizedResponse",
    "ReportNoisyMax",
]

_MOST_ATOMS = 200_000


def _whole(name: str, value: int, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer >= {least}.")


@dataclass(frozen=True)
class DiscreteLaplace(Event, tag="DiscreteLaplace", stored=("scale", "sensitivity")):
    """Integers of bounded L1 sensitivity plus two-sided geometric noise.

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
        _whole("sensitivity", self.sensitivity)


@dataclass(frozen=True)
class DiscreteGaussian(Event, tag="DiscreteGaussian", stored=("sigma", "sensitivity", "dimension")):
    """Integers of bounded L2 sensitivity plus discrete Gaussian noise.

    Parameters
    ----------
    sigma : float
        The probability of x is proportional to exp(-x**2 / (2 sigma**2)).
    sensitivity : float, default=1
        L2 sensitivity; a whole number if ``dimension`` is 1.
    dimension : int, default=1
        How many integers. A privacy loss distribution is known for one.

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
        _whole("dimension", self.dimension)
        if self.dimension == 1 and self.sensitivity != int(self.sensitivity):
            raise ValueError(f"sensitivity={self.sensitivity!r} of one integer must be whole.")


@dataclass(frozen=True)
class RandomizedResponse(Event, tag="RandomizedResponse", stored=("epsilon", "n_categories")):
    """One category told truly with probability e^epsilon / (e^epsilon + n_categories - 1).

    Parameters
    ----------
    epsilon : float
    n_categories : int, default=2
    """

    epsilon: float
    n_categories: int = 2

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)
        _whole("n_categories", self.n_categories, 2)


@dataclass(frozen=True)
class Exponential(Event, tag="Exponential", stored=("epsilon",)):
    """A choice with probability proportional to exp(epsilon u / (2 sensitivity of u)).

    Parameters
    ----------
    epsilon : float
        Its privacy loss lies in an interval of length epsilon. If the utility is monotone in the
        data, give half of it.

    References
    ----------
    Dong, Durfee, Rogers (2020), "Optimal differential privacy composition for exponential
    mechanisms".
    """

    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)


@dataclass(frozen=True)
class ReportNoisyMax(Event, tag="ReportNoisyMax", stored=("epsilon",)):
    """The index of the largest value after Laplace or exponential noise of scale 2/epsilon each.

    Parameters
    ----------
    epsilon : float
        With Gumbel noise use :class:`Exponential`, which costs less.
    """

    epsilon: float

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon)


def _both(pair):
    return pair, pair


@pairs.register
def _(event: Laplace, relation):
    return _both(SlopePair(1 / event.noise_multiplier, atoms=True))


@pairs.register
def _(event: Logistic, relation):
    """Under L2 sensitivity take a Gaussian pair, which holds in any dimension.

    Logistic noise x of scale 1 is g(y) for standard normal y, g = F^-1(Phi) for the logistic F.
    Moving x by t moves y by at most t max F(1-F)/phi = t sqrt(pi/8), for F(1-F) <= e^(-y^2/2)/4 by
    erf(u)^2 >= 1 - e^(-u^2): a square holds more of a plane normal distribution than the disc in
    it. The trade-off curve of each coordinate so lies above that of a normal one moved as far,
    those compose, and the squares of their distances add up.
    """
    if event.norm == 2:
        return _both(LooseGaussianPair(math.sqrt(8 / math.pi) * event.noise_multiplier))
    return _both(SlopePair(1 / event.noise_multiplier))


@pairs.register
def _(event: Exponential, relation):
    """Use the envelope, over all losses in an interval of length epsilon, of the privacy curve.

    Each has delta(eps') at most (1 - sqrt(k e^eps'))^2 / (1 - k), k = e^-epsilon: logistic noise.
    """
    return _both(SlopePair(event.epsilon))


@_rdp.register
def _(event: Exponential, orders, relation):
    # The worst loss takes two values epsilon apart; the better of them was chosen by calculus.
    k, a = math.exp(-event.epsilon), orders
    share = -np.expm1(-a * event.epsilon) / -math.expm1(-event.epsilon)
    best = (a - 1) / a * -np.expm1(-a * event.epsilon) / (k * -np.expm1((1 - a) * event.epsilon))
    return np.minimum(np.log(best) + np.log(share / a) / (a - 1), a * event.epsilon**2 / 8)


def _pure_pair(epsilon):
    high = 1 / (1 + math.exp(-epsilon))
    low = math.exp(-epsilon) * high
    return AtomPair((-epsilon, epsilon), (low, high), (high, low), gap=epsilon)


@pairs.register
def _(event: ReportNoisyMax, relation):
    return _both(_pure_pair(event.epsilon))


@_rdp.register
def _(event: ReportNoisyMax, orders, relation):
    return pure_rdp(event.epsilon, orders)


def _response(event):
    low = 1 / (math.exp(event.epsilon) + event.n_categories - 1)
    return math.exp(event.epsilon) * low, low


@pairs.register
def _(event: RandomizedResponse, relation):
    high, low = _response(event)
    if event.n_categories == 2:
        return _both(_pure_pair(event.epsilon))
    rest = (event.n_categories - 2) * low
    losses = (-event.epsilon, 0.0, event.epsilon)
    return _both(AtomPair(losses, (low, rest, high), (high, rest, low), gap=event.epsilon))


@_rdp.register
def _(event: RandomizedResponse, orders, relation):
    high, low = _response(event)
    a, rest = orders, (event.n_categories - 2) * low
    terms = [
        a * math.log(high) + (1 - a) * math.log(low),
        a * math.log(low) + (1 - a) * math.log(high),
    ]
    moment = np.logaddexp(*terms)
    return (np.logaddexp(moment, math.log(rest)) if rest else moment) / (a - 1)


@pairs.register
def _(event: DiscreteLaplace, relation):
    t, step = event.sensitivity, 1 / event.scale
    if t > _MOST_ATOMS:
        raise NoLossDistributionError(f"{event!r} has too many different losses for a grid.")
    ratio = math.exp(-step)
    inner = np.exp(-step * np.arange(1, t)) * (1 - ratio) / (1 + ratio)
    p = np.r_[1 / (1 + ratio), inner, ratio**t / (1 + ratio)][::-1]
    losses = step * (2 * np.arange(t + 1.0) - t)
    return _both(AtomPair(tuple(losses), tuple(p), tuple(p[::-1]), gap=step))


@_rdp.register
def _(event: DiscreteLaplace, orders, relation):
    losses, p, _ = pairs(event, relation)[0].sketch()
    moments = np.logaddexp.reduce(np.outer(orders - 1, losses) + np.log(p), axis=1)
    return np.maximum(moments, 0) / (orders - 1)


@pairs.register
def _(event: DiscreteGaussian, relation):
    shift, reach = int(event.sensitivity), math.ceil(38 * event.sigma) + int(event.sensitivity)
    if event.dimension > 1 or reach > _MOST_ATOMS:
        raise NoLossDistributionError(
            f"{event!r} has no privacy loss distribution here; Renyi accounting covers it."
        )
    x = np.arange(-reach, reach + shift + 1)
    p = np.exp(-((x - shift) ** 2) / (2 * event.sigma**2))
    q = np.exp(-(x**2) / (2 * event.sigma**2))
    losses = shift * (2 * x - shift) / (2 * event.sigma**2)
    total = max(p.sum(), q.sum())
    gap = shift / (2 * event.sigma**2)
    return _both(
        AtomPair(tuple(losses), tuple(p / total), tuple(q / total), gap=gap, unbounded=True)
    )


@_rdp.register
def _(event: DiscreteGaussian, orders, relation):
    return orders * event.sensitivity**2 / (2 * event.sigma**2)


def _sampled_pure(event, q, orders, relation):
    """Bound a Poisson sample by the pure epsilon that remains of it, ln(1 + q (e^epsilon - 1))."""
    both = pairs(PoissonSampled(q, event), relation)
    return pure_rdp(max(pair.max_loss for pair in both), orders)


for _pure in (ApproxDP, Laplace, DiscreteLaplace, RandomizedResponse, Exponential, ReportNoisyMax):
    _sampled_rdp.register(_pure)(_sampled_pure)
