"""Validation of relations and numbers for the accountants."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = [
    "RELATIONS",
    "check_delta",
    "check_relation",
    "number",
    "numbers",
    "positive",
    "probability",
    "replaces",
    "sequence",
    "whole",
]

RELATIONS = ("add_remove", "label", "replace_one", "zero_out")


def check_relation(relation: str) -> str:
    """Return ``relation`` if the library supports it, else raise ValueError."""
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ValueError(f"relation={relation!r} must be one of {RELATIONS}.")
    return relation


def replaces(relation: str) -> bool:
    """Return whether a record's contribution may become any other one, at twice its norm away.

    Another label with the same features is one way of replacing a record.
    """
    return relation in ("label", "replace_one")


_EXTREME = 1e15  # squares and products of such numbers neither overflow nor vanish


def number(name: str, value: Any, expected: str) -> None:
    """Raise ValueError unless ``value`` is a real number; infinity and NaN are numbers."""
    if not _is_number(value):
        raise ValueError(f"{name}={value!r} must be {expected}.")


def positive(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number above zero, and not absurdly small or large."""
    if not (_is_number(value) and 0 < value < math.inf):
        raise ValueError(f"{name}={value!r} must be a finite number > 0.")
    if not 1 / _EXTREME <= value <= _EXTREME:
        raise ValueError(
            f"{name}={value!r} must be between {1 / _EXTREME:g} and {_EXTREME:g}. Check its unit."
        )


def _is_number(value: Any) -> bool:
    # numpy counts spans of time among its integers
    return isinstance(value, Real) and not isinstance(value, bool | np.timedelta64)


def sequence(name: str, values: Any) -> tuple[Any, ...]:
    """Return the values of a sequence; TypeError for anything else, which is not shown."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence, not of type {type(values).__name__}.")
    return tuple(values)


def numbers(name: str, values: Any) -> tuple[float, ...]:
    """Return a sequence of real numbers as floats; its values are not shown in an error."""
    found = sequence(name, values)
    if not all(_is_number(value) for value in found):
        raise TypeError(f"{name} must be a sequence of real numbers.")
    return tuple(float(value) for value in found)


def probability(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a number in [0, 1)."""
    if not (_is_number(value) and 0 <= value < 1):
        raise ValueError(f"{name}={value!r} must be a number in [0, 1).")


def whole(name: str, value: Any, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an integer of at least ``least``."""
    if not isinstance(value, Integral) or not _is_number(value) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer >= {least}.")


def check_delta(delta: float, n_records: int | None = None) -> float:
    """Return ``delta`` if a guarantee may be stated at it.

    Parameters
    ----------
    delta : float
        The probability with which the guarantee may fail.
    n_records : int, default=None
        If given, ``delta`` must also be below ``1 / n_records``: otherwise even publishing one
        record at random would satisfy the guarantee.

    Returns
    -------
    float
        ``delta`` itself.

    Raises
    ------
    ValueError
        If it is not a number in [0, 1), or too large for the data.

    Examples
    --------
    >>> from skprivacy.accounting import check_delta
    >>> check_delta(1e-6, n_records=30_000)
    1e-06
    """
    probability("delta", delta)
    if n_records is not None:
        whole("n_records", n_records)
    if n_records is not None and delta >= 1 / n_records:
        raise ValueError(
            f"delta={delta!r} must be below 1/n = {1 / n_records:.3g} for {n_records} records: at "
            "1/n, even publishing a record chosen at random would satisfy the guarantee. Set a "
            "smaller delta."
        )
    return float(delta)
