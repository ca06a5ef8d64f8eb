"""``skprivacy verify``: check a certificate, without data and without trust in its issuer."""

from __future__ import annotations

import argparse

from ..console import UserError, print_result

EXAMPLES = """\
examples:
  skprivacy verify certificate.json model.safetensors --key hospital.pem.pub
  skprivacy verify later.json model.safetensors --key hospital.pem.pub --extends certificate.json

exit codes: 0 verified with the key, 1 refused, 2 an error, 3 consistent, but signed by an unknown
key because --key was not given.
"""

EXIT_CODES = {"verified": 0, "refused": 1, "unknown key": 3}

DESCRIPTION = (
    "Check the signature and the digests of a certificate, compute every epsilon "
    "again, and print what holds, what is assumed and what was only measured."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    # "certificate" would be the name of an output of other commands
    parser.add_argument("signed", metavar="CERTIFICATE.json", help="the certificate")
    parser.add_argument("model", metavar="MODEL", nargs="?", help="the model file")
    parser.add_argument(
        "--key", metavar="KEY.pub", help="the issuer's public key; without it the signer is unknown"
    )
    parser.add_argument("--schema", metavar="SCHEMA.json", help="the schema of the training data")
    parser.add_argument(
        "--extends",
        metavar="EARLIER.json",
        help="an earlier certificate of the same data: its charges must all be in the ledger",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from ...certificates import verify_certificate
    from ...preprocessing import Schema

    try:
        schema = None if args.schema is None else Schema.from_json(args.schema)
        found = verify_certificate(
            args.signed, args.model, key=args.key, schema=schema, extends=args.extends
        )
    except OSError as error:
        raise UserError(f"{error.filename or error} cannot be read. Check the path.") from error
    print_result(found)
    return EXIT_CODES[found.state]
