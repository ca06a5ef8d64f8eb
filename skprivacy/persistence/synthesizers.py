"""Synthesizers: the public facts of each column, and noisy tables or the weights of a generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._environment import name_missing_torch
from ..preprocessing import Categories, Schema
from ..synthesis import DPGANSynthesizer, Grid, PrivateSynthesizer
from ..synthesis.domain import Cells, ColumnCells, Domain, NumberCells, ValueCells
from ..synthesis.gan_features import Features
from ..synthesis.graphical_model import GraphicalModel, Measurement, count_junction_tree_cells
from .file_format import Arrays
from .value_checks import (
    check_names,
    common,
    make,
    number,
    restore_common,
    restore_guarantee,
    whole,
)

__all__ = ["from_state", "to_state"]

_PARAMS = ("epsilon", "delta", "method", "label", "max_bins", "rounds", "max_cells", "relation")
_OF_GAN = (
    "epsilon", "delta", "label", "hidden_layer_sizes", "generator_layer_sizes", "latent_size",
    "batch_size", "epochs", "discriminator_steps", "learning_rate", "max_grad_norm", "n_records",
    "max_group_rows",
)  # fmt: skip
_MOST_CELLS = 1 << 27  # of all tables of a model: a gigabyte
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


def to_state(model: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a fitted synthesizer."""
    if isinstance(model, DPGANSynthesizer):
        return _gan_to_state(model)
    return _marginals_to_state(model)


def from_state(kind: type, facts: dict[str, Any], arrays: Arrays) -> Any:
    """Return the synthesizer that facts and arrays describe."""
    if kind is DPGANSynthesizer:
        return _gan_from_state(kind, facts, arrays)
    return _marginals_from_state(kind, facts, arrays)


def _marginals_to_state(model: PrivateSynthesizer) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a synthesizer by marginals."""
    facts, arrays = _table_to_state(model, _PARAMS)
    workload, graph = model.workload, model.model_
    told = None if workload is None else [[*pair, float(w)] for pair, w in workload.items()]
    measured = [
        {"columns": m.columns, "std": float(m.std) if np.ndim(m.std) == 0 else None}
        for m in graph.measurements
    ]
    for j, (column, bins) in enumerate(zip(model.domain_.columns, model.bins_, strict=True)):
        arrays[f"bins_.{j}"] = bins.astype(np.float64)
        if column.name in model.tables_:
            arrays[f"tables_.{j}"] = model.tables_[column.name]
    for k, m in enumerate(graph.measurements):
        arrays[f"noisy.{k}"], arrays[f"potentials.{k}"] = m.table, graph.potentials[k]
        if np.ndim(m.std):
            arrays[f"std.{k}"] = np.asarray(m.std)
    more = {
        "workload": told,
        "total": float(graph.total),
        "measurements": measured,
        "fine_std": float(model.measurements_[0].std),
    }
    return facts | more, arrays


def _marginals_from_state(kind: type, facts: dict[str, Any], arrays: Arrays) -> PrivateSynthesizer:
    """Return the synthesizer by marginals that facts and arrays describe."""
    own = {name: facts[name] for name in ("workload", "total", "measurements", "fine_std")}
    table = {name: fact for name, fact in facts.items() if name not in own}
    model: PrivateSynthesizer = _table_from_state(
        kind, table, arrays, _PARAMS, workload=_workload(own["workload"])
    )
    columns, names = model.domain_.columns, model.domain_.names
    n_classes = Features(model.domain_, model.label_).n_classes
    model.bins_ = [_bins(arrays, f"bins_.{j}", c.size) for j, c in enumerate(columns)]
    model.tables_ = {
        c.name: arrays.take(f"tables_.{j}", (c.size, n_classes))
        for j, c in enumerate(columns)
        if c.name != model.label_
    }
    model.model_ = _model(own, arrays, [int(bins.max()) + 1 for bins in model.bins_])
    chosen = model.model_.measurements[len(model.tables_) :]
    model.measurements_ = [*_fine(model, number(own, "fine_std")), *chosen]
    model.cliques_ = [tuple(names[c] for c in m.columns) for m in model.model_.measurements]
    model.n_records_ = round(model.model_.total)
    return model


def _fine(model: PrivateSynthesizer, std: float) -> list[Measurement]:
    """Return the tables of each column on its grid, by the label if there is one."""
    names = model.domain_.names
    tie = () if model.label_ is None else (names.index(model.label_),)
    return [
        Measurement((names.index(name), *tie), table if tie else table[:, 0], std)
        for name, table in model.tables_.items()
    ]


def _workload(told: Any) -> dict[tuple[str, str], float] | None:
    if told is None:
        return None
    return {tuple(_texts([a, b])): number({"weight": w}, "weight") for a, b, w in told}  # type: ignore[misc]


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
    if count_junction_tree_cells([m.columns for m in measured], sizes) > _MOST_CELLS:
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


def _gan_to_state(model: DPGANSynthesizer) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a synthesizer that has a generator."""
    facts, arrays = _table_to_state(model, _OF_GAN)
    plan, params = model.generator_.plan, facts["params"]
    params["hidden_layer_sizes"] = [int(size) for size in np.atleast_1d(model.hidden_layer_sizes)]
    # Of the generator that there is: parameters may have been set for another fit.
    params["generator_layer_sizes"] = list(plan.hidden_layer_sizes)
    params["latent_size"] = plan.n_noise
    for name, weights in model.generator_.state_dict().items():
        arrays[f"generator_.{name}"] = weights.double().numpy()
    arrays["rates_"] = model.rates_
    own = {
        "n_records_": model.n_records_,
        "noise": model.noise_multiplier_,
        "n_steps_": model.n_steps_,
    }
    return facts | own, arrays


