"""``skprivacy key``: create a key for signing certificates."""

from __future__ import annotations

import argparse
import os

from ...certificates import create_key
from ..console import UserError, check_outputs, print_result
from ..release import PASSWORD

DESCRIPTION = (
    "Create a private key, which you keep, and next to it the public key (.pub), "
    f"for those who check certificates. The password in {PASSWORD} encrypts the private key."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", metavar="FILE.pem", help="the file to create")


def run(args: argparse.Namespace) -> int:
    """Create the key; show its fingerprint."""
    check_outputs(args.file)
    try:
        fingerprint = create_key(args.file, password=os.environ.get(PASSWORD))
    except FileExistsError as error:
        raise UserError(str(error)) from error
    print_result(f"{fingerprint}\nPublish this fingerprint where others trust it to be yours.")
    return 0
