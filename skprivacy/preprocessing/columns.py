"""Public facts about one column: its bounds or its categories."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Bounded", "Categories", "Column", "category_key"]

SCALES = ("linear", "log")


@dataclass(frozen=True)
class Bounded:
    """A numeric column whose values lie in a publicly known range.

    Parameters
    ----------
    lower, upper : float
        The range, in the column's own units. Values outside are clipped to it.
    scale : {"linear", "log"}, default="linear"
        How the range is mapped to the unit interval. "log" spreads out the small values of a
        column such as income: ``log1p((x - lower) / knee) / log1p((upper - lower) / knee)``.
    knee : float, default=1.0
        Where "log" bends, in the column's own units above ``lower``: about linear below it,
        logarithmic above. Of an amount of money, take what counts as a notable amount.

    Examples
    --------
    >>> Bounded(0, 100).to_unit([-5, 25, 1000, float("nan")])
    array([0.  , 0.25, 1.  , 0.5 ])
    """

    lower: float
    upper: float
    scale: str = "linear"
    knee: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "knee"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TypeError(f"Bounded: {name} must be a number, got {value!r}.")
            if not math.isfinite(value):
                raise ValueError(f"Bounded: {name} must be finite, got {value!r}.")
            # Plain floats, so that equality, hashing and JSON do not depend on the number's type.
            object.__setattr__(self, name, float(value))
        if self.lower > self.upper:
            raise ValueError(
                f"Bounded: lower must not exceed upper, got lower={self.lower!r}, "
                f"upper={self.upper!r}."
            )
        if not math.isfinite(self.upper - self.lower):
            raise ValueError("Bounded: upper - lower overflows; choose narrower bounds.")
        if self.scale not in SCALES:
            raise ValueError(f"Bounded: scale must be one of {SCALES}, got {self.scale!r}.")
        if self.knee <= 0:
            raise ValueError(f"Bounded: knee must be above 0, got {self.knee!r}.")
        if not math.isfinite((self.upper - self.lower) / self.knee):
            raise ValueError(f"Bounded: knee={self.knee!r} is too small for bounds so wide.")

    def to_unit(self, values: Any) -> np.ndarray:
        """Map values to [0, 1]; NaN becomes the middle, infinities the ends.

        Parameters
        ----------
        values : array-like of shape (n_samples,)
            Numbers in the column's own units.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        shifted = np.clip(np.asarray(values, dtype=np.float64), self.lower, self.upper) - self.lower
        span = self.upper - self.lower
        if span == 0:
            return np.full(shifted.shape, 0.5)
        if self.scale == "log":
            unit = np.log1p(shifted / self.knee) / np.log1p(span / self.knee)
        else:
            unit = shifted / span
        # Subnormal spans can round past the end, and the range is a promise.
        return np.where(np.isnan(unit), 0.5, np.minimum(unit, 1.0))


@dataclass(frozen=True)
class Categories:
    """A column whose possible values are publicly known.

    Parameters
    ----------
    values : iterable of str, int, float or bool
        The categories, in the order of the one-hot columns. A value that is not among them is
        encoded as zeros.

    Examples
    --------
    >>> Categories(["Female", "Male"])
    Categories(values=('Female', 'Male'))
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise TypeError(
                f"Categories: values must be a list of categories, got {self.values!r}."
            )
        plain = tuple(v.item() if isinstance(v, np.generic) else v for v in self.values)
        if not plain:
            raise ValueError("Categories: values is empty; give all that the column can take.")
        seen: set[str] = set()
        for value in plain:
            key = category_key(value)
            if key in seen:
                raise ValueError(
                    f"Categories: {value!r} is there more than once (1 and '1' are one)."
                )
            seen.add(key)
        object.__setattr__(self, "values", plain)


def category_key(value: Any) -> str:
    """Return the text by which values are compared, so that 1, 1.0, True and "1" are one."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (numbers.Real, np.bool_)):
        number = float(value)
        if math.isnan(number):
            raise ValueError("Categories: NaN is no category; a missing value is encoded as zeros.")
        return str(int(number)) if number.is_integer() else repr(number)
    raise TypeError(f"Categories: a category must be text, number or bool, got {value!r}.")


Column = Bounded | Categories
