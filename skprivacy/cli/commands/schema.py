"""``skprivacy schema``: draft a schema, check a table against it, and confirm its columns."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import warnings
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from ..._files import parse_json, read_file, write_file
from ...exceptions import PrivacyLeakWarning
from ...preprocessing import BoundedColumn, CategoricalColumn, DateColumn, Schema
from ...preprocessing.schema_check import SchemaCheck
from ...preprocessing.schema_draft import draft_schema
from .. import data, tables
from ..console import UserError, check_outputs, print_message, print_result

DESCRIPTION = (
    "Draft the public facts about a table for editing, check a table against them, or confirm them."
)
EXAMPLES = """\
examples:
  skprivacy schema draft patients.csv --target outcome --out patients.json
  skprivacy schema check patients.json patients.csv --groups patient_id
  skprivacy schema confirm patients.json patients.csv --by Ann
  skprivacy schema format > skprivacy.schema.json

A draft is read off the data, so a model trained with it is not private. Compare each column with a
public codebook, correct it in the file, and confirm it: `confirm` asks column by column.

exit codes: 0 success, 1 the table does not fit the schema or some columns are not confirmed,
2 an error.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their arguments."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    draft = actions.add_parser("draft", help="write a first schema of a table, for editing")
    draft.add_argument("data", metavar="TABLE", help="CSV, Parquet, Arrow (.feather) or Excel")
    draft.add_argument("--target", help="the column to predict")
    draft.add_argument("-o", "--out", metavar="FILE.json", help="the file to write")
    tables.add_arguments(draft)
    draft.set_defaults(run=_draft)
    check = actions.add_parser(
        "check",
        help="show the data holder which values a table would lose",
        description="Show how many values of each column are clipped or unknown, which bounds "
        "are the extremes of the data, which columns identify people, and how many rows a person "
        "has. The output is about private data: it is for the data holder only.",
    )
    check.add_argument("schema", metavar="SCHEMA.json")
    check.add_argument("data", metavar="TABLE", help="CSV, Parquet, Arrow (.feather) or Excel")
    check.add_argument(
        "--groups",
        metavar="COLUMN",
        help="column that identifies people (default: columns that seem to, by name or values)",
    )
    tables.add_arguments(check)
    check.set_defaults(run=_check)
    confirm = actions.add_parser(
        "confirm",
        help="confirm each column of a draft by hand",
        description="Ask for each drafted column whether a public codebook states its bounds or "
        "categories. The file records who confirmed what, and when; a column that is edited later "
        "must be confirmed again. With a TABLE, also show how it fits, for the data holder only.",
    )
    confirm.add_argument("schema", metavar="SCHEMA.json")
    confirm.add_argument("data", metavar="TABLE", nargs="?", help="as for check (default: none)")
    confirm.add_argument(
        "--by", metavar="NAME", help="name of the person who confirms (default: the user name)"
    )
    confirm.add_argument(
        "--answers-from-stdin",
        action="store_true",
        help="read one answer per line from standard input, even if it is not a terminal",
    )
    tables.add_arguments(confirm)
    confirm.set_defaults(run=_confirm)
    form = actions.add_parser("format", help="print the format of schemas, as JSON Schema")
    form.set_defaults(run=_format)


def _table(args: argparse.Namespace) -> Path:
    path = Path(args.data)
    tables.check_file(path)
    return path


def _draft(args: argparse.Namespace) -> int:
    check_outputs(args.out)
    if args.out and Path(args.out).is_file():
        raise UserError(f"{args.out} exists, perhaps reviewed. Pass another name to --out.")
    frame = tables.read_table(_table(args), args)
    if args.target is not None and args.target not in frame:
        raise UserError(tables.no_such_column(args.data, args.target, frame))
    with warnings.catch_warnings():
        # The message below says the same in the words of the command line.
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        draft = draft_schema(frame, args.target)
    for name, note in draft.notes.items():
        print_message(f"  {name}: {note}")
    text = draft.schema.to_json()
    if args.out is None:
        print_result(text)
    else:
        write_file(args.out, text + "\n")
    print_message(
        f"{'This' if args.out is None else args.out} is a draft that was READ OFF THE DATA: a "
        "model trained with it is not private. Compare each column with a public codebook, correct "
        f"it, and confirm it by `skprivacy schema confirm {args.out or 'FILE'}`."
    )
    return 0


