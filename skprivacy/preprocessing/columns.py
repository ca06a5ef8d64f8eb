"""Public facts about one column: its bounds or its categories."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from .._validation import is_whole, storable
from ._column import Column
from ._values import category_codes, category_key, column_numbers

__all__ = ["Bounded", "Categories", "Column", "category_key"]

SCALES = ("linear", "log")
_BIT = 0.5  # of a bin: half of what a category weighs, because many of them are 1 together


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(
            f"Bounded: {name}={number!r} must be finite. Choose a public number instead."
        )
    return number


@dataclass(frozen=True, repr=False)
class Bounded(Column):
    """A numeric column whose values lie in a publicly known range.

    Parameters
    ----------
    lower, upper : float
        The range, in the units of the column. Values outside are clipped to it.
    scale : {"linear", "log"}, default="linear"
        How the range is mapped to the unit interval. "log" spreads out the small values of a
        column such as income: ``log1p((x - lower) / knee) / log1p((upper - lower) / knee)``.
    knee : float, default=1.0
        Point above ``lower``, in the units of the column, where "log" turns from about linear to
        logarithmic. For an amount of money, choose what counts as a notable amount.
    bins : int, default=1
        Number of bins, equally wide on the scale. :class:`SchemaTransformer` adds a bit for each of
        the ``bins - 1`` edges between them ("thermometer" code), from which a linear model learns
        steps. Costs no privacy, but more features need more noise: try it on public data.
    missing : bool, default=False
        As of every column, see :class:`Categories`; and so the next three.
    description : str, default=""
        What the column is, for those who read the schema.
    inferred : bool, default=False
        Whether the facts were read off data, confirmed since or not.
    confirmed : Confirmation, default=None
        Set by :meth:`Schema.confirm`.
    unit : str, default=""
        The unit of the numbers, such as ``"years"``, for those who read the schema.

    Examples
    --------
    >>> Bounded(0, 100).to_unit([-5, 25, 1000, float("nan")])
    array([0.  , 0.25, 1.  , 0.5 ])
    >>> Bounded(0, 100, bins=4).thermometer([0.1, 0.25, 0.9])
    array([[0. , 0. , 0. ],
           [0.5, 0. , 0. ],
           [0.5, 0.5, 0.5]])
    """

    lower: float
    upper: float
    scale: str = "linear"
    knee: float = 1.0
    bins: int = field(default=1, metadata={"written": "if set"})
    unit: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lower", "upper", "knee"):
            value: Any = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TypeError(
                    f"Bounded: {name}={value!r} must be a number, in the units of the column."
                )
            # Plain floats, so that equality, hashing and JSON do not depend on the number's type.
            object.__setattr__(self, name, _finite(name, value))
        if self.lower > self.upper:
            raise ValueError(
                f"Bounded: lower={self.lower!r} must not exceed upper={self.upper!r}. Swap them."
            )
        if not math.isfinite(self.upper - self.lower):
            raise ValueError(
                f"Bounded: upper={self.upper!r} minus lower={self.lower!r} overflows. Choose "
                "narrower bounds."
            )
        if self.scale not in SCALES:
            raise ValueError(f"Bounded: scale={self.scale!r} must be one of {SCALES}.")
        if self.knee <= 0:
            raise ValueError(f"Bounded: knee={self.knee!r} must be above 0, for example 1.0.")
        if not math.isfinite((self.upper - self.lower) / self.knee):
            raise ValueError(
                f"Bounded: knee={self.knee!r} is too small for the range from {self.lower!r} to "
                f"{self.upper!r}. Choose a larger one."
            )
        if not is_whole(self.bins):
            raise TypeError(f"Bounded: bins={self.bins!r} must be an integer, for example 16.")
        if self.bins < 1:
            raise ValueError(f"Bounded: bins={self.bins!r} must be at least 1, which adds no bits.")
        object.__setattr__(self, "bins", int(self.bins))

    def ends(self) -> tuple[float, float]:
        """Return the least and the largest number that is not clipped.

        Returns
        -------
        tuple of float
            In the units of the column.
        """
        return self.lower, self.upper

    def _names(self, name: str) -> list[str]:
        return [name, *(f"{name}_bin{i}" for i in range(1, self.bins))]

    def largest_norm(self, feature_range: tuple[float, float]) -> float:
        """Return the largest norm of the features that a value becomes.

        Parameters
        ----------
        feature_range : tuple of two floats
            To which the scaled value, the first feature, belongs.

        Returns
        -------
        float
            In L2.
        """
        return math.hypot(
            largest_number(feature_range, self.missing), _BIT * math.sqrt(self.bins - 1)
        )

    def largest_feature(self, feature_range: tuple[float, float]) -> float:
        bit = 1.0 if self.missing else _BIT if self.bins > 1 else 0.0
        return max(magnitude(feature_range), bit)

    def write(self, out: np.ndarray, column: pd.Series, scaled: Callable) -> np.ndarray:
        values = column_numbers(column)
        unit = self.to_unit(values)
        out[:, 0] = scaled(unit)
        out[:, 1 : self.bins] = self.thermometer(unit)
        return ~np.isnan(values)

    def to_unit(self, values: Any) -> np.ndarray:
        """Map values to [0, 1]; NaN becomes the middle, infinities the ends.

        Parameters
        ----------
        values : array-like of shape (n_samples,)
            Numbers in the units of the column.

        Returns
        -------
        ndarray of shape (n_samples,)
            In double precision.
        """
        shifted = np.clip(np.asarray(values, dtype=np.float64), self.lower, self.upper) - self.lower
        span = self.upper - self.lower
        if span == 0:
            return np.full(shifted.shape, 0.5)
        if self.scale == "log":
            unit = np.log1p(shifted / self.knee) / np.log1p(span / self.knee)
        else:
            unit = shifted / span
        # Subnormal spans can round past the end, but the range is guaranteed.
        return np.where(np.isnan(unit), 0.5, np.minimum(unit, 1.0))

    def from_unit(self, unit: Any) -> np.ndarray:
        """Map numbers in [0, 1] to values: the inverse of :meth:`to_unit`.

        Parameters
        ----------
        unit : array-like of shape (n_samples,)
            Numbers in [0, 1].

        Returns
        -------
        ndarray of shape (n_samples,)
            Within ``lower`` and ``upper``.
        """
        share = np.asarray(unit, dtype=np.float64)
        span = self.upper - self.lower
        if self.scale == "log":
            shifted = self.knee * np.expm1(share * np.log1p(span / self.knee))
        else:
            shifted = share * span
        return np.clip(self.lower + shifted, self.lower, self.upper)

    def thermometer(self, unit: Any) -> np.ndarray:
        """Return a bit for each edge between bins: 0.5 from the edge upwards, 0 below.

        Parameters
        ----------
        unit : array-like of shape (n_samples,)
            Numbers in [0, 1], of :meth:`to_unit`.

        Returns
        -------
        ndarray of shape (n_samples, bins - 1)
            From the lowest edge to the highest.
        """
        edges = np.arange(1, self.bins) / self.bins
        return _BIT * (np.asarray(unit, dtype=np.float64)[:, None] >= edges)


@dataclass(frozen=True, repr=False)
class Categories(Column):
    """A column whose possible values are publicly known.

    Parameters
    ----------
    values : iterable of str, int, float or bool
        The categories, in the order of the one-hot columns. A value that is not among them is
        encoded as zeros.
    missing : bool, default=False
        Whether a further feature says, by a 1, that the value is missing or none that the schema
        can place.
    description : str, default=""
        What the column is, for those who read the schema.
    inferred : bool, default=False
        Whether the facts were read off private data. It stays true after a confirmation, and is
        not part of equality.
    confirmed : Confirmation, default=None
        Who compared these facts with a codebook; set by :meth:`Schema.confirm`. Facts that were
        changed since are unconfirmed. It is not part of equality.

    Examples
    --------
    >>> Categories(["Female", "Male"])
    Categories(values=('Female', 'Male'))
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        one = isinstance(self.values, str) or (
            isinstance(self.values, np.ndarray) and not self.values.ndim
        )
        if one or not isinstance(self.values, Iterable):
            raise TypeError(
                f"Categories: values={self.values!r} must be a list of categories. Pass a list, "
                "even of one."
            )
        plain = tuple(v.item() if isinstance(v, np.generic) else v for v in self.values)
        if not plain:
            raise ValueError(
                "Categories: values is empty; expected at least one category. Pass all values that "
                "the column can take."
            )
        seen: set[str] = set()
        for value in plain:
            key = category_key(value)
            storable("values", key)
            if key in seen:
                raise ValueError(
                    f"Categories: {value!r} occurs more than once (1 and '1' count as equal). "
                    "Remove the duplicate."
                )
            seen.add(key)
        object.__setattr__(self, "values", plain)

    def _names(self, name: str) -> list[str]:
        return [f"{name}_{value}" for value in self.values]

    def write(self, out: np.ndarray, column: pd.Series, scaled: Callable) -> np.ndarray:
        return write_one_hot(out, category_codes(column, self.values))


def write_one_hot(out: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Write a 1 at the code of each row, none where it is -1; return which rows have one."""
    known = np.flatnonzero(codes >= 0)
    out[known, codes[known]] = 1
    return codes >= 0


def magnitude(feature_range: tuple[float, float]) -> float:
    """Return the largest magnitude of a number scaled to this range."""
    return max(abs(float(end)) for end in feature_range)


def largest_number(feature_range: tuple[float, float], missing: bool) -> float:
    """Return the largest norm of a scaled number and of the feature that says it is missing.

    A missing number is the middle of the range.
    """
    low, high = (float(end) for end in feature_range)
    return max(magnitude(feature_range), math.hypot((low + high) / 2, 1.0) if missing else 0.0)
