"""Reports of the commands: a page, JSON or a table, by the suffix of the file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._files import without_formulas, write_file
from .console import UserError, check_outputs, print_message, print_result

if TYPE_CHECKING:
    from ..audit import About

PAGES = (".html", ".htm")
SUFFIXES = (*PAGES, ".json", ".csv")


def add_arguments(parser: Any) -> None:
    """Add the options for the files of a report, and for the facts about it."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write a report: a self-contained page (.html), all figures (.json) or the table "
        "(.csv)",
    )
    parser.add_argument(
        "--author", default="", metavar="NAME", help="person or office responsible for the report"
    )
    parser.add_argument(
        "--record",
        default="record",
        metavar="WORD",
        help="meaning of one row, for the report: person, if each row is a different person "
        "(default: %(default)s)",
    )


def check(args: argparse.Namespace, *others: str | None) -> None:
    """Raise UserError for an output that cannot be written, before any training."""
    check_outputs(args.out, *others)
    if args.out and Path(args.out).suffix.lower() not in SUFFIXES:
        raise UserError(f"--out must end in {', '.join(SUFFIXES)}; got {args.out!r}.")
    if not args.record:
        raise UserError("--record must be a word, such as person; got an empty one.")


def make_about(
    args: argparse.Namespace, data: str, schema: Any = None, budget: Any = None,
    model_digest: str = "", **seeds: int,
) -> About:  # fmt: skip
    """Return the facts about a run."""
    from ..audit import About
    from .release import ledger_digest

    stated = ""
    if schema is not None:
        from ..certificates.issuing import schema_digest

        stated = schema_digest(schema)
    return About(
        data=data,
        author=args.author,
        command=args.command_line,
        record=args.record,
        schema_digest=stated,
        ledger_digest=ledger_digest(budget),
        model_digest=model_digest,
        seeds=seeds,
    )


def print_digest(path: str | None) -> str:
    """Print and return the SHA-256 of a model's file; empty without a file."""
    if path is None:
        return ""
    from ..certificates.issuing import digest_of_file

    digest = digest_of_file(Path(path))
    print_result(f"model file: {Path(path).name}, SHA-256 {digest}")
    return digest


def write_audit(args: argparse.Namespace, report: Any, known: About) -> None:
    """Write the requested file, and print its name."""
    if not args.out:
        return
    suffix = Path(args.out).suffix.lower()
    if suffix in PAGES:
        report.to_html(args.out, about=known)
    elif suffix == ".json":
        report.to_json(args.out, about=known)
    else:
        write_table(args.out, report.to_frame())
    print_message(f"wrote {args.out}")


def write_exposed(path: str, report: Any, rows: NDArray[np.intp], groups: pd.Series | None) -> None:
    """Write the exposed records, by rows from 1, or groups, to a file only the owner can read."""
    found = report.exposed_records()
    numbers = found["row"].to_numpy(dtype=np.intp)
    if groups is None:
        named = found.assign(row=rows[numbers] + 1)
    else:  # groups are counted in order of appearance
        named = found.assign(row=groups.unique()[numbers]).rename(columns={"row": groups.name})
    write_table(path, named, mode=0o600)


def write_table(path: str, table: pd.DataFrame, mode: int | None = None) -> None:
    """Write a table without cells that a spreadsheet would run as formulas."""
    write_file(path, without_formulas(table).to_csv(index=False), mode)
