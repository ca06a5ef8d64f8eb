"""The table of Shokri et al. (2017): precision of attack models on nine data sets.

Names choose rows, such as ``Adult MNIST``; the others keep their last results. ``plot`` draws the
last results. All rows take about 25 minutes on one core.

Adult, MNIST and Location-30 are the published data, with as many training
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

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier

from benchmarks.shared.data import fetch_adult, fetch_location30, fetch_mnist
from benchmarks.shared.quick import QUICK, ROOT, choose, make_parser, results_folder
from skprivacy.attacks import LabeledRecords, ShadowPool, ShokriAttack
from skprivacy.datasets import make_membership_benchmark
from skprivacy.preprocessing import SchemaTransformer

FIGURES = results_folder() / "shokri.csv"
PICTURE = (results_folder() if QUICK else ROOT / "doc" / "images") / "shokri.png"
Records = tuple[np.ndarray, np.ndarray]


@dataclass
class Row:
    """A row of the table: its records, the size of the attack, and the printed precision."""

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
    return lambda: make_membership_benchmark(
        "purchase100", choose(8000, 240), n_classes=n_classes, random_state=0, return_X_y=True
    )


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
        lambda: make_membership_benchmark(
            "texas100", choose(4000, 200), random_state=0, return_X_y=True
        ),
        1_000,
        8,
        0.657,
        epochs=30,
    ),
}


def measure_row(row: Row) -> dict[str, Any]:
    X, y = row.load()
    order, n = np.random.default_rng(0).permutation(len(y)), choose(row.n_members, 60)
    epochs, n_shadows = choose((row.epochs, row.n_shadows), (10, 2))
    inside, outside, others = (
        (np.asarray(X[part], dtype=np.float32), np.asarray(y)[part])
        for part in (order[:n], order[n : 2 * n], order[n:][-2 * n :])
    )
    net = MLPClassifier(
        (128,), activation="tanh", alpha=0, max_iter=epochs, n_iter_no_change=epochs,
        random_state=0,
    )  # fmt: skip
    target = clone(net).fit(*inside)
    pool = ShadowPool(net, n_shadows=n_shadows, random_state=0).fit(*others)
    found = {"training accuracy": target.score(*inside), "test accuracy": target.score(*outside)}
    for name, model in {
        "precision": MLPClassifier((64,), random_state=0),
        "precision by default": None,
    }.items():
        attack = ShokriAttack(target, pool=pool, attack_model=model)
        attack.fit(LabeledRecords(*others))
        result = attack.evaluate(LabeledRecords(*inside), LabeledRecords(*outside))
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


def read_results() -> pd.DataFrame:
    """Return the results of earlier runs."""
    return pd.read_csv(FIGURES, index_col="data") if FIGURES.exists() else pd.DataFrame()


def main() -> None:
    parser = make_parser(__doc__)
    quick = ["Adult", "MNIST", "Location", "Purchase-like (2)"]
    parser.add_argument("names", nargs="*", default=choose(list(ROWS), quick), metavar="ROW")
    names = parser.parse_args().names
    if unknown := set(names) - {*ROWS, "plot"}:
        parser.error(f"unknown rows {sorted(unknown)}; choose from {list(ROWS)}")
    warnings.simplefilter("ignore")
    for name in [name for name in names if name != "plot"]:
        row = pd.DataFrame.from_dict({name: measure_row(ROWS[name])}, orient="index")
        print(row.round(3).to_string(), flush=True)
        table = read_results().drop(index=name, errors="ignore")
        pd.concat([table, row]).to_csv(FIGURES, float_format="%.5g", index_label="data")
    plot(read_results())


if __name__ == "__main__":
    main()
