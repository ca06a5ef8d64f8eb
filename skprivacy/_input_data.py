"""The door for X, y and groups: private records are checked and converted once, where they enter.

Errors never quote a value of the data. scikit-learn, pandas and numpy print arrays and cells in
some of theirs. The functions with the names of scikit-learn's refuse such input first, and name
the parameter. No other module of the package imports scikit-learn's versions. Start with
:func:`read_records`, by which each private fit begins. Its results are trusted from there on.
"""

from __future__ import annotations

import math
import mmap
import sys
from abc import abstractmethod
from datetime import date
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn import base, utils
from sklearn.utils import multiclass, validation

from ._groups import Groups, check_groups, check_order
from ._validation import as_array, check_unmasked, num_samples, raise_alone

_LARGEST = sys.float_info.max
# Beyond this, products in single precision overflow. Then the order of a sum, which depends on the
# number of other records, would decide whether a record's gradient is finite.
_LARGEST_IN_PRODUCTS = 1e15
_ROWS_AT_A_TIME = 1 << 14  # rows compared at a time
_NOT_GIVEN = "no_validation"  # scikit-learn's marker of an absent argument


class Records(NamedTuple):
    """The private records of a fit, as :func:`read_records` returns them."""

    rows: Any  # an array in C order, or a DataFrame
    y: Any  # labels or numbers, or None
    groups: Groups


def read_records(
    estimator: Any, X: Any, y: Any = _NOT_GIVEN, groups: Any = None, **checks: Any
) -> Records:
    """Return the records, targets and protected groups of a private fit, checked.

    The order of the groups is checked first, by the index of X, while X may still have one. Missing
    values are accepted by default: refusing a record would reveal its presence. ``checks`` are
    passed to :func:`validate_data`.
    """
    if groups is not None:
        check_order(groups, X)
    checks = {"ensure_all_finite": False, **checks}
    if _is_absent(y):
        rows, targets = validate_data(estimator, X, **checks), None
    else:
        rows, targets = validate_data(estimator, X, y, **checks)
    return Records(rows, targets, resolve_groups(groups, rows))


def resolve_groups(groups: Any, X: Any) -> Groups:
    """Return the protected groups, which are single records if ``groups`` is None."""
    if groups is None:
        n = num_samples(X)
        return Groups(np.arange(n), n, "record")
    return check_groups(groups, X)


def validate_data(
    estimator: Any,
    X: Any = _NOT_GIVEN,
    y: Any = _NOT_GIVEN,
    *,
    dtype: Any = "numeric",
    tables: str = "convert",
    skip_check_array: bool = False,
    **checks: Any,
) -> Any:
    """Validate records and targets as scikit-learn's function of this name does.

    Records are returned in C order, as :func:`make_row_major` explains. ``tables="keep"`` returns a
    DataFrame as it is, checked by its names, and ``tables="keep_text"`` does so if a column holds
    no numbers. Errors name X or y and show no values.
    """
    keeps = skip_check_array
    if not _is_absent(X):
        X = as_frame(X)
        keeps = keeps or _is_kept(X, tables)
        if keeps:
            check_readable(X)
        else:
            X, checks["dtype"] = _read_table(X, "X", dtype, checks), dtype
            checks["order"] = "C"
    if not _is_absent(y):
        y = _read_targets(y, numeric=checks.get("y_numeric", False))
        if not _is_absent(X):
            check_consistent_length(X, y)
    if not keeps or skip_check_array:
        return validation.validate_data(estimator, X, y, skip_check_array=keeps, **checks)
    validation.validate_data(estimator, X, reset=checks.get("reset", True), skip_check_array=True)
    n, least = len(X), checks.get("ensure_min_samples", 1)
    if n < least:
        raise ValueError(
            f"Found array with {n} sample(s) while a minimum of {least} is required. Pass more."
        )
    return X if _is_absent(y) else (X, _one_column(y, warn=True))


def _is_kept(X: Any, tables: str) -> bool:
    if not isinstance(X, pd.DataFrame):
        return False
    return tables == "keep" or (tables == "keep_text" and not all_numbers(X))


