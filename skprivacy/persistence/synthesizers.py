"""Saving of synthesizers: column facts, with noisy tables or the weights of a generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._extras import name_missing_extra
from ..preprocessing import CategoricalColumn, Schema
from ..synthesis import DPGANSynthesizer, Grid, MarginalSynthesizer
from ..synthesis.constrained_records import Constraints
from ..synthesis.domain import Cells, ColumnCells, Domain, NumberCells, ValueCells
from ..synthesis.gan_features import Features
from ..synthesis.graphical_model import GraphicalModel, Measurement, count_junction_tree_cells
from .file_format import Arrays
from .value_checks import (
    check_names,
    common_from_state,
    common_to_state,
    make,
    number,
    restore_bins,
    restore_guarantee,
    whole,
)

_PARAMS = ("epsilon", "delta", "method", "label", "max_bins", "n_rounds", "max_cells", "relation")
_GAN_PARAMS = (
    "epsilon", "delta", "label", "hidden_layer_sizes", "generator_layer_sizes", "latent_size",
    "batch_size", "epochs", "discriminator_steps", "learning_rate", "max_grad_norm", "relation",
    "n_records", "max_group_size",
)  # fmt: skip
_MAX_CELLS = 1 << 27  # all tables of a model together: 1 GiB of float64
_FACTS = (
    "n_features_in_", "feature_names", "params", "columns_with_missing", "grids", "schema",
    "schema_given",
    "columns", "order", "label", "target", "privacy",
)  # fmt: skip
_CATEGORY, _ORDERED = "category", "ordered category"
# pandas infers any other type from the values.
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


def _marginals_to_state(model: MarginalSynthesizer) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a synthesizer fitted from marginals."""
    facts, arrays = _table_to_state(model, _PARAMS)
    workload, graph = model.workload, model.model_
    stated = None if workload is None else [[*pair, float(w)] for pair, w in workload.items()]
    measured = [
        {"columns": m.columns, "std": float(m.std) if np.ndim(m.std) == 0 else None}
        for m in graph.measurements
    ]
    for j, (column, bins) in enumerate(zip(model.domain_.columns, model.bins_, strict=True)):
        arrays[f"bins_.{j}"] = bins.astype(np.float64)
        arrays[f"tables_.{j}"] = model.tables_[column.name]
    for k, m in enumerate(graph.measurements):
        arrays[f"noisy.{k}"], arrays[f"potentials.{k}"] = m.table, graph.potentials[k]
        if np.ndim(m.std):
            arrays[f"std.{k}"] = np.asarray(m.std)
    more = {
        "workload": stated,
        "total": float(graph.total),
        "measurements": measured,
        "zeros": [list(zeros.columns) for zeros in graph.zeros],
        "fine_std": float(model.measurements_[0].std),
    }
    return facts | more, arrays


def _marginals_from_state(kind: type, facts: dict[str, Any], arrays: Arrays) -> MarginalSynthesizer:
    """Return the marginal synthesizer that facts and arrays describe."""
    names = ("workload", "total", "measurements", "zeros", "fine_std")
    own = {name: facts[name] for name in names}
    table = {name: fact for name, fact in facts.items() if name not in own}
    model: MarginalSynthesizer = _table_from_state(
        kind, table, arrays, _PARAMS, workload=_load_workload(own["workload"])
    )
    columns = model.domain_.columns
    model.bins_ = [restore_bins(arrays, f"bins_.{j}", c.size) for j, c in enumerate(columns)]
    model.tables_ = {c.name: arrays.take(f"tables_.{j}", (c.size,)) for j, c in enumerate(columns)}
    model.model_ = _load_model(own, arrays, model)
    chosen = model.model_.measurements[len(model.tables_) :]
    std = number(own, "fine_std")
    fine = [Measurement((c,), table, std) for c, table in enumerate(model.tables_.values())]
    model.measurements_ = [*fine, *chosen]
    model.cliques_ = [tuple(columns[c].name for c in m.columns) for m in model.model_.measurements]
    model.n_records_ = round(model.model_.total)
    return model


