"""Exact sums of a fit: a plan of public facts turns records into integers, a total adds them up.

Integers beyond 64 bits are two limbs in numpy arrays: ``high * 2**32 + low``. Limbs are canonical:
every low limb is in [0, 2**32), so equal integers have equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._files import MAX_MODEL_BYTES, parse_json, read_file, write_file
from .._version import __version__
from ..mechanisms.base import TargetScale
from .batch_columns import match_labels, read_group_sizes, read_numbers, read_text

Integers = NDArray[np.int64]

_BITS = 32  # of a low limb
_LOW = (1 << _BITS) - 1
GROUP_SIZE = "skprivacy_group_size"  # column of the number of rows in each row's group
# A group of m rows adds m times floor(2**48 / m), which is above 2**48 - m. The sum over all rows,
# over 2**48 and rounded up, is thus the number of groups, for fewer than 2**48 rows.
_COUNT_BITS = 48
_MAX_ROW_BITS = 40
_FORMAT = "skprivacy-sums-1"
_PRODUCT_STEPS = 2.0**32  # products of two numbers on the grid of 2**-16 are multiples of 2**-32
_ROWS_AT_A_TIME = 1 << 14  # records of a sum in floats, which hold it without rounding


@dataclass(frozen=True, kw_only=True)
class SumPlan(ABC):
    """Public facts that turn any batch of records into exact integers, whose sum a fit releases.

    Estimators make plans: ``model.plan(columns, y="cost")``. A plan holds no private value and can
    be sent to any worker.

    Parameters
    ----------
    unit : str, default="record"
        Unit of the guarantee: "record", or the name of the groups. With groups, a batch has the
        column ``skprivacy_group_size``.

    Notes
    -----
    **Guarantees.** ``partial`` is a pure function of the batch, and its integers are a sum over
    rows. A row adds what it adds to a fit in memory. So neither the order of rows, nor their
    division into batches, nor the engine changes a bit of the sum of all parts. The sensitivity of
    that sum is the largest contribution of one unit.
    """

    unit: str = "record"
    _counts_cells: ClassVar[bool] = False  # whether each record adds to one of many sums

    @property
    @abstractmethod
    def record_columns(self) -> tuple[str, ...]:
        """Columns that describe a record."""

    @property
    @abstractmethod
    def n_sums(self) -> int:
        """Number of sums, without the count."""

    @abstractmethod
    def column_kinds(self) -> dict[str, str]:
        """Return "number" or "text" for each column whose type a table must have."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return all public facts of the plan in types of JSON."""

    @abstractmethod
    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        """Return the values of a batch as arrays with an element or a row for each record."""

    @abstractmethod
    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        """Return the sums over a few records, of shape (n_sums,), without rounding."""

    @property
    def target_column(self) -> str:
        """Column of the target, or ""."""
        return ""

    @property
    def _rows_at_a_time(self) -> int:
        """Number of records whose sums 64 bits hold, few enough for the processor's caches."""
        return max(_ROWS_AT_A_TIME, self.size) if self._counts_cells else _ROWS_AT_A_TIME

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a batch must have."""
        return (*self.record_columns, *(() if self.unit == "record" else (GROUP_SIZE,)))

    @property
    def size(self) -> int:
        """Number of integers of a part: the count, and the sums."""
        return 1 + self.n_sums

    @property
    def digest(self) -> str:
        """SHA-256 of the facts in canonical JSON, and of the version of the library."""
        facts = {
            "plan": type(self).__name__,
            "version": __version__,
            "unit": self.unit,
            **self.facts(),
        }
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def partial(self, batch: Any) -> Integers:
        """Return the sums over the records of a batch.

        Parameters
        ----------
        batch : DataFrame, pyarrow.Table or pyarrow.RecordBatch
            Records with the columns ``columns``; others are ignored. A pandas or polars DataFrame.

        Returns
        -------
        ndarray of shape (2, size)
            Private integers in two limbs: ``high * 2**32 + low``.

        Raises
        ------
        KeyError
            If a column is missing.
        TypeError
            If a column of numbers holds text, dates or collections. The message names no value.
        """
        records = self._read_batch(batch)
        sizes = None if self.unit == "record" else read_group_sizes(batch, GROUP_SIZE)
        return self._sum_records(sizes, *records)

    def _sum_records(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        """Return ``partial`` for the values read from a batch and the sizes of its groups."""
        total = np.zeros((2, self.size), np.int64)
        for start in range(0, len(records[0]), self._rows_at_a_time):
            part = slice(start, start + self._rows_at_a_time)
            own = None if sizes is None else sizes[part]
            sums = self._sum_slice(own, *(values[part] for values in records))
            count = _count(len(records[0][part]), own)
            total = add_limbs(total, np.hstack([count, split_limbs(sums)]))
        return total


@dataclass(frozen=True)
class TargetRange:
    """Targets within public bounds, scaled to [-1, 1]."""

    lower: float
    upper: float
    scale: str = "linear"

    kind = "number"

    def read_target(self, batch: Any, name: str) -> NDArray[np.float64]:
        return _read_number(batch, name)

    def encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Clip targets to their bounds and scale them; a missing one stays NaN."""
        return TargetScale(self.lower, self.upper, self.scale).to_unit(y)

    def facts(self) -> list[Any]:
        return [self.lower, self.upper, self.scale]


