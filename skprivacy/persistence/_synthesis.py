"""What a file holds of a synthesizer: noisy tables, and the public cells that they count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..preprocessing import Categories, Schema
from ..synthesis import Grid, PrivateSynthesizer
from ..synthesis._cells import Cells, NumberCells, ValueCells
from ..synthesis._domain import Column, Domain
from ..synthesis._junction import n_cells_of_junction_tree
from ..synthesis._model import GraphicalModel, Measurement
from ._checks import (
    check_names,
    common,
    make,
    number,
    restore_common,
    restore_guarantee,
    whole,
)
from .files import Arrays

__all__ = ["restored_synthesizer", "told_synthesizer"]

_PARAMS = ("epsilon", "delta", "method", "label", "max_bins", "rounds", "max_cells", "relation")
_FACTS = (
    "n_features_in_", "feature_names", "params", "missing", "grids", "workload", "schema",
    "schema_given", "columns", "order", "label", "target", "total", "measurements", "privacy",
)  # fmt: skip
_MOST_CELLS = 1 << 27  # of all tables of a model: a gigabyte
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


def told_synthesizer(model: PrivateSynthesizer) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a fitted synthesizer."""
    domain, graph = model.domain_, model.model_
    grids = {} if model.grids is None else model.grids
    workload = None if model.workload is None else model.workload.items()
    facts = {
        **common(model),
        "params": {name: getattr(model, name) for name in _PARAMS},
        "missing": [model.missing] if isinstance(model.missing, str) else list(model.missing),
        "grids": {
            n: {"step": g.step, "cells": g.cells, "atoms": g.atoms} for n, g in grids.items()
        },
        "workload": None if workload is None else [[*pair, float(w)] for pair, w in workload],
        "schema": model.schema_.to_dict(),
        "schema_given": model.schema is not None,
        "columns": [_told_column(column) for column in domain.columns],
        "order": model._order,
        "label": model.label_,
        "target": model.target_,
        "total": float(graph.total),
        "measurements": [
            {"columns": m.columns, "std": float(m.std) if np.ndim(m.std) == 0 else None}
            for m in graph.measurements
        ],
        "privacy": model.privacy_.to_dict(),
    }
    return facts, _arrays_of(model)


def _arrays_of(model: PrivateSynthesizer) -> dict[str, NDArray]:
    arrays = {}
    for j, (column, bins) in enumerate(zip(model.domain_.columns, model.bins_, strict=True)):
        arrays[f"bins_.{j}"] = bins.astype(np.float64)
        if column.name in model.tables_:
            arrays[f"tables_.{j}"] = model.tables_[column.name]
        if isinstance(column.cells, NumberCells):
            arrays[f"cells.{j}"] = np.stack([column.cells.left, column.cells.right])
    for k, m in enumerate(model.model_.measurements):
        arrays[f"noisy.{k}"], arrays[f"potentials.{k}"] = m.table, model.model_.potentials[k]
        if np.ndim(m.std):
            arrays[f"std.{k}"] = np.asarray(m.std)
    return arrays


def _told_column(column: Column) -> dict[str, Any]:
    cells, dtype = column.cells, column.dtype
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


def restored_synthesizer(kind: type, facts: dict[str, Any], arrays: Arrays) -> PrivateSynthesizer:
    """Return the synthesizer that facts and arrays describe."""
    check_names(facts, _FACTS)
    model: PrivateSynthesizer = make(
        kind, facts["params"], _PARAMS, grids=_grids(facts["grids"]),
        missing=tuple(_texts(facts["missing"])), workload=_workload(facts["workload"]),
    )  # fmt: skip
    restore_common(model, facts)
    model.schema_ = Schema.from_dict(facts["schema"])
    # What was read off the data must not pass for public in a new fit.
    model.schema = model.schema_ if facts["schema_given"] is True else None
    columns = [_column(told, arrays, f"cells.{j}") for j, told in enumerate(facts["columns"])]
    model.domain_ = domain = Domain(tuple(columns))
    model._order = _texts(facts["order"])
    if (
        not columns
        or sorted(model._order) != sorted(domain.names)
        or len({*domain.names}) < len(columns)
    ):
        raise ValueError(f"the columns {model._order!r} are not those of its tables")
    if not set(model.schema_) <= {*domain.names}:
        raise ValueError("the schema has other columns than its tables")
    model.label_, model.target_ = facts["label"], facts["target"]
    if model.target_ is not None and (len(columns) < 2 or model.target_ not in domain.names):
        raise ValueError(f"the target {model.target_!r} is no column beside others")
    n_classes = _n_classes(domain, model.label_)
    model.bins_ = [_bins(arrays, f"bins_.{j}", c.size) for j, c in enumerate(columns)]
    model.tables_ = {
        c.name: arrays.take(f"tables_.{j}", (c.size, n_classes))
        for j, c in enumerate(columns)
        if c.name != model.label_
    }
    model.model_ = _model(facts, arrays, [int(bins.max()) + 1 for bins in model.bins_])
    model.cliques_ = [tuple(domain.names[c] for c in m.columns) for m in model.model_.measurements]
    model.n_records_ = round(model.model_.total)
    restore_guarantee(model, facts)
    return model


