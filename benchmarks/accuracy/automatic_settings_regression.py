"""R2 of the automatic settings of ``DPSGDRegressor``, and how they were chosen.

tune     on the tables of the tuning: R2 by training time, for a network and a linear model, and the
         loss against the best time of each table and epsilon
held     on 8 tables that were not used for any choice: the default, the settings before this rule,
         and the best of a search over 12 settings that is not private
models   the network, the same without hidden layers, the other private regressors and a noisy mean,
         on up to 5,000 records of the same tables and of 5 tables with heavy-tailed targets
gate     the network beside the mean target with noise: R2, its difference to the expected R2 of
         this mean with its standard error over splits, and the R2 of AdaSSP, DP-EBM and the
         additive regressor; up to 20,000 records of the same tables
scales   the private regressors with target_scale "linear" and "log" on the tables with heavy-tailed
         targets: mean absolute error, in the unit of the target, and rank correlation
without  epsilon = inf on the same tables, beside scikit-learn's perceptron, boosted trees and ridge

``benchmarks/shared/regression_tables.py`` states how to obtain the tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPRegressor

from benchmarks.shared.quick import choose, make_parser
from benchmarks.shared.regression_tables import (
    HEAVY_HELD_BACK,
    HEAVY_TUNING,
    HELD_BACK,
    TUNING,
    Split,
    split,
    target_range,
)
from skprivacy import PrivateAdditiveRegressor
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.linear_model import AdaSSPRegressor, FunctionalMechanismRegressor
from skprivacy.neural_network import DPSGDRegressor, Optimizer
from skprivacy.neural_network.settings import PublicFacts, Recipe, resolve_auto_settings
from skprivacy.preprocessing import BoundedColumn, Schema

DELTA = 1e-5
EPSILONS = choose((0.1, 0.3, 1.0, 3.0, 10.0), (1.0,))
LINEAR = Optimizer("sgd", schedule="linear")
BEFORE = {  # the defaults before the rule
    "hidden_layer_sizes": (64,), "epochs": 30, "max_grad_norm": 1.0,
    "optimizer": Optimizer("adam", schedule="constant", averaging=0.5), "learning_rate": 0.01,
}  # fmt: skip
SEARCHED = [
    {"hidden_layer_sizes": hidden, "learning_rate": rate, "optimizer": LINEAR, "steps": steps}
    for hidden, steps, rate in product(
        [(), (64,)], *choose(([150, 600], [0.03, 0.12, 0.5]), ([10], [0.12]))
    )
]


def measure_r2(at: Split, seed: int, epsilon: float, **settings: Any) -> float:
    """Return the R2 on the test records; below -1 counts as -1."""
    n = len(at.X)
    settings = dict(settings)
    if "steps" in settings:
        batch = settings["batch_size"] = min(1024, n // 4)
        settings["epochs"] = max(1, round(settings.pop("steps") * batch / n))
    model = DPSGDRegressor(
        epsilon=epsilon, delta=DELTA, target_bounds=(-1, 1), random_state=seed, **settings
    )
    return max(-1.0, float(model.fit(at.X, at.y).score(at.X_test, at.y_test)))


def tune(names: Iterable[str], seeds: int) -> None:
    shares = 2.0 ** np.array(choose([-2.0, -1.0, 0.0, 1.0, 2.0], [-2.0]))
    lost: dict[tuple[int, ...], list[Any]] = {(64,): [], (): []}
    print("R2 by training time, in units of the rule's:", *shares)
    for name, hidden, epsilon in product(names or TUNING + HEAVY_TUNING, lost, EPSILONS):
        splits = [split(name, seed, 5000) for seed in range(seeds)]
        n, d = splits[0].X.shape
        rule = automatic(n, d, epsilon, hidden)
        found = []
        for share in shares:
            settings = {
                "hidden_layer_sizes": hidden, "optimizer": LINEAR, "batch_size": rule.batch_size,
                "epochs": max(1, round(rule.epochs * np.sqrt(share))),
                "learning_rate": float(rule.learning_rate) * np.sqrt(share),
            }  # fmt: skip
            scores = [measure_r2(at, i, epsilon, **settings) for i, at in enumerate(splits)]
            found.append(float(np.mean(scores)))
        lost[hidden].append(max(found) - np.array(found))
        print(f"{name:14s} {'64' if hidden else 'linear':7s} {epsilon:5g} "
              + " ".join(f"{x:6.3f}" for x in found), flush=True)  # fmt: skip
    for hidden, rows in lost.items():
        print("R2 lost in the mean,", hidden, np.round(np.mean(rows, 0), 3))


def automatic(n: int, d: int, epsilon: float, hidden: tuple[int, ...]) -> Recipe:
    """Return the settings that follow from public facts."""
    model = DPSGDRegressor(epsilon=epsilon, delta=DELTA, hidden_layer_sizes=hidden)
    facts = PublicFacts(
        n_records=n, n_features=d, n_outputs=1, epsilon=epsilon, delta=DELTA, clipping="flat",
        classifies=False, perceptron=True, studied=True, momentum=0.9,
    )  # fmt: skip
    return resolve_auto_settings(model.get_params(), facts)


def held(names: Iterable[str], seeds: int) -> None:
    print("table          epsilon  default  before  best of 12")
    for name in names or HELD_BACK:
        splits = [split(name, seed, 10**6) for seed in range(seeds)]

        def mean(epsilon: float, splits: list[Split] = splits, **settings: Any) -> float:
            return float(
                np.mean([measure_r2(a, i, epsilon, **settings) for i, a in enumerate(splits)])
            )

        for epsilon in EPSILONS:
            before = mean(epsilon, **BEFORE, batch_size=len(splits[0].X) // 4)
            searched = SEARCHED if epsilon == 1.0 else ()
            best = max((mean(epsilon, **s) for s in searched), default=np.nan)
            print(f"{name:14s} {epsilon:7g} {mean(epsilon):8.3f} {before:7.3f} {best:8.3f}",
                  flush=True)  # fmt: skip


def models(names: Iterable[str], seeds: int) -> None:
    public = {"delta": DELTA, "target_bounds": (-1, 1)}
    compared = {
        "network": DPSGDRegressor(**public),
        "no hidden layers": DPSGDRegressor(hidden_layer_sizes=(), **public),
        "functional": FunctionalMechanismRegressor(bounds=(-1, 1), **public),
        "AdaSSP": AdaSSPRegressor(bounds=(-1, 1), **public),
        "noisy mean": NoisyMean(),
        "ridge, no privacy": Ridge(),
    }
    print("epsilon  table          ", *compared, sep="  ")
    for epsilon, tables in product(
        choose((0.1, 0.3, 1.0, 3.0), (1.0,)), [names] if names else (HELD_BACK, HEAVY_HELD_BACK)
    ):
        rows = []
        for name in tables:
            splits = [split(name, seed, 5000) for seed in range(seeds)]
            rows.append([_mean_r2(model, splits, epsilon) for model in compared.values()])
            print(f"{epsilon:7g}  {name:14s}", *(f"{r2:8.3f}" for r2 in rows[-1]), flush=True)
        print(f"{epsilon:7g}  mean          ", *(f"{r2:8.3f}" for r2 in np.mean(rows, axis=0)))


def gate(names: Iterable[str], seeds: int) -> None:
    print("epsilon  table             network  less the noisy mean ", *RIVALS, sep="  ")
    for epsilon, name in product(EPSILONS, names or (*HELD_BACK, *HEAVY_HELD_BACK)):
        splits = [split(name, seed, choose(20_000, 400)) for seed in range(seeds)]
        ours = np.array([measure_r2(at, i, epsilon) for i, at in enumerate(splits)])
        apart = ours - [expect_r2_of_mean(at, epsilon) for at in splits]
        error = np.std(apart, ddof=1) / np.sqrt(seeds) if seeds > 1 else 0.0
        others = [np.mean([rival(at, epsilon) for at in splits]) for rival in RIVALS.values()]
        print(
            f"{epsilon:7g}  {name:14s} {ours.mean():10.3f} {apart.mean():12.3f} +- {error:.3f}",
            *(f"{r2:8.3f}" for r2 in others), flush=True,
        )  # fmt: skip


def expect_r2_of_mean(at: Split, epsilon: float) -> float:
    """Return the expected R2 of the mean target with noise for the whole budget."""
    std = analytic_noise_multiplier(epsilon, DELTA) / len(at.y)
    error = np.mean((at.y_test - at.y.mean()) ** 2) + std**2
    return float(1.0 - error / np.var(at.y_test))


def fit_adassp(at: Split, epsilon: float) -> float:
    model = AdaSSPRegressor(epsilon=epsilon, delta=DELTA, target_bounds=(-1, 1), bounds=(-1, 1))
    return max(-1.0, float(model.fit(at.X, at.y).score(at.X_test, at.y_test)))


def fit_ebm(at: Split, epsilon: float) -> float:
    try:
        from interpret.privacy import DPExplainableBoostingRegressor
    except ImportError:  # pip install interpret-core
        return np.nan
    columns = at.X.shape[1]
    model = DPExplainableBoostingRegressor(
        feature_types=["continuous"] * columns, epsilon=epsilon, delta=DELTA, n_jobs=1,
        privacy_bounds=dict.fromkeys(range(columns), (-1, 1)),
        privacy_target_min=-1, privacy_target_max=1,
    )  # fmt: skip
    return max(-1.0, float(model.fit(at.X, at.y).score(at.X_test, at.y_test)))


def fit_additive(at: Split, epsilon: float) -> float:
    columns = dict.fromkeys((f"x{j}" for j in range(at.X.shape[1])), BoundedColumn(-1, 1))
    train, test = (pd.DataFrame(X, columns=list(columns)) for X in (at.X, at.X_test))
    schema = Schema(columns, target_bounds=(-1, 1))
    model = PrivateAdditiveRegressor(epsilon, DELTA, schema=schema)
    return max(-1.0, float(model.fit(train, at.y).score(test, at.y_test)))


RIVALS = {"AdaSSP": fit_adassp, "DP-EBM": fit_ebm, "additive": fit_additive}


def scales(names: Iterable[str], seeds: int) -> None:
    print("epsilon  table           model                         scale   error  correlation")
    for epsilon, name in product(EPSILONS, names or HEAVY_HELD_BACK):
        splits = [split(name, seed, 10**6) for seed in range(seeds)]
        half = target_range(name) / 2.0
        public = {"epsilon": epsilon, "delta": DELTA, "target_bounds": (-1, 1)}
        for kind, scale in product(
            (DPSGDRegressor, FunctionalMechanismRegressor, AdaSSPRegressor), ("linear", "log")
        ):
            bounds = {} if kind is DPSGDRegressor else {"bounds": (-1, 1)}
            rows = []
            for at in splits:
                model = kind(**public, **bounds, target_scale=scale).fit(at.X, at.y)
                found = model.predict(at.X_test)
                error = half * float(np.abs(found - at.y_test).mean())
                rows.append((error, float(spearmanr(found, at.y_test).statistic)))
            error, correlation = np.mean(rows, axis=0)
            print(f"{epsilon:7g}  {name:14s}  {kind.__name__:28s}  {scale:6s} {error:6.2f} "
                  f"{correlation:12.3f}", flush=True)  # fmt: skip


class NoisyMean(RegressorMixin, BaseEstimator):
    """Predict the mean target, released with the whole budget."""

    def __init__(self, epsilon: float = 1.0, random_state: int = 0) -> None:
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NoisyMean:
        std = analytic_noise_multiplier(self.epsilon, DELTA) / len(y)
        self.mean_ = float(np.mean(y)) + np.random.default_rng(self.random_state).normal(0, std)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.mean_)


def _mean_r2(model: Any, splits: list[Split], epsilon: float) -> float:
    private = {"epsilon": epsilon} if "epsilon" in model.get_params() else {}
    scores = []
    for seed, at in enumerate(splits):
        seeded = {"random_state": seed} if "random_state" in model.get_params() else {}
        fitted = clone(model).set_params(**private, **seeded).fit(at.X, at.y)
        scores.append(max(-1.0, float(fitted.score(at.X_test, at.y_test))))
    return float(np.mean(scores))


def without(names: Iterable[str], seeds: int) -> None:
    print("table          epsilon=inf  MLPRegressor  boosted trees  ridge")
    others = MLPRegressor(random_state=0), HistGradientBoostingRegressor(random_state=0), Ridge()
    for name in names or HELD_BACK:
        splits = [split(name, seed, 5000) for seed in range(seeds)]
        ours = np.mean([measure_r2(at, i, np.inf) for i, at in enumerate(splits)])
        plain = [
            np.mean([clone(m).fit(a.X, a.y).score(a.X_test, a.y_test) for a in splits])
            for m in others
        ]
        print(f"{name:14s} {ours:11.3f}", *(f"{p:13.3f}" for p in plain), flush=True)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--tables", nargs="*", default=choose([], ["friedman1"]))
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    options = parser.parse_args()
    parts = {
        "tune": tune,
        "held": held,
        "models": models,
        "gate": gate,
        "scales": scales,
        "without": without,
    }
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(parts)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's perceptron has not converged
        for name in options.parts or parts:
            parts[name](options.tables, options.seeds)


if __name__ == "__main__":
    main()
