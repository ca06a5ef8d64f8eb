"""Accuracy of label-private classifiers on Adult and MNIST at each epsilon.

Prints a line for each fit. Features are public, labels of the training file private. Accuracy is
measured on the test file or, with ``--held-out``, on a sixth of the training file left out of
training; parameters were chosen there.

Adult: boosted trees, regularised for noisy labels (label PATE: logistic regression). MNIST: ridge
regression on random Fourier features of the leading components of scattering features, all of which
are unsupervised.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline

from benchmarks.shared.data import fetch_adult, fetch_mnist
from benchmarks.shared.quick import choose, make_parser
from skprivacy.label_privacy import (
    ALIBIClassifier,
    LabelPATEClassifier,
    LP2STClassifier,
    RandomizedResponseClassifier,
)
from skprivacy.neural_network import ScatteringTransformer
from skprivacy.preprocessing import CategoricalColumn, SchemaTransformer

EPSILONS = choose({"adult": [0.5, 1.0, 2.0], "mnist": [1.0, 2.0]}, {"adult": [2.0], "mnist": [2.0]})
N_TEACHERS = choose(250, 5)
DELTA = 1e-6


def adult() -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    train, test = (fetch_adult(subset=part, as_frame=True) for part in ("train", "test"))
    trees = HistGradientBoostingClassifier(
        learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=200, l2_regularization=100.0,
        categorical_features="from_dtype", early_stopping=False,
    )  # fmt: skip
    linear = make_pipeline(SchemaTransformer(train.schema), LogisticRegression(max_iter=1000))
    common = {"classes": list(train.classes)}
    models = {
        "randomised response": RandomizedResponseClassifier(trees, n_rounds=1, **common),
        "LP-2ST": LP2STClassifier(trees, n_rounds=1, **common),
        "ALIBI": ALIBIClassifier(trees, n_rounds=1, **common),
        "label PATE": LabelPATEClassifier(
            linear, linear, n_teachers=N_TEACHERS, delta=DELTA, **common
        ),
    }
    X, others = (_categorical(part.data, train.schema) for part in (train, test))
    return X, np.asarray(train.target), others, np.asarray(test.target), models


def _categorical(frame: pd.DataFrame, schema: Any) -> pd.DataFrame:
    """Return a frame whose textual columns have the public categories, others being missing."""
    columns = {
        name: pd.Categorical(frame[name].where(frame[name].isin(fact.values)), fact.values)
        for name, fact in schema.items()
        if isinstance(fact, CategoricalColumn)
    }
    return frame.assign(**columns)


def mnist() -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    train, test = (fetch_mnist(subset=part) for part in ("train", "test"))
    started = time.perf_counter()
    scattering = ScatteringTransformer().fit(train.data[:1])
    wide = [
        scattering.transform(part.data / 255).astype(np.float32, copy=False)
        for part in (train, test)
    ]
    leading = PCA(choose(200, 20), svd_solver="randomized", random_state=0).fit(wide[0][:10_000])
    narrow = [leading.transform(part) for part in wide]
    size = np.sqrt((narrow[0] ** 2).sum(axis=1).mean())
    waves = RBFSampler(gamma=0.5, n_components=choose(2000, 50), random_state=0).fit(narrow[0][:1])
    X, others = (waves.transform(part / size) for part in narrow)
    print(f"features: {time.perf_counter() - started:.0f} s", flush=True)
    ridge = RidgeClassifier(alpha=0.1)
    common = {"classes": range(10), "n_rounds": 5, "n_folds": 2}
    models = {
        "randomised response": RandomizedResponseClassifier(ridge, **common),
        "LP-2ST": LP2STClassifier(ridge, **common),
        "ALIBI": ALIBIClassifier(ridge, **common),
        "label PATE": LabelPATEClassifier(
            ridge, classes=range(10), delta=DELTA, **choose({}, {"n_teachers": 5})
        ),
    }
    return X, np.asarray(train.target), others, np.asarray(test.target), models


def _rows(X: Any, rows: np.ndarray) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("data", nargs="*", default=["adult", "mnist"])
    parser.add_argument("--epsilons", nargs="+", type=float)
    parser.add_argument("--models", nargs="+", default=choose(["randomised response"], ["all"]))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--held-out", action="store_true")
    args = parser.parse_args()
    for name in args.data:
        X, y, X_test, y_test, models = {"adult": adult, "mnist": mnist}[name]()
        if args.held_out:
            order = np.random.default_rng(0).permutation(len(y))
            kept, out = order[len(y) // 6 :], order[: len(y) // 6]
            X, X_test, y, y_test = _rows(X, kept), _rows(X, out), y[kept], y[out]
        for epsilon in args.epsilons or EPSILONS[name]:
            for kind in args.models if args.models != ["all"] else models:
                for seed in range(args.seeds):
                    model = models[kind].set_params(epsilon=epsilon, random_state=seed)
                    started = time.perf_counter()
                    accuracy = model.fit(X, y).score(X_test, y_test)
                    print(
                        f"{name} {kind} epsilon={model.epsilon_:g} seed={seed} "
                        f"accuracy={accuracy:.4f} {time.perf_counter() - started:.0f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
