"""Messages, errors and argument types shared by the commands."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from .._extras import name_missing_extra
from .._files import displayable, output_path, parse_json, read_file

_READ = (
    "data", "table", "shadows", "schema", "public", "key", "config", "saved", "known_members",
    "non_members",
)  # fmt: skip
_DRAWN = (".html", ".htm", ".png", ".svg", ".pdf")  # pages and figures, which need `report`
_WRITTEN = ("out", "plot", "exposed", "save", "certificate", "members")


class UserError(Exception):
    """Mistake on the command line or in a file: printed on one line, without a traceback."""


def print_message(text: str) -> None:
    """Print a message on one line to standard error."""
    print(displayable(" ".join(text.split())), file=sys.stderr, flush=True)


def print_result(value: Any) -> None:
    """Print a result to standard output, with control characters of the terminal escaped.

    If the reader has exited, as in `skprivacy verify ... | head -1`, the exit code still counts.
    """
    try:
        print(displayable(str(value)), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_warning(message: Any, category: Any, *_: Any, **__: Any) -> None:
    """Print a Python warning on one line; replaces ``warnings.showwarning``."""
    print_message(f"WARNING: {message}")


def check_outputs(*paths: str | None) -> None:
    """Raise UserError for an output path that cannot be written, before any training."""
    for name in paths:
        if name is None:
            continue
        try:
            path = output_path(name)
        except OSError as error:
            raise UserError(f"{name}: {error.strerror}.") from None
        except ValueError as error:
            raise UserError(str(error)) from None
        if path.is_dir():
            raise UserError(f"{path} is a folder. Give a file name.")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"the folder {folder} for {path.name} does not exist. Create it first.")
        if path.suffix.lower() in _DRAWN:
            with name_missing_extra():
                import jinja2  # noqa: F401
                import matplotlib  # noqa: F401
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise UserError(f"{path} cannot be written to. Pass a file in a folder of yours.")


def check_overwritten(args: argparse.Namespace) -> None:
    """Raise UserError if a command would overwrite a file that it reads, or another output.

    The file may be the only copy of a private table.
    """
    read = [file for name in _READ for file in _files(args, name)]
    outputs = [(f"--{name}", file) for name in _WRITTEN for file in _files(args, name)]
    for number, (option, file) in enumerate(outputs):
        if any(_is_same_file(file, other) for other in read):
            raise UserError(
                f"{option} {file} is a file that this command reads, and is not overwritten. Pass "
                "another file name."
            )
        for other_option, other in outputs[:number]:
            if _is_same_file(file, other):
                raise UserError(f"{other_option} and {option} are one file. Pass two names.")


def _files(args: argparse.Namespace, name: str) -> list[str]:
    given = getattr(args, name, None)
    return [given] if isinstance(given, str) else list(given or [])


def _is_same_file(file: str, other: str) -> bool:
    try:
        return os.path.samefile(file, other)
    except (OSError, ValueError):  # one of them does not exist
        return os.path.realpath(file) == os.path.realpath(other)


def add_claim(group: Any, default: str) -> None:
    """Add the options for a passed claim and for the error of its verdict."""
    group.add_argument(
        "--claim",
        type=_parse_claim,
        metavar="EPSILON[,DELTA]",
        help="the claim to test, such as 1 or 1,1e-6; or a .json file of a guarantee or an event, "
        f"as their to_dict() returns it (default: {default})",
    )
    group.add_argument(
        "--alpha",
        type=float,
        default=0.05,
        help="error probability of the verdict (default: %(default)s)",
    )


def _parse_claim(text: str) -> Any:
    """Parse a claim for the audits."""
    from ..accounting import Event, PrivacyGuarantee
    from ..audit.inspection.guarantees import read_claim

    try:
        if text.lower().endswith(".json"):
            stated = parse_json(read_file(Path(text)))
            is_event = isinstance(stated, dict) and "event" not in stated
            claim: Any = (Event if is_event else PrivacyGuarantee).from_dict(stated)
        else:
            claim = tuple(float(part) for part in text.split(","))
            claim = claim[0] if len(claim) == 1 else claim
        read_claim(claim)
    except (OSError, TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"expected EPSILON, EPSILON,DELTA or a .json file; got {text!r} ({error})"
        ) from error
    return claim


def number_list(text: str) -> list[float]:
    """Parse ``0.1`` or ``0.1,1,inf``."""
    try:
        return [float(part) for part in text.replace(",", " ").split()]
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected numbers, such as 0.1 1 10 or 0.1,1,10; got {text!r} "
            "(put DATA before this option)"
        ) from error