def make_row_major(X: pd.DataFrame | NDArray[Any]) -> pd.DataFrame | NDArray[Any]:
    """Return records in C order: X itself if it is in C order already.

    BLAS rounds differently for each memory order. Without this, equal records in a DataFrame and
    in an array give different answers, by an amount that depends on the processor. A table without
    one common type of numpy's numbers is returned as it is.
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


def check_array(X: Any, *, input_name: str = "X", dtype: Any = "numeric", **checks: Any) -> Any:
    """Return records as an array, as scikit-learn's function of this name does."""
    X = _read_table(X, input_name, dtype, checks)
    return validation.check_array(X, dtype=dtype, input_name=input_name, **checks)


def column_or_1d(y: Any, *, name: str = "y", **checks: Any) -> NDArray[Any]:
    """Return targets as an array of one dimension, as scikit-learn's function of this name does."""
    if y is not None:
        y = _read_container(y, name)
        _check_real(y, name)
    return _one_column(y, name, **checks)


def _one_column(y: Any, name: str = "y", **checks: Any) -> NDArray[Any]:
    if y is None:
        raise ValueError(f"{name} should be a 1d array, got None. Pass one value for each record.")
    if not isinstance(y, pd.DataFrame | pd.Series) and not sparse.issparse(y):
        y = as_array(name, y)
    return np.asarray(validation.column_or_1d(y, **checks))


def check_consistent_length(*arrays: Any) -> None:
    """Refuse arrays with different numbers of records; None is ignored."""
    lengths = [num_samples(array) for array in arrays if array is not None]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: {lengths}. Pass one "
            "value for each record of X."
        )


def check_X_y(X: Any, y: Any, **checks: Any) -> Any:
    """Return records and labels, as scikit-learn's function of this name does."""
    check_y(y)
    return validation.check_X_y(_read_table(X, "X", checks.get("dtype"), checks), y, **checks)


def indexable(*arrays: Any) -> list[Any]:
    """Return arrays that can be indexed, as scikit-learn's function of this name does."""
    check_consistent_length(*arrays)
    found: list[Any] = utils.indexable(*arrays)
    return found


def type_of_target(y: Any) -> str:
    """Return the type of the targets, as scikit-learn's function of this name does."""
    check_readable(y, "y")
    _check_real(y, "y")
    return str(multiclass.type_of_target(y))


def check_classification_targets(y: Any) -> None:
    """Refuse targets that are not labels, such as fractions."""
    check_readable(y, "y")
    _check_real(y, "y")
    multiclass.check_classification_targets(y)


def check_readable(values: Any, name: str = "X") -> None:
    """Refuse values that hold no records, or that numpy cannot read or misreads."""
    if not isinstance(values, list | tuple):  # whose readers convert them
        _read_container(values, name)


def _read_container(values: Any, name: str) -> Any:
    """Return values as an array, unless they are sparse or have columns or an index."""
    check_unmasked(values, name)
    if isinstance(values, pd.DataFrame):
        if values.shape[1] == 0:
            raise ValueError(f"{name} has no columns while a minimum of 1 is required.")
        check_names_differ(values.columns, name)
        return values  # a Schema handles cells of other types itself
    if not sparse.issparse(values):
        if _is_one_value(values):
            raise TypeError(
                f"{name} must hold one value or row for each record; got one "
                f"{type(values).__name__}. Pass an array or a DataFrame."
            )
        check_column_names(values, name)
        if not (isinstance(values, pd.Series) or hasattr(values, "columns")):
            values = as_array(name, values)
    _check_real(values, name)
    return values


def _is_one_value(values: Any) -> bool:
    if isinstance(values, str | bytes | dict | set) or getattr(values, "ndim", 1) == 0:
        return True
    return not (hasattr(values, "__len__") or hasattr(values, "__array__"))


def _read_table(X: Any, name: str, dtype: Any, checks: dict[str, Any]) -> Any:
    """Return records in a container and with cells that scikit-learn accepts."""
    X = _read_container(X, name)
    if isinstance(X, np.ndarray) and X.ndim == 1 and checks.get("ensure_2d", True):
        raise ValueError(
            f"Expected 2D array, got 1D array instead: {name} has shape {X.shape}. Reshape "
            f"your data by {name}.reshape(-1, 1) if it is one feature, or by "
            f"{name}.reshape(1, -1) if it is one record."
        )
    X = as_frame(X, name) if isinstance(X, pd.DataFrame) else X
    _check_real(X, name, of_objects=dtype is not None)
    if dtype is not None:
        _check_cells_are_numbers(X, name)
    return X


def check_y(y: Any, name: str = "y") -> None:
    """Refuse missing targets, and several targets for a record."""
    _read_targets(y, name)


