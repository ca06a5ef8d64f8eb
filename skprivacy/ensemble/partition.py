"""Which teacher learns from which record, and what that says of neighbouring data sets.

A cut must be settled before the data is looked at. Cut by position, a record that is removed would
move others to other teachers, so only data sets of one size are neighbours. Cut by a keyed hash of
the record itself, removing one changes one teacher, and replacing one changes two.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._sklearn import num_samples

__all__ = ["MOVED_VOTES", "PARTITIONS", "group_sizes", "parts_by_hash", "parts_by_index"]

# By partition and relation: how many teachers a neighbour changes, hence how many votes it moves.
MOVED_VOTES = {
    ("index", "zero_out"): 1,
    ("index", "replace_one"): 1,
    ("hash", "add_remove"): 1,
    ("hash", "zero_out"): 1,
    ("hash", "replace_one"): 2,
}
PARTITIONS = ("hash", "index")
_ROWS = 4096  # that are hashed at a time


def parts_by_index(n: int, n_teachers: int, random: np.random.RandomState) -> NDArray[np.int64]:
    """Return the teacher of each of ``n`` records: parts as equal in size as can be.

    Parameters
    ----------
    n : int
        Number of records, which is public.
    n_teachers : int
    random : RandomState
        Shuffles the positions, in case the records are sorted.

    Returns
    -------
    ndarray of shape (n,)
    """
    teachers = np.empty(n, np.int64)
    teachers[random.permutation(n)] = np.arange(n) % n_teachers
    return teachers


def parts_by_hash(
    X: Any, y: Any, n_teachers: int, random: np.random.RandomState
) -> NDArray[np.int64]:
    """Return the teacher of each record, drawn by a keyed hash of the record alone.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_samples, n_features) or (n_samples,)
        Equal records have the same teacher.
    y : array-like of shape (n_samples,) or None
    n_teachers : int
    random : RandomState
        Draws the key of the hash, which must not depend on the data.

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    key = random.bytes(32)
    parts = [X] if y is None else [X, y]
    digests = b"".join(
        hashlib.blake2b(row, digest_size=8, key=key).digest() for row in _all_contents(parts)
    )
    # The bias of a remainder of 64 random bits is below n_teachers / 2**64.
    return (np.frombuffer(digests, np.uint64) % np.uint64(n_teachers)).astype(np.int64)


def group_sizes(groups: NDArray) -> NDArray[np.int64]:
    """Return how many records each record's group has; groups are those of :func:`parts_by_hash`.

    Parameters
    ----------
    groups : array-like of shape (n_samples,)

    Returns
    -------
    ndarray of shape (n_samples,)
    """
    names = list(_all_contents([groups]))
    sizes = Counter(names)
    return np.array([sizes[name] for name in names], np.int64)


def _all_contents(parts: list[Any]) -> Iterator[bytes]:
    for start in range(0, num_samples(parts[0]), _ROWS):
        yield from _contents([_frame(part, start) for part in parts])


def _frame(values: Any, start: int) -> pd.DataFrame:
    """Return some rows as a frame."""
    if isinstance(values, (pd.DataFrame, pd.Series)):
        return pd.DataFrame(values.iloc[start : start + _ROWS]).reset_index(drop=True)
    return pd.DataFrame(np.asarray(values)[start : start + _ROWS])


def _contents(frames: list[pd.DataFrame]) -> Iterator[bytes]:
    """Yield each row as bytes, the same for equal values of any numeric type."""
    frame = pd.concat(frames, axis=1)
    number = np.array([pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes])
    numbers = frame.loc[:, number].to_numpy(np.float64, na_value=np.nan) + 0.0  # no -0.0
    numbers[np.isnan(numbers)] = np.nan  # of one bit pattern
    others = frame.loc[:, ~number].to_numpy(object)
    for values, texts in zip(np.ascontiguousarray(numbers), others, strict=True):
        yield values.tobytes() + "\x1f".join(map(repr, texts)).encode()
