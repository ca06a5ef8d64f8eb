"""Records of the commands: DATA and public records, read into features with a public schema.

Start reading at :func:`load_records`. With ``--engine``, the rows of a Parquet file stay in it.
"""

from __future__ import annotations

import argparse
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupShuffleSplit, train_test_split

from .. import _config
from .._groups import find_identifiers
from ..datasets.catalogue import CATALOGUE
from ..preprocessing import BoundedColumn, CategoricalColumn, DateColumn, HashedColumn, Schema
from ..preprocessing.cell_values import category_key, column_numbers
from ..preprocessing.schema_draft import draft_schema
from ..sums.sum_estimator import SumEstimator
from . import tables
from .console import UserError, print_message

_NAME = "X_public"


@dataclass(frozen=True)
class Records:
    """Records to train on, with their public schema."""

    name: str
    X: pd.DataFrame
    y: np.ndarray
    schema: Schema
    groups: pd.Series | None = None

    @property
    def classifies(self) -> bool:
        """Whether the target is a class and not a number."""
        return self.schema.target_bounds is None

    def select(self, some: Any) -> RecordsPart:
        """Return some of the records, by a slice or by row numbers."""
        rows = np.arange(len(self.y))[some]
        groups = None if self.groups is None else self.groups.iloc[rows]
        return RecordsPart(self.X.iloc[rows], self.y[rows], groups, rows)

    def split_random(self, test_size: float, seed: int | None) -> tuple[RecordsPart, RecordsPart]:
        """Split the records at random into two parts; no group is in both."""
        rows, classes = np.arange(len(self.y)), self.y if self.classifies else None
        if self.groups is None:
            if classes is not None and np.unique(classes, return_counts=True)[1].min() < 2:
                raise UserError(
                    f"the rarest class of {self.name} has a single record; each class needs one on "
                    "either side of the split. Remove it."
                )
            own, new = train_test_split(
                rows, test_size=test_size, stratify=classes, random_state=seed
            )
        else:
            splitter = GroupShuffleSplit(1, test_size=test_size, random_state=seed)
            own, new = next(splitter.split(rows, groups=self.groups))
        return self.select(own), self.select(new)


