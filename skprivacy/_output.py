"""Write output files without following links or overwriting a ledger, and escape shown text.

Conversion of values to JSON, and of a model's text to one line.
"""

from __future__ import annotations

import errno
import io
import math
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "OF_SQLITE",
    "as_path",
    "create_file",
    "displayable",
    "is_database",
    "json_safe",
    "output_path",
    "shorten_text",
    "without_formulas",
    "without_mathtext",
    "write_figure",
    "write_file",
]

Content = str | bytes | memoryview  # text is written in UTF-8
OF_SQLITE = ("-journal", "-wal", "-shm")  # after its name, files that SQLite has beside a database
_DATABASE = b"SQLite format 3\0"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet begins to compute with


def as_path(name: str, value: Any) -> str:
    """Return a path as text; TypeError for what is no path."""
    try:
        path = os.fsdecode(value)
        os.fsencode(path)
    except TypeError:
        raise TypeError(f"{name}={value!r} must be a path: text, or a pathlib.Path.") from None
    except UnicodeEncodeError:
        raise ValueError(f"{name}={value!r} must be a path; no file has such a name.") from None
    if "\0" in path:
        raise ValueError(f"{name}={value!r} must be a path; no file has such a name.")
    return path


def output_path(path: str | PathLike[str], *suffixes: str) -> Path:
    """Return ``path`` to be written to, unless it is a link or a privacy ledger stands there.

    Raises
    ------
    TypeError
        If it is no path.
    OSError
        If it is a symbolic link. The file that a link leads to may belong to somebody else.
    ValueError
        If there is a database at the path, such as a ledger, or its name is that of a file which
        SQLite keeps beside one. It is left as it is. Or if the name ends in none of ``suffixes``,
        where some are given: it would lie about what is inside.
    """
    found = Path(as_path("path", path))
    if suffixes and found.suffix.lower() not in suffixes:
        raise ValueError(f"{str(found)!r} must end in {' or '.join(suffixes)}. Rename it.")
    if os.path.islink(found):
        why = "Symbolic links are never followed or replaced; pass the path of the file itself"
        raise OSError(errno.ELOOP, why, str(found))
    if is_database(found):
        raise ValueError(
            f"{found} is a database, perhaps a privacy ledger, and is not overwritten. Pass "
            "another file name."
        )
    beside = next((rest for rest in OF_SQLITE if found.name.endswith(rest)), None)
    if beside and is_database(found.with_name(found.name.removesuffix(beside) or ".")):
        raise ValueError(
            f"{found} belongs to the database beside it, perhaps a privacy ledger, which would "
            "delete it or be damaged by it. Pass another file name."
        )
    return found


def is_database(path: Path) -> bool:
    """Return whether there is a file of SQLite's at a path."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_DATABASE)) == _DATABASE


def write_file(path: str | PathLike[str], content: Content, mode: int | None = None) -> None:
    """Write a file; what was there is replaced when all of the new one is on the disk.

    Parameters
    ----------
    path : str or Path
    content : str or bytes-like
    mode : int, default=None
        Permissions. None: those of the file that was there, or else those of any new file.

    Raises
    ------
    ValueError
        If a privacy ledger stands there.
    OSError
        If it cannot be written, such as on a full disk, or is a symbolic link; it names the file.

    Notes
    -----
    **Guarantees.** After a full disk, an interruption or a kill, the path holds the whole new file
    or the previous one. A link at the path is refused. A link that appears meanwhile is replaced
    by the new file, so no file elsewhere is changed.

    **Edge cases.** A pipe or a device, and a file in a folder without write permission, are written
    to in place.
    """
    place = output_path(path)
    with _named(path):
        there = place.exists()
        if there and mode is None and stat.S_ISREG(found := place.lstat().st_mode):
            mode = stat.S_IMODE(found)
        if there and not _replaceable(place):
            with open(place, "wb", opener=_open_without_links) as file:
                file.write(_bytes(content))
            return
        with _draft(place, content, mode) as draft:
            os.replace(draft, place)


def create_file(path: str | PathLike[str], content: Content, mode: int | None = None) -> None:
    """Write a file that does not exist, as :func:`write_file` does; FileExistsError if it does.

    **Guarantees.** Of several processes that create it at once, one does.

    **Edge cases.** On a file system without links, such as that of a memory stick, an interruption
    may leave a part of it.
    """
    place = Path(path).absolute()
    if not place.exists():  # else it is not written to
        output_path(place)
    with _named(path), _draft(place, content, mode) as draft:
        try:
            os.link(draft, place)
        except FileExistsError:
            raise
        except OSError:
            with open(place, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(_bytes(content))
            place.chmod(stat.S_IMODE(draft.stat().st_mode))


def write_figure(path: str | PathLike[str], figure: Figure, **options: Any) -> None:
    """Write a figure of Matplotlib in the format that the name says, as :func:`write_file` does."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix[1:] or None, **options)
    write_file(path, drawn.getbuffer())


@contextmanager
def _draft(place: Path, content: Content, mode: int | None) -> Iterator[Path]:
    """Give a hidden file beside ``place``, with all of the content on the disk."""
    draft, masked = place.with_name(f".{uuid.uuid4().hex}"), 0o666 if mode is None else 0o600
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, masked)) as file:
            file.write(_bytes(content))
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            draft.chmod(mode)
        yield draft
    finally:
        with suppress(OSError):
            os.unlink(draft)


@contextmanager
def _named(path: str | PathLike[str]) -> Iterator[None]:
    """Let an error name the file that was asked for: it names the draft, or none."""
    try:
        yield
    except OSError as error:
        known = error.errno is not None
        raise (OSError(error.errno, error.strerror, str(path)) if known else error) from error


def _replaceable(place: Path) -> bool:
    return place.is_file() and os.access(place, os.W_OK) and os.access(place.parent, os.W_OK)


def _open_without_links(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))


def _bytes(content: Content) -> bytes | memoryview:
    return content.encode() if isinstance(content, str) else content


def displayable(text: str) -> str:
    """Return text in which characters that steer a terminal are written as escapes."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def without_mathtext(text: object) -> str:
    """Return text in which matplotlib finds no formulas, whatever names it holds."""
    return displayable(str(text)).replace("$", r"\$")


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


_LONGEST = 120  # characters; the bounds of many columns would fill pages


def json_safe(value: Any) -> Any:
    """Return the value with None in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def shorten_text(model: str) -> str:
    """Return the text of a model, cut to the length of a line."""
    return model if len(model) <= _LONGEST else f"{model[: _LONGEST - 3]}..."
