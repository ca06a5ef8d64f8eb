"""Public facts about one column, and its encoding as bounded features.

:class:`BoundedColumn` describes numbers, :class:`CategoricalColumn` known categories, and
:class:`HashedColumn` categories that cannot be listed. :class:`Column` holds the common parts.
"""

from __future__ import annotations

import hashlib
import math
import numbers
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from .._docs import fill_docs
from .._validation import flag, is_whole, storable, whole
from .cell_values import category_codes, category_key, column_numbers, map_values
from .confirmation import Confirmation, facts_digest

# Paragraphs of docstrings that the package shares, see skprivacy/_docs.py.
COLUMN_DOCS = {
    "column_options": """\
missing : bool, default=False
    Whether a further feature is 1 where the value is missing or unknown to the schema.
description : str, default=""
    Meaning of the column, for readers of the schema.
inferred : bool, default=False
    Whether the facts were read off private data. It stays true after a confirmation, and is not
    part of equality.
confirmed : Confirmation, default=None
    Who compared these facts with a codebook; set by :meth:`Schema.confirm`. Facts that changed
    since are unconfirmed. It is not part of equality.""",
}


@dataclass(frozen=True, repr=False)
class Column:
    """Public facts about one column; subclasses encode its values as features.

    **Guarantees.** The features of a value depend on this value and the facts, never on other rows.
    """

    kind: ClassVar[str]  # in JSON

    missing: bool = field(default=False, kw_only=True)
    description: str = field(default="", kw_only=True)
    inferred: bool = field(default=False, kw_only=True, compare=False)
    confirmed: Confirmation | None = field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for name in ("missing", "inferred"):
            flag(name, getattr(self, name))
            object.__setattr__(self, name, bool(getattr(self, name)))
        for name in ("description", "unit"):
            if not isinstance(getattr(self, name, ""), str):
                raise TypeError(f"{owner}: {name}={getattr(self, name)!r} must be text.")
        if not isinstance(self.confirmed, Confirmation | None):
            raise TypeError(f"{owner}: confirmed must be None. Use Schema.confirm, which sets it.")

    def _digest(self, name: str) -> str:
        """Return the digest of the facts that a confirmation refers to."""
        return facts_digest(name, self.to_dict())

    def _is_unconfirmed(self, name: str) -> bool:
        """Return True if facts were read off data, and not confirmed as they are now."""
        if not self.inferred:
            return False
        return self.confirmed is None or self.confirmed.digest != self._digest(name)

    def __repr__(self) -> str:
        shown = [
            f"{fact.name}={getattr(self, fact.name)!r}"
            for fact in fields_of(self)
            if not fact.kw_only or getattr(self, fact.name) != fact.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def n_features_out(self) -> int:
        """Number of features of the column."""
        return len(self._names_out(""))

    def _names_out(self, name: str) -> list[str]:
        """Return the names of the column's features."""
        return [*self._names(name), *([f"{name}_missing"] if self.missing else [])]

    def _largest_norm(self) -> float:
        """Return the largest L2 norm of the features of a value, each within [-1, 1]."""
        return 1.0  # of one-hot codes

    def _encode(self, out: np.ndarray, column: pd.Series) -> None:
        """Write the features of a column into zeros."""
        known = self._write(out, column)
        if self.missing:
            out[:, -1] = ~known

    def to_dict(self) -> dict[str, Any]:
        """Return the facts for JSON, without unused options.

        Returns
        -------
        dict
            With the kind of column as ``type``.
        """
        facts: dict[str, Any] = {"type": self.kind}
        for fact in fields_of(self):
            value = getattr(self, fact.name)
            optional = fact.kw_only or "written" in fact.metadata
            if not optional or fact.default is MISSING or value != fact.default:
                facts[fact.name] = _to_json_value(value)
        return facts

    def _names(self, name: str) -> list[str]:
        raise NotImplementedError

    def _write(self, out: np.ndarray, column: pd.Series) -> np.ndarray:
        """Write the features except the one for missing values; return a mask of known values."""
        raise NotImplementedError


def _to_json_value(value: Any) -> Any:
    if isinstance(value, Confirmation):
        return value.to_dict()
    return list(value) if isinstance(value, tuple) else value


def fields_of(column: Column | type[Column]) -> list[Field[Any]]:
    """Return the fields of a column kind, specific ones before the common options."""
    return sorted(fields(column), key=lambda fact: bool(fact.kw_only))


SCALES = ("linear", "log")
_BIN_BIT = 0.5  # half the value of a category's 1, because many bits can be set together


def _check_finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(
            f"BoundedColumn: {name}={number!r} must be finite. Choose a public number instead."
        )
    return number


@fill_docs(COLUMN_DOCS)
@dataclass(frozen=True, repr=False)
class BoundedColumn(Column):
    """A numeric column whose values lie in a publicly known range.

    Parameters
    ----------
    lower, upper : float
        The range, in the units of the column. Values outside are clipped to it.
    scale : {"linear", "log"}, default="linear"
        Map of the range to the unit interval. "log" spreads out the small values of a
        column such as income: ``log1p((x - lower) / knee) / log1p((upper - lower) / knee)``.
    knee : float, default=1.0
        Point above ``lower``, in the units of the column, where "log" turns from about linear to
        logarithmic. For an amount of money, choose what counts as a notable amount.
    bins : int, default=1
        Number of bins, equally wide on the scale. :class:`SchemaTransformer` adds a bit for each of
        the ``bins - 1`` edges between them ("thermometer" code), from which a linear model learns
        steps. Costs no privacy, but more features need more noise: see
        :func:`make_private_pipeline`, which adds bins where they pay off.
    %(column_options)s
    unit : str, default=""
        The unit of the numbers, such as ``"years"``, for readers of the schema.

    Examples
    --------
    >>> BoundedColumn(0, 100).to_unit([-5, 25, 1000, float("nan")])
    array([0.  , 0.25, 1.  , 0.5 ])
    """

    kind: ClassVar[str] = "bounded"

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
                    f"BoundedColumn: {name}={value!r} must be a number, in the units of the column."
                )
            # Plain floats, so that equality, hashing and JSON do not depend on the number's type.
            object.__setattr__(self, name, _check_finite(name, value))
        if self.lower > self.upper:
            raise ValueError(
                f"BoundedColumn: lower={self.lower!r} must not exceed upper={self.upper!r}. "
                "Swap them."
            )
        if not math.isfinite(self.upper - self.lower):
            raise ValueError(
                f"BoundedColumn: upper={self.upper!r} minus lower={self.lower!r} overflows. Choose "
                "narrower bounds."
            )
        if self.scale not in SCALES:
            raise ValueError(f"BoundedColumn: scale={self.scale!r} must be one of {SCALES}.")
        if self.knee <= 0:
            raise ValueError(f"BoundedColumn: knee={self.knee!r} must be above 0, for example 1.0.")
        if not math.isfinite((self.upper - self.lower) / self.knee):
            raise ValueError(
                f"BoundedColumn: knee={self.knee!r} is too small for the range from "
                f"{self.lower!r} to {self.upper!r}. Choose a larger one."
            )
        whole("bins", self.bins)
        object.__setattr__(self, "bins", int(self.bins))

    def _ends(self) -> tuple[float, float]:
        """Return the least and the largest number that is not clipped."""
        return self.lower, self.upper

    def _names(self, name: str) -> list[str]:
        return [name, *(f"{name}_bin{i}" for i in range(1, self.bins))]

    def _largest_norm(self) -> float:
        # a missing number is 0, and its mark 1: no longer than a number at an end of the range
        return math.hypot(1.0, _BIN_BIT * math.sqrt(self.bins - 1))

    def _write(self, out: np.ndarray, column: pd.Series) -> np.ndarray:
        values = column_numbers(column)
        unit = self.to_unit(values)
        out[:, 0] = scale_number(unit)
        out[:, 1 : self.bins] = self._thermometer(unit)
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

    def _thermometer(self, unit: Any) -> np.ndarray:
        """Return a bit for each edge between bins: 0.5 from the edge upwards, 0 below."""
        edges = np.arange(1, self.bins) / self.bins
        return _BIN_BIT * (np.asarray(unit, dtype=np.float64)[:, None] >= edges)


