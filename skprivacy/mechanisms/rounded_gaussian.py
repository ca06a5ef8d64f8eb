"""RoundedGaussian: Gaussian noise exact on a grid, for the long vectors of DP-SGD.

Floating-point quantiles are right to about 50 bits. Whether a normal number rounds up or down can
depend on more bits: :func:`normal_tail` computes the upper tail in integers, to any number of bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .._validation import is_tensor
from ..accounting import Event, events
from .float_noise import VectorNoise, check_finite
from .secure_random import SecureRandom

_SPARE = 32  # bits beyond the requested ones
_STEP_BITS = 22  # the sensitivity is 2**22 to 2**23 grid steps
_LARGE = 1024.0  # noise multiplier from which on the noise has 2**32 to 2**33 steps instead
_UPWARDS = 1.0 + 2.0**-40  # outweighs the rounding of the scale
_HUGE = 1e150  # finite in grid steps, whatever the grid
_MOST_STEPS = 2.0**40  # noise scale in steps beyond which quantiles decide too few cells
_CHUNK = 1 << 14  # numbers at a time, so that the work arrays stay in the second-level cache
_WORD = 64
_MAGNITUDE = np.int64((1 << 63) - 1)
_LEAST = 1 << 46  # least magnitude of a word for which a quantile is precise enough
_MARGIN = 2.0**-44  # twice the error bound of a quantile, see ``rounded_normal``


@dataclass(frozen=True)
class RoundedGaussian(VectorNoise):
    """Add Gaussian noise, exact on a grid, to a long vector, in place.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise divided by ``sensitivity``. 0 adds no noise, and the event
        is then ``NonPrivateEvent``.
    sensitivity : float
        L2 sensitivity of the vector as computed, rounding errors included. For a double-precision
        sum of gradients that are clipped a little below the clipping norm, it is that norm.

    Notes
    -----
    **Guarantees.** One release of a vector whose neighbours lie within ``sensitivity`` in L2 is
    accounted as ``GaussianEvent(noise_multiplier)``, for any length, in floating point as in real
    numbers. The vector is rounded to a grid that depends only on the parameters. Rounding moves
    numbers of neighbours apart by up to a step, so the sensitivity of n numbers grows by sqrt(n)
    steps, and the noise with it. The noise is a continuous normal number, correctly rounded to the
    grid. A grid number plus rounded noise is their real sum, rounded. So the release is a function
    of the release of the real Gaussian mechanism, with the same loss distributions.

    With ``noise_multiplier`` up to 1024, a step is 2**-23 to 2**-22 of the sensitivity. The noise
    of 10,000 numbers grows by at most .003%, of 200,000 by .011%, and of 20 million by .11%.

    **Edge cases.** NaN and infinity, which no noise hides, are refused: the caller's clipping has
    to remove them. An empty vector is returned unchanged. The result for a
    vector in single precision is rounded to single precision, which is post-processing. The noise
    of a torch tensor is drawn on the CPU, even if the tensor is on a GPU. The time per number
    depends only on the noise.

    References
    ----------
    I. Mironov, "On significance of the least significant bits for differential privacy",
    CCS 2012.

    S. Haney, D. Desfontaines, L. Hartman, R. Shrestha and M. Hay, "Precision-based attacks and
    interval refining: how to break, then fix, differential privacy on finite computers", 2022.

    S. Casacuberta, M. Shoemate, S. Vadhan and C. Wagaman, "Widespread underestimation of
    sensitivity in differentially private libraries and how to fix it", CCS 2022.
    """

    arithmetic = "exact"

    @property
    def grid(self) -> float:
        """Power of two of which every released number is a multiple."""
        coarser = max(1.0, self.noise_multiplier / _LARGE)
        return math.ldexp(1.0, math.frexp(coarser * self.sensitivity)[1] - 1 - _STEP_BITS)

    def _event(self) -> Event:
        return events.GaussianEvent(self.noise_multiplier)

    def _scale_steps(self, size: int) -> float:
        """Return the noise scale in grid steps; the sensitivity includes the rounding."""
        sensitivity = self.sensitivity / self.grid + math.sqrt(size)
        steps = self.noise_multiplier * sensitivity * _UPWARDS
        if steps > _MOST_STEPS:
            raise ValueError(
                f"noise_multiplier={self.noise_multiplier!r} is too large for a vector of {size} "
                f"numbers: the noise would be {steps:.3g} grid steps, above the limit of 2**40. "
                "Use a smaller one, or FloatGaussian."
            )
        return steps

    def _add_noise(self, value: Any, random: SecureRandom) -> Any:
        if is_tensor(value):
            here = self._add_noise(value.cpu().numpy(), random)
            return value.copy_(value.new_tensor(here))
        check_finite(value)
        scale, grid = self._scale_steps(value.size), self.grid
        for start in range(0, value.size, _CHUNK):
            part = value[start : start + _CHUNK]
            steps = np.rint(np.clip(part, -_HUGE, _HUGE, dtype=np.float64) / grid)
            steps += rounded_normal(scale, part.size, random)
            np.multiply(steps, grid, out=part, casting="same_kind")
        return value


def decide_rounded_cell(m: int, bits: int, sigma: float) -> int | None:
    """Return round(sigma z) for z >= 0 with a tail probability in [m, m + 1) / 2**bits.

    **Guarantees.** None if the bits do not decide: by the bounds of the tail, z may be on either
    side of the border between two cells. More bits decide, except with probability 0.
    """
    above, below = sigma.as_integer_ratio()  # a border at k + 1/2 is (2 k + 1) / (2 sigma) in z
    guess = round(-sigma * float(ndtri(math.ldexp(m + 0.5, -bits))))
    for k in (guess, guess + 1, guess - 1):
        if k < 0 or m < normal_tail((2 * k + 1) * below, 2 * above, bits)[1]:
            continue
        if k == 0 or m + 1 <= normal_tail((2 * k - 1) * below, 2 * above, bits)[0]:
            return k
    return None


def normal_tail(numerator: int, denominator: int, bits: int) -> tuple[int, int]:
    """Return bounds of 2**bits P(Z > z), at most 3 apart, for standard normal Z and rational z > 0.

    The integral of exp(-t**2 / 2) from 0 to z is the sum over k of (-x)**k / k! z / (2 k + 1), with
    x = z**2 / 2. Every division rounds down, by less than a unit of 2**-work. In term k, errors
    have grown to at most (k + 1) exp(x) units, as no product of the factors x / j exceeds exp(x). N
    terms, and the remainder once terms have fallen below that error, add up to less than 4 (N + 1)
    (exp(x) + 1) units: ``work`` has the bits of exp(x), and 32 more for N below 2**20. For large z
    the tail is below exp(-x) / 2, which suffices.
    """
    x = numerator**2 / (2 * denominator**2)
    if x > bits:
        return 0, 1
    work = bits + _SPARE + math.ceil(x / math.log(2.0))
    square, unit = numerator**2, 2 * denominator**2
    term = total = (numerator << work) // denominator
    k = 0
    while term:
        k += 1
        term = term * square // (unit * k)
        part = term // (2 * k + 1)
        total += -part if k % 2 else part
    body = (total << work) // _root_of_two_pi(work)
    tail = ((1 << (work - 1)) - body) >> (work - bits)
    return tail - 1, tail + 2


def rounded_normal(sigma: float, size: int, random: SecureRandom) -> NDArray[np.float64]:
    """Draw integers round(sigma Z), for independent standard normal Z and 0 < sigma <= 2**40.

    **Guarantees.** The law is exact, also in the tails, given uniformly random bits. A word of 64
    bits is the beginning of a random number: a sign, and m of 63 bits. It puts the tail probability
    U of Z = Phi^-1(1 - U) in [m, m + 1) / 2**64. If that interval has one integer, further bits
    would change nothing. Otherwise more bits are drawn until it has (interval refining, Haney et
    al. 2022).

    A quantile in double precision usually decides the case. It differs from Z by less than
    2**-45, if m is 2**46 or more, so that U >= 2**-18 and Z < 4.48:

    - the middle of the interval is 2**-65 away from its ends, which moves Z by 2**-65 / phi(4.48) <
      2**-49, and is rounded by a part in 2**53, which moves it by less than 2**-52, as U / phi(Z)
      < 1.26;
    - scipy's ``ndtri`` is off by at most 2**-46 (S. Moshier, "Cephes Math Library", states a few
      parts in 2**53 for its rational functions; a test compares it with a hundred digits);
    - the product with sigma is rounded by a part in 2**53, as if Z were off by 2**-50.

    If the quantile is within twice this error of the border between two cells, or m is smaller,
    integer arithmetic decides.
    """
    words = np.frombuffer(random.random_bytes(8 * size), np.int64)
    magnitudes = words & _MAGNITUDE
    x = magnitudes.astype(np.float64)
    x += 0.5
    x *= 2.0**-_WORD
    ndtri(x, out=x)
    x *= -sigma
    found = np.rint(x)
    x -= found
    np.abs(x, out=x)
    for i in np.flatnonzero((x > 0.5 - _MARGIN * sigma) | (magnitudes < _LEAST)):
        found[i] = _refine_rounded_normal(int(magnitudes[i]), sigma, random)
    np.copysign(found, words.view(np.float64), out=found)
    found += 0.0  # turns -0.0 into 0.0: its sign would reveal the sign of a sum that rounds to zero
    return found


@lru_cache(maxsize=128)
def _root_of_two_pi(bits: int) -> int:
    """Return sqrt(2 pi) 2**bits, right to two units. Machin: pi = 16 atan(1/5) - 4 atan(1/239)."""
    more = 2 * bits + _SPARE
    pi = 16 * _arctangent_of_inverse(5, more) - 4 * _arctangent_of_inverse(239, more)
    return math.isqrt(2 * pi >> _SPARE)


def _arctangent_of_inverse(n: int, bits: int) -> int:
    power = total = (1 << bits) // n
    k = 1
    while power:
        power //= -n * n
        k += 2
        total += power // k
    return total


def _refine_rounded_normal(m: int, sigma: float, random: SecureRandom) -> int:
    """Return round(sigma Z), given its first bits; draw more while they do not decide."""
    bits = _WORD  # Haney et al. 2022, interval refining: more bits until one integer remains
    while (cell := decide_rounded_cell(m, bits, sigma)) is None:
        m = m << _WORD | int.from_bytes(random.random_bytes(_WORD // 8), "little")
        bits += _WORD
    return cell
