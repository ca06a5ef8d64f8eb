"""From DATA on the command line to records with a public schema."""

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

_CLASSES_READ_OFF = "the set of class labels is public (it was read off the data)"
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "None", "?"]


@dataclass(frozen=True)
class Records:
    """Records to learn from, and what is publicly known about them."""

    name: str
    X: pd.DataFrame
    y: np.ndarray
    schema: Schema
    classes: np.ndarray
    assumptions: tuple[str, ...] = ()  # what has to be public although it was read off the data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which data to use."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "data",
        metavar="DATA",
        help="a data set's name (see `skprivacy datasets`), or the path of a CSV file with a "
        "header line",
    )
    group.add_argument("--target", help="the CSV's column to predict")
    group.add_argument(
        "--schema",
        metavar="FILE",
        help="JSON file of PUBLIC bounds and categories (see doc/datasets); without it they are "
        "read off the data, which leaks them",
    )
    group.add_argument("--rows", type=int, metavar="N", help="use the first N rows only")


def load(args: argparse.Namespace) -> Records:
    """Load DATA.

    Raises
    ------
    UserError
        If it cannot be read, or is nothing to classify.
    """
    if args.data in {"demo", *CATALOGUE}:
        if args.target or args.schema:
            raise UserError(f"{args.data} brings its own target and schema; leave both out.")
        records = _named(args.data)
    else:
        records = _csv(Path(args.data), args.target, args.schema)
    if args.rows is not None:
        if args.rows < 1:
            raise UserError(f"--rows must be at least 1, got {args.rows}.")
        records = replace(records, X=records.X[: args.rows], y=records.y[: args.rows])
    if len(np.unique(records.y)) < 2:
        raise UserError(f"{records.name} has one class only; there is nothing to learn.")
    return records


def _named(name: str) -> Records:
    if name == "demo":
        try:
            return _named("adult")
        except DatasetNotFoundError as error:
            say(f"Adult is not to be had, so the demo runs on the embedded digits. ({error})")
            return _named("digits")
    bunch = CATALOGUE[name].load(as_frame=True)
    return Records(name, bunch.data, np.asarray(bunch.target), bunch.schema, bunch.classes)


def _csv(path: Path, target: str | None, schema_path: str | None) -> Records:
    if not path.exists():
        raise UserError(
            f"{path} is neither a file nor a data set's name; names are "
            f"{', '.join(['demo', *CATALOGUE])}."
        )
    schema = None if schema_path is None else _schema(Path(schema_path))
    if schema and target:
        _check_target(target, schema)
    target = target or (schema.target if schema else None)
    if target is None:
        raise UserError(f"which column of {path} is to be predicted? Give --target NAME.")
    frame = _read(path, schema, target)
    if target not in frame:
        raise UserError(f"{path} has no column {target!r}; it has {', '.join(map(str, frame))}.")
    if frame[target].isna().any():
        raise UserError(f"column {target!r} has {frame[target].isna().sum()} missing values.")
    X = frame.drop(columns=target)
    if schema is None:
        kind = type_of_target(frame[target])
        if kind not in ("binary", "multiclass"):
            raise UserError(f"column {target!r} holds {kind} values, not classes.")
        schema = Schema.infer(X, frame[target])
    if absent := [name for name in schema if name not in X]:
        raise UserError(f"{path} lacks columns of the schema: {', '.join(absent)}.")
    if extra := [str(name) for name in X if name not in schema]:
        say(f"Columns that the schema does not describe are not used: {', '.join(extra)}.")
    y, classes = _labels(frame[target], schema)
    read_off = schema.inferred or schema.classes is None
    return Records(
        path.name, X[list(schema)], y, schema, classes, (_CLASSES_READ_OFF,) if read_off else ()
    )


def _check_target(target: str, schema: Schema) -> None:
    if schema.target not in (None, target):
        raise UserError(
            f"--target {target!r} differs from the schema's target {schema.target!r}; leave "
            "--target out, or correct one of them."
        )
    if target in schema:
        raise UserError(f"--target {target!r} is also a feature of the schema; remove it there.")


def _schema(path: Path) -> Schema:
    try:
        return Schema.from_json(path)
    except FileNotFoundError as error:
        raise UserError(f"there is no schema file {path}.") from error


def _read(path: Path, schema: Schema | None, target: str) -> pd.DataFrame:
    """Read a CSV; with a schema, categories stay text and only numbers can be missing."""
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
        raise UserError(f"{path} has no rows.")
    return frame


def _labels(column: pd.Series, schema: Schema) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as the schema writes them, and all classes."""
    if schema.classes is None:
        _config.leak(
            f"The classes of {column.name!r} are read off the data: list them in the schema."
        )
        return np.asarray(column), np.unique(np.asarray(column))
    known = {category_key(label): label for label in schema.classes}
    found = [known.get(category_key(label)) for label in column]
    if None in found:
        stranger = column.iloc[found.index(None)]
        raise UserError(
            f"column {column.name!r} holds {stranger!r}, which is none of the schema's classes "
            f"{list(schema.classes)}."
        )
    return np.array(found), np.array(schema.classes)
