"""Logistic, K-norm and smooth Gaussian noise for single releases, exact on a power-of-two grid.

:class:`KNorm` is the K-norm mechanism in L2: pure differential privacy with L2 sensitivity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._validation import not_negative, positive, whole
from ..accounting import Event, events
from ..accounting.smooth_sensitivity import Smoothed
from .additive import (
    Booleans,
    Gaussian,
    Integers,
    PureGridNoise,
    bernoulli_exp,
    collect_accepted,
    discrete_gaussian,
    discrete_laplace,
)
from .base import Mechanism
from .secure_random import SecureRandom


@dataclass(frozen=True)
class Logistic(PureGridNoise):
    """Add logistic noise, exact on a grid: the additive logistic mechanism.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by ``sensitivity``. 0: no noise, no privacy.
    sensitivity : float
        Sensitivity of the value in the norm ``norm``.
    lower, upper : float, default=-inf, inf
        Public range of every entry. Values are clipped to it, which adds no sensitivity.
    norm : {"l1", "l2"}, default="l1"
        Norm of the sensitivity.

    Notes
    -----
    **Guarantees.** ``LogisticEvent`` holds. Under L1 it is pure ``1 / noise_multiplier``
    differential privacy. Under L2 it is ``1 / (6 noise_multiplier**2)``-zCDP in any dimension. The
    noise is on a grid as for :class:`Laplace`, with probabilities proportional to the logistic
    density at the points of the grid.

    Both bounds carry over to the grid. At scale s, the slope of the log density is tanh(k / (2 s))
    / s, below 1 / s, so the pure bound is exact. The second derivative of the log density is at
    most 1 / (2 s**2). So the mass of the real logistic in a cell differs from its density at the
    centre by a factor within exp(+-1 / (6 s**2)), and so do the two normalisers. As s is at least
    2**35 steps, the law is within a factor of 1 +- 1e-20 of the rounded, hence post-processed, real
    mechanism. Increasing the noise by one part in 2**20 outweighs that.

    **Edge cases.** As for :class:`Laplace`.

    References
    ----------
    Y. Yang, P. Gohari and U. Topcu, "On the privacy risks of deploying recurrent neural networks
    in machine learning models", PoPETs 2023.

    Examples
    --------
    >>> from skprivacy.mechanisms import SecureRandom
    >>> from skprivacy.mechanisms.special_noise import Logistic
    >>> isinstance(Logistic(1.0, sensitivity=2.0).release(0.5, SecureRandom()), float)
    True
    """

    arithmetic = "exact"

    norm: Literal["l1", "l2"] = "l1"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm not in ("l1", "l2"):
            raise ValueError(
                f"norm={self.norm!r} must be 'l1' or 'l2', the norm of the sensitivity."
            )

    def _event(self) -> Event:
        return events.LogisticEvent(self.noise_multiplier, int(self.norm[1]))

    @property
    def std(self) -> float:
        """Standard deviation of the noise of a single number."""
        return math.pi / math.sqrt(3.0) * self.scale

    def _rounding(self, size: int) -> float:
        return float(size) if self.norm == "l1" else math.sqrt(size)

    def _noise(self, scale: int, size: int, random: SecureRandom) -> NDArray[np.int64]:
        return discrete_logistic(scale, size, random)


@dataclass(frozen=True)
class KNorm(PureGridNoise):
    """Add noise of density proportional to exp(-norm / scale): the K-norm mechanism in L2.

    The noise has a uniform direction and a Gamma-distributed norm. For a long vector of known L2
    sensitivity it has half the variance of Laplace noise, whose L1 sensitivity can be sqrt(size)
    times as large.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the norm of the noise divided by ``sensitivity``: 1 / epsilon. 0: no noise, no
        privacy.
    sensitivity : float
        L2 sensitivity of the value.
    lower, upper : float, default=-inf, inf
        Public range of every entry. Values are clipped to it, which adds no sensitivity.

    Notes
    -----
    **Guarantees.** Pure ``1 / noise_multiplier`` differential privacy for values whose neighbours
    lie within ``sensitivity`` in L2: by the triangle inequality, the log density differs by at most
    distance / scale.

    The noise is on a grid as for :class:`Laplace`. If T has the law Gamma((size + 1) / 2, scale 2),
    Gaussian noise of variance T has density proportional to exp(-norm). So T is drawn first,
    independently of the value, and then an exact discrete Gaussian of that variance. Every multiple
    of the grid is a possible result for any value. T itself is a sum of floating-point numbers. Its
    law is exact to one part in 2**50, except with probability 2**-53 for each number. With that
    probability, epsilon may be exceeded.

    **Edge cases.** As for :class:`Laplace`. For a single number it is Laplace noise.

    References
    ----------
    M. Hardt and K. Talwar, "On the geometry of differential privacy", STOC 2010.
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially private empirical risk
    minimization", JMLR 12, 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.mechanisms import KNorm, SecureRandom
    >>> mechanism = KNorm.calibrated(epsilon=1.0, sensitivity=2.0)
    >>> mechanism.release(np.zeros(3), SecureRandom()).shape
    (3,)
    >>> round(mechanism.std_of(3), 3)
    4.0
    """

    arithmetic = "floating_point"

    def _event(self) -> Event:
        positive("noise_multiplier", self.noise_multiplier)
        return events.ApproxDPEvent(1.0 / self.noise_multiplier)

    def std_of(self, size: int) -> float:
        """Return the standard deviation of the noise of each of ``size`` numbers.

        Parameters
        ----------
        size : int
            Length of the value.

        Returns
        -------
        float
            In the units of the value.
        """
        whole("size", size, least=0)
        return self.scale * math.sqrt(size + 1.0)

    def _rounding(self, size: int) -> float:
        return math.sqrt(size)

    def _noise(self, scale: int, size: int, random: SecureRandom) -> NDArray[np.int64]:
        if size == 0:
            return np.empty(0, np.int64)
        # Hardt and Talwar 2010: the norm of the noise has a Gamma law. Here it is a Gaussian whose
        # variance is Gamma((size + 1) / 2, scale 2): a sum of size + 1 squared normals, in pairs.
        pairs, one_left = divmod(size + 1, 2)
        variance = -2.0 * np.log(random.uniform(pairs)).sum()
        if one_left:
            radius, angle = random.uniform(2)
            variance += -2.0 * math.log(radius) * math.cos(math.pi * angle) ** 2
        sigma = max(1, math.ceil(scale * math.sqrt(variance)))
        return discrete_gaussian(sigma, size, random)


@dataclass(frozen=True)
class SmoothGaussian(Mechanism):
    """Add Gaussian noise scaled by a smooth sensitivity.

    The value is a ``Smoothed``: a number and its smooth sensitivity.

    Parameters
    ----------
    noise_multiplier, smoothness, lift : float
        See ``SmoothGaussianEvent``.
    upper : float
        Public upper end of the range. It also sets the grid, a billionth of it.
    sensitivity : float, default=1.0
        In units of the smooth sensitivity, which is part of the value.

    Notes
    -----
    **Guarantees.** ``SmoothGaussianEvent`` holds. An exact discrete Gaussian is multiplied by the
    smooth sensitivity, which is private, and the product is rounded to ``grid``. This rounding
    hides all but one part in 10**7 of the bits that the floating-point product could reveal. The
    noise is not hardened further.

    **Edge cases.** A smooth sensitivity of 0 adds no noise. Neighbouring data sets then also have a
    smooth sensitivity of 0.
    """

    arithmetic = "floating_point"

    noise_multiplier: float
    smoothness: float
    lift: float = 0.0
    upper: float = 1.0
    sensitivity: float = 1.0  # in units of the smooth sensitivity

    def __post_init__(self) -> None:
        not_negative("upper", self.upper)
        _ = self.event  # checks the other parameters

    @property
    def event(self) -> Event:
        return events.SmoothGaussianEvent(self.noise_multiplier, self.smoothness, self.lift)

    @property
    def grid(self) -> float:
        """Power of two of which the result is a multiple."""
        return math.ldexp(1.0, math.frexp(self.upper)[1] - 30)

    def _release(self, value: Smoothed, random: SecureRandom) -> float:
        if not isinstance(value, Smoothed):
            raise TypeError(
                f"value is of type {type(value).__name__}; expected a Smoothed. Compute it with "
                "smoothed_cost()."
            )
        noise = Gaussian(self.noise_multiplier, 1.0).release(0.0, random)
        # Papernot et al. 2018, Appendix B: noise scaled by the smooth sensitivity. The lift keeps
        # the result above the true cost with the stated confidence.
        noisy = value.cost + value.sensitivity * (self.lift + noise)
        rounded = math.ceil(noisy / self.grid) * self.grid
        return min(max(rounded, 0.0), self.upper)


def discrete_logistic(scale: int, size: int, random: SecureRandom) -> Integers:
    """Draw integers k with probability proportional to 1 / cosh(k / (2 scale))**2.

    The probability is proportional to q / (1 + q)**2 with q = exp(-abs(k) / scale). So a discrete
    Laplace number is accepted if two coins of probability 1 / (1 + q) both succeed.
    """

    def propose(n: int) -> Integers:
        k = discrete_laplace(scale, n, random)
        for _ in range(2):
            k = k[_bernoulli_half_up(np.abs(k), scale, random)]
        return k

    return collect_accepted(size, 0.5, propose)


def _bernoulli_half_up(numerator: Integers, denominator: int, random: SecureRandom) -> Booleans:
    """Draw Bernoulli(1 / (1 + q)), q = exp(-numerator / denominator).

    A round gives 1 with probability 1/2, 0 with probability q/2, and is repeated otherwise.
    """
    result = np.ones(len(numerator), bool)
    going = np.arange(len(numerator))
    while going.size:
        going = going[random.integers(2, going.size) == 1]
        no = bernoulli_exp(numerator[going], denominator, random)
        result[going[no]] = False
        going = going[~no]
    return result