def _grids(told: Any) -> dict[str, Grid] | None:
    grids = {
        name: Grid(**check_names(grid, ("step", "cells", "atoms"))) for name, grid in told.items()
    }
    return grids or None


def _texts(told: Any) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        raise ValueError(f"there are names expected, and it says {told!r}")
    return told


def _workload(told: Any) -> dict[tuple[str, str], float] | None:
    if told is None:
        return None
    return {tuple(_texts([a, b])): number({"weight": w}, "weight") for a, b, w in told}  # type: ignore[misc]


def _column(told: Any, arrays: Arrays, name: str) -> Column:
    check_names(told, ("name", "type", "may_be_missing", "values", "whole", "n_cells"))
    (own,) = _texts([told["name"]])
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
    return Column(own, cells, _type(told["type"], cells), told["may_be_missing"])


def _type(told: Any, cells: Cells) -> Any:
    if told in (_CATEGORY, _ORDERED) and isinstance(cells, ValueCells):
        return pd.CategoricalDtype(list(cells.fact.values), told == _ORDERED)
    if told is not None and told not in _TYPES:
        raise ValueError(f"there is no type {told!r} of a column")
    return None if told is None else _TYPES[told]


def _n_classes(domain: Domain, label: Any) -> int:
    if label is None:
        return 1
    column = domain.columns[domain.names.index(label)]
    if not isinstance(column.cells, ValueCells) or len(domain.columns) < 2:
        raise ValueError(f"the label {label!r} is no column of categories beside others")
    return column.size


def _bins(arrays: Arrays, name: str, n_cells: int) -> NDArray[np.int64]:
    bins = arrays.take(name, (n_cells,))
    numbers = np.unique(bins)
    if not np.array_equal(numbers, np.arange(len(numbers))):
        raise ValueError(f"the bins {name!r} are not numbered from 0")
    return bins.astype(np.int64)


def _model(facts: dict[str, Any], arrays: Arrays, sizes: list[int]) -> GraphicalModel:
    measured = [
        _measurement(told, arrays, k, sizes) for k, told in enumerate(facts["measurements"])
    ]
    if {c for m in measured for c in m.columns} != set(range(len(sizes))):
        raise ValueError("some column is in no table")
    if n_cells_of_junction_tree([m.columns for m in measured], sizes) > _MOST_CELLS:
        raise ValueError(f"the tables of its model have more than {_MOST_CELLS} cells")
    total = number(facts, "total")
    if not 1 <= total < 2.0**53:
        raise ValueError(f"the number of records is {total!r}")
    model = GraphicalModel(sizes, measured, total)
    model.potentials = [
        arrays.take(f"potentials.{k}", m.table.shape) for k, m in enumerate(measured)
    ]
    return model


def _measurement(told: Any, arrays: Arrays, k: int, sizes: list[int]) -> Measurement:
    check_names(told, ("columns", "std"))
    clique = tuple(told["columns"])
    if not all(type(c) is int and 0 <= c < len(sizes) for c in clique):
        raise ValueError(f"there are no columns {clique!r}")
    if list(clique) != sorted(set(clique)) or not clique:
        raise ValueError(f"the columns {clique!r} of a table are not in order")
    shape = tuple(sizes[c] for c in clique)
    table = arrays.take(f"noisy.{k}", shape)
    std = arrays.take(f"std.{k}", shape) if told["std"] is None else number(told, "std")
    if not np.all(np.asarray(std) > 0):
        raise ValueError("the noise of a table is not above 0")
    return Measurement(clique, table, std)
