"""Table of ``train --engine``: a Parquet file that an engine reads, and whose rows stay in it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..sums.sum_estimator import SumEstimator
from .console import UserError
from .data import Records, load_schema

ENGINES = ("duckdb", "polars", "pyarrow")
_NEEDS_ROWS = ("hold_out", "members", "rows", "public")  # options that read rows into memory


def add_argument(group: Any) -> None:
    """Add the option that names the engine."""
    group.add_argument(
        "--engine",
        choices=ENGINES,
        help="read a Parquet file by this engine, batch by batch, for models that need only sums "
        "over records (default: read DATA into memory)",
    )


def open_records(args: argparse.Namespace) -> tuple[Records, Any, str]:
    """Return the public facts as records without a row, the engine's table and the target."""
    path = Path(args.data)
    if given := [name for name in _NEEDS_ROWS if getattr(args, name)]:
        option = given[0].replace("_", "-")
        raise UserError(f"--{option} reads rows into memory, which --engine does not. Choose one.")
    if path.suffix not in (".parquet", ".pq") or not path.exists():
        raise UserError(f"--engine needs a Parquet file that exists; got {path}.")
    if args.schema is None:
        raise UserError("--engine reads no public fact off the table. Pass --schema FILE.")
    schema = load_schema(args.schema)
    target = args.target or schema.target_column
    if target is None:
        raise UserError(f"{path} has no known target. Give the column to predict by --target NAME.")
    columns = [*schema, target, *([args.groups] if args.groups else [])]
    X = pd.DataFrame(columns=list(schema))
    records = Records(path.name, X, np.empty(0), schema)
    return records, _open_table(args.engine, path, columns), target


def check_model(model: Any, engine: str) -> None:
    """Raise UserError for a model that needs more than sums."""
    last = model[-1] if hasattr(model, "steps") else model
    if not isinstance(last, SumEstimator):
        raise UserError(
            f"--engine {engine}: {type(last).__name__} needs more than sums over records. Choose "
            "AdaSSPRegressor, an additive model or a functional mechanism by --model, or leave "
            "--engine out."
        )


def _open_table(engine: str, path: Path, columns: list[str]) -> Any:
    """Return the engine's table of some columns; UserError if one is absent."""
    try:
        from pyarrow import dataset, parquet

        known = parquet.read_schema(path)
        if absent := [name for name in columns if name not in known.names]:
            raise UserError(f"{path} has no column {absent[0]!r}. Correct the names.")
        if engine == "pyarrow":
            return dataset.dataset(path, schema=known.empty_table().select(columns).schema)
        if engine == "polars":
            import polars

            return polars.scan_parquet(path).select(columns)
        import duckdb

        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        return duckdb.read_parquet(str(path)).project(quoted)
    except ImportError as error:
        raise UserError(
            f"--engine {engine} needs {error.name}: pip install {error.name}."
        ) from None
