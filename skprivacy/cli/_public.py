"""Public records beside the private ones, for models that are taught by votes on them."""

from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

from . import _tables
from ._console import UserError, say
from ._data import Records, described

__all__ = ["add_argument", "given_to_fit"]

_NAME = "X_public"


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a table of public records."""
    group = parser.add_argument_group("public records")
    group.add_argument(
        "--public",
        metavar="FILE",
        help="table of records like those of DATA that are public, or of people who agreed, on "
        "which PATEClassifier and PrivateKNNClassifier vote (default: they are drawn from the "
        "schema, which teaches little); labels in it are not used",
    )


def given_to_fit(args: argparse.Namespace, model: Any, records: Records) -> dict[str, Any]:
    """Return what the model's ``fit`` takes beside the private records.

    Raises
    ------
    UserError
        If the model takes no public records, or the table is not like the private one.
    """
    if args.public is None:
        return {}
    if _NAME not in inspect.signature(model.fit).parameters:
        raise UserError(
            f"--public is for models that are taught by votes on public records, which "
            f"{type(getattr(model, '_final_estimator', model)).__name__} is not. Pass --model "
            "PATEClassifier, or leave --public out."
        )
    path = Path(args.public)
    _tables.check_file(path)
    table = described(path, args, records.schema, None)
    if absent := [name for name in records.schema if name not in table]:
        raise UserError(
            f"--public {path} lacks columns that the private records have: {', '.join(absent)}."
        )
    say(f"{path.name}: {len(table):,} public records")
    return {_NAME: table[list(records.X)]}
