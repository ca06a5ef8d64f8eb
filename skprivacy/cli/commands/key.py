"""``skprivacy key``: create a key for signing certificates."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ...certificates import create_key
from ..console import UserError, check_outputs, print_result
from ..release import PASSWORD


def add_parser(subparsers: Any, text: str) -> argparse.ArgumentParser:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "key",
        help=text,
        description="Create a private key, which you keep, and next to it the public key (.pub), "
        f"for those who check certificates. The password in {PASSWORD} encrypts the private key.",
    )
    parser.add_argument("file", metavar="FILE.pem", help="the file to create")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Create the key; show its fingerprint."""
    check_outputs(args.file)
    try:
        fingerprint = create_key(args.file, password=os.environ.get(PASSWORD))
    except FileExistsError as error:
        raise UserError(str(error)) from error
    print_result(f"{fingerprint}\nPublish this fingerprint where others trust it to be yours.")
    return 0
