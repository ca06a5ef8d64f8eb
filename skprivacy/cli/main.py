"""The ``skprivacy`` command: dispatch to its subcommands, and exit codes."""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from .. import __version__
from ..exceptions import PrivacyWarning
from . import config_file
from .console import UserError, check_overwritten, print_message, print_warning

# In the order of the help. A command's module is imported when it is called, so that the general
# help needs neither scikit-learn nor torch.
COMMANDS = {
    "train": "train a private model and save it",
    "predict": "apply a saved model to a table",
    "audit": "attack a saved or a newly trained model to test its claim",
    "audit-predictions": "test a claim by the predictions of a model in any language",
    "sweep": "train at several privacy levels and compare utility with leakage",
    "schema": "draft, check and confirm the schema of a table",
    "key": "create a key for signing certificates",
    "verify": "check the certificate of a private model",
    "budget": "manage a privacy budget and plan with it",
    "datasets": "list the built-in data sets",
}
DESCRIPTION = "Train private models and prove how private they are."
EPILOG = """\
examples:
  skprivacy schema draft patients.csv --target outcome --out patients.json
  skprivacy train patients.csv --schema patients.json --epsilon 1 --save model.safetensors
  skprivacy audit digits --epsilon 1
  skprivacy sweep demo --attack strongest --cv 3 --out report.html --plot curve.png

For help on a command: skprivacy sweep --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, default=None
        Arguments of the command line. ``None`` takes the arguments of the process.

    Returns
    -------
    int
        0 for success; 1 for a claim refuted by an audit, a refusal by a budget, a refused
        certificate, or a table that does not fit its schema; 2 for a user error; 3 for an audit of
        doubtful samples, or a certificate signed with an unknown key; 130 for Ctrl-C.

    Examples
    --------
    >>> from skprivacy.cli import main
    >>> main(["datasets"])
    demo ...
    0
    """
    given = sys.argv[1:] if argv is None else list(argv)
    traceback = "--traceback" in given
    try:
        args = make_parser(given).parse_args(given)
        args.command_line = shlex.join(["skprivacy", *given])
    except SystemExit as stop:  # argparse has printed the reason
        return stop.code if isinstance(stop.code, int) else 2
    except (UserError, ImportError) as error:
        return _report_failure(error, traceback)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("once", PrivacyWarning)
            warnings.showwarning = print_warning
            check_overwritten(args)
            return args.run(args)
    except KeyboardInterrupt:
        folder = getattr(args, "resume", None)
        print_message(
            f"interrupted; run the same command to resume from {folder}"
            if folder
            else "interrupted"
        )
        return 130
    except (UserError, ValueError, TypeError, OSError, ImportError) as error:
        return _report_failure(error, traceback)


def _report_failure(error: Exception, traceback: bool) -> int:
    if traceback:
        raise error
    print_message(f"skprivacy: error: {error}")
    return 2


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser: complete for the called command, names only for the others."""
    whole = argparse.ArgumentParser(
        prog="skprivacy",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"skprivacy {__version__}")
    whole.add_argument(
        "--traceback", action="store_true", help="show the traceback of an error, for bug reports"
    )
    subparsers = whole.add_subparsers(required=True, metavar="COMMAND")
    called = next((word for word in argv if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        if name != called:
            subparsers.add_parser(name, help=text)
            continue
        module = import_module(f".commands.{name.replace('-', '_')}", __package__)
        parser = subparsers.add_parser(
            name,
            help=text,
            description=module.DESCRIPTION,
            epilog=getattr(module, "EXAMPLES", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(parser)
        if hasattr(module, "run"):  # otherwise each action has its own
            parser.set_defaults(run=module.run)
        config_file.apply_config_file(parser, argv)
    return whole
