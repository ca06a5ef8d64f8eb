"""Upper tail of the normal distribution in integer arithmetic, to any number of bits.

Floating-point quantiles are right to about 50 bits. Whether a normal number rounds up or down can
depend on more bits, which are computed here.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.special import ndtri

__all__ = ["decide_rounded_cell", "normal_tail"]

_SPARE = 32  # bits beyond the requested ones


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