def _gan_from_state(kind: type, facts: dict[str, Any], arrays: Arrays) -> DPGANSynthesizer:
    """Return the synthesizer with the generator that facts and arrays describe."""
    own = {name: facts[name] for name in ("n_records_", "noise", "n_steps_")}
    table = {name: fact for name, fact in facts.items() if name not in own}
    model: DPGANSynthesizer = _table_from_state(kind, table, arrays, _OF_GAN)
    for name in ("hidden_layer_sizes", "generator_layer_sizes"):
        setattr(model, name, tuple(getattr(model, name)))
    model.n_records_, model.n_steps_ = whole(own, "n_records_"), whole(own, "n_steps_")
    model.noise_multiplier_ = number(own, "noise")
    features = Features(model.domain_, model.label_)
    model.rates_ = arrays.take("rates_", (features.n_classes,))
    if not (model.rates_ >= 0).all() or abs(model.rates_.sum() - 1) > 1e-9:
        raise ValueError(f"the rates of its labels are {model.rates_!r}")
    with name_missing_torch():
        from ..neural_network._training.adversarial import load_generator
    plan = model._generator_plan(features)
    model.generator_ = load_generator(
        plan, lambda name, shape: arrays.take(f"generator_.{name}", shape)
    )
    return model


def _table_to_state(
    model: Any, params: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, NDArray]]:
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
        "columns": [_column_to_state(column) for column in columns],
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


def _table_from_state(
    kind: type, facts: dict[str, Any], arrays: Arrays, params: tuple[str, ...], **more: Any
) -> Any:
    """Return a synthesizer with its table, its parameters and its guarantee."""
    check_names(facts, _FACTS)
    model: Any = make(
        kind, facts["params"], params, grids=_grids(facts["grids"]),
        missing=tuple(_texts(facts["missing"])), **more,
    )  # fmt: skip
    restore_common(model, facts)
    model.schema_ = Schema.from_dict(facts["schema"])
    # What was read off the data must not pass for public in a new fit.
    model.schema = model.schema_ if facts["schema_given"] is True else None
    columns = [_column(told, arrays, f"cells.{j}") for j, told in enumerate(facts["columns"])]
    model.domain_ = Domain(tuple(columns))
    names, model._order = model.domain_.names, _texts(facts["order"])
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


def _column_to_state(column: ColumnCells) -> dict[str, Any]:
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


def _texts(told: Any) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(name, str) for name in told):
        raise ValueError(f"there are names expected, and it says {told!r}")
    return told


def _column(told: Any, arrays: Arrays, name: str) -> ColumnCells:
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
    return ColumnCells(own, cells, _type(told["type"], cells), told["may_be_missing"])


def _type(told: Any, cells: Cells) -> Any:
    if told in (_CATEGORY, _ORDERED) and isinstance(cells, ValueCells):
        return pd.CategoricalDtype(list(cells.fact.values), told == _ORDERED)
    if told is not None and told not in _TYPES:
        raise ValueError(f"there is no type {told!r} of a column")
    return None if told is None else _TYPES[told]
