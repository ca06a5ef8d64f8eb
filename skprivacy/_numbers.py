"""Checks of single numbers that the whole library shares; errors name the parameter."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = [
    "generator",
    "is_number",
    "not_negative",
    "number",
    "open_unit",
    "positive",
    "probability",
    "whole",
]

_EXTREME = 1e15  # squares and products of such numbers neither overflow nor vanish


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a real number; infinity and NaN are numbers."""
    # numpy counts spans of time among its integers
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def number(name: str, value: Any, expected: str) -> None:
    """Raise ValueError unless ``value`` is a real number; infinity and NaN are numbers."""
    if not is_number(value):
        raise ValueError(f"{name}={value!r} must be {expected}.")


def positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number above zero, and not absurdly small or large."""
    if not (is_number(value) and 0 < value < math.inf):
        raise ValueError(f"{name}={value!r} must be a finite number > 0.")
    if not 1 / _EXTREME <= value <= _EXTREME:
        raise ValueError(
            f"{name}={value!r} must be between {1 / _EXTREME:g} and {_EXTREME:g}. Check its unit."
        )


def not_negative(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number of at least zero; infinity is one."""
    if not (is_number(value) and value >= 0):
        raise ValueError(f"{name}={value!r} must be a number >= 0.")


def probability(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number in [0, 1)."""
    if not (is_number(value) and 0 <= value < 1):
        raise ValueError(f"{name}={value!r} must be a number in [0, 1).")


def open_unit(name: str, value: Any) -> float:
    """Return a number in (0, 1) as a float; ValueError for anything else."""
    if not (is_number(value) and 0 < value < 1):
        raise ValueError(f"{name}={value!r} must lie strictly between 0 and 1, for example 0.05.")
    return float(value)


def whole(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an integer of at least ``least``."""
    if not isinstance(value, Integral) or not is_number(value) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer >= {least}.")


def generator(name: str, seed: Any) -> np.random.Generator:
    """Return numpy's generator for a seed; ValueError for what it cannot be seeded with."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}={seed!r} must be an integer >= 0, a generator of numpy's, or None."
        ) from None
