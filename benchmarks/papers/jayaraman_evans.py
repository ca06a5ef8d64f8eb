"""The figure of Jayaraman and Evans (2019): loss of accuracy and leakage, by accountant.

Takes about five minutes on one core. ``plot`` draws the results of the last run.

Location-30 and generated records shaped like Purchase-100; logistic regression
and a network of 64 units, trained by DP-SGD for 30 epochs on batches of a quarter, delta 1e-5. (The
paper has 100 epochs, 10,000 records, two layers of 256 units and five shadow models.) The noise of
each model is the least with which an accountant proves the epsilon, so that a looser one adds more.
Loss of accuracy is relative to the same model without noise. Leakage is the share of members called
so, less that of others: Yeom's attack knows the mean training loss, and Shokri's has two shadow
models, which are private like the target. Intervals are of 95% over records.

B. Jayaraman and D. Evans, "Evaluating differentially private machine learning in practice", USENIX
Security 2019.
"""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.metrics import log_loss

from benchmarks.shared.data import fetch_location30
from benchmarks.shared.quick import QUICK, ROOT, choose, make_parser, results_folder
from skprivacy.accounting import (
    GaussianEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
)
from skprivacy.attacks import LabeledRecords, LossThreshold, ShokriAttack
from skprivacy.datasets import make_membership_benchmark
from skprivacy.neural_network import DPSGDClassifier

FIGURES = results_folder() / "jayaraman_evans.csv"
PICTURE = (results_folder() if QUICK else ROOT / "doc" / "images") / "jayaraman_evans.png"
EPSILONS = choose((0.01, 0.05, 0.1, 0.5, 1, 5, 10, 50, 100, 500, 1000), (1, 10))
ACCOUNTANTS = {
    "naive": ("naive composition", "#7e5109", "v"),
    "advanced": ("advanced composition", "#6c3483", "s"),
    "zcdp": ("zCDP", "#117a65", "^"),
    "rdp": ("Rényi", "#c0392b", "D"),
    "pld": ("loss distributions", "#1b6ca8", "o"),
}
MODELS = {"logistic regression": (), "network": (64,)}
DELTA, RATE, EPOCHS = 1e-5, 0.25, choose(30, 1)
ATTACKS = {"yeom": "Yeom's attack", "shokri": "Shokri's attack"}


def load_data_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return as many members as others of each data set."""
    location = fetch_location30(return_X_y=True)
    purchase = make_membership_benchmark(
        "purchase100", choose(4000, 200), n_classes=choose(100, 4), random_state=0, return_X_y=True
    )
    parts = {}
    for name, (X, y), n in (("Location", location, 2400), ("Purchase-like 100", purchase, 4000)):
        rows = np.random.default_rng(0).permutation(len(y))[:n]
        parts[name] = np.asarray(X, dtype=np.float32)[rows], np.asarray(y)[rows]
    return parts


def calibrate_noise(epsilon: float, accountant: str) -> float:
    def training(z: float) -> Any:
        return RepeatedEvent(PoissonSampledEvent(RATE, GaussianEvent(z)), round(EPOCHS / RATE))

    return calibrate_noise_multiplier(training, epsilon, DELTA, "zero_out", accountant)


def compute_leakage(called_in: np.ndarray, called_out: np.ndarray) -> tuple[float, float]:
    """Return TPR minus FPR and half the width of its normal interval."""
    tpr, fpr = called_in.mean(), called_out.mean()
    variance = tpr * (1 - tpr) / len(called_in) + fpr * (1 - fpr) / len(called_out)
    return float(tpr - fpr), 1.96 * float(np.sqrt(variance))


def measure_model(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Train on the first half of the records and attack with both."""
    half, records = len(y) // 2, LabeledRecords(X, y)
    inside, outside = records[:half], records[half:]
    target = clone(model).fit(inside.X, inside.y)
    row = {"accuracy": target.score(outside.X, outside.y)}
    trained = log_loss(inside.y, target.predict_proba(inside.X), labels=target.classes_)
    for name, attack in {
        "yeom": LossThreshold(target, training_loss=trained).fit(records),
        "shokri": ShokriAttack(target, pool=2, random_state=0).fit(records),
    }.items():
        if name == "yeom":
            called = [attack.predict(part) for part in (inside, outside)]
        else:
            called = [attack.decision_function(part) >= 0.5 for part in (inside, outside)]
        row[name], row[f"{name}_half"] = compute_leakage(
            *(np.asarray(c, dtype=float) for c in called)
        )
    return row


def run() -> pd.DataFrame:
    rows = []
    noises = {(a, e): calibrate_noise(e, a) for a in ACCOUNTANTS for e in EPSILONS}
    for data, (X, y) in load_data_sets().items():
        for kind, hidden in MODELS.items():
            model = DPSGDClassifier(
                hidden_layer_sizes=hidden, classes=np.unique(y), delta=DELTA, epochs=EPOCHS,
                batch_size=round(RATE * len(y) / 2), random_state=0,
            )  # fmt: skip
            free = measure_model(clone(model).set_params(epsilon=np.inf), X, y)
            rows.append({"data": data, "model": kind, "accountant": "none", **free})
            print(rows[-1], flush=True)
            for (accountant, epsilon), noise in noises.items():
                model.set_params(epsilon=None, noise_multiplier=noise)
                row = {"data": data, "model": kind, "accountant": accountant, "epsilon": epsilon}
                rows.append({**row, "noise": noise, **measure_model(model, X, y)})
                rows[-1]["loss"] = 1 - rows[-1]["accuracy"] / free["accuracy"]
            print(pd.DataFrame(rows[-len(noises) :]).round(3).to_string(), flush=True)
    return pd.DataFrame(rows)


def plot(table: pd.DataFrame) -> None:
    panels = [(d, m) for d in table["data"].unique() for m in MODELS]
    figure, axes = plt.subplots(
        3, len(panels), figsize=(13, 9), sharex=True, sharey="row", layout="constrained"
    )
    columns = {"loss": "Loss of accuracy", **{a: f"{n}:\nTPR − FPR" for a, n in ATTACKS.items()}}
    for place, (data, kind) in enumerate(panels):
        part = table[(table["data"] == data) & (table["model"] == kind)]
        axes[0, place].set_title(f"{data}, {kind}")
        axes[-1, place].set_xlabel("ε (smaller is more private)")
        for ax, (column, label) in zip(axes[:, place], columns.items(), strict=True):
            for accountant, (name, colour, marker) in ACCOUNTANTS.items():
                line = part[part["accountant"] == accountant]
                spread = line[f"{column}_half"] if column in ATTACKS else None
                ax.errorbar(
                    line["epsilon"], line[column], spread, color=colour, marker=marker,
                    markersize=4, linewidth=1.4, elinewidth=0.8, label=name,
                )  # fmt: skip
            if column in ATTACKS:
                free = part.loc[part["accountant"] == "none", column].item()
                ax.axhline(free, color="#5f6b76", linestyle=":", label="without noise")
            ax.set_xscale("log")
            ax.grid(alpha=0.3)
            if not place:
                ax.set_ylabel(label)
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("what", nargs="?", default="all", choices=["all", "plot"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "all":
        run().to_csv(FIGURES, index=False, float_format="%.5g")
    plot(pd.read_csv(FIGURES))


if __name__ == "__main__":
    main()