def _read_targets(y: Any, name: str = "y", numeric: bool = False) -> Any:
    """Return targets as an array, or in a container of pandas or scipy."""
    if y is None or sparse.issparse(y):  # scikit-learn refuses these where needed
        return y
    y = _read_container(y, name)
    values = y if isinstance(y, np.ndarray) else as_array(name, y)
    _check_real(values, name, of_objects=True)
    if values.dtype.kind == "O":
        if holds_collections(values):
            raise TypeError(
                f"{name} holds a sequence or another collection; expected one label or number for "
                "each record."
            )
        if pd.isna(values).any():
            raise ValueError(
                f"Input {name} contains NaN or another missing value. Drop records without a "
                "target before the fit."
            )
    if numeric:
        _check_cells_are_numbers(y, name)
        if values.dtype.kind in "OUS":  # numbers stored as text or objects
            return values.astype(np.float64)
    return y if isinstance(y, pd.DataFrame | pd.Series) else values


def _is_absent(values: Any) -> bool:
    return isinstance(values, str) and values == _NOT_GIVEN


def check_cells(X: pd.DataFrame | NDArray[Any], name: str = "X") -> None:
    """Refuse integers beyond the range of floats, on which a conversion would fail."""
    columns: list[tuple[Any, str]]
    if isinstance(X, np.ndarray):
        columns = [(X.flat, "")] if X.dtype.kind == "O" else []
    else:
        places = [i for i, dtype in enumerate(X.dtypes) if dtype == np.dtype(object)]
        columns = [(X.iloc[:, i], f" in the column {X.columns[i]!r}") for i in places]
    for values, where in columns:
        if any(isinstance(value, int) and not -_LARGEST <= value <= _LARGEST for value in values):
            raise ValueError(f"{name} holds a number beyond 1e308{where}. Check its unit.")


def _check_real(values: Any, name: str, of_objects: bool = False) -> None:
    """Refuse complex numbers; scikit-learn's error would print them."""
    is_frame = isinstance(values, pd.DataFrame)
    columns = [values.iloc[:, i] for i in range(values.shape[1])] if is_frame else [values]
    for column in columns:
        kind = getattr(getattr(column, "dtype", None), "kind", "")
        if kind == "c" or (kind == "O" and of_objects and _holds_complex(column)):
            raise ValueError(
                f"Complex data not supported: {name} holds complex numbers. Pass their real and "
                "imaginary parts as columns."
            )


def _holds_complex(values: Any) -> bool:
    return any(isinstance(value, complex) for value in np.asarray(values, dtype=object).flat)


class _CheckedScore:
    """Mixin whose ``score`` checks y and the weights before scikit-learn's does."""

    @abstractmethod
    def _check_scored(self, y: Any) -> None: ...

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier, or R2 of a regressor.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Records.
        y : array-like of shape (n_samples,)
            Their labels or numbers.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the records.

        Returns
        -------
        float
            As scikit-learn's ``score``.
        """
        if y is None:
            raise TypeError("y must have one label or number for each record; it is None.")
        check_y(y)
        self._check_scored(y)
        if sample_weight is not None:
            _check_real(sample_weight, "sample_weight")
            _check_cells_are_numbers(
                _read_container(sample_weight, "sample_weight"), "sample_weight"
            )
        score: float = super().score(X, y, sample_weight)  # type: ignore[misc]
        return score


class ClassifierMixin(_CheckedScore, base.ClassifierMixin):
    """scikit-learn's mixin of this name, with the checks of this file in ``score``."""

    classes_: Any

    def _check_scored(self, y: Any) -> None:
        values = as_array("y", y)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError("Input y contains NaN or infinity. Leave such records out.")
        known = getattr(self, "classes_", values)
        if isinstance(known, np.ndarray) and (
            _text_kinds(values) - _text_kinds(known)
            or (values.dtype.kind in "mM") != (known.dtype.kind in "mM")
        ):
            raise TypeError(
                f"y holds labels of another type than classes_={known.tolist()[:20]}. Pass y in "
                "the form of the fit."
            )


def _text_kinds(labels: NDArray[Any]) -> set[bool]:
    """Return {True} for labels that are text, {False} for others, and both for a mixture."""
    if labels.dtype == object:
        return {isinstance(label, str | bytes) for label in labels.flat}
    return {labels.dtype.kind in "US"}


