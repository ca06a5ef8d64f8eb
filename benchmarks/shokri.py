"""The table of Shokri et al. (2017): how well an attack model tells who was in the training data.

    python benchmarks/shokri.py                 # all rows, about 25 minutes on one core
    python benchmarks/shokri.py Adult MNIST     # some of them; the others stay as they were
    python benchmarks/shokri.py plot            # from the figures of the last runs

Adult, MNIST and Location-30 are the published data (``SKPRIVACY_DATA``), with as many training
records and shadow models as in the paper; Purchase and Texas are generated records of their shape,
fewer of them, so that only the direction can be compared. The paper's targets of this table were
trained by Google, which does not say how. Here, each is what the paper trains itself: a network of
128 tanh units, for at most 200 epochs. The attacker trains networks of the same make on other
records (of Location, which is small, on some of the non-members, too), and on their confidences an
attack model for each class: a network of 64 units, as in the paper, and beside it the default of
``ShokriAttack``. Precision is over as many members as others: 0.5 is guessing.

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
    n_shadows: int
    paper: float  # the precision in print, of models trained at Google's service
    epochs: int = 200


def adult() -> Records:
    files = [fetch_adult(subset=subset, as_frame=True) for subset in ("train", "test")]
    data, target = (pd.concat([f[part] for f in files]) for part in ("data", "target"))
    return SchemaTransformer(files[0].schema).fit_transform(data), np.asarray(target)


def mnist() -> Records:
    X, y = fetch_mnist(return_X_y=True)
    return np.asarray(X, dtype=np.float32) / 255, np.asarray(y)


def purchase(n_classes: int) -> Callable[[], Records]:
    return lambda: make_purchase_like(8000, n_classes=n_classes, random_state=0, return_X_y=True)


ROWS = {
    "Adult": Row(adult, 10_000, 20, 0.503),
    "MNIST": Row(mnist, 10_000, 50, 0.517, epochs=100),
    "Location": Row(lambda: fetch_location30(return_X_y=True), 1_600, 60, 0.678),
    "Purchase-like (2)": Row(purchase(2), 2_000, 8, 0.505, epochs=60),
    "Purchase-like (10)": Row(purchase(10), 2_000, 8, 0.550, epochs=60),
    "Purchase-like (20)": Row(purchase(20), 2_000, 8, 0.590, epochs=60),
    "Purchase-like (50)": Row(purchase(50), 2_000, 8, 0.860, epochs=60),
    "Purchase-like (100)": Row(purchase(100), 2_000, 8, 0.935, epochs=60),
    "Texas-like (100)": Row(
        lambda: make_texas_like(4000, random_state=0, return_X_y=True), 1_000, 8, 0.657, epochs=30
    ),
}


def measured(row: Row) -> dict[str, Any]:
    X, y = row.load()
    order, n = np.random.default_rng(0).permutation(len(y)), row.n_members
    inside, outside, others = (
        (np.asarray(X[part], dtype=np.float32), np.asarray(y)[part])
        for part in (order[:n], order[n : 2 * n], order[n:][-2 * n :])
    )
    net = MLPClassifier(
        (128,), activation="tanh", alpha=0, max_iter=row.epochs, n_iter_no_change=row.epochs,
        random_state=0,
    )  # fmt: skip
    target = clone(net).fit(*inside)
    pool = ShadowPool(net, n_shadows=row.n_shadows, random_state=0).fit(*others)
    found = {"training accuracy": target.score(*inside), "test accuracy": target.score(*outside)}
    for name, model in {
        "precision": MLPClassifier((64,), random_state=0),
        "precision by default": None,
    }.items():
        attack = ShokriAttack(target, pool=pool, attack_model=model).fit(*others)
        result = attack.evaluate(*inside, *outside)
        precision, recall = result.precision_recall(0.5)
        called = n * (np.mean(result.scores_in >= 0.5) + np.mean(result.scores_out >= 0.5))
        half = 1.96 * np.sqrt(precision * (1 - precision) / called)
        found |= {name: precision, f"± {name}": half, f"recall of {name}": recall}
    return {**found, "paper": row.paper}


def plot(table: pd.DataFrame) -> None:
    table = table.loc[[name for name in ROWS if name in table.index]].iloc[::-1]
    figure, ax = plt.subplots(figsize=(8.5, 4.8), layout="constrained")
    places = np.arange(len(table))
    ax.hlines(places, table["test accuracy"], table["training accuracy"], color="#b0b7bd", lw=3)
    ax.plot(table["test accuracy"], places, "o", color="#1b6ca8", label="test accuracy")
    ax.plot(table["training accuracy"], places, "o", color="#117a65", label="training accuracy")
    ax.errorbar(
        table["precision"], places, xerr=table["± precision"], fmt="D", color="#c0392b",
        label="precision of the attack",
    )  # fmt: skip
    ax.plot(table["paper"], places, "x", color="#c0392b", label="precision in the paper")
    ax.axvline(0.5, color="#5f6b76", linestyle=":", label="precision of guessing")
    ax.set_yticks(places, table.index)
    figure.legend(loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    ax.grid(axis="x", alpha=0.3)
    figure.savefig(PICTURE, dpi=110)


def kept() -> pd.DataFrame:
    """Return the figures of earlier runs."""
    return pd.read_csv(FIGURES, index_col="data") if FIGURES.exists() else pd.DataFrame()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    FIGURES.parent.mkdir(exist_ok=True)
    for name in [] if sys.argv[1:] == ["plot"] else sys.argv[1:] or list(ROWS):
        row = pd.DataFrame.from_dict({name: measured(ROWS[name])}, orient="index")
        print(row.round(3).to_string(), flush=True)
        table = kept().drop(index=name, errors="ignore")
        pd.concat([table, row]).to_csv(FIGURES, float_format="%.5g", index_label="data")
    plot(kept())
