"""Checks of input that scikit-learn does not make in all versions and cases."""

from __future__ import annotations

import sys
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

__all__ = [
    "all_numbers",
    "as_frame",
    "check_column_names",
    "check_delta_is_small",
    "check_flat",
    "check_numbers",
    "check_unmasked",
    "is_tensor",
    "label_columns",
]

# A larger delta is meaningless for any table; the number of records, which may be private, is not
# used.
_LARGEST_DELTA = 0.1


def all_numbers(frame: pd.DataFrame) -> bool:
    """Return whether every column of a table holds numbers."""
    return all(pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes)


def as_frame(X: Any) -> Any:
    """Return a table of pyarrow's or polars' as a DataFrame of pandas', anything else as it is.

    A Schema looks for columns by name, whatever their order; numpy would lose the names.
    """
    library, kind = type(X).__module__.partition(".")[0], type(X).__name__
    if library == "pyarrow" and kind in ("Table", "RecordBatch"):
        check_names_differ(X.schema.names)  # pandas would keep both
        return X.to_pandas()
    if library == "polars" and kind == "DataFrame":  # not by its to_pandas, which needs pyarrow
        return pd.DataFrame({name: X[name].to_numpy() for name in X.columns})
    return X


def check_delta_is_small(delta: float) -> None:
    """Refuse a delta that is too large for a table of any size."""
    if delta > _LARGEST_DELTA:
        raise ValueError(
            f"delta={delta!r} must be far below 1 / number of records; it exceeds even "
            f"{_LARGEST_DELTA:g}, which would allow publishing a record outright. A usual choice "
            "is 1e-6."
        )


def check_unmasked(values: Any, name: str = "X") -> None:
    """Refuse a masked array: what converts it to an ordinary one uses the values under the mask."""
    if np.ma.isMaskedArray(values):
        raise ValueError(
            f"{name} is a masked array, whose mask would be ignored. Drop the masked records, or "
            f"pass {name}.filled(numpy.nan): a record with NaN is left out."
        )


def is_tensor(values: Any) -> bool:
    """Return whether ``values`` is a tensor of torch's, which is not imported for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def check_flat(values: Any, name: str = "value") -> None:
    """Refuse what is no flat array of float32 or float64, to which noise is added in place.

    A tensor of torch's is an array here, wherever it is.
    """
    if not (isinstance(values, np.ndarray) or is_tensor(values)):
        raise TypeError(
            f"{name} is of type {type(values).__name__}; expected a flat array of float32 or "
            "float64, to which noise is added in place."
        )
    check_unmasked(values, name)
    if values.ndim != 1 or str(values.dtype).removeprefix("torch.") not in ("float32", "float64"):
        raise ValueError(
            f"{name} has shape {tuple(values.shape)} and dtype {values.dtype}; expected a flat "
            f"array of float32 or float64. Flatten it with {name}.reshape(-1) first."
        )


def check_column_names(X: Any) -> None:
    """Refuse a DataFrame with two columns of the same name, in every version of scikit-learn."""
    check_unmasked(X)
    columns = getattr(X, "column_names", getattr(X, "columns", None))  # the first is pyarrow's
    if columns is not None:
        check_names_differ(columns)


def check_names_differ(columns: Any) -> None:
    """Refuse names of columns that occur more than once."""
    names = pd.Index(columns)
    if not names.is_unique:
        twice = names[names.duplicated()].unique().tolist()
        raise ValueError(
            f"X has more than one column named {twice[0]!r} (repeated names: {twice!r}). Rename or "
            "drop the repeated columns."
        )


def check_numbers(X: Any, name: str = "X") -> None:
    """Refuse text and dates and name their columns; numbers written as text are accepted."""
    check_unmasked(X, name)
    if isinstance(X, pd.DataFrame):
        others = [i for i, dtype in enumerate(X.dtypes) if dtype.kind not in "biuf"]
        not_numeric = [X.columns[i] for i in others if _holds_text(X.iloc[:, i])]
        where = f" in the columns {not_numeric[:5]!r}"
    else:
        not_numeric, where = [name] * _holds_text(X), ""
    if not_numeric:
        raise ValueError(
            f"{name} holds text or dates{where}; expected numbers. Convert them by public facts, "
            "for example with SchemaTransformer."
        )


def _holds_text(values: Any) -> bool:
    if sparse.issparse(values):  # numbers; numpy would go through it row by row, where it can
        return False
    array = np.asarray(values)
    if array.dtype.kind not in "OUS":
        return array.dtype.kind in "Mm"
    return any(isinstance(v, str | bytes | date) and not _is_number(v) for v in array.flat)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def label_columns(y: Any, classes: NDArray[Any]) -> NDArray[np.intp]:
    """Return the column of each label in ``classes``."""
    y = np.asarray(y)
    columns = np.searchsorted(classes, y)
    unknown = (columns == len(classes)) | (classes[np.minimum(columns, len(classes) - 1)] != y)
    if unknown.any():
        raise ValueError(
            f"y holds the label {y[unknown][0]!r}, which occurs neither in the model nor in the "
            f"attacker's records; expected one of {classes.tolist()[:20]}. Leave such records out."
        )
    return columns