def _check(args: argparse.Namespace) -> int:
    schema = data.load_schema(args.schema)
    found = _check_table(args, schema, args.groups)
    print_result(found)
    if schema.unconfirmed:
        print_message(f"not confirmed, so not private: {', '.join(schema.unconfirmed)}")
    return 0 if found.fits else 1


def _check_table(args: argparse.Namespace, schema: Schema, name: str | None) -> SchemaCheck:
    frame = data.read_described_table(_table(args), args, schema, schema.target_column, name)
    groups = data.pop_group_column(frame, name, schema.target_column, schema)
    return schema.check(frame, groups=groups)


def _confirm(args: argparse.Namespace) -> int:
    check_outputs(args.schema)
    schema = data.load_schema(args.schema)
    if not schema.unconfirmed:
        print_message(f"{args.schema}: no column is unconfirmed.")
        return 0
    if not (sys.stdin.isatty() or args.answers_from_stdin):
        raise UserError(
            "confirm asks a person, but standard input is not a terminal. Run it in a terminal, or "
            "pass --answers-from-stdin."
        )
    try:
        by = getpass.getuser() if args.by is None else args.by
    except (KeyError, OSError, ImportError):
        raise UserError("the user of this process has no name. Pass --by NAME.") from None
    checked = () if args.data is None else _check_table(args, schema, None).columns
    checks = {column.name: column for column in checked}
    print_result(
        f"Confirming as {by}. Say yes only if a public codebook, a law or common knowledge states "
        "the facts, not because the data show them."
    )
    for name in schema.unconfirmed:
        print_result(f"\n{name}: {_facts_in_words(schema, name)}")
        if name in checks:
            print_result(f"  in the table: {str(checks[name]).removeprefix(f'{name}: ')}")
        answer = _answer()
        if answer == "quit":
            break
        if answer == "yes":
            schema = _store(args.schema, schema, schema.confirm(name, by=by))
    left = schema.unconfirmed
    print_message(
        f"{args.schema}: not confirmed: {', '.join(left)}. Correct them in the file, and run the "
        "command again."
        if left
        else f"{args.schema}: every column is confirmed."
    )
    return 1 if left else 0


def _facts_in_words(schema: Schema, name: str) -> str:
    """Return the facts, in words, that ``Schema.confirm`` would confirm under a name."""
    if name not in schema or not schema[name]._is_unconfirmed(name):
        if schema.classes is not None:
            return (
                f"the target, one of {len(schema.classes)} classes: {_join_values(schema.classes)}"
            )
        assert schema.target_bounds is not None
        return "the target, a number from {:.15g} to {:.15g}".format(*schema.target_bounds)
    fact = schema[name]
    missing = ", or missing" if fact.missing else ""
    if isinstance(fact, BoundedColumn):
        unit = f" {fact.unit}" if fact.unit else ""
        return f"a number from {fact.lower:.15g} to {fact.upper:.15g}{unit}{missing}"
    if isinstance(fact, CategoricalColumn):
        return f"one of {len(fact.values)} categories: {_join_values(fact.values)}{missing}"
    if isinstance(fact, DateColumn):
        return f"a date from {fact.first} to {fact.last}{missing}"
    return f"any text, assigned to buckets by a hash{missing}"


def _join_values(values: Iterable[Any]) -> str:
    return ", ".join(map(repr, values))


def _answer() -> str:
    """Ask for yes, no or quit; the end of the input is quit."""
    while True:
        print("  Confirm? [yes/no/quit] ", end="", flush=True)
        line = sys.stdin.readline()
        answer = line.strip().lower() if line else "quit"
        if not sys.stdin.isatty():
            print_result(answer)
        for word in ("yes", "no", "quit"):
            if answer and word.startswith(answer):
                return word


def _store(path: str, before: Schema, after: Schema) -> Schema:
    """Write a schema to its file after every answer, so that an interruption loses none."""
    if data.load_schema(path) != before:
        raise UserError(f"{path} was changed in the meantime. Run the command again.")
    facts = parse_json(read_file(path))  # keeps "$schema", which editors read
    write_file(path, json.dumps(facts | after.to_dict(), indent=2, ensure_ascii=False) + "\n")
    return after


def _format(args: argparse.Namespace) -> int:
    file = resources.files("skprivacy.preprocessing") / "schema.schema.json"
    print_result(file.read_text(encoding="utf-8").rstrip("\n"))
    return 0