class RecordsPart(NamedTuple):
    """Some of the records: features, targets, groups and row numbers in the table."""

    X: pd.DataFrame
    y: np.ndarray
    groups: pd.Series | None
    rows: np.ndarray


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that select the data."""
    group = parser.add_argument_group("data")
    group.add_argument(
        "data",
        metavar="DATA",
        help="name of a data set (see `skprivacy datasets`), or path of a table with a header "
        "line: CSV, Parquet, Arrow (.feather) or Excel (.xlsx)",
    )
    group.add_argument("--target", help="column of the table to predict")
    group.add_argument(
        "--schema",
        metavar="FILE",
        help="JSON file of PUBLIC bounds and categories (see `skprivacy schema`); without it they "
        "are read from the data, which leaks them",
    )
    group.add_argument(
        "--groups",
        metavar="COLUMN",
        help="column that groups the records, such as patient_id: the guarantee then protects all "
        "records of a group together, and no group is in both training and test",
    )
    group.add_argument("--rows", type=int, metavar="N", help="use only the first N rows")
    tables.add_arguments(group)


def load_records(args: argparse.Namespace, schema: Schema | None = None) -> Records:
    """Load DATA; ``schema``, of a trained model, takes the place of ``--schema``."""
    if args.rows is not None and args.rows < 1:
        raise UserError(f"--rows must be at least 1; got {args.rows}.")
    if args.data in CATALOGUE:
        if args.target or args.schema or args.groups:
            raise UserError(
                f"{args.data} has a built-in target and schema, and one row per person. Leave out "
                "--target, --schema and --groups."
            )
        bunch = CATALOGUE[args.data].load(as_frame=True)
        records = Records(args.data, bunch.data, np.asarray(bunch.target), bunch.schema)
    else:
        records = _load_file(Path(args.data), args, schema)
    first = records.select(slice(args.rows))
    records = replace(records, X=first.X, y=first.y, groups=first.groups)
    if records.classifies and len(np.unique(records.y)) < 2:
        raise UserError(f"{records.name} must have at least two classes; it has one.")
    return records


def pop_group_column(
    frame: pd.DataFrame, name: str | None, target: str | None, schema: Schema | None
) -> pd.Series | None:
    """Remove the column of groups from a table, and return it."""
    if name is None:
        return None
    if name not in frame:
        raise UserError(f"--groups: {tables.no_such_column('the table', name, frame)}")
    if name == target or (schema is not None and name in schema):
        role = "the target" if name == target else "a feature of the schema"
        raise UserError(f"--groups {name!r} is also {role}. Use another column for one of them.")
    groups = frame.pop(name)
    missing = groups.isna() | (groups.astype(str).str.strip() == "")
    if missing.any():
        raise UserError(
            f"column {name!r} must hold the group of each record; {missing.sum()} values are "
            "missing. Remove these rows, or give each of them a new group."
        )
    return groups


def load_schema(name: str) -> Schema:
    """Read a schema; raise UserError for a missing file."""
    try:
        return Schema.from_json(Path(name))
    except FileNotFoundError as error:
        raise UserError(f"the schema file {name} does not exist. Check --schema.") from error


def read_described_table(
    path: Path,
    args: argparse.Namespace,
    schema: Schema | None,
    target: str | None,
    groups: str | None = None,
) -> pd.DataFrame:
    """Read a table; with a schema, categories stay text and only numbers can be missing.

    Groups always stay text: 007 is not 7.
    """
    whose = [] if groups is None else [groups]
    if schema is None:
        return tables.read_table(path, args, whose or None)
    texts = [
        name
        for name, fact in schema.items()
        if isinstance(fact, CategoricalColumn | DateColumn | HashedColumn)
    ]
    missing = {
        name: tables.MISSING for name, fact in schema.items() if isinstance(fact, BoundedColumn)
    }
    if target is not None:
        missing[target] = [""]
        texts += [] if schema.target_bounds is not None else [target]
    return tables.read_table(path, args, texts + whose, missing)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a table of public records."""
    group = parser.add_argument_group("public records")
    group.add_argument(
        "--public",
        metavar="FILE",
        help="table of public records like those of DATA, or of people who agreed, on which "
        "PATEClassifier and PrivateKNNClassifier vote (default: random records from the schema, "
        "which teach little); labels in it are not used",
    )


def fit_arguments(args: argparse.Namespace, model: Any, records: Records) -> dict[str, Any]:
    """Return the public records as arguments of ``fit``; UserError if it takes none."""
    if args.public is None:
        return {}
    if _NAME not in inspect.signature(model.fit).parameters:
        raise UserError(
            f"--public is for models that learn from votes on public records, and "
            f"{type(getattr(model, '_final_estimator', model)).__name__} is not one. Pass --model "
            "PATEClassifier, or leave --public out."
        )
    path = Path(args.public)
    tables.check_file(path)
    table = read_described_table(path, args, records.schema, None)
    if absent := [name for name in records.schema if name not in table]:
        raise UserError(
            f"--public {path} lacks columns of the private records: {', '.join(absent)}. Add them."
        )
    print_message(f"{path.name}: {len(table):,} public records")
    return {_NAME: table[list(records.X)]}


