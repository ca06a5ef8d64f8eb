"""Location-30, Purchase-100 and Texas-100: membership inference benchmarks (Shokri et al. 2017)."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from .._docs import fill_docs
from ..exceptions import DatasetNotFoundError
from ..preprocessing import BoundedColumn, Schema
from .files import DATASET_DOCS, PublishedFile, as_bunch

_URL = "https://github.com/privacytrustlab/datasets/raw/master/"


@dataclass(frozen=True)
class _BinaryTable:
    """Archive of binary rows; labels start each line or are in a separate member."""

    file: PublishedFile
    member: str
    n_samples: int
    n_features: int
    n_classes: int
    target: str
    description: str
    labels_member: str | None = None

    @property
    def schema(self) -> Schema:
        return Schema(
            {f"x{i}": BoundedColumn(0, 1) for i in range(self.n_features)},
            target_column=self.target,
            classes=range(1, self.n_classes + 1),
        )

    def read(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Return features (uint8) and labels (1 to n_classes) without unpacking the archive."""
        X = np.empty((self.n_samples, self.n_features), dtype=np.uint8)
        y = np.empty(self.n_samples, dtype=np.int64)
        try:
            with tarfile.open(path, "r:gz") as archive:
                rows = self._lines(archive, self.member)
                if self.labels_member is None:
                    parts = (line.split(b",", 1) for line in rows)
                    pairs: Iterable[Any] = ((label, values) for label, values in parts)
                else:
                    labels = list(self._lines(archive, self.labels_member))
                    pairs = zip(labels, rows, strict=True)
                count = 0
                for label, values in pairs:
                    X[count] = self._bits(values)
                    y[count] = int(label.strip(b'"'))
                    count += 1
        except (ValueError, IndexError, tarfile.TarError, EOFError) as error:
            raise self._broken(path, str(error)) from error
        if count != self.n_samples or y.min() < 1 or y.max() > self.n_classes:
            raise self._broken(path, f"{count} rows, labels {y[:count].min()} to {y[:count].max()}")
        return X, y

    def _lines(self, archive: tarfile.TarFile, name: str) -> Iterable[bytes]:
        """Return the lines of a member of the archive, which must have a plausible size."""
        try:
            member = archive.getmember(name)
        except KeyError as error:
            raise ValueError(f"it has no member {name}") from error
        # a comma or line end follows each value, and a label takes at most 16 bytes
        most = self.n_samples * (2 * self.n_features + 16)
        stream = archive.extractfile(member) if member.isfile() else None
        if stream is None or member.size > most:
            raise ValueError(f"its member {name} is not a file of at most {most} bytes")
        return (line.rstrip(b"\r\n") for line in stream)

    def _bits(self, values: bytes) -> np.ndarray:
        text = np.frombuffer(values, dtype=np.uint8)
        if len(text) != 2 * self.n_features - 1:
            raise ValueError(f"a row does not have {self.n_features} values of 0 or 1")
        bits = text[::2] - ord("0")
        if bits.max() > 1 or (text[1::2] != ord(",")).any():
            raise ValueError("a row has a value other than 0 and 1")
        return bits

    def _broken(self, path: Path, reason: str) -> DatasetNotFoundError:
        return DatasetNotFoundError(
            f"{path} does not hold {self.description}: {reason}. Remove it to download it again."
        )

    def fetch(
        self, data_home: Any, as_frame: bool, return_X_y: bool, download: bool
    ) -> Bunch | tuple[Any, Any]:
        X, y = self.read(self.file.path(data_home, download))
        schema = self.schema
        return as_bunch(
            pd.DataFrame(X, columns=list(schema), copy=False),
            pd.Series(y, name=self.target),
            schema,
            description=f"{self.description}; R. Shokri et al., IEEE S&P 2017.",
            as_frame=as_frame,
            return_X_y=return_X_y,
        )


