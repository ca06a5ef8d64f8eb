"""What a file holds of a table: the public facts that every synthesizer keeps of its columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..preprocessing import Categories, Schema
from ..synthesis import Grid
from ..synthesis.domain import Cells, ColumnCells, Domain, NumberCells, ValueCells
from .file_format import Arrays
from .value_checks import check_names, common, make, restore_common, restore_guarantee, whole

__all__ = ["restored_table", "texts", "told_table"]

_FACTS = (
    "n_features_in_", "feature_names", "params", "missing", "grids", "schema", "schema_given",
    "columns", "order", "label", "target", "privacy",
)  # fmt: skip
_CATEGORY, _ORDERED = "category", "ordered category"
# Others come back as pandas infers them from the values.
_TYPES = {
    name: pd.api.types.pandas_dtype(name)
    for name in (
        "bool", "boolean", "object", "string", "str",
        "float16", "float32", "float64", "Float32", "Float64",
        *(f"{kind}{bits}" for kind in ("int", "uint", "Int", "UInt") for bits in (8, 16, 32, 64)),
    )
}  # fmt: skip


def told_table(model: Any, params: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a fitted synthesizer's table, and these parameters."""
    grids = {} if model.grids is None else model.grids
    columns = model.domain_.columns
    facts = {
        **common(model),
        "params": {name: getattr(model, name) for name in params},
        "missing": [model.missing] if isinstance(model.missing, str) else list(model.missing),
        "grids": {
            n: {"step": g.step, "cells": g.cells, "atoms": g.atoms} for n, g in grids.items()
        },
        "schema": model.schema_.to_dict(),
        "schema_given": model.schema is not None,
        "columns": [_told_column(column) for column in columns],
        "order": model._order,
        "label": model.label_,
        "target": model.target_,
        "privacy": model.privacy_.to_dict(),
    }
    arrays = {
        f"cells.{j}": np.stack([column.cells.left, column.cells.right])
        for j, column in enumerate(columns)
        if isinstance(column.cells, NumberCells)
    }
    return facts, arrays


def restored_table(
    kind: type, facts: dict[str, Any], arrays: Arrays, params: tuple[str, ...], **more: Any
) -> Any:
    """Return a synthesizer with its table, its parameters and its guarantee."""
    check_names(facts, _FACTS)
    model: Any = make(
        kind, facts["params"], params, grids=_grids(facts["grids"]),
        missing=tuple(texts(facts["missing"])), **more,
    )  # fmt: skip
    restore_common(model, facts)
    model.schema_ = Schema.from_dict(facts["schema"])
    # What was read off the data must not pass for public in a new fit.
    model.schema = model.schema_ if facts["schema_given"] is True else None
    columns = [_column(told, arrays, f"cells.{j}") for j, told in enumerate(facts["columns"])]
    model.domain_ = Domain(tuple(columns))
    names, model._order = model.domain_.names, texts(facts["order"])
    if not names or sorted(model._order) != sorted(names) or len({*names}) < len(names):
        raise ValueError(f"the columns {model._order!r} are not those of its tables")
    if not set(model.schema_) <= {*names}:
        raise ValueError("the schema has other columns than its tables")
    model.label_, model.target_ = facts["label"], facts["target"]
    if model.target_ is not None and (len(names) < 2 or model.target_ not in names):
        raise ValueError(f"the target {model.target_!r} is no column beside others")
    if model.label_ is not None:
        column = columns[names.index(model.label_)]
        if not isinstance(column.cells, ValueCells) or len(names) < 2:
            raise ValueError(f"the label {model.label_!r} has no categories, or no other beside")
    restore_guarantee(model, facts)
    return model


def _told_column(column: ColumnCells) -> dict[str, Any]:
    cells, dtype = column.cells, column.dtype
    kind: str | None
    if isinstance(dtype, pd.CategoricalDtype):
        kind = _ORDERED if dtype.ordered else _CATEGORY
    else:
        kind = next((n for n, t in _TYPES.items() if dtype is not None and t == dtype), None)
    return {
        "name": column.name,
        "type": kind,
        "may_be_missing": bool(column.may_be_missing),
        "values": list(cells.fact.values) if isinstance(cells, ValueCells) else None,
        "whole": bool(cells.whole) if isinstance(cells, NumberCells) else None,
        "n_cells": cells.size,
    }


def _grids(told: Any) -> dict[str, Grid] | None:
    grids = {
        name: Grid(**check_names(grid, ("step", "cells", "atoms"))) for name, grid in told.items()
    }
    return grids or None


def texts(told: Any) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        raise ValueError(f"there are names expected, and it says {told!r}")
    return told


def _column(told: Any, arrays: Arrays, name: str) -> ColumnCells:
    check_names(told, ("name", "type", "may_be_missing", "values", "whole", "n_cells"))
    (own,) = texts([told["name"]])
    if not isinstance(told["may_be_missing"], bool):
        raise ValueError(f"whether {own!r} may be missing is {told['may_be_missing']!r}")
    cells: Cells
    if told["values"] is not None:
        cells = ValueCells(Categories(tuple(told["values"])))
    elif isinstance(told["whole"], bool):
        left, right = arrays.take(name, (2, whole(told, "n_cells")))
        if not ((np.diff(left) > 0).all() and (left <= right).all()):
            raise ValueError(f"the cells of the column {own!r} are not in order")
        cells = NumberCells(left, right, told["whole"])
    else:
        raise ValueError(f"the column {own!r} has neither categories nor cells of numbers")
    if cells.size != told["n_cells"]:
        raise ValueError(f"the column {own!r} has {cells.size} cells, not {told['n_cells']!r}")
    return ColumnCells(own, cells, _type(told["type"], cells), told["may_be_missing"])


def _type(told: Any, cells: Cells) -> Any:
    if told in (_CATEGORY, _ORDERED) and isinstance(cells, ValueCells):
        return pd.CategoricalDtype(list(cells.fact.values), told == _ORDERED)
    if told is not None and told not in _TYPES:
        raise ValueError(f"there is no type {told!r} of a column")
    return None if told is None else _TYPES[told]
