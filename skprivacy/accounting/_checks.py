"""Validation of relations, noise arithmetics and numbers for the accountants."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

from .._validation import is_number, not_negative, number, positive, probability, sequence, whole

__all__ = [
    "ARITHMETICS",
    "RELATIONS",
    "allows_replacement",
    "cached_answer",
    "check_arithmetic",
    "check_delta",
    "check_relation",
    "not_negative",
    "number",
    "numbers",
    "positive",
    "probability",
    "sequence",
    "whole",
]

RELATIONS = ("add_remove", "label", "replace_one", "zero_out")
ARITHMETICS = ("exact", "unspecified", "floating_point")  # of noise, strongest first


Function = TypeVar("Function", bound=Callable[..., Any])


def cached_answer(most: int) -> Callable[[Function], Function]:
    """Cache the ``most`` latest answers of a function; unhashable arguments are not cached."""

    def decorate(function: Function) -> Function:
        cached = lru_cache(most)(function)

        @wraps(function)
        def answer(*args: Any, **kwargs: Any) -> Any:
            try:
                return cached(*args, **kwargs)
            except TypeError as error:
                if "unhashable" not in str(error):
                    raise
            return function(*args, **kwargs)  # which raises its own error about the argument

        # Tests clear the cache as they clear an lru_cache. mypy knows no attributes of functions.
        answer.cache_clear = cached.cache_clear  # type: ignore[attr-defined]
        return cast(Function, answer)

    return decorate


def check_relation(relation: str) -> str:
    """Return ``relation`` if the library supports it, else raise ValueError."""
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ValueError(f"relation={relation!r} must be one of {RELATIONS}.")
    return relation


def check_arithmetic(arithmetic: Any) -> str:
    """Return a valid arithmetic; raise ValueError for any other value."""
    if not isinstance(arithmetic, str) or arithmetic not in ARITHMETICS:
        raise ValueError(f"arithmetic={arithmetic!r} must be one of {ARITHMETICS}.")
    return arithmetic


def allows_replacement(relation: str) -> bool:
    """Return True if a record may change, which moves its contribution by up to twice its norm.

    Under ``label`` the record keeps its features and gets another label: a kind of replacement.
    """
    return relation in ("label", "replace_one")


def numbers(name: str, values: Any) -> tuple[float, ...]:
    """Convert a sequence of real numbers to floats; errors do not show its values."""
    found = sequence(name, values)
    if not all(is_number(value) for value in found):
        raise TypeError(f"{name} must be a sequence of real numbers.")
    try:
        return tuple(float(value) for value in found)
    except OverflowError:
        raise ValueError(f"{name} holds a number beyond 1e308.") from None


def check_delta(delta: float, n_records: int | None = None) -> float:
    """Return ``delta`` if it is a valid delta of a guarantee.

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
            "1/n, even publishing a record chosen at random would satisfy the guarantee. Pass a "
            "smaller delta."
        )
    return float(delta)