_LOCATION = _BinaryTable(
    PublishedFile(
        "location",
        "dataset_location.tgz",
        "sha256:927203f85a868f8ee17a0ded1dc61699efe602167beabe34fbf45b4b1de94b33",
        _URL + "dataset_location.tgz",
    ),
    member="bangkok",
    n_samples=5_010,
    n_features=446,
    n_classes=30,
    target="kind",
    description="Location-30 (5,010 x 446, 30 classes)",
)
_PURCHASE = _BinaryTable(
    PublishedFile(
        "purchase",
        "dataset_purchase.tgz",
        "git:3efa7476ad5ed7ac3e558d28585a186b38fc5f19",
        _URL + "dataset_purchase.tgz",
    ),
    member="dataset_purchase",
    n_samples=197_324,
    n_features=600,
    n_classes=100,
    target="style",
    description="Purchase-100 (197,324 x 600, 100 classes)",
)
_TEXAS = _BinaryTable(
    PublishedFile(
        "texas",
        "dataset_texas.tgz",
        "git:966f7ff40b24cf5912ff84759aab9adb8c25f30e",
        _URL + "dataset_texas.tgz",
    ),
    member="texas/100/feats",
    labels_member="texas/100/labels",
    n_samples=67_330,
    n_features=6_169,
    n_classes=100,
    target="procedure",
    description="Texas-100 (67,330 x 6,169, 100 classes)",
)


@fill_docs(DATASET_DOCS)
def fetch_location30(
    *,
    data_home: str | PathLike[str] | None = None,
    as_frame: bool = False,
    return_X_y: bool = False,
    download_if_missing: bool = True,
) -> Bunch | tuple[Any, Any]:
    """Load Location-30: 5,010 people, 446 places visited or not, 30 kinds of people.

    Parameters
    ----------
    data_home : path-like, default=None
        The data folder; the file is in ``<data_home>/location``. ``None`` means the environment
        variable ``SKPRIVACY_DATA`` or, without it, ``~/skprivacy_data``.
    %(bunch_options)s
    download_if_missing : bool, default=True
        Whether to download the file if it is missing.

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`; classes are 1 to 30.

    Raises
    ------
    %(dataset_not_found)s

    References
    ----------
    .. [1] R. Shokri, M. Stronati, C. Song, V. Shmatikov (2017). Membership inference attacks
           against machine learning models. IEEE S&P.
    """
    return _LOCATION.fetch(data_home, as_frame, return_X_y, download_if_missing)


@fill_docs(DATASET_DOCS)
def fetch_purchase100(
    *,
    data_home: str | PathLike[str] | None = None,
    as_frame: bool = False,
    return_X_y: bool = False,
    download_if_missing: bool = True,
) -> Bunch | tuple[Any, Any]:
    """Load Purchase-100: 197,324 shoppers, 600 products bought or not, 100 styles.

    Parameters
    ----------
    data_home : path-like, default=None
        The data folder; the file is in ``<data_home>/purchase``. ``None`` means the environment
        variable ``SKPRIVACY_DATA`` or, without it, ``~/skprivacy_data``.
    %(bunch_options)s
    download_if_missing : bool, default=True
        Whether to download the file if it is missing.

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`; classes are 1 to 100.

    Raises
    ------
    %(dataset_not_found)s
    """
    return _PURCHASE.fetch(data_home, as_frame, return_X_y, download_if_missing)


@fill_docs(DATASET_DOCS)
def fetch_texas100(
    *,
    data_home: str | PathLike[str] | None = None,
    as_frame: bool = False,
    return_X_y: bool = False,
    download_if_missing: bool = True,
) -> Bunch | tuple[Any, Any]:
    """Load Texas-100: 67,330 hospital stays, 6,169 binary features, 100 most common procedures.

    Parameters
    ----------
    data_home : path-like, default=None
        The data folder; the file is in ``<data_home>/texas``. ``None`` means the environment
        variable ``SKPRIVACY_DATA`` or, without it, ``~/skprivacy_data``.
    %(bunch_options)s
    download_if_missing : bool, default=True
        Whether to download the file if it is missing.

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`; classes are 1 to 100.

    Raises
    ------
    %(dataset_not_found)s
    """
    return _TEXAS.fetch(data_home, as_frame, return_X_y, download_if_missing)
