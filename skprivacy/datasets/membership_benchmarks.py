"""Location-30, Purchase-100 and Texas-100: membership inference benchmarks (Shokri et al. 2017).

:func:`make_membership_benchmark` generates tables of their shape, which need no download.
"""

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
from .._validation import check_random_state
from ..preprocessing import BoundedColumn, Schema
from .files import DATASET_DOCS, PublishedFile, as_bunch, check_size

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
    n_generated: int  # rows of the generated table
    density: float  # mean share of features that are set in the generated table
    spread: float  # of a class's rates around the rate of a feature
    labels_member: str | None = None

    def read_rows(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
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

    def _broken(self, path: Path, reason: str) -> OSError:
        return OSError(
            f"{path} does not hold {self.description}: {reason}. Remove it to download it again."
        )


_TABLES = {
    "location30": _BinaryTable(
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
        n_generated=5_010,
        density=0.12,
        spread=0.027,
    ),
    "purchase100": _BinaryTable(
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
        n_generated=20_000,
        density=0.25,
        spread=0.03,
    ),
    "texas100": _BinaryTable(
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
        n_generated=10_000,
        density=0.03,
        spread=0.01,
    ),
}


def _find_table(name: Any) -> _BinaryTable:
    if not isinstance(name, str) or name not in _TABLES:
        raise ValueError(f"name={name!r} must be one of {list(_TABLES)}.")
    return _TABLES[name]


@fill_docs(DATASET_DOCS)
def fetch_membership_benchmark(
    name: str,
    *,
    data_home: str | PathLike[str] | None = None,
    download_if_missing: bool = True,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load a benchmark of membership inference: binary features and many classes.

    Parameters
    ----------
    name : {"location30", "purchase100", "texas100"}
        Location-30: 5,010 people, 446 places visited or not, 30 kinds of people. Purchase-100:
        197,324 shoppers, 600 products bought or not, 100 styles. Texas-100: 67,330 hospital stays,
        6,169 features, the 100 most common procedures.
    %(file_options)s
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`; classes count from 1.

    Raises
    ------
    %(file_errors)s

    References
    ----------
    .. [1] R. Shokri, M. Stronati, C. Song, V. Shmatikov (2017). Membership inference attacks
           against machine learning models. IEEE S&P.
    """
    table = _find_table(name)
    X, y = table.read_rows(table.file.path(data_home, download_if_missing))
    described = f"{table.description}; R. Shokri et al., IEEE S&P 2017."
    return _bunch_of_bits(X, y, table.n_classes, table.target, described, as_frame, return_X_y)


@fill_docs(DATASET_DOCS)
def make_membership_benchmark(
    name: str,
    n_samples: int | None = None,
    *,
    n_features: int | None = None,
    n_classes: int | None = None,
    random_state: Any = None,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Generate binary rows shaped like a benchmark of membership inference.

    Parameters
    ----------
    name : {"location30", "purchase100", "texas100"}
        The benchmark. Location-30 has few rows, which are easy to memorise. Purchase-100 has dense
        features. Of the features of Texas-100, few are set.
    n_samples : int, default=None
        Number of rows. ``None`` means 5,010, 20,000 and 10,000.
    n_features, n_classes : int, default=None
        Numbers of features and of classes. ``None`` means the numbers of the published table.
    random_state : int, RandomState instance or None, default=None
        Seed.
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`fetch_membership_benchmark`.

    Examples
    --------
    >>> from skprivacy.datasets import make_membership_benchmark
    >>> X, y = make_membership_benchmark("purchase100", 500, random_state=0, return_X_y=True)
    >>> X.shape, sorted(set(X.ravel().tolist()))
    ((500, 600), [0, 1])
    """
    table = _find_table(name)
    usual = {
        "n_samples": table.n_generated, "n_features": table.n_features, "n_classes": table.n_classes
    }  # fmt: skip
    given = {"n_samples": n_samples, "n_features": n_features, "n_classes": n_classes}
    n, d, k = (check_size(w, usual[w] if v is None else v) for w, v in given.items())
    if k < 2:
        raise ValueError(f"n_classes={k} must be at least 2.")
    rng = check_random_state(random_state)
    # Each bit has a probability that varies by class around its column's.
    common, scale = rng.beta(1, 1 / table.density - 1, size=d), 1 / table.spread
    rates = rng.beta(common * scale + 1e-3, (1 - common) * scale + 1e-3, (k, d))
    y = rng.randint(k, size=n)
    X = np.empty((n, d), dtype=np.uint8)
    for start in range(0, n, 1000):  # limits the memory that the draws take
        block = slice(start, start + 1000)
        X[block] = rng.random_sample((len(y[block]), d)) < rates[y[block]]
    described = f"Generated, of the shape of {table.description.partition(' ')[0]}."
    return _bunch_of_bits(X, y + 1, k, "label", described, as_frame, return_X_y)


def _bunch_of_bits(
    X: np.ndarray,
    y: np.ndarray,
    n_classes: int,
    target: str,
    description: str,
    as_frame: bool,
    return_X_y: bool,
) -> Bunch | tuple[Any, Any]:
    schema = Schema(
        {f"x{i}": BoundedColumn(0, 1) for i in range(X.shape[1])},
        target_column=target,
        classes=range(1, n_classes + 1),
    )
    return as_bunch(
        pd.DataFrame(X, columns=list(schema), copy=False),
        pd.Series(y, name=target),
        schema,
        description=description,
        as_frame=as_frame,
        return_X_y=return_X_y,
    )