@dataclass(frozen=True)
class Labels:
    """Labels of public classes, as their indices."""

    classes: tuple[Any, ...]

    @property
    def kind(self) -> str:
        return "text" if np.asarray(self.classes).dtype.kind == "U" else "number"

    def read_target(self, batch: Any, name: str) -> NDArray[Any]:
        return read_text(batch, name) if self.kind == "text" else _read_number(batch, name)

    def encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the index of each label, and NaN for a missing or unknown one."""
        found = match_labels(y, self.classes)
        return np.where(found < 0, np.nan, found)

    def facts(self) -> list[Any]:
        return [np.asarray(label).item() for label in self.classes]


def _read_number(batch: Any, name: str) -> NDArray[np.float64]:
    return read_numbers(batch, (name,))[:, 0]


@dataclass(frozen=True)
class TargetPlan(SumPlan):
    """Sums of products of two numbers on the grid of 2**-16, from numeric features and a target."""

    features: tuple[str, ...]
    target: str
    encoding: TargetRange | Labels

    @property
    def record_columns(self) -> tuple[str, ...]:
        return (*self.features, self.target)

    @property
    def target_column(self) -> str:
        return self.target

    def column_kinds(self) -> dict[str, str]:
        return {**dict.fromkeys(self.features, "number"), self.target: self.encoding.kind}

    def sums(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private sums."""
        return total._read_sums() / _PRODUCT_STEPS

    @staticmethod
    def _as_integers(sums: NDArray[np.float64]) -> Integers:
        # 2**14 records add multiples of 2**-32 below 2**15, which float64 holds in any order
        return (sums * _PRODUCT_STEPS).astype(np.int64)


def count_units(unit: str, total: Integers) -> int:
    """Return the number of records, or of groups, from the count of a total."""
    count = (int(total[0, 0]) << 32) + int(total[1, 0])
    return count if unit == "record" else -(-count >> _COUNT_BITS)


def are_groups_whole(unit: str, total: Integers) -> bool:
    """Return whether the shares of rows add up to whole groups, for fewer than 2**40 rows.

    N rows of whole groups add less than N below a multiple of 2**48.
    """
    count = (int(total[0, 0]) << 32) + int(total[1, 0])
    return unit == "record" or -count % (1 << _COUNT_BITS) < 1 << _MAX_ROW_BITS


