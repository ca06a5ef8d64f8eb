"""Accuracy of models trained on private synthetic records, and the error of their marginals.

Prints a line for each table, method and epsilon: mean and standard error over seeds of the accuracy
and the area under the ROC curve of boosted trees that are trained on synthetic records and tested
on real ones (in one-against-rest, weighed by class, where there are several), the mean total
variation over all pairs of columns, synthetic against training records, the share of synthetic
records that break a constraint of the table, and processor seconds of ``fit`` and ``sample``; at
the end the largest memory.

Methods: ``adaptive`` and ``tree`` with the target as label; ``constrained`` (``tree`` with the
constraints of the table in its schema, on the same noise with ``--noise-seeds``); ``naive``
(columns independent given the target); ``plain`` (a tree without target, as in MST); ``apart``
(columns independent); ``gan`` (``DPGANSynthesizer``, which is not for tables); ``real`` (the
training records). ``benchmarks/shared/synthesis_peers.py`` has methods of other libraries and their
requirements, ``benchmarks/shared/synthesis_tables.py`` the tables. Settings are the defaults; they
were chosen on Adult and on the tables of STUDY, and not on those of REPORT.

``images`` trains ``DPGANSynthesizer`` on the 60,000 training images of MNIST at the largest
epsilon, draws 20,000 images, trains a perceptron with 100 hidden units on them, and prints its
accuracy on the 10,000 real test images. ``--side 14`` takes means of two by two pixels, 28 the
pixels themselves. ``--set`` changes parameters of the synthesizer.
"""

from __future__ import annotations

import json
import resource
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OrdinalEncoder

from benchmarks.shared.data import fetch_mnist
from benchmarks.shared.quick import choose, make_parser
from benchmarks.shared.synthesis_tables import TABLES, Table, constrain, load_table
from skprivacy.exceptions import PrivacyWarning
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.preprocessing.cell_values import category_codes
from skprivacy.synthesis import DPGANSynthesizer, MarginalSynthesizer, synthetic_quality

DELTA = 1e-6
N_DRAWN = choose(20_000, 300)  # images
METHODS: dict[str, dict[str, Any]] = {
    "adaptive": {"method": "adaptive"},
    "tree": {"method": "tree"},
    "constrained": {"method": "tree"},
    "naive": {"method": "independent"},
    "plain": {"method": "tree", "label": None},
    "apart": {"method": "independent", "label": None},
}


def score_records(table: Table, records: pd.DataFrame, seed: int) -> tuple[float, float]:
    """Return accuracy and area under the curve on real test records."""
    features = [name for name in table.schema if name != table.target]
    textual = [n for n in features if isinstance(table.schema[n], CategoricalColumn)]
    values = [list(table.schema[n].values) for n in textual]
    encoder = OrdinalEncoder(
        categories=values, handle_unknown="use_encoded_value", unknown_value=-1
    )

    def rows(frame: pd.DataFrame) -> Any:
        numbers = [n for n in features if n not in textual]
        parts = [frame[numbers].to_numpy(float)]
        if textual:
            parts.append(encoder.fit(frame[textual]).transform(frame[textual]))
        return np.hstack(parts)

    X, y = rows(table.test), table.test[table.target]
    scores = np.zeros((len(y), len(np.unique(y))))
    if records[table.target].nunique() == 1:
        scores[:, np.unique(y) == records[table.target].iloc[0]] = 1.0
    else:
        model = HistGradientBoostingClassifier(random_state=seed)
        model.fit(rows(records), records[table.target])
        scores[:, np.searchsorted(np.unique(y), model.classes_)] = model.predict_proba(X)
    accuracy = float((np.unique(y)[scores.argmax(axis=1)] == y).mean())
    if scores.shape[1] == 2:
        return accuracy, float(roc_auc_score(y, scores[:, 1]))
    auc = roc_auc_score(y, scores, multi_class="ovr", average="weighted")
    return accuracy, float(auc)


def count_broken(table: Table, records: pd.DataFrame) -> float:
    """Return the share of records that break a constraint of the table."""
    values = {
        name: category_codes(records[name], fact.values)
        if isinstance(fact, CategoricalColumn)
        else records[name].to_numpy(float)
        for name, fact in table.schema.items()
    }
    good = np.ones(len(records), bool)
    for rule in table.constraints:
        good &= rule.holds(values, table.schema, 1e-9)
    return float(1 - good.mean())


