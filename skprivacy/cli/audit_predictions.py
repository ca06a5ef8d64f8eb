"""``skprivacy audit-predictions``: test a claim by tables of predictions, from any language."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..attacks._tables import check_table
from ..preprocessing._values import category_key, column_numbers
from . import _report, _tables
from ._console import UserError, say, show
from .audit import exit_code

__all__ = ["add_parser", "run"]

MEMBER, LABEL = "member", "label"
EXAMPLES = f"""\
examples:
  skprivacy audit-predictions target.csv
  skprivacy audit-predictions target.csv --shadows shadow1.csv shadow2.csv --epsilon 1 --delta 1e-5

Each table has a header line, a row for each record and the columns
  {MEMBER}   1 if the model was trained on the record, 0 if not
  {LABEL}    the record's true class
and one column for each class, named like it, of its probabilities. The table of a shadow model has
the same records in the same order; its column {MEMBER!r} says what THAT model was trained on. Train
them in pairs: one on a random half of all records, members of the target or not, one on the other.

exit codes: as of `skprivacy audit`.
"""
_TRUE, _FALSE = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}


class _Table(NamedTuple):
    member: NDArray[np.bool_]
    label: NDArray[Any]
    proba: NDArray[np.float64]
    classes: list[str]


def add_parser(subparsers: Any, text: str) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "audit-predictions",
        help=text,
        description="Attack a model of which only predictions are at hand: a CSV table of its "
        "probabilities for records that it was trained on and for others, and tables of shadow "
        "models, if there are any.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", metavar="TABLE.csv", help="predictions of the model to audit")
    _tables.add_arguments(parser)
    parser.add_argument(
        "--shadows",
        metavar="FILE.csv",
        nargs="+",
        default=[],
        help="predictions of models trained like it on other halves of the records; without them "
        "the attacks are weaker",
    )
    claim = parser.add_argument_group("claim")
    claim.add_argument("--epsilon", type=float, help="epsilon of the claim (default: no claim)")
    claim.add_argument(
        "--delta", type=float, default=0.0, help="delta of the claim (default: %(default)s)"
    )
    claim.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="error probability of the verdict (default: %(default)s)",
    )
    output = parser.add_argument_group("output")
    _report.add_arguments(output)
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the audit; return the exit code of its verdict."""
    from ..audit import audit_predictions

    _report.check(args)
    if args.delta and args.epsilon is None:
        raise UserError("--delta alone claims nothing. Pass --epsilon too, or neither.")
    target = _read(args.table, args)
    shadows = [_like(target, name, args) for name in args.shadows]
    inside, outside = np.flatnonzero(target.member), np.flatnonzero(~target.member)
    if not len(inside) or not len(outside):
        raise UserError(
            f"{args.table} must hold members and non-members; its column {MEMBER!r} says "
            f"{bool(len(inside))} of all records."
        )
    order = np.concatenate([inside, outside])
    given: dict[str, Any] = {}
    if shadows:
        given["shadow_probas"] = np.stack([table.proba[order] for table in shadows])
        given["shadow_trained"] = np.stack([table.member[order] for table in shadows])
    report = audit_predictions(
        target.proba[inside],
        target.label[inside],
        target.proba[outside],
        target.label[outside],
        classes=target.classes,
        epsilon=args.epsilon,
        delta=args.delta,
        alpha=args.alpha,
        **given,
    )
    show(report)
    for name in _report.write_audit(args, report, _report.about(args, Path(args.table).name)):
        say(f"wrote {name}")
    return exit_code(report)


def _read(name: str, args: argparse.Namespace) -> _Table:
    """Read a table; all problems are told with its name.

    Raises
    ------
    UserError
        If it cannot be read, lacks a column, or holds what is no probability, label or membership.
    """
    frame = _tables.read(Path(name), args, (MEMBER, LABEL), {})
    if frame.columns[0] in ("", "Unnamed: 0"):
        say(f"{name}: the first column has no name, as R writes names of rows, and is left out.")
        frame = frame.iloc[:, 1:]
    if missing := [column for column in (MEMBER, LABEL) if column not in frame]:
        told = _tables.no_such_column(name, missing[0], frame)
        raise UserError(f"{told} The help lists the columns of a table.")
    classes = [str(column) for column in frame if column not in (MEMBER, LABEL)]
    known = {_key(column): column for column in classes}
    labels = [known.get(_key(str(label))) for label in frame[LABEL]]
    if None in labels:
        raise UserError(
            f"{name} has no column for the label in row {labels.index(None) + 1}; the columns of "
            f"classes are {', '.join(classes)}. Name each column like its class."
        )
    member = frame[MEMBER].astype(str).str.strip().str.lower()
    if len(wrong := member[~member.isin(_TRUE | _FALSE)]):
        raise UserError(
            f"row {wrong.index[0] + 1} of column {MEMBER!r} in {name} is neither 1 nor 0."
        )
    try:
        proba = check_table(name, np.column_stack([_numbers(frame[c], name) for c in classes]))
    except ValueError as error:
        raise UserError(str(error)) from None
    return _Table(member.isin(_TRUE).to_numpy(), np.array(labels), proba, classes)


def _numbers(column: pd.Series, name: str) -> NDArray[np.float64]:
    found = column_numbers(column)
    if np.isnan(found).any():
        row = int(np.isnan(found).argmax())
        raise UserError(
            f"{name} holds no probability in row {row + 1} of column {column.name!r}. Correct it, "
            "or leave the record out of all tables."
        )
    return found


def _key(text: str) -> str:
    """Return the text by which labels are compared, so that "1" and "1.0" are equal."""
    try:
        number = float(text)
    except ValueError:
        return category_key(text)
    return category_key(number) if math.isfinite(number) else category_key(text)


def _like(target: _Table, name: str, args: argparse.Namespace) -> _Table:
    """Read the table of a shadow model, with its columns in the order of the target's."""
    table, target_name = _read(name, args), args.table
    if sorted(table.classes) != sorted(target.classes):
        raise UserError(
            f"{name} has the classes {', '.join(table.classes)}; {target_name} has "
            f"{', '.join(target.classes)}."
        )
    if table.label.tolist() != target.label.tolist():
        raise UserError(
            f"{name} must hold the records of {target_name} in the same order; it has "
            f"{len(table.label)} rows with other labels than its {len(target.label)}."
        )
    columns = [table.classes.index(column) for column in target.classes]
    return table._replace(proba=table.proba[:, columns], classes=target.classes)