@fill_docs(COLUMN_DOCS)
@dataclass(frozen=True, repr=False)
class CategoricalColumn(Column):
    """A column whose possible values are publicly known.

    Parameters
    ----------
    values : iterable of str, int, float or bool
        The categories, in the order of the one-hot columns. A value that is not among them is
        encoded as zeros.
    %(column_options)s

    Examples
    --------
    >>> CategoricalColumn(["Female", "Male"])
    CategoricalColumn(values=('Female', 'Male'))
    """

    kind: ClassVar[str] = "categories"

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        one = isinstance(self.values, str) or (
            isinstance(self.values, np.ndarray) and not self.values.ndim
        )
        if one or not isinstance(self.values, Iterable):
            raise TypeError(
                f"CategoricalColumn: values={self.values!r} must be a list of categories. Pass a "
                "list, even of one."
            )
        plain = tuple(v.item() if isinstance(v, np.generic) else v for v in self.values)
        if not plain:
            raise ValueError(
                "CategoricalColumn: values is empty; expected at least one category. Pass all "
                "values that the column can take."
            )
        seen: set[str] = set()
        for value in plain:
            key = category_key(value)
            storable("values", key)
            if key in seen:
                raise ValueError(
                    f"CategoricalColumn: {value!r} occurs more than once (1 and '1' count as "
                    "equal). Remove the duplicate."
                )
            seen.add(key)
        object.__setattr__(self, "values", plain)

    def _names(self, name: str) -> list[str]:
        return [f"{name}_{value}" for value in self.values]

    def _write(self, out: np.ndarray, column: pd.Series) -> np.ndarray:
        return write_one_hot(out, category_codes(column, self.values))


