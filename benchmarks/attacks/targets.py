"""The default audit of regressors, margins, densities and clusters, on scikit-learn's data.

Half of the records are members, with 16 shadow models and 3 seeds. Prints for each attack the mean
area under the curve and the mean share of members found at 1% false positives.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import (
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity, KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, OneClassSVM

from benchmarks.shared.quick import choose, make_parser
from skprivacy.audit import audit

N_RECORDS = choose(100_000, 120)  # of each table at most


def make_cases(seed: int) -> dict[str, tuple[Any, Any, Any]]:
    """Return each model, its records and the predicted values."""
    diabetes, worth = load_diabetes(return_X_y=True)
    digits, digit = load_digits(return_X_y=True)
    tumours, kind = load_breast_cancer(return_X_y=True)
    bits = np.column_stack([digit >> k & 1 for k in range(4)])
    noise = np.random.default_rng(seed)
    wrong = np.where(noise.random(len(digit)) < 0.2, noise.integers(0, 10, len(digit)), digit)
    net = make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(100,), max_iter=500, random_state=seed)
    )
    return {
        "regression, forest": (RandomForestRegressor(), diabetes, worth),
        "regression, boosting": (GradientBoostingRegressor(), diabetes, worth),
        "regression, 5 neighbours": (KNeighborsRegressor(), diabetes, worth),
        "regression, network": (make_pipeline(StandardScaler(), net), diabetes, worth),
        "4 labels, forest": (RandomForestClassifier(), digits, bits),
        "margins, kernel machine": (SVC(C=10), digits, wrong),
        "margins, linear": (make_pipeline(StandardScaler(), LinearSVC(C=10)), tumours, kind),
        "density, kernels": (KernelDensity(bandwidth=10.0), digits, None),
        "density, 20 normals": (GaussianMixture(choose(20, 5), reg_covar=1.0), digits, None),
        "outliers, forest": (IsolationForest(), digits, None),
        "outliers, kernel machine": (OneClassSVM(nu=0.1), digits, None),
        "50 clusters": (KMeans(choose(50, 10), n_init=1), digits, None),
    }


def audit_model(model: Any, X: Any, y: Any, seed: int) -> list[dict[str, Any]]:
    order = np.random.default_rng(seed).permutation(len(X))[:N_RECORDS]
    member, other = order[: len(order) // 2], order[len(order) // 2 :]
    label = (None, None) if y is None else (y[member], y[other])
    own = [] if y is None else [label[0]]
    target = clone(model).fit(X[member], *own)
    report = audit(
        target, X[member], label[0], X[other], label[1], n_shadows=choose(16, 2), random_state=seed
    )
    return [
        {
            "attack": "loss" if finding.result.attack == "LossThreshold" else "strongest",
            "auc": finding.result.auc,
            "tpr": finding.result.tpr_at_fpr(0.01).tpr,
        }
        for finding in report.findings
    ]


def main() -> None:
    make_parser(__doc__).parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for seed in range(choose(3, 1)):
        for name, (model, X, y) in make_cases(seed).items():
            rows += [
                {"target": name, "seed": seed, **row} for row in audit_model(model, X, y, seed)
            ]
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby(["target", "attack"], sort=False)[["auc", "tpr"]].mean()
    print(table.round(3).unstack().to_string())


if __name__ == "__main__":
    main()
