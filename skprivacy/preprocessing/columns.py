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
_BIT = 0.5  # of a bin: half of what a category weighs, because many of them are 1 together


@dataclass(frozen=True)
class Bounded:
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
    bins: int = 1

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "knee"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TypeError(
                    f"Bounded: {name}={value!r} must be a number, in the units of the column."
                )
            if not math.isfinite(value):
                raise ValueError(
                    f"Bounded: {name}={value!r} must be finite. Choose a public number instead."
                )
            # Plain floats, so that equality, hashing and JSON do not depend on the number's type.
            object.__setattr__(self, name, float(value))
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
        if isinstance(self.bins, bool) or not isinstance(self.bins, numbers.Integral):
            raise TypeError(f"Bounded: bins={self.bins!r} must be an integer, for example 16.")
        if self.bins < 1:
            raise ValueError(f"Bounded: bins={self.bins!r} must be at least 1, which adds no bits.")
        object.__setattr__(self, "bins", int(self.bins))

    @property
    def n_features_out(self) -> int:
        """Number of features that the column becomes."""
        return self.bins

    def names_out(self, name: str) -> list[str]:
        """Return the names of the features that a column of this name becomes."""
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
        """
        return math.hypot(_magnitude(feature_range), _BIT * math.sqrt(self.bins - 1))

    def largest_feature(self, feature_range: tuple[float, float]) -> float:
        """Return the largest magnitude of one feature."""
        return max(_magnitude(feature_range), _BIT if self.bins > 1 else 0.0)

    def to_unit(self, values: Any) -> np.ndarray:
        """Map values to [0, 1]; NaN becomes the middle, infinities the ends.

        Parameters
        ----------
        values : array-like of shape (n_samples,)
            Numbers in the units of the column.

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
        # Subnormal spans can round past the end, but the range is guaranteed.
        return np.where(np.isnan(unit), 0.5, np.minimum(unit, 1.0))

    def from_unit(self, unit: Any) -> np.ndarray:
        """Map numbers in [0, 1] to values: the inverse of :meth:`to_unit`.

        Parameters
        ----------
        unit : array-like of shape (n_samples,)

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
        """
        edges = np.arange(1, self.bins) / self.bins
        return _BIT * (np.asarray(unit, dtype=np.float64)[:, None] >= edges)


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
            if key in seen:
                raise ValueError(
                    f"Categories: {value!r} occurs more than once (1 and '1' count as equal). "
                    "Remove the duplicate."
                )
            seen.add(key)
        object.__setattr__(self, "values", plain)

    @property
    def n_features_out(self) -> int:
        """Number of features that the column becomes."""
        return len(self.values)

    def names_out(self, name: str) -> list[str]:
        """Return the names of the features that a column of this name becomes."""
        return [f"{name}_{value}" for value in self.values]

    def largest_norm(self, feature_range: tuple[float, float]) -> float:
        """Return the largest norm of the features that a value becomes: one of them is 1."""
        return 1.0

    def largest_feature(self, feature_range: tuple[float, float]) -> float:
        """Return the largest magnitude of one feature."""
        return 1.0


def _magnitude(feature_range: tuple[float, float]) -> float:
    return max(abs(float(end)) for end in feature_range)


def category_key(value: Any) -> str:
    """Return the text by which values are compared, so that 1, 1.0, True and "1" are equal."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (numbers.Real, np.bool_)):
        number = float(value)
        if math.isnan(number):
            raise ValueError(
                "Categories: NaN cannot be a category; a missing value is encoded as zeros. Remove "
                "it."
            )
        return str(int(number)) if number.is_integer() else repr(number)
    raise TypeError(f"Categories: category {value!r} must be text, number or bool. Convert it.")


Column = Bounded | Categories
