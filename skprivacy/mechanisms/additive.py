"""Laplace and Gaussian noise for single releases, exact on a power-of-two grid.

The noise is a multiple of the grid: discrete Laplace and Gaussian numbers by the algorithms of
Canonne, Kamath and Steinke (2020), applied to whole arrays. No logarithm, exponential or other
rounded operation is involved, so the distributions are exact, given uniformly random bits. Scales
may reach 2**60. Start reading at :class:`Laplace`.

References
----------
C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy",
NeurIPS 2020.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import is_number, number, positive
from ..accounting import Event, events
from ..accounting.calibration import analytic_noise_multiplier
from .base import NoiseMechanism, as_nonexpanding_float64
from .secure_random import SecureRandom

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Fraction = tuple[Integers, int]  # numerators, and the denominator they share

_FEW = 1024  # size of arrays below which several rounds at once are faster
_DIVISIBLE = 840  # divisible by every number from 1 to 8
_SCALE_BITS = 36  # the noise scale is 2**35 to 2**36 grid steps
_MARGIN = 1.0 + 2.0**-20  # covers the rounding of the scale, and the change from real to grid noise
_INT64_SAFE = 2.0**61
_HUGE = 1e150  # finite in grid steps, whatever the grid
_Pure = TypeVar("_Pure", bound="PureGridNoise")


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


class PureGridNoise(_GridNoise):
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
class Laplace(PureGridNoise):
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
        return discrete_laplace(scale, size, random)


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
        return discrete_gaussian(scale, size, random)


def _add_exactly(steps: NDArray[np.float64], noise: NDArray[np.int64]) -> NDArray[np.float64]:
    """Add exactly, then round to float64, which is post-processing of the exact sum."""
    if np.abs(steps).max(initial=0.0) < _INT64_SAFE:
        return (steps.astype(np.int64) + noise).astype(np.float64)
    return np.array([float(int(a) + int(b)) for a, b in zip(steps, noise, strict=True)])


def _bernoulli_exp_product(fractions: list[Fraction], size: int, random: SecureRandom) -> Booleans:
    """Draw Bernoulli(exp(-g)), where g is the product of ``fractions``, each in [0, 1].

    With A_k ~ Bernoulli(g / k), the first k with A_k = 0 is odd with probability exp(-g). A product
    of probabilities is a conjunction of independent events, so nothing is multiplied and nothing
    overflows.
    """
    # Canonne et al. 2020, Algorithm 1, for gamma in [0, 1]: K = 1
    result = np.empty(size, bool)
    going = np.arange(size)
    k = 1
    if size < _FEW:  # small arrays are faster with eight rounds at once
        result, going = _draw_eight_rounds(fractions, size, random)
        k = 9
    while going.size:
        # Algorithm 1: sample A ~ Bernoulli(gamma / K); while A = 1, increase K
        more = np.ones(going.size, bool) if k == 1 else random.integers(k, going.size) == 0
        for numerator, denominator in fractions:
            more &= random.integers(denominator, going.size) < numerator[going]
        result[going[~more]] = k % 2 == 1  # Algorithm 1: return 1 if K is odd, else 0
        going = going[more]
        k += 1
    return result


def _draw_eight_rounds(
    fractions: list[Fraction], size: int, random: SecureRandom
) -> tuple[Booleans, Integers]:
    """Return the results of rounds 1 to 8, and the indices that they leave undecided."""
    drawn = random.integers(_DIVISIBLE, 8 * size).reshape(8, size)
    more = drawn % np.arange(1, 9)[:, None] == 0  # uniform below each k: they divide 840
    for numerator, denominator in fractions:
        more &= random.integers(denominator, 8 * size).reshape(8, size) < numerator
    return more.argmin(axis=0) % 2 == 0, np.flatnonzero(more.all(axis=0))


def _draw_geometric(size: int, random: SecureRandom) -> Integers:
    """Count Bernoulli(1/e) successes before the first failure: P(count >= k) = exp(-k)."""
    count = np.zeros(size, np.int64)
    going = np.arange(size)
    while going.size:
        trials = 4 if going.size < _FEW else 1
        won = _bernoulli_exp_product([], going.size * trials, random).reshape(-1, trials)
        in_a_row = np.cumprod(won, axis=1).sum(axis=1)
        count[going] += in_a_row
        going = going[in_a_row == trials]
    return count


def bernoulli_exp(numerator: Integers, denominator: int, random: SecureRandom) -> Booleans:
    """Draw Bernoulli(exp(-numerator / denominator)) for every numerator >= 0."""
    # Canonne et al. 2020, Algorithm 1, gamma > 1: floor(gamma) coins of exp(-1), one of the rest
    whole, rest = np.divmod(numerator, denominator)
    result = _bernoulli_exp_product([(rest, denominator)], len(rest), random)
    large = np.flatnonzero(whole)
    result[large] &= _draw_geometric(large.size, random) >= whole[large]
    return result


def collect_accepted(size: int, yield_: float, propose: Callable[[int], Integers]) -> Integers:
    """Collect ``size`` accepted proposals; ``propose(n)`` makes n and returns the accepted ones."""
    parts: list[Integers] = []
    missing = size
    while missing > 0:
        parts.append(propose(int(missing / yield_) + 8))
        missing -= len(parts[-1])
    return np.concatenate(parts)[:size] if parts else np.empty(0, np.int64)


def discrete_laplace(scale: int, size: int, random: SecureRandom) -> Integers:
    """Draw integers k with probability proportional to exp(-abs(k) / scale)."""

    # Canonne et al. 2020, Algorithm 2, with t = scale and s = 1
    def propose(n: int) -> Integers:
        # U uniform on 0 .. t-1, kept with probability exp(-U / t)
        low = random.integers(scale, n)
        low = low[_bernoulli_exp_product([(low, scale)], n, random)]
        # V geometric: X = U + t V
        magnitude = low + scale * _draw_geometric(len(low), random)
        # a random sign B; B = 1 with X = 0 is rejected, or zero would count twice
        negative = random.integers(2, len(low)) == 1
        keep = ~(negative & (magnitude == 0))
        return np.where(negative, -magnitude, magnitude)[keep]

    return collect_accepted(size, 0.6, propose)


def discrete_gaussian(sigma: int, size: int, random: SecureRandom) -> Integers:
    """Draw integers k with probability proportional to exp(-k**2 / (2 sigma**2)).

    A discrete Laplace number k of scale sigma is accepted with probability exp(-d**2 / (2
    sigma**2)), where d = abs(abs(k) - sigma). With d = a sigma + r, the exponent is the sum of a**2
    / 2, a r / sigma and (r / sigma) (r / (2 sigma)), hence three independent coins.
    """

    # Canonne et al. 2020, Algorithm 3, with t = sigma, so that sigma**2 / t = sigma
    def propose(n: int) -> Integers:
        k = discrete_laplace(sigma, n, random)
        # accept Y with probability exp(-(|Y| - sigma**2 / t)**2 / (2 sigma**2))
        a, r = np.divmod(np.abs(np.abs(k) - sigma), sigma)
        keep = bernoulli_exp(a * a, 2, random)
        keep &= bernoulli_exp(a * r, sigma, random)
        keep &= _bernoulli_exp_product([(r, sigma), (r, 2 * sigma)], n, random)
        return k[keep]

    return collect_accepted(size, 0.75, propose)
