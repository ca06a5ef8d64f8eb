"""What accountants refuse: relations that nobody knows, and numbers out of range."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["RELATIONS", "check_delta", "check_relation", "positive", "probability", "whole"]

RELATIONS = ("add_remove", "replace_one", "zero_out")


def check_relation(relation: str) -> str:
    """Return ``relation`` if it is one that the library knows."""
    if relation not in RELATIONS:
        raise ValueError(f"relation={relation!r} must be one of {RELATIONS}.")
    return relation


def positive(name: str, value: Any) -> None:
    """Refuse anything but a finite number above zero."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r} must be a finite number > 0.")


def probability(name: str, value: Any) -> None:
    """Refuse anything outside [0, 1)."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (number and 0 <= value < 1):
        raise ValueError(f"{name}={value!r} must be a number in [0, 1).")


def whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse anything but an integer of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} must be an integer >= {least}.")


def check_delta(delta: float, n_records: int | None = None) -> float:
    """Return ``delta`` if it is one that a guarantee may be stated at.

    Parameters
    ----------
    delta : float
        The probability with which the guarantee may fail.
    n_records : int, default=None
        If given, ``delta`` must also be below ``1 / n_records``: publishing one record at random
        would otherwise be allowed.

    Returns
    -------
    delta : float

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
    if n_records is not None and delta >= 1 / n_records:
        raise ValueError(
            f"delta={delta!r} must be below 1/n = {1 / n_records:.3g} for {n_records} records: at "
            "1/n even publishing a record chosen at random would pass. Give a smaller delta."
        )
    return float(delta)
