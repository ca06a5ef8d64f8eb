"""``skprivacy datasets``: list the built-in data sets, or print the schema of one."""

from __future__ import annotations

import argparse

from ...datasets.catalogue import CATALOGUE
from ...datasets.files import data_folder
from ..console import print_result

DESCRIPTION = (
    "List the built-in data sets, or print the public schema of one as JSON, as a "
    "starting point for your own schema."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "name", nargs="?", choices=sorted(CATALOGUE), help="print the schema of this data set"
    )


def run(args: argparse.Namespace) -> int:
    """List the data sets or print a schema."""
    if args.name:
        print_result(CATALOGUE[args.name].load().schema.to_json())
        return 0
    width = max(map(len, CATALOGUE))
    for name, entry in CATALOGUE.items():
        print_result(f"{name:{width}}  {entry.summary}")
    print_result(
        f"\nData folder: {data_folder()} (set the environment variable SKPRIVACY_DATA to change)"
    )
    return 0
