"""The table of Shokri et al. (2017): how well an attack model tells who was in the training data.

    python benchmarks/shokri.py                 # all rows, about ten minutes on one core
    python benchmarks/shokri.py Adult MNIST     # some of them

Adult, MNIST and Location-30 are the published data (``SKPRIVACY_DATA``); Purchase and Texas are
generated records of their shape, so that only the direction can be compared with the paper. Each
target is a network of 128 tanh units that is trained until it has learned its members; the attacker
has other networks of the same make, trained on random halves of all records, and one attack model
for each class. Precision is over as many members as others: 0.5 is guessing.

R. Shokri, M. Stronati, C. Song and V. Shmatikov, "Membership inference attacks against machine
learning models", IEEE S&P 2017.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier

from skprivacy.attacks import ShadowPool, ShokriAttack
from skprivacy.datasets import (
    fetch_adult,
    fetch_location30,
    fetch_mnist,
    make_purchase_like,
    make_texas_like,
)
from skprivacy.preprocessing import SchemaTransformer

HERE = Path(__file__).parent
FIGURES = HERE / "results" / "shokri.csv"
PICTURE = HERE.parent / "doc" / "images" / "shokri.png"
Records = tuple[np.ndarray, np.ndarray]


@dataclass
class Row:
    load: Callable[[], Records]
    n_members: int
    paper: float  # the precision in print, of models trained at Google's service
    epochs: int = 100


def adult() -> Records:
    table = fetch_adult(subset="train", as_frame=True)
    return SchemaTransformer(table.schema).fit_transform(table.data), np.asarray(table.target)


def mnist() -> Records:
    X, y = fetch_mnist(return_X_y=True)
    return np.asarray(X) / 255, np.asarray(y)


def purchase(n_classes: int) -> Callable[[], Records]:
    return lambda: make_purchase_like(8000, n_classes=n_classes, random_state=0, return_X_y=True)


ROWS = {
    "Adult": Row(adult, 10_000, 0.503),
    "MNIST": Row(mnist, 5_000, 0.517),
    "Location": Row(lambda: fetch_location30(return_X_y=True), 1_200, 0.678),
    "Purchase-like (2)": Row(purchase(2), 4_000, 0.505),
    "Purchase-like (10)": Row(purchase(10), 4_000, 0.550),
    "Purchase-like (20)": Row(purchase(20), 4_000, 0.590),
    "Purchase-like (50)": Row(purchase(50), 4_000, 0.860),
    "Purchase-like (100)": Row(purchase(100), 4_000, 0.935),
    "Texas-like (100)": Row(
        lambda: make_texas_like(5000, random_state=0, return_X_y=True), 2_500, 0.657, epochs=30
    ),
}


def measured(row: Row) -> dict[str, Any]:
    X, y = row.load()
    chosen = np.random.default_rng(0).permutation(len(y))[: 2 * row.n_members]
    X, y = np.asarray(X, dtype=np.float32)[chosen], np.asarray(y)[chosen]
    inside, outside = (
        (X[: row.n_members], y[: row.n_members]),
        (X[row.n_members :], y[row.n_members :]),
    )
    net = MLPClassifier(
        (128,), activation="tanh", alpha=0, max_iter=row.epochs, n_iter_no_change=row.epochs,
        random_state=0,
    )  # fmt: skip
    target = clone(net).fit(*inside)
    pool = ShadowPool(net, n_shadows=4, random_state=0)
    result = ShokriAttack(target, pool=pool).fit(X, y).evaluate(*inside, *outside)
    precision, recall = result.precision_recall(0.5)
    called = (np.mean(result.scores_in >= 0.5) + np.mean(result.scores_out >= 0.5)) * row.n_members
    return {
        "training accuracy": target.score(*inside),
        "test accuracy": target.score(*outside),
        "precision": precision,
        "±": 1.96 * np.sqrt(precision * (1 - precision) / called),
        "recall": recall,
        "paper": row.paper,
    }


def plot(table: pd.DataFrame) -> None:
    table = table.iloc[::-1]
    figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
    places = np.arange(len(table))
    ax.hlines(places, table["test accuracy"], table["training accuracy"], color="#b0b7bd", lw=3)
    ax.plot(table["test accuracy"], places, "o", color="#1b6ca8", label="test accuracy")
    ax.plot(table["training accuracy"], places, "o", color="#117a65", label="training accuracy")
    ax.errorbar(
        table["precision"], places, xerr=table["±"], fmt="D", color="#c0392b",
        label="precision of the attack",
    )  # fmt: skip
    ax.axvline(0.5, color="#5f6b76", linestyle=":", label="precision of guessing")
    ax.set_yticks(places, table.index)
    ax.legend(loc="lower left", fontsize=8)
    ax.grid(axis="x", alpha=0.3)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or list(ROWS)
    rows = {}
    for name in names:
        rows[name] = measured(ROWS[name])
        print(name, {k: round(float(v), 3) for k, v in rows[name].items()}, flush=True)
    table = pd.DataFrame.from_dict(rows, orient="index")
    print(table.round(3).to_string())
    if names == list(ROWS):
        FIGURES.parent.mkdir(exist_ok=True)
        table.to_csv(FIGURES, float_format="%.5g", index_label="data")
        plot(table)