def _load_workload(stated: Any) -> dict[tuple[str, str], float] | None:
    if stated is None:
        return None
    return {tuple(_check_texts([a, b])): number({"weight": w}, "weight") for a, b, w in stated}  # type: ignore[misc]


def _load_model(
    facts: dict[str, Any], arrays: Arrays, synthesizer: MarginalSynthesizer
) -> GraphicalModel:
    sizes = [int(bins.max()) + 1 for bins in synthesizer.bins_]
    measured = [
        _load_measurement(stated, arrays, k, sizes)
        for k, stated in enumerate(facts["measurements"])
    ]
    if {c for m in measured for c in m.columns} != set(range(len(sizes))):
        raise ValueError("a column occurs in no table")
    total = number(facts, "total")
    if not 1 <= total < 2.0**53:
        raise ValueError(f"the number of records is {total!r}, expected 1 to 2**53")
    constraints = Constraints.from_schema(synthesizer.schema_.constraints, synthesizer.domain_)
    zeros = tuple(
        zeros
        for zeros in constraints.structural_zeros(synthesizer.bins_)
        if list(zeros.columns) in facts["zeros"]
    )
    cliques = [m.columns for m in measured] + [z.columns for z in zeros]
    if count_junction_tree_cells(cliques, sizes) > _MAX_CELLS:
        raise ValueError(f"the tables of the model have more than {_MAX_CELLS} cells")
    model = GraphicalModel(sizes, measured, total, zeros)
    model.potentials = [
        arrays.take(f"potentials.{k}", m.table.shape) for k, m in enumerate(measured)
    ]
    return model


def _load_measurement(stated: Any, arrays: Arrays, k: int, sizes: list[int]) -> Measurement:
    check_names(stated, ("columns", "std"))
    clique = tuple(stated["columns"])
    if not all(type(c) is int and 0 <= c < len(sizes) for c in clique):
        raise ValueError(f"the table has the unknown columns {clique!r}")
    if list(clique) != sorted(set(clique)) or not clique:
        raise ValueError(f"the columns {clique!r} of a table are not in order")
    shape = tuple(sizes[c] for c in clique)
    table = arrays.take(f"noisy.{k}", shape)
    std = arrays.take(f"std.{k}", shape) if stated["std"] is None else number(stated, "std")
    if not np.all(np.asarray(std) > 0):
        raise ValueError("the noise of a table must be above 0")
    return Measurement(clique, table, std)


