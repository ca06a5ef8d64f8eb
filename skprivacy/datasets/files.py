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

from .._output import as_path
from .._validation import flag
from ..exceptions import DatasetNotFoundError
from ..preprocessing import Schema

# Paragraphs of docstrings that the package shares, see skprivacy/_docs.py.
DATASET_DOCS = {
    "bunch_options": """\
as_frame : bool, default=False
    Whether ``data`` is a DataFrame and ``target`` a Series, instead of arrays.
return_X_y : bool, default=False
    Whether to return ``(data, target)`` only.""",
    "dataset_not_found": """\
DatasetNotFoundError
    If a file is missing and cannot be downloaded, or is not the published one.""",
    "generated_shape": """\
n_features, n_classes : int
    Numbers of features and of classes, by default those of the published table.
random_state : int, RandomState instance or None, default=None
    Seed.""",
}


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
    """Published file with a checksum.

    ``checksum`` is "sha256:..." of the bytes, "git:..." (git's blob id), or "unzipped:...", the
    SHA-256 of the contents of a gzip file: some files are published in several compressed forms.
    """

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
            raise DatasetNotFoundError(
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

    def _not_found(self, path: Path, reason: str) -> DatasetNotFoundError:
        return DatasetNotFoundError(
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
