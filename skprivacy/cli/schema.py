"""``skprivacy schema``: draft a schema, and check how a table fits to one."""

from __future__ import annotations

import argparse
import warnings
from importlib import resources
from pathlib import Path
from typing import Any

from .._output import write_file
from ..exceptions import PrivacyLeakWarning
from ..preprocessing import draft_schema
from . import _data, _tables
from ._console import UserError, check_outputs, say, show

__all__ = ["add_parser", "run"]

EXAMPLES = """\
examples:
  skprivacy schema draft patients.csv --target outcome --out patients.json
  skprivacy schema check patients.json patients.csv
  skprivacy schema format > skprivacy.schema.json

A draft is read off the data, so that nothing trained with it is private. Compare each column with a
public codebook, correct it, and set its "inferred" to false; the one at the end is the target's.

exit codes: 0 success, 1 the table does not fit to the schema, 2 an error.
"""


def add_parser(subparsers: Any, text: str) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "schema",
        help=text,
        description="Draft the public facts about a table, to be edited, or check how a table fits "
        "to them.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    draft = actions.add_parser("draft", help="write a first schema of a table, to be edited")
    draft.add_argument("data", metavar="TABLE", help="CSV, Parquet, Arrow (.feather) or Excel")
    draft.add_argument("--target", help="the column to predict")
    draft.add_argument("-o", "--out", metavar="FILE.json", help="the file to write")
    _tables.add_arguments(draft)
    draft.set_defaults(run=run, action=_draft)
    check = actions.add_parser(
        "check",
        help="tell the data holder what a table would lose",
        description="Tell how many values of each column would be clipped or are unknown. What it "
        "prints is about private data: it is for the data holder alone.",
    )
    check.add_argument("schema", metavar="SCHEMA.json")
    check.add_argument("data", metavar="TABLE", help="CSV, Parquet, Arrow (.feather) or Excel")
    _tables.add_arguments(check)
    check.set_defaults(run=run, action=_check)
    form = actions.add_parser("format", help="print the format of schemas, as JSON Schema")
    form.set_defaults(run=run, action=_format)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    return args.action(args)


def _table(args: argparse.Namespace) -> Path:
    path = Path(args.data)
    if not path.is_file():
        raise UserError(f"there is no table {path}. Check the path.")
    return path


def _draft(args: argparse.Namespace) -> int:
    check_outputs(args.out)
    if args.out and Path(args.out).is_file():
        raise UserError(f"{args.out} exists, perhaps reviewed. Pass another name to --out.")
    frame = _tables.read(_table(args), args)
    if args.target is not None and args.target not in frame:
        raise UserError(
            f"{args.data} has no column {args.target!r}; it has {', '.join(map(str, frame))}. "
            "Check --target."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)  # said below, in the words of a shell
        draft = draft_schema(frame, args.target)
    for name, note in draft.notes.items():
        say(f"  {name}: {note}")
    text = draft.schema.to_json()
    if args.out is None:
        show(text)
    else:
        write_file(args.out, text + "\n")
    say(
        f"{'This' if args.out is None else args.out} is a draft that was READ OFF THE DATA, and "
        "nothing trained with it is private. Compare each column with a public codebook, and set "
        'its "inferred" to false; the last one in the file is about the target.'
    )
    return 0


def _check(args: argparse.Namespace) -> int:
    schema = _data.load_schema(args.schema)
    found = schema.check(_data.described(_table(args), args, schema, schema.target))
    show(found)
    if schema.inferred:
        say(f"not reviewed, so not private: {_data.unreviewed(schema)}")
    return 0 if found.fits else 1


def _format(args: argparse.Namespace) -> int:
    file = resources.files("skprivacy.preprocessing") / "schema.schema.json"
    show(file.read_text(encoding="utf-8").rstrip("\n"))
    return 0