def write_one_hot(out: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Write a 1 at the code of each row, unless it is -1; return a mask of the rows with a code."""
    known = np.flatnonzero(codes >= 0)
    out[known, codes[known]] = 1
    return codes >= 0


def scale_number(unit: np.ndarray) -> np.ndarray:
    """Return numbers in [0, 1] scaled to [-1, 1], the range of features."""
    return 2 * unit - 1


MAX_BUCKETS = 1 << 16


@fill_docs(COLUMN_DOCS)
@dataclass(frozen=True, repr=False)
class HashedColumn(Column):
    """A column of many categories, encoded by feature hashing into public buckets.

    A list of postcodes or products read off private data would leak rare ones. A hash needs no
    list. The model cannot distinguish values of one bucket.

    Parameters
    ----------
    buckets : int, default=64
        Number of one-hot columns, from 2 to 65,536. More buckets separate more values, but
        more features need more noise.
    %(column_options)s

    Notes
    -----
    The bucket is SHA-256 of the value's text, modulo ``buckets``. The hash is public, so it does
    not protect an identifier. Empty and missing values have no bucket.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import HashedColumn, Schema, SchemaTransformer
    >>> schema = Schema({"postcode": HashedColumn(4)})
    >>> X = pd.DataFrame({"postcode": ["8001", 8001, None]})
    >>> SchemaTransformer(schema).fit_transform(X)
    array([[1., 0., 0., 0.],
           [1., 0., 0., 0.],
           [0., 0., 0., 0.]])
    """

    kind: ClassVar[str] = "hashed"

    buckets: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_whole(self.buckets) and 2 <= self.buckets <= MAX_BUCKETS):
            raise ValueError(
                f"HashedColumn: buckets={self.buckets!r} must be an integer from 2 to "
                f"{MAX_BUCKETS}, for example 64."
            )
        object.__setattr__(self, "buckets", int(self.buckets))

    def _write(self, out: np.ndarray, column: pd.Series) -> np.ndarray:
        return write_one_hot(out, map_values(column, self._bucket, np.intp))

    def _bucket(self, value: Any) -> int:
        try:
            text = category_key(value).encode("utf-8", "surrogatepass")
        except (TypeError, ValueError, OverflowError):
            return -1
        if not text:
            return -1
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") % self.buckets

    def _names(self, name: str) -> list[str]:
        return [f"{name}_hash{i}" for i in range(self.buckets)]
