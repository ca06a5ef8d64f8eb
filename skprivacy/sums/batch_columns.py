"""Columns of pandas, polars and pyarrow batches as arrays, equal in all of them to the last bit.

A number becomes the nearest float, and a missing one NaN. No error quotes a value. Libraries are
recognised by the name of a type's module and are not imported.
"""

from __future__ import annotations

import math
import numbers
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._validation import library_of

_NUMBER_TYPES: Any = (numbers.Real, np.bool_, Decimal)
_EXACT_DIGITS = 15  # integers up to 15 digits, and powers of ten up to 22, are exact floats


class ColumnTypeError(TypeError):
    """A column of a batch holds values of a type that the plan cannot read."""


def read_numbers(batch: Any, names: tuple[str, ...]) -> NDArray[np.float64]:
    """Return columns of numbers, of shape (n_samples, n_columns); missing values are NaN."""
    found = np.empty((len(names), count_rows(batch)))  # transposed: each column is contiguous
    for own, name in zip(found, names, strict=True):
        own[:] = _as_floats(_take_column(batch, name), name)
    return found.T


def read_text(batch: Any, name: str) -> NDArray[Any]:
    """Return a column of text as objects, with None or NaN for missing values."""
    column = _take_column(batch, name)
    if library_of(column) == "pyarrow":
        return np.asarray(_decode_dictionary(column).to_numpy(zero_copy_only=False))
    return np.asarray(column.to_numpy())


def read_series(batch: Any, name: str) -> pd.Series[Any]:
    """Return a column of any type as a pandas Series in which integers are exact.

    pandas would turn integers beside a missing value into floats. The value of a row would then
    depend on the other rows of its batch.
    """
    column = _take_column(batch, name)
    library = library_of(column)
    if library == "pyarrow":
        return _decode_dictionary(column).to_pandas(integer_object_nulls=True)
    if library == "polars":
        values = column.to_numpy()
        if column.null_count() and values.dtype.kind == "f" and "Float" not in str(column.dtype):
            values = np.array(column.to_list(), dtype=object)
        return pd.Series(values, name=name)
    return column


def read_group_sizes(batch: Any, name: str) -> NDArray[np.int64]:
    """Return the size of each row's group; 0, which counts nothing, for a row without a group."""
    sizes = _as_floats(_take_column(batch, name), name)
    return np.where(sizes >= 1, sizes, 0).astype(np.int64)


def count_rows(batch: Any) -> int:
    """Return the number of rows of a batch."""
    return batch.num_rows if library_of(batch) == "pyarrow" else len(batch)


def _take_column(batch: Any, name: str) -> Any:
    """Return a pandas or polars Series, or a pyarrow array."""
    library = library_of(batch)
    if library == "pyarrow":
        names = batch.schema.names
    elif library in ("pandas", "polars"):
        names = list(batch.columns)
    else:
        raise TypeError(
            f"batch is a {type(batch).__name__}; expected a pandas or polars DataFrame, or a "
            "pyarrow Table or RecordBatch."
        )
    if names.count(name) != 1:
        raise KeyError(f"batch has {names.count(name)} columns named {name!r}; expected one.")
    return _join_chunks(batch.column(name) if library == "pyarrow" else batch[name])


def _join_chunks(column: Any) -> Any:
    """Return a chunked array of pyarrow as one array, without a copy if it has one chunk."""
    if not hasattr(column, "combine_chunks"):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _as_floats(column: Any, name: str) -> NDArray[np.float64]:
    """Return a column of numbers as floats."""
    read = {"pyarrow": _arrow_floats, "polars": _polars_floats, "pandas": _pandas_floats}
    found = read[library_of(column)](column)
    if found is None:
        raise ColumnTypeError(
            f"The column {name!r} holds values that are not numbers; expected numbers, booleans "
            "or missing values. Convert the column, or leave it out."
        )
    return found


def _arrow_floats(column: Any) -> NDArray[np.float64] | None:
    column = _decode_dictionary(column)
    kind = str(column.type)
    if kind == "null":
        return np.full(len(column), np.nan)
    if kind == "bool":
        values = column.to_numpy(zero_copy_only=False)
        return _object_floats(values) if values.dtype == object else values.astype(np.float64)
    if kind.startswith("decimal"):
        return _arrow_decimals(column)
    if not kind.startswith(("int", "uint", "float", "double", "halffloat")):
        return None
    # pyarrow rounds an integer to the nearest float here, as numpy does, and makes None NaN
    return column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)


def _arrow_decimals(column: Any) -> NDArray[np.float64] | None:
    if column.type.bit_width == 128 and _is_short(column.type.precision, column.type.scale):
        words = np.frombuffer(column.buffers()[1], np.int64)
        start = 2 * column.offset
        units = words[start : start + 2 * len(column) : 2]  # the low words, of 63 bits at most
        floats = units / 10.0**column.type.scale
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return np.where(missing, np.nan, floats)
    return _object_floats(column.to_numpy(zero_copy_only=False))


def _polars_floats(column: Any) -> NDArray[np.float64] | None:
    kind = str(column.dtype)
    if kind.startswith(("Categorical", "Enum", "String", "Date", "Time", "Duration", "Binary")):
        return None
    if kind == "Null":
        return np.full(len(column), np.nan)
    if kind.startswith("Decimal"):
        return _object_floats(np.array(column.to_list(), dtype=object))
    if kind == "Boolean" or kind.startswith(("Int", "UInt", "Float")):
        values = column.to_numpy()
        return _object_floats(values) if values.dtype == object else values.astype(np.float64)
    return None


def _pandas_floats(column: Any) -> NDArray[np.float64] | None:
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if isinstance(column.dtype, pd.ArrowDtype):
        return _arrow_floats(_join_chunks(column.array.__arrow_array__()))
    if pd.api.types.is_numeric_dtype(column.dtype):
        if pd.api.types.is_complex_dtype(column.dtype):
            return None
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return _object_floats(column.to_numpy()) if column.dtype == object else None


def _object_floats(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Return Python numbers as floats; None if a value is not a number."""
    try:
        return np.array([_to_float(value) for value in values], np.float64)
    except TypeError:
        return None


def _to_float(value: Any) -> float:
    """Return the nearest float, NaN for a missing value; TypeError if it is not a number."""
    if value is None or value is pd.NA or value is pd.NaT:
        return math.nan
    if not isinstance(value, _NUMBER_TYPES):
        raise TypeError
    try:
        return float(value)
    except OverflowError:  # an integer beyond the floats
        return math.inf if value > 0 else -math.inf
    except ValueError:  # a signalling NaN of decimals
        return math.nan


def _is_short(precision: int, scale: int) -> bool:
    """Return True if floats hold the digits and the power of ten, so one division rounds."""
    return precision <= _EXACT_DIGITS and 0 <= scale <= 22


def _decode_dictionary(column: Any) -> Any:
    return column.dictionary_decode() if hasattr(column, "dictionary_decode") else column


def match_labels(values: NDArray[Any], classes: tuple[Any, ...]) -> NDArray[np.intp]:
    """Return the index of each label in ``classes``; -1 if it is missing or unknown."""
    known = np.asarray(classes)
    if known.dtype.kind in "biuf":
        known, values = known.astype(np.float64), values.astype(np.float64)
    return np.asarray(pd.Index(known).get_indexer(values))
