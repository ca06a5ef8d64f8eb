"""The ``skprivacy`` command."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence

from .. import __version__
from ..exceptions import PrivacyWarning
from . import audit, audit_predictions, budget, datasets, sweep, verify
from ._console import UserError, say, warn

__all__ = ["main"]

COMMANDS = (sweep, audit, audit_predictions, verify, budget, datasets)  # in the order of the help
DESCRIPTION = "Train private models and prove how private they are."
EPILOG = """\
examples:
  skprivacy sweep demo --out report.html --plot curve.png
  skprivacy audit digits --epsilon 1

For help on a command: skprivacy sweep --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        The arguments; ``None`` means those of the process.

    Returns
    -------
    int
        0 for success, 1 for a claim refuted by an audit or a refusal by a budget, 2 for a user
        error, 3 for an audit of doubtful groups of records, 130 for Ctrl-C.

    Examples
    --------
    >>> from skprivacy.cli import main
    >>> main(["datasets"])
    adult ...
    0
    """
    try:
        args = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed the reason
        return stop.code if isinstance(stop.code, int) else 2
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("once", PrivacyWarning)
            warnings.showwarning = warn
            return args.run(args)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:  # the output's reader has exited, as in `skprivacy datasets | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, ValueError, TypeError, OSError, ImportError) as error:
        if args.traceback:
            raise
        say(f"skprivacy: error: {error}")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="skprivacy",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"skprivacy {__version__}")
    parser.add_argument(
        "--traceback", action="store_true", help="show the traceback of an error, for bug reports"
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser
