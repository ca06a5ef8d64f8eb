"""Data files, located, downloaded and verified by checksum, and tables with a public schema."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_file
from sklearn.utils import Bunch

from .._files import as_path
from .._validation import flag, whole
from ..preprocessing import Schema

# Paragraphs of docstrings that the package shares, see skprivacy/_docs.py.
DATASET_DOCS = {
    "bunch_options": """\
as_frame : bool, default=False
    Whether ``data`` is a DataFrame and ``target`` a Series, instead of arrays.
return_X_y : bool, default=False
    Whether to return ``(data, target)`` only.""",
    "file_options": """\
data_home : path-like, default=None
    The data folder. ``None`` means the environment variable ``SKPRIVACY_DATA`` or, without it,
    ``~/skprivacy_data``.
download_if_missing : bool, default=True
    Whether to download a missing file from its publisher.""",
    "file_errors": """\
OSError
    If a file is missing and cannot be downloaded, or is not the published one.""",
}
PARTS = {"train": ["train"], "test": ["test"], "all": ["train", "test"]}


DATA_VARIABLE = "SKPRIVACY_DATA"
MAX_UNPACKED_BYTES = 1 << 30


def data_folder(data_home: str | PathLike[str] | None = None) -> Path:
    """Return the data folder: the argument, else ``SKPRIVACY_DATA``, else ``~/skprivacy_data``."""
    chosen = data_home
    if chosen is None:
        chosen = os.environ.get(DATA_VARIABLE) or Path.home() / "skprivacy_data"
    return Path(as_path("data_home", chosen)).expanduser()


@dataclass(frozen=True)
class PublishedFile:
    """File whose checksum is "sha256:...", "git:..." (a blob id) or "unzipped:..." (SHA-256)."""

    folder: str
    name: str
    checksum: str
    url: str

    def path(self, data_home: str | PathLike[str] | None = None, download: bool = True) -> Path:
        """Return the path of the verified file, after a download if it is missing."""
        path = data_folder(data_home) / self.folder / self.name
        if not path.is_file():
            self._download(path, download)
        if (found := self._checksum_of(path)) != self.checksum:
            raise OSError(
                f"{path} is not the published {self.name}: its checksum is {found}; expected "
                f"{self.checksum}. It was not read; remove or replace it."
            )
        return path

    def _download(self, path: Path, allowed: bool) -> None:
        if not allowed:
            raise self._not_found(path, "download_if_missing is False")
        new = not path.parent.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _socket_timeout(seconds=20):
                fetch_file(self.url, folder=path.parent, local_filename=path.name, n_retries=0)
        except OSError as error:  # no network, or a folder that cannot be written
            if new:
                with suppress(OSError):
                    path.parent.rmdir()
            raise self._not_found(path, f"downloading failed ({error})") from error

    def _not_found(self, path: Path, reason: str) -> OSError:
        return OSError(
            f"{self.name} is not in {path.parent}, and {reason}. Put the file with checksum "
            f"{self.checksum} there (it is published at {self.url}), or set the environment "
            f"variable {DATA_VARIABLE} or data_home to a folder that contains "
            f"{self.folder}/{self.name}."
        )

    def _checksum_of(self, path: Path) -> str:
        kind = self.checksum.partition(":")[0]
        digest = hashlib.sha1(usedforsecurity=False) if kind == "git" else hashlib.sha256()
        if kind == "git":
            digest.update(b"blob %d\0" % path.stat().st_size)
        total = 0
        try:
            with gzip.open(path) if kind == "unzipped" else path.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    digest.update(chunk)
                    total += len(chunk)
                    if total > MAX_UNPACKED_BYTES:
                        return f"{kind}:none, it holds more than {MAX_UNPACKED_BYTES} bytes"
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            return f"{kind}:none, {error}"
        return f"{kind}:{digest.hexdigest()}"


def parts_of_subset(subset: Any) -> list[str]:
    """Return the parts of a published table that ``subset`` names."""
    if not isinstance(subset, str) or subset not in PARTS:
        raise ValueError(f"subset={subset!r} must be one of {sorted(PARTS)}.")
    return PARTS[subset]


@contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    """Set a socket timeout: ``fetch_file`` waits for minutes if a host drops packets."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def as_bunch(
    data: pd.DataFrame,
    target: pd.Series,
    schema: Schema,
    *,
    description: str,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Return features and target in the form of ``sklearn.datasets``, with the schema."""
    flag("as_frame", as_frame)
    flag("return_X_y", return_X_y)
    classes = np.array(schema.classes)
    # Copies, because pandas returns read-only views, which torch and others refuse.
    X: Any = data if as_frame else data.to_numpy(copy=True)
    y: Any = target if as_frame else target.to_numpy(dtype=classes.dtype, copy=True)
    if return_X_y:
        return X, y
    return Bunch(
        data=X,
        target=y,
        frame=pd.concat([data, target], axis=1) if as_frame else None,
        feature_names=list(schema),
        target_names=[str(label) for label in classes],
        classes=classes,
        schema=schema,
        DESCR=description,
    )


_MAX_SIZE = 10**8


def check_size(name: str, value: Any) -> int:
    """Return a number of rows or columns to generate, if the table fits into memory."""
    whole(name, value)
    if value > _MAX_SIZE:
        raise ValueError(
            f"{name}={value!r} must be at most {_MAX_SIZE}: the table is held in memory."
        )
    return int(value)
