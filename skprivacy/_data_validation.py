"""Validation of records and targets, in every estimator: what numpy misreads is refused by name.

scikit-learn's own check speaks of no parameter where numpy fails, and some of its errors print the
records, which are private.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import validation

from ._validation import (
    any_has_length,
    check_column_names,
    check_numbers,
    check_unmasked,
    is_tensor,
)

__all__ = ["check_cells", "check_readable", "check_y", "make_row_major", "validate_data"]

_LARGEST = sys.float_info.max
_NOT_GIVEN = "no_validation"  # scikit-learn's word for records that are not there


def validate_data(
    estimator: Any,
    X: Any = _NOT_GIVEN,
    y: Any = _NOT_GIVEN,
    *,
    dtype: Any = "numeric",
    skip_check_array: bool = False,
    **checks: Any,
) -> Any:
    """Validate records and targets as scikit-learn's function of this name does.

    Records are returned in C order, as :func:`make_row_major` explains.

    Raises
    ------
    ValueError, TypeError
        What is wrong, and with which of the two. Neither records nor targets are shown.
    """
    if not _is_absent(X):
        check_readable(X)
        check_column_names(X)
        if not skip_check_array:
            X, checks["dtype"], checks["order"] = _without_strings(X), dtype, "C"
            _check_real(X, "X")
            if dtype is not None:
                check_numbers(X)
    if not _is_absent(y):
        check_y(y)
        if checks.get("y_numeric"):
            check_numbers(y, "y")
            y = _as_numbers(y)
    return validation.validate_data(estimator, X, y, skip_check_array=skip_check_array, **checks)


def make_row_major(X: pd.DataFrame | NDArray[Any]) -> pd.DataFrame | NDArray[Any]:
    """Return records in C order: X itself if it is stored so.

    BLAS has one kernel for each memory order of a factor, and they round differently. pandas stores
    a table by columns, numpy by rows: without this, equal records of both get unequal answers, by
    how much depends on the processor. pandas keeps the order when it selects rows.

    **Edge cases.** A table of several types, or of types that are not numpy's numbers, is returned
    as it is: its columns have no common array.
    """
    if isinstance(X, np.ndarray):
        return np.ascontiguousarray(X)
    dtypes = set(X.dtypes)
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
        return X
    values = X.to_numpy()
    if values.flags.c_contiguous:
        return X
    return pd.DataFrame(np.ascontiguousarray(values), X.index, X.columns, copy=False)


def check_readable(values: Any, name: str = "X") -> None:
    """Refuse what numpy cannot read, or reads as something else."""
    check_unmasked(values, name)
    if isinstance(values, np.matrix | memoryview):
        raise TypeError(f"{name} is a {type(values).__name__}. Pass numpy.asarray({name}).")
    if type(values).__name__ == "LazyFrame":  # of polars
        raise TypeError(f"{name} is a LazyFrame. Pass {name}.collect().")
    if is_tensor(values):
        _check_tensor(values, name)
    if isinstance(values, pd.DataFrame) and values.shape[1] == 0:
        raise ValueError(f"{name} has no columns while a minimum of 1 is required.")
    if any(isinstance(dtype, np.dtype) and dtype.names for dtype in _dtypes(values)):
        raise TypeError(f"{name} is a structured array. Pass pandas.DataFrame({name}).")


def check_y(y: Any) -> None:
    """Refuse targets of which a record has none, or several, whatever they are kept in."""
    check_readable(y, "y")
    _check_real(y, "y")
    if y is None or sparse.issparse(y):  # which scikit-learn refuses where it has to
        return
    try:
        values = np.asarray(y)
    except ValueError:
        raise ValueError(
            "y must have one label or number for each record; it holds sequences of several "
            "lengths."
        ) from None
    if values.dtype.kind == "T":
        raise TypeError("y is of numpy's StringDType. Pass y.astype(object).")
    if values.dtype.kind != "O":
        return
    if any_has_length(values):
        raise TypeError(
            "y holds a sequence or another collection; expected one label or number for each "
            "record."
        )
    if _is_any_missing(values):
        raise ValueError(
            "Input y contains NaN or another missing value. Drop records without a target before "
            "the fit."
        )


def _is_absent(values: Any) -> bool:
    return isinstance(values, str) and values == _NOT_GIVEN


def _without_strings(X: Any) -> Any:
    """Return X without numpy's own strings, which scikit-learn does not know."""
    return X.astype(object) if getattr(getattr(X, "dtype", None), "kind", None) == "T" else X


def _as_numbers(y: Any) -> Any:
    """Return numbers that are kept as text or objects as an array of floats."""
    if y is None or sparse.issparse(y):
        return y
    values = np.asarray(y)
    return values.astype(np.float64) if values.dtype.kind in "OUS" else y


def check_cells(X: pd.DataFrame | NDArray[Any], name: str = "X") -> None:
    """Refuse numbers that break whatever compares or converts them."""
    columns: list[tuple[Any, str]]
    if isinstance(X, np.ndarray):
        columns = [(X.flat, "")] if X.dtype.kind == "O" else []
    else:
        places = [i for i, dtype in enumerate(X.dtypes) if isinstance(dtype, np.dtype)]
        places = [i for i in places if X.dtypes.iloc[i].kind == "O"]  # not the types of text
        columns = [(X.iloc[:, i], f" in the column {X.columns[i]!r}") for i in places]
    for values, where in columns:
        if any(map(_is_beyond_floats, values)):
            raise ValueError(f"{name} holds a number that is no float{where}. Check its unit.")


def _is_beyond_floats(value: Any) -> bool:
    if isinstance(value, int):
        return not -_LARGEST <= value <= _LARGEST
    return isinstance(value, Decimal) and value.is_snan()


def _dtypes(values: Any) -> list[Any]:
    if isinstance(values, pd.DataFrame):
        return list(values.dtypes)
    return [getattr(values, "dtype", None)]


def _check_real(values: Any, name: str) -> None:
    """Refuse complex numbers; scikit-learn's error would print them."""
    if any(getattr(dtype, "kind", None) == "c" for dtype in _dtypes(values)):
        raise ValueError(
            f"Complex data not supported: {name} holds complex numbers. Pass their real and "
            "imaginary parts as columns."
        )


def _check_tensor(values: Any, name: str) -> None:
    try:
        np.asarray(values[:0] if values.ndim else values)
    except (RuntimeError, TypeError) as error:
        raise TypeError(
            f"{name} is a tensor that numpy cannot read ({error}). Pass "
            f"{name}.detach().cpu().float()."
        ) from None


def _is_any_missing(values: Any) -> bool:
    try:
        return bool(pd.isna(values).any())
    except ArithmeticError:  # a signalling NaN of decimals, which does not bear to be compared
        return True