def measure_method(
    table: Table, method: str, epsilon: float, seed: int, noise_seed: int | None = None
) -> tuple[float, ...]:
    """Return accuracy, area under the curve, total variation, broken share and seconds of a fit."""
    start = time.process_time()
    if method == "real":
        records = table.train.sample(len(table.train), replace=True, random_state=seed)
        score = score_records(table, table.train, seed)
    elif method == "gan":
        settings = {
            "label": table.target,
            "random_state": seed,
            **table.settings,
        }
        synthesizer = DPGANSynthesizer(epsilon, DELTA, schema=table.schema, **settings)
        records = synthesizer.fit(table.train).sample(random_state=seed)
    elif method not in METHODS:
        from benchmarks.shared.synthesis_peers import sample_peer

        records = sample_peer(method, table, epsilon, DELTA, seed)
    else:
        used = constrain(table) if method == "constrained" else table
        settings = {"label": table.target, **METHODS[method], **table.settings}
        synthesizer = MarginalSynthesizer(
            epsilon, DELTA, schema=used.schema, noise_seed=noise_seed, **settings
        )
        records = synthesizer.fit(table.train).sample(random_state=seed)
    seconds = time.process_time() - start
    if method != "real":
        score = score_records(table, records, seed)
    quality = synthetic_quality(table.train, records, table.schema, grids=table.compared_by)
    variation = float(quality.pairs["total_variation"].mean())
    return *score, variation, count_broken(table, records), seconds


def digits(subset: str, side: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    found = fetch_mnist(subset=subset)
    step = 28 // side
    images = np.asarray(found.data, dtype=np.float64).reshape(-1, side, step, side, step)
    return images.mean(axis=(2, 4)).reshape(len(images), -1), np.asarray(found.target).astype(int)


def image_accuracy(
    side: int, epsilon: float, seed: int, settings: dict[str, Any]
) -> tuple[float, float]:
    X, y = digits("train", side)
    schema = Schema({f"p{i}": BoundedColumn(0, 255) for i in range(X.shape[1])}, classes=range(10))
    start = time.process_time()
    synthesizer = DPGANSynthesizer(
        epsilon, DELTA, schema=schema, random_state=seed, **settings
    ).fit(X, y)
    seconds = time.process_time() - start
    drawn, labels = synthesizer.sample(N_DRAWN, return_X_y=True, random_state=seed)
    model = MLPClassifier((100,), max_iter=20, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(drawn.to_numpy() / 255, labels)
    X_test, y_test = digits("test", side)
    return float(model.score(X_test / 255, y_test)), seconds


def images(side: int, epsilon: float, seeds: int, settings: dict[str, Any]) -> None:
    """Print the accuracy of classifiers of digits that learn from generated images."""
    found = [image_accuracy(side, epsilon, seed, settings) for seed in range(seeds)]
    mean, seconds = np.mean(found, axis=0)
    print(
        f"MNIST {side} by {side} epsilon={epsilon:g} {settings}: accuracy "
        f"{mean:.4f} +- {np.std([a for a, _ in found]):.4f}, {seconds:.0f} s"
    )


def main() -> None:
    parser = make_parser(__doc__)
    every = ["gan", *METHODS, "real"]
    parser.add_argument(
        "tables", nargs="*", default=choose(["adult"], ["adult", "magic", "images"])
    )
    parser.add_argument("--methods", nargs="+", default=choose([*METHODS, "real"], every))
    parser.add_argument("--epsilons", nargs="+", type=float, default=choose([1.0, 10.0], [10.0]))
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    parser.add_argument("--noise-seeds", action="store_true", help="the same noise in each run")
    parser.add_argument("--side", type=int, default=14, choices=[14, 28])
    parser.add_argument("--set", nargs="*", default=[], dest="settings")
    args = parser.parse_args()
    if unknown := set(args.tables) - {*TABLES, "images"}:
        parser.error(f"unknown tables {sorted(unknown)}; there are {[*TABLES, 'images']}")
    warnings.simplefilter("ignore", PrivacyWarning)
    for name in args.tables:
        if name == "images":
            pairs = (setting.split("=") for setting in args.settings)
            settings = {name: json.loads(value) for name, value in pairs}
            images(args.side, max(args.epsilons), args.seeds, settings)
            continue
        tables = [load_table(name, seed) for seed in range(args.seeds)]
        for method in args.methods:
            if method == "constrained" and not tables[0].constraints:
                continue
            for epsilon in args.epsilons if method != "real" else [np.inf]:
                print_runs(name, tables, method, epsilon, args.noise_seeds)
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def print_runs(
    name: str, tables: list[Table], method: str, epsilon: float, noise_seeds: bool
) -> None:
    """Print the means and standard errors of a method over seeds, one for each split."""
    runs = [
        measure_method(table, method, epsilon, seed, seed if noise_seeds else None)
        for seed, table in enumerate(tables)
    ]
    mean = np.mean(runs, axis=0)
    error = np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs)) if len(runs) > 1 else 0 * mean
    print(
        f"{name} {method} epsilon={epsilon:g}: accuracy {mean[0]:.4f} +- {error[0]:.4f}, AUC "
        f"{mean[1]:.4f} +- {error[1]:.4f}, variation {mean[2]:.4f} +- {error[2]:.4f}, broken "
        f"{mean[3]:.4f} +- {error[3]:.4f}, {mean[4]:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
