"""Integers beyond 64 bits in two numpy arrays: ``high * 2**32 + low``.

All functions keep the limbs canonical: every low limb is in [0, 2**32). Equal integers then have
equal bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_BYTES_PER_NUMBER", "add_limbs", "limbs_to_floats", "split_limbs"]

Integers = NDArray[np.int64]

MAX_BYTES_PER_NUMBER = 16  # two limbs of 64 bits
_BITS = 32
_LOW = (1 << _BITS) - 1


def split_limbs(values: Integers) -> Integers:
    """Return the limbs, of shape (2, size), of integers of shape (size,)."""
    return np.stack([values >> _BITS, values & _LOW])


def add_limbs(one: Integers, other: Integers) -> Integers:
    """Return the limbs of the sums.

    **Guarantees.** Exact up to a magnitude of 2**94: high limbs are below 2**62 then.
    """
    high, low = one + other
    return np.stack([high + (low >> _BITS), low & _LOW])


def limbs_to_floats(limbs: Integers) -> NDArray[np.float64]:
    """Return the nearest floats.

    ``high`` and ``low`` are below 2**53, so both conversions and the product are exact. The sum
    is the only operation that rounds.
    """
    rounded: NDArray[np.float64] = limbs[0] * 2.0**_BITS + limbs[1]
    return rounded
