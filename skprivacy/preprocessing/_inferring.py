"""Facts about a column or a target, read off the data: they leak it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .._validation import as_array, as_frame, check_column_names, check_one_type, raise_alone, whole
from ._column import Column
from ._values import category_key
from .columns import Bounded, Categories

__all__ = ["inferred_facts", "target_facts"]

_MAX_CLASSES = 30  # of a target whose values are whole numbers; with more it is a number


def inferred_facts(X: Any, y: Any, max_categories: int) -> dict[str, Any]:
    """Return the arguments of the Schema that describes a table and its target."""
    whole("max_categories", max_categories)
    check_column_names(X)
    X = as_frame(X)
    rows = X if isinstance(X, pd.DataFrame) else as_array("X", X)
    if rows.ndim != 2:
        raise ValueError(f"X has {rows.ndim} dimensions; expected 2, records by columns.")
    frame = pd.DataFrame(rows)
    columns = {
        _column_name(label): _inferred_column(_column_name(label), frame[label], max_categories)
        for label in frame.columns
    }
    name = getattr(y, "name", None)
    return {
        "columns": columns,
        "target": name if isinstance(name, str) and name not in columns else None,
        **({} if y is None else target_facts(as_array("y", y))),
    }


def target_facts(y: np.ndarray) -> dict[str, Any]:
    """Return the classes of a target, or the bounds of one that is a number, read off it."""
    if y.ndim != 1:
        raise ValueError(f"Schema.infer: y has shape {y.shape}; expected a value for each record.")
    check_one_type("y", y)
    values = np.unique(y)
    if values.dtype.kind in "iuf" and len(values) > 1:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(
                "Schema.infer: y holds missing or infinite values. Drop these records."
            )
        if len(values) > _MAX_CLASSES or (values != np.floor(values)).any():
            return {"target_bounds": (float(values[0]), float(values[-1]))}
    return {"classes": values}


def _column_name(label: Any) -> str:
    """Return the name of a column; one that is no text gets an x."""
    return label if isinstance(label, str) else f"x{label}"


def _inferred_column(name: str, column: pd.Series, max_categories: int) -> Column:
    """Return what a column seems to be."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
        numbers_ = column.to_numpy(dtype=np.float64, na_value=np.nan)
        finite = numbers_[np.isfinite(numbers_)]
        if not len(finite):
            raise ValueError(
                f"Schema.infer: column {name!r} has no finite value. Drop it, or describe it in a "
                "Schema."
            )
        return Bounded(finite.min(), finite.max(), inferred=True)
    values = pd.unique(column.dropna())
    if not len(values):
        raise ValueError(
            f"Schema.infer: column {name!r} has no value. Drop it, or describe it in a Schema."
        )
    if len(values) > max_categories:
        raise ValueError(
            f"Schema.infer: column {name!r} has {len(values)} distinct values, more than "
            f"max_categories={max_categories}. Drop it, or describe it in a Schema."
        )
    try:
        return Categories(tuple(sorted(values, key=category_key)), inferred=True)
    except (TypeError, ValueError) as error:
        raise_alone(ValueError(f"Schema.infer: column {name!r}: {error}"))
