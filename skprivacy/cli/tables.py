"""Reading of tables: CSV in any dialect, Parquet, Arrow and Excel."""

from __future__ import annotations

import argparse
import bz2
import codecs
import csv
import difflib
import gzip
import lzma
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from .._extras import name_missing_extra
from .console import UserError, print_message

MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "None", "?"]
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|", "\\t": "\t"}
_COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_PARQUET, _ARROW = ("pyarrow", pd.read_parquet), ("pyarrow", pd.read_feather)
_EXCEL = ("openpyxl", pd.read_excel)
_READERS: dict[str, tuple[str, Any]] = {
    ".parquet": _PARQUET, ".pq": _PARQUET, ".feather": _ARROW, ".arrow": _ARROW, ".ipc": _ARROW,
    ".xlsx": _EXCEL, ".xlsm": _EXCEL,
}  # fmt: skip
_SAMPLE = 1 << 16  # bytes from which separator and decimal mark are detected
_CHUNK = 1 << 20
_WITH_COMMA, _WITH_POINT = (re.compile(rf"[-+]?\d*{mark}\d+") for mark in (",", r"\."))


@dataclass(frozen=True)
class _Dialect:
    """Dialect of a CSV file."""

    sep: str = ","
    encoding: str = "utf-8"
    decimal: str = "."

    def options(self) -> dict[str, str]:
        names = {character: name for name, character in SEPARATORS.items() if len(name) > 2}
        return {
            "--sep": names.get(self.sep, self.sep),
            "--encoding": self.encoding,
            "--decimal": repr(self.decimal),
        }


def add_arguments(group: Any) -> None:
    """Add the options for the dialect of a CSV file."""
    group.add_argument(
        "--sep",
        metavar="CHARACTER",
        help="separator of the columns in a CSV file: comma, semicolon, tab, pipe or any character "
        "(default: detected)",
    )
    group.add_argument(
        "--encoding", help="encoding of a CSV file, such as utf-8 or cp1252 (default: detected)"
    )
    group.add_argument(
        "--decimal",
        choices=[".", ","],
        help="decimal mark of the numbers in a CSV file (default: detected)",
    )


def check_file(name: str | Path) -> None:
    """Raise UserError unless there is a regular file: a pipe would be waited for."""
    path = Path(name)
    if not path.exists():
        raise UserError(f"the file {path} does not exist. Check the path.")
    if not path.is_file():
        raise UserError(f"{path} is a folder, a device or a pipe. Pass a regular file.")


