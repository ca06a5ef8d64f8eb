"""Encoding of records to features, and their scaling to rows in the unit ball.

The features of a private record are a function of that record alone, to the last bit. Read
:func:`encode_each` first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from .._clones import named_failure
from .._sklearn import num_samples, safe_indexing
from .._validation import check_numbers
from ..mechanisms.bounds import row_slices
from .whitening import HalfWhitening, with_constant

__all__ = ["encode_each", "encode_together", "head_rows"]

_LARGEST = 1e30  # largest absolute input: finite in single precision, which most encoders use

# Each number of the output is computed from one number of the record, so that rounding depends on
# no other record. Matched by exact type.
_NUMBER_BY_NUMBER = {
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
}


def encode_together(encoder: Any, X: Any) -> NDArray[np.float64]:
    """Encode all records in one call; NaN for a record that is not finite.

    One call is fast, but rounding may depend on the other records. Use it for public records and
    for predictions.

    The encoder gets zeros in place of a record that is not finite, because an error would reveal
    the record's presence.
    """
    X, finite = _replace_nonfinite(encoder, X)
    if encoder is None:
        check_numbers(X)
    with named_failure(encoder, "asked about X"):
        found = X if encoder is None else encoder.transform(X)
    features = _as_feature_array(encoder, found, len(finite))
    features[~finite] = np.nan
    return features


def encode_each(encoder: Any, X: Any) -> NDArray[np.float64]:
    """Encode each record in a separate call; NaN for a record that is not finite.

    Matrix products round a row by its position and by the number of rows. In one call for all
    records, an inserted record would change the features of others, and half-whitening multiplies
    that change.

    **Guarantees.** The features of a record are a function of that record alone, to the last bit,
    if the encoder keeps no state between calls. Each call has the same shape. An array is copied
    to the same place in memory each time, because some kernels round by alignment.

    Encoders that compute each number, or each record, separately get all records in one call.
    """
    X, finite = _replace_nonfinite(encoder, X)
    first, rest = _split_steps(encoder)
    if encoder is None:
        check_numbers(X)
    if first is not None:
        with named_failure(first, "asked about X"):
            X = first.transform(X)
    if rest is None:
        features = _as_feature_array(encoder, X, len(finite))
    else:
        with named_failure(rest, "asked about X"):
            features = _encode_one_by_one(rest, X, len(finite))
    features[~finite] = np.nan
    return features


def head_rows(
    encoder: Any, whitening: HalfWhitening | None, X: Any, *, private: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return rows in the unit ball, and which records count; private rows to the last bit."""
    if not isinstance(X, np.ndarray) or len(X) == 0:
        return _head_rows_of_slice(encoder, whitening, X, private)
    rows, counts = None, np.empty(len(X), np.bool_)
    for part in row_slices(len(X)):
        found, counts[part] = _head_rows_of_slice(encoder, whitening, X[part], private)
        rows = np.empty((len(X), found.shape[1])) if rows is None else rows
        rows[part] = found
    assert rows is not None
    return rows, counts


def _head_rows_of_slice(
    encoder: Any, whitening: HalfWhitening | None, X: Any, private: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    features = encode_each(encoder, X) if private else encode_together(encoder, X)
    return with_constant(features if whitening is None else whitening.scaled(features))


def _replace_nonfinite(encoder: Any, X: Any) -> tuple[Any, NDArray[np.bool_]]:
    """Return the encoder's input, with zeros for records that are not finite, and a mask."""
    finite: NDArray[np.bool_] = np.ones(num_samples(X), np.bool_)
    if isinstance(X, np.ndarray):
        finite = np.asarray(np.isfinite(X).all(axis=1))
        X = np.clip(np.where(finite[:, None], X, 0.0), -_LARGEST, _LARGEST)
        names = getattr(encoder, "feature_names_in_", None)
        X = X if names is None else pd.DataFrame(X, columns=names)
    return X, finite


def _as_feature_array(encoder: Any, found: Any, n: int) -> NDArray[np.float64]:
    """Return the encoder's output as a new C-contiguous array."""
    found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    if found.ndim != 2 or len(found) != n:
        raise ValueError(
            f"encoder={encoder!r} returns shape {found.shape} for {n} records; expected one row of "
            "features for each."
        )
    return np.array(found, dtype=np.float64, order="C")


def _encode_one_by_one(encoder: Any, X: Any, n: int) -> NDArray[np.float64]:
    record = np.empty((1, X.shape[1]), X.dtype) if isinstance(X, np.ndarray) else None
    features = np.empty((0, 0))
    for i in range(n):
        if record is None:
            found = encoder.transform(safe_indexing(X, [i]))
        else:
            record[0] = X[i]
            found = encoder.transform(record)
        row = _as_feature_array(encoder, found, 1)
        if not i:
            features = np.empty((n, row.shape[1]))
        features[i] = row[0]
    return features


def _split_steps(encoder: Any) -> tuple[Any, Any]:
    """Return the first steps, which compute each record separately, and the other steps.

    ``None`` stands for no steps.
    """
    if type(encoder) is FrozenEstimator:
        return _split_steps(encoder.estimator)
    if type(encoder) is not Pipeline:
        return (encoder, None) if _computes_apart(encoder) else (None, encoder)
    apart = [_computes_apart(step) for _, step in encoder.steps]
    n = (*apart, False).index(False)
    return encoder[:n] if n else None, encoder[n:] if n < len(apart) else None


def _computes_apart(step: Any) -> bool:
    """Return whether a step is known to round each record independently of the others."""
    kind = type(step)
    if kind is FrozenEstimator:
        return _computes_apart(step.estimator)
    if kind is Pipeline:
        return all(_computes_apart(each) for _, each in step.steps)
    if kind is ColumnTransformer:
        return all(_computes_apart(each) for _, each, _ in step.transformers_)
    if kind is FunctionTransformer:
        return step.func is None
    own = vars(kind).get("_computes_records_apart", False)
    return step is None or isinstance(step, str) or kind in _NUMBER_BY_NUMBER or own
