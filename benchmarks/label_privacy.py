"""Label privacy on Adult and MNIST: accuracy of each classifier at each epsilon.

``python benchmarks/label_privacy.py [adult] [mnist] [--epsilons E ...] [--seeds N] [--held-out]``
prints a line for each fit. Features are public, labels of the training file private; accuracy is
that on the test file or, with ``--held-out``, on a sixth of the training file that is not trained
on: parameters were chosen there. Both data sets need their files, see ``skprivacy.datasets``.

Adult: boosted trees, regularised for noisy labels. MNIST: ridge regression on random Fourier
features of the leading components of scattering features, all of which are unsupervised.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import RidgeClassifier

from skprivacy.datasets import fetch_adult, fetch_mnist
from skprivacy.label_privacy import (
    ALIBIClassifier,
    LabelPATEClassifier,
    LP2STClassifier,
    RandomizedResponseClassifier,
)
from skprivacy.neural_network import ScatteringTransformer
from skprivacy.preprocessing import Categories

EPSILONS = {"adult": [0.5, 1.0, 2.0], "mnist": [1.0, 2.0]}
DELTA = 1e-6


def adult() -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    train, test = (fetch_adult(subset=part, as_frame=True) for part in ("train", "test"))
    trees = HistGradientBoostingClassifier(
        learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=200, l2_regularization=100.0,
        categorical_features="from_dtype", early_stopping=False,
    )  # fmt: skip
    common = {"classes": list(train.classes)}
    models = {
        "randomised response": RandomizedResponseClassifier(trees, n_rounds=1, **common),
        "LP-2ST": LP2STClassifier(trees, n_rounds=1, **common),
        "ALIBI": ALIBIClassifier(trees, n_rounds=1, **common),
        "label PATE": LabelPATEClassifier(
            trees, clone(trees).set_params(min_samples_leaf=5), delta=DELTA, **common
        ),
    }
    X, others = (_categorical(part.data, train.schema) for part in (train, test))
    return X, np.asarray(train.target), others, np.asarray(test.target), models


def _categorical(frame: pd.DataFrame, schema: Any) -> pd.DataFrame:
    """Return a frame whose textual columns have the public categories, others being missing."""
    columns = {
        name: pd.Categorical(frame[name].where(frame[name].isin(fact.values)), fact.values)
        for name, fact in schema.items()
        if isinstance(fact, Categories)
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
    leading = PCA(200, svd_solver="randomized", random_state=0).fit(wide[0][:10_000])
    narrow = [leading.transform(part) for part in wide]
    size = np.sqrt((narrow[0] ** 2).sum(axis=1).mean())
    waves = RBFSampler(gamma=0.5, n_components=2000, random_state=0).fit(narrow[0][:1])
    X, others = (waves.transform(part / size) for part in narrow)
    print(f"features: {time.perf_counter() - started:.0f} s", flush=True)
    ridge = RidgeClassifier(alpha=0.1)
    common = {"classes": range(10), "n_rounds": 5, "n_folds": 2}
    models = {
        "randomised response": RandomizedResponseClassifier(ridge, **common),
        "LP-2ST": LP2STClassifier(ridge, **common),
        "ALIBI": ALIBIClassifier(ridge, **common),
        "label PATE": LabelPATEClassifier(ridge, classes=range(10), delta=DELTA),
    }
    return X, np.asarray(train.target), others, np.asarray(test.target), models


def _rows(X: Any, rows: np.ndarray) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", default=["adult", "mnist"])
    parser.add_argument("--epsilons", nargs="+", type=float)
    parser.add_argument("--models", nargs="+", default=["randomised response"])
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