def _gan_to_state(model: DPGANSynthesizer) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a GAN synthesizer."""
    facts, arrays = _table_to_state(model, _GAN_PARAMS)
    plan, params = model.generator_.plan, facts["params"]
    params["hidden_layer_sizes"] = [int(size) for size in np.atleast_1d(model.hidden_layer_sizes)]
    # Taken from the fitted generator, because parameters may have changed since the fit.
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
    """Return the GAN synthesizer that facts and arrays describe."""
    own = {name: facts[name] for name in ("n_records_", "noise", "n_steps_")}
    table = {name: fact for name, fact in facts.items() if name not in own}
    model: DPGANSynthesizer = _table_from_state(kind, table, arrays, _GAN_PARAMS)
    for name in ("hidden_layer_sizes", "generator_layer_sizes"):
        setattr(model, name, tuple(getattr(model, name)))
    model.n_records_, model.n_steps_ = whole(own, "n_records_"), whole(own, "n_steps_")
    model.noise_multiplier_ = number(own, "noise")
    features = Features(model.domain_, model.label_)
    model.rates_ = arrays.take("rates_", (features.n_classes,))
    if not (model.rates_ >= 0).all() or abs(model.rates_.sum() - 1) > 1e-9:
        raise ValueError(f"the label rates are {model.rates_!r}, expected a distribution")
    with name_missing_extra():
        from ..neural_network._training.adversarial import load_generator
    plan = model._generator_plan(features)
    model.generator_ = load_generator(
        plan, lambda name, shape: arrays.take(f"generator_.{name}", shape)
    )
    return model


def _table_to_state(
    model: Any, params: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and arrays that all synthesizers share, with the named parameters."""
    grids = {} if model.grids is None else model.grids
    missing = model.columns_with_missing
    columns = model.domain_.columns
    facts = {
        **common_to_state(model),
        "params": {name: getattr(model, name) for name in params},
        "columns_with_missing": [missing] if isinstance(missing, str) else list(missing),
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
    """Return a synthesizer with its columns, its parameters and its guarantee."""
    check_names(facts, _FACTS)
    model: Any = make(
        kind, facts["params"], params, grids=_load_grids(facts["grids"]),
        columns_with_missing=tuple(_check_texts(facts["columns_with_missing"])), **more,
    )  # fmt: skip
    common_from_state(model, facts)
    model.schema_ = Schema.from_dict(facts["schema"])
    # A schema that was read off the data must not count as public in a new fit.
    model.schema = model.schema_ if facts["schema_given"] is True else None
    columns = [
        _load_column(stated, arrays, f"cells.{j}") for j, stated in enumerate(facts["columns"])
    ]
    model.domain_ = Domain(tuple(columns))
    names, model._order = model.domain_.names, _check_texts(facts["order"])
    if not names or sorted(model._order) != sorted(names) or len({*names}) < len(names):
        raise ValueError(f"the columns {model._order!r} differ from the columns of the tables")
    if not set(model.schema_) <= {*names}:
        raise ValueError("the schema has columns that the tables lack")
    model.label_, model.target_ = facts["label"], facts["target"]
    if model.target_ is not None and (len(names) < 2 or model.target_ not in names):
        raise ValueError(f"the target {model.target_!r} must be one of several columns")
    if model.label_ is not None:
        column = columns[names.index(model.label_)]
        if not isinstance(column.cells, ValueCells) or len(names) < 2:
            raise ValueError(f"the label {model.label_!r} needs categories and another column")
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


def _load_grids(stated: Any) -> dict[str, Grid] | None:
    grids = {
        name: Grid(**check_names(grid, ("step", "cells", "atoms"))) for name, grid in stated.items()
    }
    return grids or None


def _check_texts(stated: Any) -> list[str]:
    if not isinstance(stated, list) or not all(isinstance(name, str) for name in stated):
        raise ValueError(f"expected a list of names, found {stated!r}")
    return stated


def _load_column(stated: Any, arrays: Arrays, name: str) -> ColumnCells:
    check_names(stated, ("name", "type", "may_be_missing", "values", "whole", "n_cells"))
    (own,) = _check_texts([stated["name"]])
    if not isinstance(stated["may_be_missing"], bool):
        raise ValueError(
            f"may_be_missing of {own!r} is {stated['may_be_missing']!r}, not a boolean"
        )
    cells: Cells
    if stated["values"] is not None:
        cells = ValueCells(CategoricalColumn(tuple(stated["values"])))
    elif isinstance(stated["whole"], bool):
        left, right = arrays.take(name, (2, whole(stated, "n_cells")))
        if not ((np.diff(left) > 0).all() and (left <= right).all()):
            raise ValueError(f"the cells of the column {own!r} are not in order")
        cells = NumberCells(left, right, stated["whole"])
    else:
        raise ValueError(f"the column {own!r} has neither categories nor numeric cells")
    if cells.size != stated["n_cells"]:
        raise ValueError(f"the column {own!r} has {cells.size} cells, not {stated['n_cells']!r}")
    return ColumnCells(own, cells, _find_dtype(stated["type"], cells), stated["may_be_missing"])


def _find_dtype(stated: Any, cells: Cells) -> Any:
    if stated in (_CATEGORY, _ORDERED) and isinstance(cells, ValueCells):
        return pd.CategoricalDtype(list(cells.fact.values), stated == _ORDERED)
    if stated is not None and stated not in _TYPES:
        raise ValueError(f"the column type {stated!r} is unknown")
    return None if stated is None else _TYPES[stated]