class RegressorMixin(_CheckedScore, base.RegressorMixin):
    """scikit-learn's mixin of this name, with the checks of this file in ``score``."""

    def _check_scored(self, y: Any) -> None:
        check_numbers(y, "y")
        if not np.isfinite(as_array("y", y).astype(np.float64)).all():
            raise ValueError("Input y contains NaN or infinity. Leave such records out.")


def all_numbers(frame: pd.DataFrame) -> bool:
    """Return whether every column of a table holds numbers."""
    return all(pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes)


def as_frame(X: Any, name: str = "X") -> Any:
    """Convert a pyarrow or polars table to pandas, keeping column names; return others unchanged.

    Sparse columns with a fill value other than zero become dense, since scikit-learn refuses them.
    """
    library, kind = type(X).__module__.partition(".")[0], type(X).__name__
    if library == "pyarrow" and kind in ("Table", "RecordBatch"):
        check_names_differ(X.schema.names, name)  # to_pandas would keep repeated names
        return X.to_pandas()
    if library == "polars" and kind == "DataFrame":  # not by its to_pandas, which needs pyarrow
        return pd.DataFrame({name: X[name].to_numpy() for name in X.columns})
    return _dense_where_filled(X) if isinstance(X, pd.DataFrame) else X


def _dense_where_filled(X: pd.DataFrame) -> pd.DataFrame:
    """Make sparse columns dense if their fill value is not zero."""
    filled = {
        i: pd.Series(np.asarray(X.iloc[:, i]), X.index, name=X.columns[i])
        for i, dtype in enumerate(X.dtypes)
        if isinstance(dtype, pd.SparseDtype) and dtype.fill_value != 0
    }
    if not filled:
        return X
    columns = [filled.get(i, X.iloc[:, i]) for i in range(X.shape[1])]
    return pd.concat(columns, axis=1)


def check_column_names(X: Any, name: str = "X") -> None:
    """Refuse a DataFrame with two columns of the same name, in every version of scikit-learn."""
    columns = getattr(X, "column_names", getattr(X, "columns", None))  # the first is pyarrow's
    if columns is not None:
        check_names_differ(columns, name)


def check_names_differ(columns: Any, name: str = "X") -> None:
    """Refuse repeated column names."""
    names = pd.Index(columns)
    if not names.is_unique:
        twice = names[names.duplicated()].unique().tolist()
        raise ValueError(
            f"{name} has more than one column named {twice[0]!r} (repeated names: {twice!r}). "
            "Rename or drop the repeated columns."
        )


def check_numbers(X: Any, name: str = "X") -> None:
    """Refuse text and dates and name their columns; numbers written as text are accepted."""
    check_unmasked(X, name)
    _check_cells_are_numbers(X, name)


def _check_cells_are_numbers(X: Any, name: str) -> None:
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        return
    if not isinstance(X, pd.DataFrame):
        others, text = [X], [name] * _holds_text(X, name)
        where = ""
    else:
        places = [i for i, dtype in enumerate(X.dtypes) if dtype.kind not in "biuf"]
        others = [X.iloc[:, i] for i in places]
        text = [X.columns[i] for i in places if _holds_text(X.iloc[:, i], name)]
        where = f" in the columns {text[:5]!r}"
    if text:
        remedy = "Convert them by public facts, for example with SchemaTransformer."
        if name == "y":
            remedy = "Pass numbers, or choose a classifier if they are classes."
        raise ValueError(f"{name} holds text or dates{where}; expected numbers. {remedy}")
    for column in others:
        _check_convertible(column, name)


def _check_convertible(values: Any, name: str) -> None:
    """Refuse objects that are not numbers, and integers that no float can hold."""
    if getattr(getattr(values, "dtype", None), "kind", "O") != "O" or sparse.issparse(values):
        return
    array = as_array(name, values)
    if array.dtype.kind == "O" and holds_collections(array):
        raise TypeError(
            f"{name} holds a sequence or another collection; each argument must be a string or a "
            "number. Make a column of each of its values."
        )
    try:
        array.astype(np.float64)
    except OverflowError:
        error: Exception = ValueError(f"{name} holds a number beyond 1e308. Check its unit.")
    except (TypeError, ValueError):
        error = TypeError(
            f"{name} holds a value that is not a number; each argument must be a string or a "
            "number."
        )
    else:
        return
    raise error


def holds_collections(values: NDArray[np.object_]) -> bool:
    """Return whether any cell holds several values."""
    if set(map(type, values.flat)) <= {str, int, float, bool}:  # in a tenth of the time
        return False
    return any(map(_has_length, values.flat))


