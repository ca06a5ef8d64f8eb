"""Partition of private records into teachers, and the neighbouring relations that it allows.

A partition must not depend on the data. Partitioned by position, removing a record would move
others to other teachers, so only data sets of the same size are neighbours. Partitioned by a keyed
hash of each record, removing a record changes one teacher, and replacing one changes two.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._groups import Groups
from .._sklearn import num_samples

__all__ = [
    "MOVED_VOTES",
    "PARTITIONS",
    "partition_by_group",
    "partition_by_hash",
    "partition_by_index",
]

# By partition and relation: teachers that a neighbour changes, hence votes of a query it moves.
MOVED_VOTES = {
    ("index", "zero_out"): 1,
    ("index", "replace_one"): 1,
    ("hash", "add_remove"): 1,
    ("hash", "zero_out"): 1,
    ("hash", "replace_one"): 2,
}
PARTITIONS = ("hash", "index")
_ROWS_PER_SLICE = 4096  # hashed at a time
_LARGEST_EXACT_INTEGER = 2.0**53  # float64 holds all integers up to it


def partition_by_index(n: int, n_teachers: int, random: np.random.RandomState) -> NDArray[np.int64]:
    """Return the teacher of each record, by shuffled position; ``n`` is public."""
    teachers = np.empty(n, np.int64)
    teachers[random.permutation(n)] = np.arange(n) % n_teachers
    return teachers


def partition_by_hash(
    X: Any, y: Any, n_teachers: int, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Return the teacher of each record, drawn by a keyed hash of the record alone."""
    key = random.bytes(32)  # independent of the data
    parts = [X] if y is None else [X, y]
    digests = b"".join(
        hashlib.blake2b(row, digest_size=8, key=key).digest() for row in _iterate_row_bytes(parts)
    )
    # The bias of a remainder of 64 random bits is below n_teachers / 2**64.
    return (np.frombuffer(digests, np.uint64) % np.uint64(n_teachers)).astype(np.int64)


def partition_by_group(
    groups: Groups, n_teachers: int, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Return the teacher of each record, drawn by a keyed hash of the name of its group.

    **Guarantees.** All records of a group have one teacher, which depends on the group's name
    alone: the group's index would depend on other groups. Equal names may differ as text, such as
    one moment in two time zones; one of them is hashed for all.
    """
    return partition_by_hash(pd.Series(groups.names), None, n_teachers, random)[groups.codes]


def _iterate_row_bytes(parts: list[Any]) -> Iterator[bytes]:
    for start in range(0, num_samples(parts[0]), _ROWS_PER_SLICE):
        yield from _row_bytes([_slice_rows(part, start) for part in parts])


def _slice_rows(values: Any, start: int) -> pd.DataFrame:
    """Return some rows as a frame."""
    if isinstance(values, (pd.DataFrame, pd.Series)):
        return pd.DataFrame(values.iloc[start : start + _ROWS_PER_SLICE]).reset_index(drop=True)
    return pd.DataFrame(np.asarray(values)[start : start + _ROWS_PER_SLICE])


def _row_bytes(frames: list[pd.DataFrame]) -> Iterator[bytes]:
    """Yield each row as bytes, equal for equal values of any numeric type.

    **Guarantees.** The bytes depend on the row alone: a record that turns a column from numbers
    into objects leaves the bytes of the others as they were. Numbers that differ, even beyond the
    precision of floats, give different bytes.
    """
    frame = pd.concat(frames, axis=1)
    plain = np.array([_is_plain(dtype) for dtype in frame.dtypes])
    numbers = np.full(frame.shape, np.nan)
    numbers[:, plain] = frame.loc[:, plain].to_numpy(np.float64, na_value=np.nan)
    texts: list[list[str]] = [[] for _ in range(len(frame))]
    for j, (_, column) in enumerate(frame.items()):
        if not plain[j] or _may_exceed_floats(column):
            for i, value in enumerate(column.to_numpy(object)):
                numbers[i, j], rest = _split_number(value)
                if rest:
                    texts[i].append(f"{j}:{rest}")
    numbers += 0.0  # no -0.0
    numbers[np.isnan(numbers)] = np.nan  # one bit pattern for all NaN
    for row, text in zip(numbers, texts, strict=True):
        yield row.tobytes() + "\x1f".join(text).encode()


def _is_plain(dtype: Any) -> bool:
    is_complex = pd.api.types.is_complex_dtype(dtype)
    return pd.api.types.is_numeric_dtype(dtype) and not is_complex


def _may_exceed_floats(column: pd.Series) -> bool:
    """Return whether some number of a column has more digits than a float holds."""
    if not pd.api.types.is_integer_dtype(column.dtype):
        return False
    return bool(((column >= _LARGEST_EXACT_INTEGER) | (column <= -_LARGEST_EXACT_INTEGER)).any())


def _split_number(value: Any) -> tuple[float, str]:
    """Return a value as a float, NaN for non-numbers, and the remainder as text."""
    value = value.item() if isinstance(value, np.generic) else value
    value = value.real if isinstance(value, complex) and value.imag == 0 else value
    if value is pd.NA:
        return np.nan, ""
    if not isinstance(value, (Real, Decimal)):
        return np.nan, repr(value)
    try:
        number = float(value)
        if not math.isfinite(number):
            return number, ""
        rest = Fraction(value) - Fraction(number)  # type: ignore[arg-type]  # or TypeError
    except (TypeError, ValueError, OverflowError):
        return np.nan, repr(value)
    return number, str(rest) if rest else ""
