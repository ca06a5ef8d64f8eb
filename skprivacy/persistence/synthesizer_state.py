"""What a file holds of synthesizers: noisy tables, or the weights of a generator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._environment import name_missing_torch
from ..synthesis import DPGANSynthesizer, PrivateSynthesizer
from ..synthesis.gan_features import Features
from ..synthesis.graphical_model import GraphicalModel, Measurement, n_cells_of_junction_tree
from .file_format import Arrays
from .table_state import restored_table, texts, told_table
from .value_checks import check_names, number, whole

__all__ = ["restored_gan", "restored_synthesizer", "told_gan", "told_synthesizer"]

_PARAMS = ("epsilon", "delta", "method", "label", "max_bins", "rounds", "max_cells", "relation")
_OF_GAN = (
    "epsilon", "delta", "label", "hidden_layer_sizes", "generator_layer_sizes", "latent_size",
    "batch_size", "epochs", "discriminator_steps", "learning_rate", "max_grad_norm", "n_records",
    "max_group_rows",
)  # fmt: skip
_MOST_CELLS = 1 << 27  # of all tables of a model: a gigabyte


def told_synthesizer(model: PrivateSynthesizer) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a synthesizer by marginals."""
    facts, arrays = told_table(model, _PARAMS)
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


def restored_synthesizer(kind: type, facts: dict[str, Any], arrays: Arrays) -> PrivateSynthesizer:
    """Return the synthesizer by marginals that facts and arrays describe."""
    own = {name: facts[name] for name in ("workload", "total", "measurements", "fine_std")}
    table = {name: fact for name, fact in facts.items() if name not in own}
    model: PrivateSynthesizer = restored_table(
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
    return {tuple(texts([a, b])): number({"weight": w}, "weight") for a, b, w in told}  # type: ignore[misc]


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


def told_gan(model: DPGANSynthesizer) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the facts and the arrays of a synthesizer that has a generator."""
    facts, arrays = told_table(model, _OF_GAN)
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


def restored_gan(kind: type, facts: dict[str, Any], arrays: Arrays) -> DPGANSynthesizer:
    """Return the synthesizer with the generator that facts and arrays describe."""
    own = {name: facts[name] for name in ("n_records_", "noise", "n_steps_")}
    table = {name: fact for name, fact in facts.items() if name not in own}
    model: DPGANSynthesizer = restored_table(kind, table, arrays, _OF_GAN)
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
    plan = model._plan(features)
    model.generator_ = load_generator(
        plan, lambda name, shape: arrays.take(f"generator_.{name}", shape)
    )
    return model