def _count(n: int, sizes: Integers | None) -> Integers:
    """Return the limbs of the count of fewer than 2**31 rows, of shape (2, 1)."""
    if sizes is None:
        return split_limbs(np.array([n]))
    limbs = split_limbs((1 << _COUNT_BITS) // sizes[sizes > 0]).sum(axis=1, keepdims=True)
    return add_limbs(limbs, np.zeros_like(limbs))


def split_limbs(values: Integers) -> Integers:
    """Return the limbs, of shape (2, size), of integers of shape (size,)."""
    return np.stack([values >> _BITS, values & _LOW])


def add_limbs(one: Integers, other: Integers) -> Integers:
    """Return the limbs of the sums.

    **Guarantees.** Exact up to a magnitude of 2**94: high limbs are below 2**62 then.
    """
    high, low = one + other
    return np.stack([high + (low >> _BITS), low & _LOW])


def limbs_to_floats(limbs: Integers) -> NDArray[np.float64]:
    """Return the nearest floats.

    ``high`` and ``low`` are below 2**53, so both conversions and the product are exact. The sum
    is the only operation that rounds.
    """
    rounded: NDArray[np.float64] = limbs[0] * 2.0**_BITS + limbs[1]
    return rounded


class SumTotal:
    """Exact sum of the named parts of a table, for ``model.fit_sums``.

    **The numbers of a total are private, without any noise.** Keep a total where the table is
    allowed to be, and delete it after the fit.

    Parameters
    ----------
    plan : SumPlan
        The plan whose ``partial`` computes the parts.

    Attributes
    ----------
    plan : SumPlan
        The plan.
    names : frozenset of str
        Names of the parts so far.

    Notes
    -----
    **Guarantees.** Each name is counted once. The same part twice, as after a retry, changes
    nothing. Other integers under a known name are refused.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.linear_model import AdaSSPRegressor
    >>> from skprivacy.sums import SumTotal
    >>> table = pd.DataFrame({"age": [30, 50, 70] * 500, "cost": [1.0, 2.0, 3.0] * 500})
    >>> model = AdaSSPRegressor(bounds=(0, 100), target_bounds=(0, 5))
    >>> plan = model.plan(["age"], y="cost")
    >>> total = SumTotal(plan)
    >>> for start in range(0, 1500, 500):  # each batch on any worker
    ...     total.add(f"rows {start}", plan.partial(table[start : start + 500]))
    >>> model.fit_sums(total).privacy_
    (1.00, 1e-05)-DP, add-remove, exact noise, proved assuming each record is in one part of the
    total, summed by the plan
    """

    def __init__(self, plan: SumPlan) -> None:
        self.plan = plan
        self._limbs: Integers = np.zeros((2, plan.size), np.int64)
        self._parts: dict[str, str] = {}  # digest of the integers of each part, by its name

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._parts)

    @property
    def n_units(self) -> int:
        """Number of records, or of groups. Private under the relation "add_remove"."""
        return count_units(self.plan.unit, self._limbs)

    def _check_sizes(self) -> None:
        """Refuse groups whose rows are not as many as their sizes say, unless shares are whole."""
        if not are_groups_whole(self.plan.unit, self._limbs):
            raise ValueError(
                "The rows of some groups are not as many as their sizes say: a part is missing, or "
                "the rows changed between two reads. Read from files or persisted data."
            )

    def __repr__(self) -> str:
        return f"SumTotal of a {type(self.plan).__name__}, private"

    def add(self, name: str, integers: NDArray[Any]) -> None:
        """Add the integers of one part, unless the part is known.

        Parameters
        ----------
        name : str
            Name of the part that no other part of the table has, such as its file.
        integers : ndarray of shape (2, size)
            ``plan.partial`` of the part.

        Raises
        ------
        ValueError
            If the shape is not of this plan, or a part of this name has other integers.
        """
        limbs = np.asarray(integers)
        if limbs.dtype != np.int64 or limbs.shape != self._limbs.shape:
            raise ValueError(
                f"integers are {limbs.dtype} of shape {limbs.shape}; expected int64 of shape "
                f"{self._limbs.shape}. Pass what plan.partial returns."
            )
        content = hashlib.sha256(np.ascontiguousarray(limbs).tobytes()).hexdigest()
        if name not in self._parts:
            self._parts[name] = content
            self._limbs = add_limbs(self._limbs, limbs)
        elif self._parts[name] != content:
            raise ValueError(
                f"The part {name!r} was added before with other integers: its rows changed between "
                "two reads, or two parts share the name. Read from files or persisted data, and "
                "name each part once."
            )

    def _read_sums(self) -> NDArray[np.float64]:
        """Return the private sums as floats, each rounded once, of shape (plan.n_sums,)."""
        return limbs_to_floats(self._limbs[:, 1:])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the total to a file that only its owner may read.

        Parameters
        ----------
        path : str or path-like
            The file, in JSON. It holds private numbers and says so.
        """
        state = {
            "format": _FORMAT,
            "warning": "PRIVATE: exact sums of private records, without noise. Do not publish.",
            "plan": self.plan.digest,
            "parts": self._parts,
            "high": self._limbs[0].tolist(),
            "low": self._limbs[1].tolist(),
        }
        write_file(path, json.dumps(state), mode=0o600)

    @classmethod
    def load(cls, path: str | Path, plan: SumPlan) -> SumTotal:
        """Read a total from a file.

        Parameters
        ----------
        path : str or path-like
            The file that ``save`` wrote.
        plan : SumPlan
            Its plan.

        Returns
        -------
        SumTotal
            The total.

        Raises
        ------
        ValueError
            If the file holds no total, or a total of another plan.
        """
        total = cls(plan)
        try:
            state = parse_json(read_file(path, MAX_MODEL_BYTES))
            limbs = np.array([state["high"], state["low"]], dtype=np.int64)
            parts = {str(name): str(content) for name, content in state["parts"].items()}
            digest, is_known = state["plan"], state["format"] == _FORMAT
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            raise ValueError(
                f"path={str(path)!r} holds no total of sums. Pass a file that save wrote."
            ) from None
        if not is_known or digest != plan.digest or limbs.shape != total._limbs.shape:
            raise ValueError(
                f"path={str(path)!r} is a total of another plan or version. Compute it again by "
                "this plan."
            )
        total._limbs, total._parts = limbs, parts
        return total
