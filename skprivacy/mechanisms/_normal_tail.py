"""The upper tail of the normal distribution in integers: what a number of random bits decides.

Floating-point quantiles are right to some 50 bits. Whether a normal number lies above or below the
border between two cells can depend on more, which are computed here to any number of bits.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy.special import ndtri

__all__ = ["cell_of", "normal_tail"]

_SPARE = 32  # bits beyond those asked for


def cell_of(m: int, bits: int, sigma: float) -> int | None:
    """Return round(sigma z) for the z >= 0 whose tail probability lies in [m, m + 1) / 2**bits.

    **Guarantees.** None if the bits do not decide: if, as far as the bounds of the tail tell, z may
    be on either side of the border between two cells. More bits do, but with probability 0.
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
    have grown to at most (k + 1) exp(x) units, as no product of the factors x / j exceeds exp(x).
    N terms, and the rest where the terms have fallen below that error, make less than
    4 (N + 1) (exp(x) + 1) units: ``work`` has the bits of exp(x), and 32 more for N below 2**20.
    Far out the tail is below exp(-x) / 2, which is all there is to know of it.
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
