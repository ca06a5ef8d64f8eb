"""What leaves the package: files that overwrite no ledger, and text that is only shown."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line shows its help without it
    import pandas as pd

__all__ = ["displayable", "output_path", "without_formulas", "without_mathtext"]

_DATABASE = b"SQLite format 3\0"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet begins to compute with


def output_path(path: str | PathLike[str], *suffixes: str) -> Path:
    """Return ``path`` to be written to, unless a privacy ledger stands there.

    Raises
    ------
    ValueError
        If there is a database at the path, such as a ledger. It is left as it is. Or if the name
        ends in none of ``suffixes``, where some are given: it would lie about what is inside.
    """
    found = Path(path)
    if suffixes and found.suffix.lower() not in suffixes:
        raise ValueError(f"{str(found)!r} must end in {' or '.join(suffixes)}. Rename it.")
    if found.is_file():
        with found.open("rb") as file:
            if file.read(len(_DATABASE)) == _DATABASE:
                raise ValueError(
                    f"{found} is a database, perhaps a privacy ledger, and is not overwritten. "
                    "Pass another file name."
                )
    return found


def displayable(text: str) -> str:
    """Return text in which characters that steer a terminal are written as escapes."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def without_mathtext(text: object) -> str:
    """Return text in which matplotlib finds no formulas, whatever names it holds."""
    return str(text).replace("$", r"\$")


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts no spreadsheet takes for formulas: they begin with an apostrophe.

    **Edge cases.** Texts that are numbers are left alone.
    """
    return table.map(_plain)


def _plain(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
