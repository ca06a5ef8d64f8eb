"""Plan of the exact sums of a fit: public facts that turn a batch of records into integers.

Integers beyond 64 bits are two limbs in numpy arrays: ``high * 2**32 + low``. Limbs are canonical:
every low limb is in [0, 2**32), so equal integers have equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from .batch_columns import read_group_sizes

Integers = NDArray[np.int64]

_BITS = 32  # of a low limb
_LOW = (1 << _BITS) - 1
GROUP_SIZE = "skprivacy_group_size"  # column of the number of rows in each row's group
# A group of m rows adds m times floor(2**48 / m), which is above 2**48 - m. The sum over all rows,
# over 2**48 and rounded up, is thus the number of groups, for fewer than 2**48 rows.
_COUNT_BITS = 48
_MAX_ROW_BITS = 40
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
        return _ROWS_AT_A_TIME

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
        return self.sum_records(sizes, *records)

    def sum_records(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        """Return the sums over records in memory, as ``partial`` does.

        Parameters
        ----------
        sizes : ndarray of shape (n_samples,) or None
            Number of records in each record's group; None if each record is a unit.
        *records : ndarray of shape (n_samples, ...)
            What the plan reads of a batch.

        Returns
        -------
        ndarray of shape (2, size)
            Private integers in two limbs.
        """
        total = np.zeros((2, self.size), np.int64)
        for start in range(0, len(records[0]), self._rows_at_a_time):
            part = slice(start, start + self._rows_at_a_time)
            own = None if sizes is None else sizes[part]
            sums = self._sum_slice(own, *(values[part] for values in records))
            count = _count(len(records[0][part]), own)
            total = add_limbs(total, np.hstack([count, split_limbs(sums)]))
        return total


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
