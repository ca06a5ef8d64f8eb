"""Laplace, Gaussian and logistic noise for single releases, exact on a power-of-two grid.

:class:`KNorm` is the K-norm mechanism in L2: pure differential privacy with L2 sensitivity.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import is_number, not_negative, number, positive, whole
from ..accounting import Event, events
from ..accounting.calibration import analytic_noise_multiplier
from ..accounting.smooth_sensitivity import Smoothed
from . import integer_samplers as discrete
from .base import Mechanism, NoiseMechanism, as_nonexpanding_float64
from .secure_random import SecureRandom

_SCALE_BITS = 36  # the noise scale is 2**35 to 2**36 grid steps
_MARGIN = 1.0 + 2.0**-20  # covers the rounding of the scale, and the change from real to grid noise
_INT64_SAFE = 2.0**61
_HUGE = 1e150  # finite in grid steps, whatever the grid
_Pure = TypeVar("_Pure", bound="_PureGridNoise")


@dataclass(frozen=True)
class _GridNoise(NoiseMechanism):
    """Additive noise on a grid: round the value, then add exact integer noise."""

    noise_multiplier: float
    sensitivity: float
    lower: float = -math.inf
    upper: float = math.inf

    def __post_init__(self) -> None:
        z = self.noise_multiplier
        if not (is_number(z) and (z == 0 or 1e-50 < z < 1e50)):
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} must be 0 (no noise, no privacy) or "
                "a number between 1e-50 and 1e50. Compute it from epsilon by calibrated()."
            )
        if not (is_number(self.sensitivity) and 1e-50 < self.sensitivity < 1e50):
            raise ValueError(
                f"sensitivity={self.sensitivity!r} must be a number between 1e-50 and 1e50. "
                "Rescale the value."
            )
        number("lower", self.lower, "a number below upper")
        number("upper", self.upper, "a number above lower")
        if not self.lower < self.upper:
            raise ValueError(
                f"lower={self.lower!r} must be below upper={self.upper!r}. Pass the public range "
                "that every entry of the value is clipped to."
            )

    @property
    def grid(self) -> float:
        """Power of two of which every released number is a multiple."""
        return math.ldexp(
            1.0, math.frexp(self.noise_multiplier * self.sensitivity)[1] - _SCALE_BITS
        )

    @property
    def scale(self) -> float:
        """Scale of the noise of a single number (for a vector, larger by its rounding)."""
        return self.grid * self._scale_steps(1)

    def _scale_steps(self, size: int) -> int:
        """Return the noise scale in grid steps; the sensitivity includes the rounding."""
        sensitivity = math.ceil(self.sensitivity / self.grid) + self._rounding(size)
        steps = math.ceil(self.noise_multiplier * sensitivity * _MARGIN)
        if steps >= 1 << 54:  # noise of 128 scales would overflow int64
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} is too large for a vector of {size} "
                "numbers: the noise would overflow 64-bit integers. Use a smaller one."
            )
        return steps

    @abstractmethod
    def _rounding(self, size: int) -> float:
        """Return what rounding can add to the sensitivity, in grid steps."""

    @abstractmethod
    def _noise(self, scale: int, size: int, random: SecureRandom) -> NDArray[np.int64]: ...

    def _release(self, value: ArrayLike, random: SecureRandom) -> Any:
        exact = as_nonexpanding_float64(value)
        if np.isnan(exact).any():
            raise ValueError(
                "value holds NaN; expected numbers. Impute and clip records before summing them."
            )
        exact = np.clip(exact, max(self.lower, -_HUGE), min(self.upper, _HUGE))
        # Rounding before the noise: the result is a function of grid numbers only (Mironov 2012)
        steps = np.rint(exact.ravel() / self.grid)
        if self.noise_multiplier:
            steps = _add_exactly(
                steps, self._noise(self._scale_steps(steps.size), steps.size, random)
            )
        noisy = steps * self.grid
        return float(noisy[0]) if exact.ndim == 0 else noisy.reshape(exact.shape)


class _PureGridNoise(_GridNoise):
    """Noise of scale ``sensitivity`` / epsilon, which is pure differential privacy."""

    @classmethod
    def calibrated(cls: type[_Pure], epsilon: float, sensitivity: float, **bounds: Any) -> _Pure:
        """Return the mechanism of pure ``epsilon`` differential privacy.

        Parameters
        ----------
        epsilon : float
            In nats, above 0.
        sensitivity : float
            Sensitivity of the value: L1, or L2 for :class:`KNorm`.
        **bounds : dict
            ``lower`` and ``upper``.
        """
        positive("epsilon", epsilon)
        return cls(1.0 / epsilon, sensitivity, **bounds)


@dataclass(frozen=True)
class Laplace(_PureGridNoise):
    """Add Laplace noise, exact on a grid: pure differential privacy.

    Parameters
    ----------
    noise_multiplier : float
        Scale of the noise divided by ``sensitivity``: 1 / epsilon. 0: no noise, no privacy.
    sensitivity : float
        L1 sensitivity of the value.
    lower, upper : float, default=-inf, inf
        Public range of every entry. Values are clipped to it, which adds no sensitivity.

    Notes
    -----
    **Guarantees.** Pure ``1 / noise_multiplier`` differential privacy for values whose neighbours
    lie within ``sensitivity`` in L1, in floating point as in real numbers. The value is rounded to
    a grid that depends only on the parameters. Rounding adds at most one step per coordinate to
    the sensitivity. The noise is an exact discrete Laplace on the grid, so every multiple of the
    grid is a possible result for any data. The duration of rejection sampling depends on the
    noise, not on the value.

    **Edge cases.** NaN raises. Infinity is clipped to ``lower`` or ``upper``, or else to 1e150.
    Integers are clipped at 2**53. A scalar gives a float, an array a new array of its shape, and an
    empty array an empty array.

    References
    ----------
    C. Dwork, F. McSherry, K. Nissim and A. Smith, "Calibrating noise to sensitivity in private
    data analysis", TCC 2006.
    C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy",
    NeurIPS 2020.

    Examples
    --------
    >>> from skprivacy.mechanisms import Laplace, SecureRandom
    >>> count = Laplace.calibrated(epsilon=1.0, sensitivity=1.0)
    >>> isinstance(count.release(120, SecureRandom()), float)
    True
    """

    arithmetic = "exact"

    def _event(self) -> Event:
        return events.LaplaceEvent(self.noise_multiplier)

    @property
    def std(self) -> float:
        """Standard deviation of the noise of a single number."""
        return math.sqrt(2.0) * self.scale

    def _rounding(self, size: int) -> float:
        return float(size)

    def _noise(self, scale: int, size: int, random: SecureRandom) -> NDArray[np.int64]:
        return discrete.discrete_laplace(scale, size, random)


@dataclass(frozen=True)
class Gaussian(_GridNoise):
    """Add Gaussian noise, exact on a grid (discrete Gaussian, Canonne et al. 2020).

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by ``sensitivity``. 0: no noise, no privacy.
    sensitivity : float
        L2 sensitivity of the value.
    lower, upper : float, default=-inf, inf
        Public range of every entry. Values are clipped to it, which adds no sensitivity.

    Notes
    -----
    **Guarantees.** ``GaussianEvent(noise_multiplier)`` holds for values whose neighbours lie
    within ``sensitivity`` in L2, on a grid as for :class:`Laplace`. The noise is an exact discrete
    Gaussian. Each Renyi divergence is at most the continuous Gaussian's (Canonne et al.,
    Theorem 4). The exact trade-off holds too: rounding the continuous Gaussian to the grid is
    post-processing, and at k steps its probabilities differ from the discrete Gaussian's by a
    factor within exp(+-k**2 / (24 sigma**4) +- 1 / (8 sigma**2)). As sigma is at least 2**35 steps,
    the factor is 1 +- 1e-19 within 40 sigma, and beyond lies a mass of exp(-800). The noise is
    increased by one part in 2**20, which outweighs this by far.

    **Edge cases.** As for :class:`Laplace`.

    References
    ----------
    C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy",
    NeurIPS 2020.
    B. Balle and Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy:
    analytical calibration and optimal denoising", ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.mechanisms import Gaussian, SecureRandom
    >>> mechanism = Gaussian.calibrated(epsilon=1.0, delta=1e-6, sensitivity=1.0)
    >>> round(mechanism.noise_multiplier, 4)
    4.2247
    >>> mechanism.release(np.zeros(3), SecureRandom()).shape
    (3,)
    """

    arithmetic = "exact"

    @classmethod
    def calibrated(
        cls, epsilon: float, delta: float, sensitivity: float, **bounds: Any
    ) -> Gaussian:
        """Return the (epsilon, delta)-DP mechanism with the least noise (Balle and Wang 2018).

        Parameters
        ----------
        epsilon, delta : float
            Privacy loss of one release.
        sensitivity : float
            L2 sensitivity of the value.
        **bounds : float
            ``lower`` and ``upper``.

        Returns
        -------
        Gaussian
        """
        return cls(analytic_noise_multiplier(epsilon, delta), sensitivity, **bounds)

    def _event(self) -> Event:
        return events.GaussianEvent(self.noise_multiplier)

    @property
    def std(self) -> float:
        """Standard deviation of the noise of a single number."""
        return self.scale

    def _rounding(self, size: int) -> float:
        return math.sqrt(size)

    def _noise(self, scale: int, size: int, random: SecureRandom) -> NDArray[np.int64]:
        # Canonne et al. 2020, Theorem 4: Renyi divergences at most as of the continuous Gaussian
        return discrete.discrete_gaussian(scale, size, random)


@dataclass(frozen=True)
class Logistic(_PureGridNoise):
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
        return discrete.discrete_logistic(scale, size, random)


@dataclass(frozen=True)
class KNorm(_PureGridNoise):
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
        return discrete.discrete_gaussian(sigma, size, random)


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


def _add_exactly(steps: NDArray[np.float64], noise: NDArray[np.int64]) -> NDArray[np.float64]:
    """Add exactly, then round to float64, which is post-processing of the exact sum."""
    if np.abs(steps).max(initial=0.0) < _INT64_SAFE:
        return (steps.astype(np.int64) + noise).astype(np.float64)
    return np.array([float(int(a) + int(b)) for a, b in zip(steps, noise, strict=True)])
