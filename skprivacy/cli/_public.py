"""Public records for models that learn from private votes on them."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

from . import _tables
from ._console import UserError, print_message
from ._data import Records, read_described_table

__all__ = ["add_argument", "fit_arguments"]

_NAME = "X_public"


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
    """Return the public records as arguments of ``fit``.

    Raises UserError if the model takes no public records, or the table lacks columns.
    """
    if args.public is None:
        return {}
    if _NAME not in inspect.signature(model.fit).parameters:
        raise UserError(
            f"--public is for models that learn from votes on public records, and "
            f"{type(getattr(model, '_final_estimator', model)).__name__} is not one. Pass --model "
            "PATEClassifier, or leave --public out."
        )
    path = Path(args.public)
    _tables.check_file(path)
    table = read_described_table(path, args, records.schema, None)
    if absent := [name for name in records.schema if name not in table]:
        raise UserError(
            f"--public {path} lacks columns of the private records: {', '.join(absent)}. Add them."
        )
    print_message(f"{path.name}: {len(table):,} public records")
    return {_NAME: table[list(records.X)]}
