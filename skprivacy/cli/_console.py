"""Messages, errors and argument types that the commands share."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from .._output import displayable, output_path

__all__ = ["UserError", "check_outputs", "number_list", "say", "show", "warn"]


class UserError(Exception):
    """A mistake on the command line or in a file: one line to the user, no traceback."""


def say(text: str) -> None:
    """Print a message on one line to standard error."""
    print(displayable(" ".join(text.split())), file=sys.stderr, flush=True)


def show(value: Any) -> None:
    """Print a result to standard output; no text of a file or ledger steers the terminal."""
    print(displayable(str(value)))


def warn(message: Any, category: Any, *_: Any, **__: Any) -> None:
    """Print a Python warning on one line; replaces ``warnings.showwarning``."""
    say(f"WARNING: {message}")


def check_outputs(*paths: str | None) -> None:
    """Raise UserError for an output path that cannot be written, before any training."""
    for name in paths:
        if name is None:
            continue
        try:
            path = output_path(name)
        except ValueError as error:
            raise UserError(str(error)) from None
        if path.is_dir():
            raise UserError(f"{path} is a folder. Give a file name.")
        folder = path.absolute().parent
        if not folder.is_dir():
            raise UserError(f"there is no folder {folder} for {path.name}. Create it first.")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise UserError(f"{path} cannot be written to. Pass a file in a folder of yours.")


def number_list(text: str) -> list[float]:
    """Parse ``0.1`` or ``0.1,1,inf``."""
    try:
        return [float(part) for part in text.replace(",", " ").split()]
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected numbers, such as 0.1 1 10 or 0.1,1,10; got {text!r} "
            "(put DATA before this option)"
        ) from error
