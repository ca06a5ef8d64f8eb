"""Reading of untrusted files and JSON: regular files of bounded size, no repeated keys.

Every file that somebody else may have written is opened by :func:`open_file` or read by
:func:`read_file`, and every JSON text is parsed by :func:`parse_json`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO

# A certificate holds all lines of its ledger, about 500 bytes each: there is room for 60,000.
MAX_TEXT_BYTES = 32 << 20  # of a certificate, a schema, a key or a configuration
MAX_MODEL_BYTES = 4 << 30  # of a model file; its digest takes some ten seconds


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