def _has_length(value: Any) -> bool:
    """Return whether a cell holds several values; a zero-dimensional array holds one."""
    if isinstance(value, str | bytes):
        return False
    return bool(np.ndim(value)) if isinstance(value, np.ndarray) else hasattr(value, "__len__")


def _holds_text(values: Any, name: str) -> bool:
    if sparse.issparse(values):  # sparse matrices hold numbers only
        return False
    array = as_array(name, values)
    if array.dtype.kind not in "OUS":
        return array.dtype.kind in "Mm"
    return any(isinstance(v, str | bytes | date) and not _reads_as_number(v) for v in array.flat)


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def label_columns(y: Any, classes: NDArray[Any], name: str = "y") -> NDArray[np.intp]:
    """Return the index of each label in a model's classes."""
    y = as_array(name, y)
    if y.ndim != 1:
        raise ValueError(f"{name} has shape {y.shape}; expected one label for each record.")
    try:
        columns = np.searchsorted(classes, y)
    except (TypeError, ValueError):
        raise_alone(
            TypeError(
                f"{name} holds labels of another type than the model's. Pass {name} in the form "
                "of the model's classes_."
            )
        )
    unknown = (columns == len(classes)) | (classes[np.minimum(columns, len(classes) - 1)] != y)
    if unknown.any():
        raise ValueError(
            f"{name} holds a label, first at position {int(unknown.argmax())}, which occurs "
            "neither in the model nor in the attacker's records. Leave such records out."
        )
    return columns


def check_one_type(name: str, labels: Any) -> None:
    """Raise TypeError for labels as bytes, and for labels that cannot be sorted."""
    values = as_array(name, labels)
    if values.dtype.kind == "S":
        raise TypeError(f"{name} has labels as bytes. Convert them to text: labels.astype(str).")
    if values.dtype.kind != "O":
        return
    try:
        found = distinct_labels(values)
        np.searchsorted(found, found)  # alone, a complex number among others passes
    except (TypeError, ValueError, ArithmeticError):  # the last for a NaN of decimals
        raise_alone(
            TypeError(
                f"{name} must have labels of one type; text and numbers cannot be sorted together."
            )
        )


def distinct_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the sorted distinct labels; for objects, sorts only after removing duplicates."""
    if labels.dtype.kind == "O":
        try:
            found = dict.fromkeys(labels.flat)
        except TypeError:  # one has no hash
            return np.unique(labels)
        labels = np.fromiter(found, dtype=object, count=len(found))
    return np.unique(labels)


def is_mapped(X: Any) -> TypeGuard[NDArray[Any]]:
    """Return True if an array of numbers, with a row for each record, is stored in a file.

    Rows selected from a memory map by index are a copy in memory, although numpy still calls it a
    ``memmap``; a slice is not. The underlying buffer decides.
    """
    return (
        isinstance(X, np.ndarray)
        and X.ndim > 1
        and X.dtype.kind in "biuf"
        and memory_map_of(X) is not None
    )


def memory_map_of(X: NDArray[Any]) -> mmap.mmap | None:
    """Return the mapped file that holds the numbers of an array, if there is one."""
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def single_precision(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows in single precision; huge numbers become infinite, so their records add nothing.

    **Guarantees.** The argument is not changed. If it has the right form already, it is returned.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(rows, dtype=np.float32)
        huge = any(map(_holds_huge, _row_chunks(values)))
    return make_huge_infinite(values.copy()) if huge else values


def make_huge_infinite(rows: NDArray[Any]) -> NDArray[Any]:
    """Make numbers that are too large to compute with infinite, in place."""
    if rows.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            for part in filter(_holds_huge, _row_chunks(rows)):
                np.copyto(part, math.inf, where=np.abs(part) > _LARGEST_IN_PRODUCTS)
    return rows


def _row_chunks(rows: NDArray[Any]) -> list[NDArray[Any]]:
    return [rows[i : i + _ROWS_AT_A_TIME] for i in range(0, len(rows), _ROWS_AT_A_TIME)]


def _holds_huge(rows: NDArray[Any]) -> bool:
    low, high = rows.min(initial=0), rows.max(initial=0)
    if low >= -_LARGEST_IN_PRODUCTS and high <= _LARGEST_IN_PRODUCTS:
        return False
    return bool((np.abs(rows) > _LARGEST_IN_PRODUCTS).any())  # False where there is NaN
