"""Members of a saved model: which records of a table it was trained on, as a file or a user states.

``skprivacy train --hold-out`` writes the file that ``skprivacy audit MODEL DATA`` reads.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from . import data, reports, tables
from .console import UserError

MEMBER = "member"
_TRUE, _FALSE = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the two options that state who the members of MODEL are."""
    group = parser.add_argument_group("members of MODEL")
    group.add_argument(
        "--members",
        dest="known_members",
        metavar="FILE.csv",
        help=f"table with a row for each row of DATA and a column {MEMBER!r}: 1 if MODEL was "
        "trained on the row, 0 if not; `skprivacy train --hold-out SHARE --members FILE.csv` "
        "writes it",
    )
    group.add_argument(
        "--non-members",
        metavar="FILE",
        help="table of records of the same population that MODEL was not trained on; all of DATA "
        "are then members",
    )


def split_by_members(
    args: argparse.Namespace, records: data.Records
) -> tuple[data.RecordsPart, data.RecordsPart]:
    """Return the members and the non-members of a saved model."""
    if (args.known_members is None) == (args.non_members is None):
        raise UserError(
            "an audit must know which records MODEL was trained on. Pass --members FILE.csv, as "
            "`skprivacy train --members` writes it, or --non-members FILE if MODEL was trained on "
            "all of DATA."
        )
    if args.non_members is not None:
        given = argparse.Namespace(**{**vars(args), "data": args.non_members, "rows": None})
        others = data.load_records(given, records.schema)
        return records.select(slice(None)), others.select(slice(None))
    name, n = args.known_members, len(records.y)
    as_written = argparse.Namespace(sep=None, encoding=None, decimal=None)
    frame = tables.read_table(Path(name), as_written, (MEMBER,), {})
    if MEMBER not in frame:
        raise UserError(tables.no_such_column(name, MEMBER, frame))
    member = member_column(frame, name)
    if len(member) != n:
        raise UserError(
            f"--members {name} has {len(member):,} rows; expected one for each of the {n:,} rows "
            f"of {records.name}. Pass the table and the --rows that MODEL was trained with."
        )
    if member.all() or not member.any():
        raise UserError(
            f"--members {name} has the same value for all records. An audit compares members with "
            "non-members: train with --hold-out, or pass --non-members."
        )
    return records.select(member), records.select(~member)


def member_column(frame: pd.DataFrame, name: str) -> NDArray[np.bool_]:
    """Return the column ``member`` as booleans; UserError names a row that is neither 1 nor 0."""
    member = frame[MEMBER].astype(str).str.strip().str.lower()
    if len(wrong := member[~member.isin(_TRUE | _FALSE)]):
        raise UserError(
            f"row {wrong.index[0] + 1} of column {MEMBER!r} in {name} is neither 1 nor 0."
        )
    found: NDArray[np.bool_] = member.isin(_TRUE).to_numpy()
    return found


def write_members(path: str, rows: NDArray[Any], n: int) -> None:
    """Write which of ``n`` rows were trained on; only the owner of the file can read it."""
    member = np.isin(np.arange(n), rows).astype(int)
    table = pd.DataFrame({"row": np.arange(1, n + 1), MEMBER: member})
    reports.write_table(path, table, mode=0o600)
