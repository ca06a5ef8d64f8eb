"""Handwritten digits: MNIST from its original idx files, and scikit-learn's small embedded digits.

:func:`load_demo` needs no download.
"""

from __future__ import annotations

import gzip
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from .._docs import fill_docs
from .._validation import is_number
from ..preprocessing import BoundedColumn, Schema
from .files import DATASET_DOCS, PublishedFile, as_bunch, parts_of_subset


@fill_docs(DATASET_DOCS)
def load_demo(
    *, mislabeled: float = 0.0, as_frame: bool = False, return_X_y: bool = False
) -> Bunch | tuple[Any, Any]:
    """Load the embedded data set: 1,797 handwritten digits of 8 by 8 pixels, with a schema.

    The bounds are public: each pixel counts the dark points of a 4 by 4 block, so it is 0 to 16.

    Parameters
    ----------
    mislabeled : float, default=0.0
        Share of wrong labels, the same in each call. Only a memory of the records explains them.
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`.

    Raises
    ------
    ValueError
        If ``mislabeled`` is not in [0, 1].

    Examples
    --------
    >>> digits = load_demo()
    >>> digits.data.shape, digits.schema
    ((1797, 64), Schema(64 columns, target 'digit'))
    """
    if not (is_number(mislabeled) and 0 <= mislabeled <= 1):
        raise ValueError(f"mislabeled={mislabeled!r} must be a share of the labels, such as 0.2.")
    data, target = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    wrong = random.random(len(target)) < mislabeled
    target = np.where(wrong, (target + random.integers(1, 10, len(target))) % 10, target)
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    return as_bunch(
        pd.DataFrame(data, columns=names),
        pd.Series(target, name="digit"),
        Schema(
            dict.fromkeys(names, BoundedColumn(0, 16)), target_column="digit", classes=range(10)
        ),
        description="Handwritten digits, 8 by 8 pixels (scikit-learn's embedded copy).",
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
# Checksums of the uncompressed idx files: they are published in several compressed forms.
_SHA256 = {
    "train-images-idx3": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_FILES = {
    name: PublishedFile("mnist", f"{name}-ubyte.gz", f"unzipped:{digest}", f"{_URL}{name}-ubyte.gz")
    for name, digest in _SHA256.items()
}
_PARTS = {"train": ("train", 60_000), "test": ("t10k", 10_000)}


@fill_docs(DATASET_DOCS)
def fetch_mnist(
    *,
    subset: str = "train",
    data_home: str | PathLike[str] | None = None,
    download_if_missing: bool = True,
    as_frame: bool = False,
    return_X_y: bool = False,
) -> Bunch | tuple[Any, Any]:
    """Load MNIST: 28 by 28 grey pixels (0 to 255) of a handwritten digit.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        60,000 images, 10,000 images, or both.
    %(file_options)s
    %(bunch_options)s

    Returns
    -------
    Bunch
        As returned by :func:`~skprivacy.datasets.fetch_adult`; ``data`` has shape (n_samples, 784)
        and type ``uint8``, with the pixels row by row.

    Raises
    ------
    %(file_errors)s

    References
    ----------
    .. [1] Y. LeCun, C. Cortes, C. Burges. The MNIST database of handwritten digits.
    """
    parts = [_PARTS[part] for part in parts_of_subset(subset)]
    read = [_read_part(*part, data_home, download_if_missing) for part in parts]
    names = [f"pixel_{row}_{column}" for row in range(28) for column in range(28)]
    return as_bunch(
        pd.DataFrame(np.concatenate([X for X, _ in read]), columns=names, copy=False),
        pd.Series(np.concatenate([y for _, y in read]), name="digit"),
        Schema(
            dict.fromkeys(names, BoundedColumn(0, 255)), target_column="digit", classes=range(10)
        ),
        description=f"MNIST ({subset}), LeCun, Cortes, Burges.",
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


def _read_part(
    stem: str, count: int, data_home: Any, download: bool
) -> tuple[np.ndarray, np.ndarray]:
    images = _FILES[f"{stem}-images-idx3"].path(data_home, download)
    labels = _FILES[f"{stem}-labels-idx1"].path(data_home, download)
    X = _read_idx(images, (count, 28, 28)).reshape(count, 784)
    return X, _read_idx(labels, (count,)).astype(np.int64)


def _read_idx(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Read an idx file of bytes with this shape; reads no more bytes than the shape needs."""
    header = np.array([0x0800 + len(shape), *shape], dtype=">u4").tobytes()
    size = len(header) + int(np.prod(shape))
    with gzip.open(path) as stream:
        content = stream.read(size + 1)
    if len(content) != size or not content.startswith(header):
        raise OSError(
            f"{path} is not an idx file of shape {shape}. Remove it to download it again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=len(header)).reshape(shape)
