"""``skprivacy audit-predictions``: test a claim by tables of predictions, from any language."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...attacks.shadow_answers import check_table
from ...preprocessing.cell_values import category_key, column_numbers
from .. import reports, tables
from ..console import UserError, add_claim, print_message, print_result
from ..membership import MEMBER, member_column
from .audit import exit_code

LABEL = "label"
EXAMPLES = f"""\
examples:
  skprivacy audit-predictions target.csv
  skprivacy audit-predictions target.csv --shadows shadow1.csv shadow2.csv --claim 1,1e-5
  skprivacy audit-predictions target.csv --records patients.csv

Each table has a header line, one row per record and the columns
  {MEMBER}   1 if the model was trained on the record, 0 if not
  {LABEL}    the record's true class
and one column of probabilities per class, named like the class. The table of a shadow model has the
same records in the same order. Its column {MEMBER!r} says which records THAT model was trained on.
Train shadow models in pairs: one on a random half of all records, regardless of the target's
members, and one on the other half.

exit codes: see `skprivacy audit --help`.
"""


class _Table(NamedTuple):
    member: NDArray[np.bool_]
    label: NDArray[Any]
    proba: NDArray[np.float64]
    classes: list[str]


DESCRIPTION = (
    "Attack a model of which only predictions are available: a CSV table of its "
    "probabilities for records that it was trained on and for others, and optional tables of "
    "shadow models."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("table", metavar="TABLE.csv", help="predictions of the model to audit")
    tables.add_arguments(parser)
    parser.add_argument(
        "--shadows",
        metavar="FILE.csv",
        nargs="+",
        default=[],
        help="predictions of models that were trained like it on other halves of the records; the "
        "attacks are weaker without them",
    )
    parser.add_argument(
        "--records",
        metavar="FILE.csv",
        help="features of the records, one row for each row of TABLE.csv in the same order; they "
        "show whether members and non-members differ by more than membership",
    )
    add_claim(parser.add_argument_group("claim"), "no claim")
    reports.add_arguments(parser.add_argument_group("output"))


def run(args: argparse.Namespace) -> int:
    """Run the audit; return the exit code of its verdict."""
    from ...audit import audit_predictions

    reports.check(args)
    target = _read_table(args.table, args)
    shadows = [_read_shadow_table(target, name, args) for name in args.shadows]
    inside, outside = np.flatnonzero(target.member), np.flatnonzero(~target.member)
    if not len(inside) or not len(outside):
        raise UserError(
            f"{args.table} must hold members and non-members, but its column {MEMBER!r} is "
            f"{int(bool(len(inside)))} for all records."
        )
    order = np.concatenate([inside, outside])
    given: dict[str, Any] = {}
    if shadows:
        given["shadow_probas"] = np.stack([table.proba[order] for table in shadows])
        given["shadow_trained"] = np.stack([table.member[order] for table in shadows])
    if args.records is not None:
        given["records"] = _read_features(args, inside, outside)
    report = audit_predictions(
        target.proba[inside],
        target.label[inside],
        target.proba[outside],
        target.label[outside],
        classes=target.classes,
        claim=args.claim,
        alpha=args.alpha,
        **given,
    )
    print_result(report)
    reports.write_audit(args, report, reports.make_about(args, Path(args.table).name))
    return exit_code(report)


def _read_table(name: str, args: argparse.Namespace) -> _Table:
    """Read a table; raise UserError with its name for a missing column or a wrong value."""
    frame = tables.read_table(Path(name), args, (MEMBER, LABEL), {})
    if frame.columns[0] in ("", "Unnamed: 0"):
        print_message(
            f"{name}: the first column, which has no name, is ignored (R writes row names there)."
        )
        frame = frame.iloc[:, 1:]
    if missing := [column for column in (MEMBER, LABEL) if column not in frame]:
        missing_text = tables.no_such_column(name, missing[0], frame)
        raise UserError(f"{missing_text} The help lists the columns of a table.")
    classes = [str(column) for column in frame if column not in (MEMBER, LABEL)]
    known = {_key(column): column for column in classes}
    labels = [known.get(_key(str(label))) for label in frame[LABEL]]
    if None in labels:
        raise UserError(
            f"{name} has no column for the label in row {labels.index(None) + 1}; there are "
            f"columns for {', '.join(classes)}. Name each column like its class."
        )
    member = member_column(frame, name)
    try:
        proba = check_table(name, np.column_stack([_numbers(frame[c], name) for c in classes]))
    except ValueError as error:
        raise UserError(str(error)) from None
    return _Table(member, np.array(labels), proba, classes)


def _read_features(
    args: argparse.Namespace, inside: NDArray[np.intp], outside: NDArray[np.intp]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the features of members and of non-members."""
    frame, n = tables.read_table(Path(args.records), args), len(inside) + len(outside)
    if len(frame) != n:
        raise UserError(
            f"--records {args.records} has {len(frame):,} rows; expected one for each of the "
            f"{n:,} rows of {args.table}."
        )
    return frame.iloc[inside], frame.iloc[outside]


def _numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    found = column_numbers(column)
    if np.isnan(found).any():
        row = int(np.isnan(found).argmax())
        raise UserError(
            f"{name} has a value that is not a probability in row {row + 1} of column "
            f"{column.name!r}. Correct it, or remove the record from all tables."
        )
    return found


def _key(text: str) -> str:
    """Return the key by which labels are compared, so that "1" and "1.0" are equal."""
    try:
        number = float(text)
    except ValueError:
        return category_key(text)
    return category_key(number) if math.isfinite(number) else category_key(text)


def _read_shadow_table(target: _Table, name: str, args: argparse.Namespace) -> _Table:
    """Read the table of a shadow model, with its columns in the order of the target."""
    table, target_name = _read_table(name, args), args.table
    if sorted(table.classes) != sorted(target.classes):
        raise UserError(
            f"{name} has the classes {', '.join(table.classes)}, but {target_name} has "
            f"{', '.join(target.classes)}. Write both tables with the same classes."
        )
    if table.label.tolist() != target.label.tolist():
        raise UserError(
            f"{name} must hold the records of {target_name} in the same order, but its "
            f"{len(table.label)} labels differ from the {len(target.label)} labels there."
        )
    columns = [table.classes.index(column) for column in target.classes]
    return table._replace(proba=table.proba[:, columns], classes=target.classes)
