"""Conversion of single column values to numbers or category keys, independently of other rows."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd


def category_key(value: Any) -> str:
    """Return the text that identifies a category: 1, 1.0, True and "1" are equal."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (numbers.Real, np.bool_)):
        try:
            number = float(value)
        except OverflowError:  # an integer of more than 308 digits
            return str(value)
        if math.isnan(number):
            raise ValueError(
                "CategoricalColumn: NaN cannot be a category; a missing value is encoded as zeros. "
                "Remove it."
            )
        return str(int(number)) if number.is_integer() else repr(number)
    raise TypeError(
        f"CategoricalColumn: a category must be text, number or bool, not {type(value).__name__}. "
        "Convert it."
    )


def column_numbers(column: pd.Series) -> np.ndarray:
    """Return a column as floats, with NaN for values that are not numbers."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return map_values(column, _parse_number, np.float64)


def _parse_number(value: Any) -> float:
    if not isinstance(value, (str, numbers.Real, np.bool_)):
        return np.nan
    try:
        return float(value)
    except ValueError:
        return np.nan
    except OverflowError:  # an integer beyond the floats
        return np.inf if value > 0 else -np.inf  # type: ignore[operator]  # only integers overflow


def mask_unreadable(column: pd.Series) -> pd.Series:
    """Return the column with None for values that are neither text nor number."""
    if pd.api.types.is_complex_dtype(
        column
    ):  # a single complex number makes the whole column complex
        return column.map(lambda v: v.real if v.imag == 0 else np.nan).astype(np.float64)
    if column.dtype != object and not _is_arrow_object(column.dtype):
        return column
    kept = [v if isinstance(v, (str, numbers.Real, np.bool_)) else None for v in column]
    return pd.Series(kept, name=column.name, dtype=object)


def _is_arrow_object(dtype: Any) -> bool:
    """Return True for a non-numeric Arrow type, whose values may be unhashable."""
    return isinstance(dtype, pd.ArrowDtype) and not pd.api.types.is_numeric_dtype(dtype)


def category_codes(column: pd.Series, values: Iterable[Any]) -> np.ndarray:
    """Return the index of each value in ``values``, or -1 if it is missing or unknown."""
    index = {category_key(value): i for i, value in enumerate(values)}

    def code(value: Any) -> int:
        try:
            return index.get(category_key(value), -1)
        except (TypeError, ValueError, OverflowError):
            return -1

    return map_values(column, code, np.intp)


def map_values(column: pd.Series, function: Callable, dtype: Any) -> np.ndarray:
    """Apply a function to each value, once per distinct value.

    The cache is typed: 1, True and Decimal(1) are equal, but the result for a row must never depend
    on the values of other rows.
    """
    if isinstance(column.dtype, (pd.StringDtype, pd.CategoricalDtype)):  # values of one type
        places, values = pd.factorize(column)
        missing = getattr(column.dtype, "na_value", np.nan)
        found = np.array([function(value) for value in [*values.tolist(), missing]], dtype=dtype)
        return found[places]  # the code of a missing value is -1: the last entry
    cached = lru_cache(maxsize=None, typed=True)(function)
    try:
        return np.fromiter(map(cached, column.tolist()), dtype, count=len(column))
    except TypeError as error:  # unhashable
        raise ValueError(
            f"X holds values in column {column.name!r} that are neither number, text nor bool. "
            "Convert or drop the column."
        ) from error
