"""Files: untrusted input of bounded size, output that is atomic, and escaping of text.

Every file that somebody else may have written is opened by :func:`open_file` or read by
:func:`read_file`, and every JSON text is parsed by :func:`parse_json`, without repeated keys. No
output goes through a link or over a ledger.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# A certificate holds all lines of its ledger, about 500 bytes each: there is room for 60,000.
MAX_TEXT_BYTES = 32 << 20  # of a certificate, a schema, a key or a configuration
MAX_MODEL_BYTES = 4 << 30  # of a model file; its digest takes some ten seconds
Content = str | bytes | memoryview  # text is written in UTF-8
SQLITE_SUFFIXES = ("-journal", "-wal", "-shm")  # of the files that SQLite keeps beside a database
_SQLITE_HEADER = b"SQLite format 3\0"
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes text that starts so


def as_path(name: str, value: Any) -> str:
    """Return a path as text; TypeError for anything else."""
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
    """Return ``path`` for writing; refuse links, databases and other suffixes than ``suffixes``.

    The target of a symbolic link may belong to another user. A database, with the files that SQLite
    keeps beside it, may be a privacy ledger.
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
    beside = next((rest for rest in SQLITE_SUFFIXES if found.name.endswith(rest)), None)
    if beside and is_database(found.with_name(found.name.removesuffix(beside) or ".")):
        raise ValueError(
            f"{found} belongs to the database beside it, perhaps a privacy ledger, and is not "
            "overwritten. Pass another file name."
        )
    return found


def is_database(path: Path) -> bool:
    """Return whether the file at a path is a SQLite database."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER


def write_file(path: str | PathLike[str], content: Content, mode: int | None = None) -> None:
    """Write a file atomically: the new file replaces the old one once it is on the disk.

    ``mode`` sets the permissions. None keeps an existing file's permissions. Errors name the file.

    **Guarantees.** After a full disk, an interruption or a kill, the path holds the whole new file
    or the previous one. A link at the path is refused. A link that appears meanwhile is replaced
    by the new file, so no file elsewhere is changed.

    **Edge cases.** A pipe or a device, and a file in a folder without write permission, are written
    to in place.
    """
    place = output_path(path)
    with _name_file(path):
        exists = place.exists()
        if exists and mode is None and stat.S_ISREG(found := place.lstat().st_mode):
            mode = stat.S_IMODE(found)
        if exists and not _is_replaceable(place):
            with open(place, "wb", opener=_open_without_links) as file:
                file.write(_encode(content))
            return
        with _write_draft(place, content, mode) as draft:
            os.replace(draft, place)


def create_file(path: str | PathLike[str], content: Content, mode: int | None = None) -> None:
    """Write a file that does not exist, as :func:`write_file` does; FileExistsError if it does.

    **Guarantees.** If several processes create the file at once, one of them succeeds.

    **Edge cases.** On a file system without hard links, such as a memory stick's, an interruption
    may leave a partial file.
    """
    place = Path(path).absolute()
    if not place.exists():  # an existing file raises FileExistsError below
        output_path(place)
    with _name_file(path), _write_draft(place, content, mode) as draft:
        try:
            os.link(draft, place)
        except FileExistsError:
            raise
        except OSError:
            with open(place, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(_encode(content))
            place.chmod(stat.S_IMODE(draft.stat().st_mode))


def write_figure(path: str | PathLike[str], figure: Figure, **options: Any) -> None:
    """Write a Matplotlib figure in the format of the file name, as :func:`write_file` does."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix[1:] or None, **options)
    write_file(path, drawn.getbuffer())


@contextmanager
def _write_draft(place: Path, content: Content, mode: int | None) -> Iterator[Path]:
    """Write the content to a hidden file beside ``place``; delete it on exit if it still exists."""
    draft, masked = place.with_name(f".{uuid.uuid4().hex}"), 0o666 if mode is None else 0o600
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, masked)) as file:
            file.write(_encode(content))
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            draft.chmod(mode)
        yield draft
    finally:
        with suppress(OSError):
            os.unlink(draft)


@contextmanager
def _name_file(path: str | PathLike[str]) -> Iterator[None]:
    """Make an OSError name the requested file instead of the draft."""
    try:
        yield
    except OSError as error:
        known = error.errno is not None
        raise (OSError(error.errno, error.strerror, str(path)) if known else error) from error


def _is_replaceable(place: Path) -> bool:
    return place.is_file() and os.access(place, os.W_OK) and os.access(place.parent, os.W_OK)


def _open_without_links(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0))


def _encode(content: Content) -> bytes | memoryview:
    return content.encode() if isinstance(content, str) else content


def displayable(text: str) -> str:
    """Return text with terminal control characters escaped."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def without_mathtext(text: object) -> str:
    """Return text that matplotlib does not parse as a formula."""
    return displayable(str(text)).replace("$", r"\$")


def without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Prefix texts that a spreadsheet would run as formulas with an apostrophe.

    **Edge cases.** Texts that are numbers are unchanged.
    """
    return table.map(_escape_formula)


def _escape_formula(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(_FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


_MAX_TEXT_LENGTH = 120  # characters; the bounds of many columns would fill pages


def json_safe(value: Any) -> Any:
    """Return the value with None in place of NaN and infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def shorten_text(model: str) -> str:
    """Return a model's text, cut to 120 characters."""
    return model if len(model) <= _MAX_TEXT_LENGTH else f"{model[: _MAX_TEXT_LENGTH - 3]}..."


def open_file(path: str | Path, max_bytes: int) -> BinaryIO:
    """Open a regular file of at most ``max_bytes``; ValueError for a pipe or a larger file."""
    file = open(path, "rb", opener=_open_without_waiting)  # noqa: SIM115 (the caller closes it)
    try:
        _check_status(path, os.fstat(file.fileno()), max_bytes)
    except BaseException:
        file.close()
        raise
    return file


def read_file(path: str | Path, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the content of a regular file; raises as :func:`open_file` does."""
    with open_file(path, max_bytes) as file:
        content = file.read(max_bytes + 1)  # the file may grow meanwhile
    if len(content) > max_bytes:
        raise _too_large(path, max_bytes)
    return content


def parse_json(text: str | bytes, *, allow_constants: bool = False) -> Any:
    """Parse JSON without repeated keys or, unless allowed, NaN and infinity; else ValueError."""
    constants = None if allow_constants else _refuse_constant
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=constants)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply. Flatten it.") from None


def _open_without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _check_status(path: str | Path, status: os.stat_result, max_bytes: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(
            f"{str(path)!r} is a device, a pipe or a socket, not a regular file. Pass a copy of "
            "its content in a file."
        )
    if status.st_size > max_bytes:
        raise _too_large(path, max_bytes)


def _too_large(path: str | Path, max_bytes: int) -> ValueError:
    return ValueError(
        f"{str(path)!r} is larger than {max_bytes:,} bytes, the limit for such files. Ask its "
        "author for a smaller one."
    )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {repeated!r} occurs more than once. Remove the repetitions.")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON. Write a number, or null.")
