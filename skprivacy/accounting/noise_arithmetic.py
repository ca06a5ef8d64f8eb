"""Arithmetic of noise: exact, floating point or unspecified.

A proof about real numbers does not cover the lowest bits of floating-point results (Mironov 2012).
A mechanism states its arithmetic, and a private fit passes it on to its guarantee. A composition
has the weakest arithmetic of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from .._validation import sequence
from .event import ARITHMETICS, check_arithmetic

UNSPECIFIED = "unspecified"
ARITHMETIC_IN_WORDS = {
    "exact": "exact noise: hardened against reading the lowest bits of what is released",
    UNSPECIFIED: "noise of unspecified arithmetic: assume floating point, not hardened against "
    "reading the lowest bits of what is released",
    "floating_point": "noise in floating point: not hardened against reading the lowest bits of "
    "what is released",
}


class StatesArithmetic:
    """Base of classes that add noise; each class body states the arithmetic of its noise.

    **Guarantees.** A subclass that states none has "unspecified" noise, even if its base class is
    exact: the subclass may release by other code.
    """

    arithmetic: ClassVar[str] = UNSPECIFIED

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "arithmetic" not in cls.__dict__:
            cls.arithmetic = UNSPECIFIED


def weakest_arithmetic(parts: Iterable[str]) -> str:
    """Return the arithmetic of several releases together.

    Parameters
    ----------
    parts : iterable of {"exact", "floating_point", "unspecified"}
        The arithmetic of each release.

    Returns
    -------
    str
        The weakest of "exact", "unspecified" and "floating_point"; "unspecified" for no releases.
    """
    stated = [check_arithmetic(part) for part in sequence("parts", parts)]
    return max(stated, key=ARITHMETICS.index, default=UNSPECIFIED)
