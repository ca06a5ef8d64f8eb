"""Loading of DATA from the command line into records with a public schema."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.multiclass import type_of_target

from .. import _config
from ..datasets.catalogue import CATALOGUE
from ..exceptions import DatasetNotFoundError
from ..preprocessing import Bounded, Categories, Schema
from ..preprocessing.columns import category_key
from ._console import UserError, say

__all__ = ["Records", "add_arguments", "load"]

_CLASSES_READ = "the set of class labels is public (it was read from the data)"
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "None", "?"]


@dataclass(frozen=True)
class Records:
    """Records to train on, and what is publicly known about them."""

    name: str
    X: pd.DataFrame
    y: np.ndarray
    schema: Schema
    classes: np.ndarray
    assumptions: tuple[str, ...] = ()  # what must be public although it was read from the data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select the data."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "data",
        metavar="DATA",
        help="name of a data set (see `skprivacy datasets`), or path of a CSV file with a header "
        "line",
    )
    group.add_argument("--target", help="column of the CSV file to predict")
    group.add_argument(
        "--schema",
        metavar="FILE",
        help="JSON file of PUBLIC bounds and categories (see doc/datasets); without it they are "
        "read from the data, which leaks them",
    )
    group.add_argument("--rows", type=int, metavar="N", help="use only the first N rows")


def load(args: argparse.Namespace) -> Records:
    """Load DATA.

    Raises
    ------
    UserError
        If it cannot be read, or is not a classification task.
    """
    if args.data in {"demo", *CATALOGUE}:
        if args.target or args.schema:
            raise UserError(
                f"{args.data} has a built-in target and schema. Leave out --target and --schema."
            )
        records = _named(args.data)
    else:
        records = _csv(Path(args.data), args.target, args.schema)
    if args.rows is not None:
        if args.rows < 1:
            raise UserError(f"--rows must be at least 1; got {args.rows}.")
        records = replace(records, X=records.X[: args.rows], y=records.y[: args.rows])
    if len(np.unique(records.y)) < 2:
        raise UserError(f"{records.name} must have at least two classes; it has one.")
    return records


def _named(name: str) -> Records:
    if name == "demo":
        try:
            return _named("adult")
        except DatasetNotFoundError as error:
            say(f"Adult is not available, so the demo runs on the embedded digits. ({error})")
            return _named("digits")
    bunch = CATALOGUE[name].load(as_frame=True)
    return Records(name, bunch.data, np.asarray(bunch.target), bunch.schema, bunch.classes)


def _csv(path: Path, target: str | None, schema_path: str | None) -> Records:
    if not path.exists():
        raise UserError(
            f"{path} is neither a file nor the name of a data set. The names are "
            f"{', '.join(['demo', *CATALOGUE])}."
        )
    schema = None if schema_path is None else _schema(Path(schema_path))
    if schema and target:
        _check_target(target, schema)
    target = target or (schema.target if schema else None)
    if target is None:
        raise UserError(f"{path} has no known target. Give the column to predict by --target NAME.")
    frame = _read(path, schema, target)
    if target not in frame:
        raise UserError(f"{path} has no column {target!r}; it has {', '.join(map(str, frame))}.")
    if frame[target].isna().any():
        raise UserError(
            f"column {target!r} must not have missing values; it has "
            f"{frame[target].isna().sum()}. Remove these rows."
        )
    X = frame.drop(columns=target)
    if schema is None:
        kind = type_of_target(frame[target])
        if kind not in ("binary", "multiclass"):
            raise UserError(
                f"column {target!r} must hold classes; it holds {kind} values. Choose another "
                "--target."
            )
        schema = Schema.infer(X, frame[target])
    if absent := [name for name in schema if name not in X]:
        raise UserError(
            f"{path} lacks columns of the schema: {', '.join(absent)}. Add them, or remove them "
            "from the schema."
        )
    if extra := [str(name) for name in X if name not in schema]:
        say(f"Columns that the schema does not describe are not used: {', '.join(extra)}.")
    y, classes = _labels(frame[target], schema)
    classes_read = schema.inferred or schema.classes is None
    return Records(
        path.name, X[list(schema)], y, schema, classes, (_CLASSES_READ,) if classes_read else ()
    )


def _check_target(target: str, schema: Schema) -> None:
    if schema.target not in (None, target):
        raise UserError(
            f"--target {target!r} differs from the schema's target {schema.target!r}. Leave "
            "--target out, or correct one of them."
        )
    if target in schema:
        raise UserError(f"--target {target!r} is also a feature of the schema. Remove it there.")


def _schema(path: Path) -> Schema:
    try:
        return Schema.from_json(path)
    except FileNotFoundError as error:
        raise UserError(f"there is no schema file {path}. Check --schema.") from error


def _read(path: Path, schema: Schema | None, target: str) -> pd.DataFrame:
    """Read a CSV file; with a schema, categories stay text and only numbers can be missing."""
    options: dict[str, Any] = {}
    if schema is not None:
        texts = [name for name, fact in schema.items() if isinstance(fact, Categories)]
        bounded = [name for name, fact in schema.items() if isinstance(fact, Bounded)]
        options = {
            "dtype": dict.fromkeys([*texts, target], str),
            "keep_default_na": False,
            "na_values": {**dict.fromkeys(bounded, MISSING), target: [""]},
        }
    try:
        frame = pd.read_csv(path, skipinitialspace=True, low_memory=False, **options)
    except (ValueError, OSError) as error:  # parser, encoding and file errors alike
        raise UserError(f"{path} cannot be read as a CSV table: {error}") from error
    if not len(frame):
        raise UserError(f"{path} must have at least one row; it has none.")
    return frame


def _labels(column: pd.Series, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as the schema writes them, and all classes."""
    if schema.classes is None:
        _config.leak(
            f"The classes of {column.name!r} are read from the data. List them in the schema."
        )
        return np.asarray(column), np.unique(np.asarray(column))
    known = {category_key(label): label for label in schema.classes}
    found = [known.get(category_key(label)) for label in column]
    if None in found:
        unknown = column.iloc[found.index(None)]
        raise UserError(
            f"column {column.name!r} holds {unknown!r}, which is not one of the schema's classes "
            f"{list(schema.classes)}. Correct the column or the schema."
        )
    return np.array(found), np.array(schema.classes)