def _load_file(path: Path, args: argparse.Namespace, schema: Schema | None) -> Records:
    if not path.exists():
        raise UserError(
            f"{path} is neither a file nor the name of a data set. The names are "
            f"{', '.join(CATALOGUE)}."
        )
    if schema is None and args.schema is not None:
        schema = load_schema(args.schema)
    target = args.target
    if schema and target:
        _check_target(target, schema)
    target = target or (schema.target_column if schema else None)
    if target is None:
        raise UserError(f"{path} has no known target. Give the column to predict by --target NAME.")
    frame = read_described_table(path, args, schema, target, args.groups)
    if target not in frame:
        raise UserError(tables.no_such_column(path, target, frame))
    if frame[target].isna().any():
        raise UserError(
            f"column {target!r} must not have missing values; it has "
            f"{frame[target].isna().sum()}. Remove these rows."
        )
    groups = pop_group_column(frame, args.groups, target, schema)
    if groups is None and (names := find_identifiers(frame)):
        print_message(
            f"Column {names[0]} seems to identify people. Without --groups the guarantee is for "
            f"single records. If people have several records, pass `--groups {names[0]}`."
        )
    X = frame.drop(columns=target)
    if schema is None:
        draft = draft_schema(frame, target)  # read off the data, with a warning
        for name, note in draft.notes.items():
            if name != target:
                print_message(f"{name}: {note}.")
        schema = draft.schema
    if absent := [name for name in schema if name not in X]:
        raise UserError(
            f"{path} lacks columns of the schema: {', '.join(absent)}. Add them, or remove them "
            "from the schema."
        )
    if args.schema and (extra := [str(name) for name in X if name not in schema]):
        print_message(f"Columns that are not in the schema are not used: {', '.join(extra)}.")
    _warn_lost_values(path, schema, X)
    y = _labels(frame[target], schema) if schema.target_bounds is None else _numbers(frame[target])
    return Records(path.name, X[list(schema)], y, schema, groups)


def _check_target(target: str, schema: Schema) -> None:
    if schema.target_column not in (None, target):
        raise UserError(
            f"--target {target!r} differs from the schema's target {schema.target_column!r}. Leave "
            "--target out, or correct one of them."
        )
    if target in schema:
        raise UserError(f"--target {target!r} is also a feature of the schema. Remove it there.")


def _warn_lost_values(path: Path, schema: Schema, X: pd.DataFrame) -> None:
    """Print the columns that lose values: the model would be worse without any other sign."""
    lost = [column for column in schema.check(X).columns if not column.fits]
    if lost:
        named = ", ".join(f"{column.name} ({column.share_lost:.0%})" for column in lost[:5])
        print_message(
            f"The schema clips or does not know values of {named}"
            f"{f' and {len(lost) - 5} more columns' if lost[5:] else ''}. The data holder can run "
            f"`skprivacy schema check` for the details."
        )


def _labels(column: pd.Series, schema: Schema) -> np.ndarray:
    """Return labels in the schema's spelling."""
    if schema.classes is None:
        _config.leak(
            f"The classes of {column.name!r} are read from the data. List them in the schema."
        )
        return np.asarray(column)
    known = {category_key(label): label for label in schema.classes}
    found = [known.get(category_key(label)) for label in column]
    if None in found:
        raise UserError(
            f"row {found.index(None) + 1} of column {column.name!r} is not one of the schema's "
            f"classes {list(schema.classes)}. Correct the column or the schema."
        )
    return np.array(found)


def _numbers(column: pd.Series) -> np.ndarray:
    values = column_numbers(column)
    if not np.isfinite(values).all():
        row = int(np.isfinite(values).argmin()) + 1
        raise UserError(
            f"row {row} of column {column.name!r} is not a finite number, and the schema says that "
            "it is a number (target_bounds). Correct the column, the schema or --decimal."
        )
    return values


ENGINES = ("duckdb", "polars", "pyarrow")
_NEEDS_ROWS = ("hold_out", "members", "rows", "public")  # options that read rows into memory


def add_engine(group: Any) -> None:
    """Add the option that names the engine."""
    group.add_argument(
        "--engine",
        choices=ENGINES,
        help="read a Parquet file by this engine, batch by batch, for models that need only sums "
        "over records (default: read DATA into memory)",
    )


def open_engine_records(args: argparse.Namespace) -> tuple[Records, Any, str]:
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


def check_engine_model(model: Any, engine: str) -> None:
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