def no_such_column(path: str | Path, wanted: str, frame: pd.DataFrame) -> str:
    """Return the text of an error about a missing column.

    The other names are left out: without a header line, they are the values of the first record.
    """
    names = [str(name) for name in frame]
    near = difflib.get_close_matches(wanted, names, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else " Does it have a header line?"
    return f"{path} has no column {wanted!r} among its {len(names)}.{meant}"


def read_table(
    path: Path,
    args: argparse.Namespace,
    texts: Collection[str] | None = None,
    missing: dict[str, list[str]] | None = None,
) -> pd.DataFrame:
    """Read a table of any format; raise UserError if it cannot be read, or has no rows.

    The suffix selects the format; any unknown one is CSV, possibly compressed. Of a CSV file,
    ``texts`` are columns that stay text, and ``missing`` lists the missing values of columns.
    """
    check_file(path)
    kind = path.suffix.lower()
    if kind in _READERS:
        given = [f"--{name}" for name in ("sep", "encoding", "decimal") if getattr(args, name)]
        if given:
            raise UserError(f"{path} is not a CSV file. Leave {' and '.join(given)} out.")
        frame = _read_with_library(path, *_READERS[kind])
    elif kind in (".xls", ".ods", ".sav", ".dta", ".sas7bdat", ".zip"):
        raise UserError(f"{path} has an unsupported format. Save it as CSV, Parquet or .xlsx.")
    else:
        frame = _read_csv(path, args, texts, missing)
    frame.columns = [str(name).strip() for name in frame.columns]
    twice = np.flatnonzero(frame.columns.duplicated())
    if len(twice):
        raise UserError(
            f"{path} has another column of the same name as column {twice[0] + 1}. Rename one."
        )
    if not len(frame):
        raise UserError(f"{path} must have at least one row; it has none.")
    return frame


def _read_with_library(path: Path, library: str, load: Any) -> pd.DataFrame:
    try:
        with name_missing_extra():
            __import__(library)
        frame: pd.DataFrame = load(path)
    except ImportError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # errors differ between libraries
        why = _explain(error)
        raise UserError(f"{path} cannot be read by {library}: {why}. Is it damaged?") from None
    return frame


def _read_csv(
    path: Path, args: argparse.Namespace, texts: Collection[str] | None, missing: Any
) -> pd.DataFrame:
    try:
        dialect = _find_dialect(path, args)
        options: dict[str, Any] = {}
        if missing is not None:
            options = {"keep_default_na": False, "na_values": missing}
        with _open_table(path) as raw:
            frame = pd.read_csv(
                raw, sep=dialect.sep, encoding=dialect.encoding, decimal=dialect.decimal,
                dtype=dict.fromkeys(texts or (), str), skipinitialspace=True, low_memory=False,
                **options,
            )  # fmt: skip
    except UnicodeError as error:
        encoding = getattr(error, "encoding", "text") or "text"
        raise UserError(
            f"{path} cannot be read as a CSV table: it is not {encoding}. Pass --encoding."
        ) from None
    except (ValueError, OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(
            f"{path} cannot be read as a CSV table: {_explain(error)}. Are --sep, --encoding and "
            "--decimal right?"
        ) from None
    return frame


def _explain(error: Exception) -> str:
    """Return the text of an error that quotes no cell, and the kind of any other."""
    quotes_nothing = (pd.errors.ParserError, pd.errors.EmptyDataError, OSError, EOFError)
    return str(error) if isinstance(error, quotes_nothing) else type(error).__name__


def _open_table(path: Path) -> IO[bytes]:
    opened: IO[bytes] = _COMPRESSED.get(path.suffix.lower(), open)(path, "rb")
    return opened


def _find_dialect(path: Path, args: argparse.Namespace) -> _Dialect:
    """Return the dialect of a file; print the detected options that are not the defaults."""
    given = {
        "sep": SEPARATORS.get(args.sep, args.sep), "encoding": args.encoding,
        "decimal": args.decimal,
    }  # fmt: skip
    if given["sep"] is not None and len(given["sep"]) != 1:
        raise UserError(f"--sep must be one character, such as ';'; got {args.sep!r}.")
    encoding = _known_encoding(given["encoding"]) or _find_encoding(path)
    with _open_table(path) as raw:
        head = raw.read(_SAMPLE).decode(encoding, errors="ignore")
    lines = head.splitlines()[: None if len(head) < _SAMPLE // 4 else -1][:500]
    sep = given["sep"] or _find_separator(lines)
    found = _Dialect(sep, encoding, given["decimal"] or _find_decimal(lines, sep))
    usual, options = _Dialect().options(), found.options()
    detected = [
        f"{option} {value}"
        for (option, value), name in zip(options.items(), given, strict=True)
        if given[name] is None and value not in (usual[option], "utf-8-sig")
    ]
    if detected:
        print_message(
            f"{path.name} is read with {' '.join(detected)}. Pass these options if that is wrong."
        )
    return found


def _known_encoding(name: str | None) -> str | None:
    try:
        return None if name is None else codecs.lookup(name).name
    except LookupError:
        raise UserError(f"--encoding {name!r} is not known. Pass one such as utf-8.") from None


def _find_encoding(path: Path) -> str:
    """Return the encoding of a whole file: one character in the last line can rule out UTF-8."""
    with _open_table(path) as raw:
        head = raw.read(4)
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    return "utf-8" if all(_is_decodable(path, "utf-8")) else "cp1252"


def _is_decodable(path: Path, encoding: str) -> Iterator[bool]:
    decoder = codecs.getincrementaldecoder(encoding)()
    with _open_table(path) as raw:
        try:
            while chunk := raw.read(_CHUNK):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            yield False


def _find_separator(lines: list[str]) -> str:
    """Return the separator with which most lines are as wide as the header, or then the widest."""
    if not lines:
        return ","
    best, score = ",", (0.0, 0)
    for sep in (",", ";", "\t", "|"):
        widths = [len(row) for row in csv.reader(lines, delimiter=sep)]
        if not widths or widths[0] < 2:
            continue
        share = sum(width == widths[0] for width in widths) / len(widths)
        if (share, widths[0]) > score:
            best, score = sep, (share, widths[0])
    return best


def _find_decimal(lines: list[str], sep: str) -> str:
    if sep == ",":
        return "."
    cells = [cell.strip() for row in csv.reader(lines[1:], delimiter=sep) for cell in row]
    commas = sum(_WITH_COMMA.fullmatch(cell) is not None for cell in cells)
    points = sum(_WITH_POINT.fullmatch(cell) is not None for cell in cells)
    return "," if commas > points else "."
