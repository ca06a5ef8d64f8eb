"""Telling records apart, and choosing some of them, in any container scikit-learn takes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from .._sklearn import num_samples, safe_indexing

__all__ = ["as_records", "concat", "fingerprints", "num_samples", "safe_indexing"]


def as_records(X: Any) -> Any:
    """Return X itself if it is an array, a DataFrame or sparse (then by rows), else an array."""
    if sparse.issparse(X):
        return sparse.csr_matrix(X) if X.format != "csr" else X
    return X if isinstance(X, pd.DataFrame) else np.asarray(X)


def fingerprints(X: Any) -> NDArray[np.uint64]:
    """Return a 64-bit fingerprint of each row: equal rows, equal fingerprints.

    Numbers are compared by value: integers, booleans, single and double precision agree, and so
    do 0.0 and -0.0. Other columns are compared by their text. Two different rows among a million
    collide with probability below 1e-7.
    """
    if sparse.issparse(X):
        return _sparse_fingerprints(X)
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    plain: dict[int, Any] = {}
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if pd.api.types.is_numeric_dtype(column.dtype):
            # + 0.0 turns -0.0 into 0.0
            plain[place] = column.to_numpy(dtype=float, na_value=np.nan) + 0.0
        else:
            plain[place] = _text(column)
    hashed = pd.util.hash_pandas_object(pd.DataFrame(plain), index=False)
    return np.asarray(hashed, dtype=np.uint64)


def concat(first: Any, second: Any) -> Any:
    """Stack two containers of records of the same kind."""
    if isinstance(first, pd.DataFrame) and isinstance(second, pd.DataFrame):
        if list(first.columns) != list(second.columns):
            raise ValueError("Members and non-members have different columns.")
        return pd.concat([first, second], ignore_index=True)
    if sparse.issparse(first) or sparse.issparse(second):
        return sparse.vstack([first, second], format="csr")
    return np.concatenate([np.asarray(first), np.asarray(second)])


def _text(column: pd.Series[Any]) -> NDArray[np.object_]:
    """Return numbers as in a numeric column and the rest as text, all of them marked strings."""
    values = column.to_numpy(dtype=object)
    return np.array([_mark(value) for value in values], dtype=object)


def _mark(value: Any) -> str:
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return f"n{float(value) + 0.0!r}"
    return f"t{value}"


def _sparse_fingerprints(X: Any) -> NDArray[np.uint64]:
    rows = sparse.csr_matrix(X, dtype=float, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    digests = []
    for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        content = rows.indices[start:stop].astype(np.int64).tobytes()
        content += rows.data[start:stop].tobytes()
        digests.append(hashlib.blake2b(content, digest_size=8).digest())
    return np.frombuffer(b"".join(digests), dtype=np.uint64)
