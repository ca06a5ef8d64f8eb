"""Blind baseline of audits: false doubts, found shifts, its cost, and bounds on matched pairs.

splits  samples called different, in 300 random splits of each of five tables
shifts  samples called different, in draws whose members and non-members differ
cost    processor time of the baseline as a share of a whole audit
pairs   wrong and right bounds on epsilon, over all records and on matched pairs

The shifts are drawn from Adult. "year": the non-members worked longer, and 35% of them had one more
year of education. "labels": 36% of the members earn more than 50,000 dollars, and 16% of the
others. "age": both samples are drawn with weights, exp(age / 2) and exp(-age / 2), where age is
standardised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy.audit import audit, audit_predictions
from skprivacy.audit.comparability.blind_baseline import (
    SampleUnits,
    compare_labels,
    compare_samples,
)
from skprivacy.audit.comparability.matched_pairs import bound_pairs
from skprivacy.audit.runner import Records, comparability_facts

N_SPLITS, N_DRAWS, N_PAIRED = choose((300, 20, 6), (2, 2, 1))  # per table, shift and cell
SIZES = choose((50, 100, 200, 400), (50,))  # in each sample
COST_SIZES = choose((100, 400, 2000), (60,))
N_COMPARED = choose(400, 150)
CLAIM = 0.1
MODELS: dict[str, Any] = {
    "tree": DecisionTreeClassifier(random_state=0),
    "forest, leaf 5": RandomForestClassifier(min_samples_leaf=5, random_state=0),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "network": make_pipeline(StandardScaler(), MLPClassifier(max_iter=30, random_state=0)),
}


def splits() -> None:
    """Count random splits whose parts are called different."""
    rows = []
    for name, load in _TABLES.items():
        X, y = load()
        p_values = []
        for seed in range(N_SPLITS):
            rng = np.random.default_rng(seed)
            most = min(4000, len(y))
            n = round(np.exp(rng.uniform(np.log(60), np.log(most))))
            rows_in, rows_out = np.array_split(rng.permutation(len(y))[:n], 2)
            units = _compared(_take(X, y, rows_in), _take(X, y, rows_out))
            p_values.append(compare_samples(units).p_value)
        found = np.array(p_values, dtype=float)
        rows.append(_count_below(found) | {"table": name})
    table = pd.DataFrame(rows).set_index("table")
    print(pd.concat([table, table.sum().to_frame("all").T]).to_string())


def shifts() -> None:
    """Count draws of each shift, by number of records, whose samples are called different."""
    rows = []
    for kind in ("none", *_SHIFTS):
        for n in SIZES:
            found, areas, by_label = [], [], []
            for seed in range(N_DRAWS):
                units = _compared(*draw_samples(kind, n, np.random.default_rng(seed)))
                baseline = compare_samples(units)
                found.append(baseline.differs)
                areas.append(baseline.auc)
                by_label.append(compare_labels(units) < 0.01)
            rows.append(
                {"shift": kind, "n": n, "AUC": np.mean(areas), "by labels alone": sum(by_label),
                 "called different": sum(found), "of": N_DRAWS}
            )  # fmt: skip
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def cost() -> None:
    """Print the processor time of audits with default attacks, and that of the baseline."""
    rows = []
    for name, model in MODELS.items():
        for n in COST_SIZES:
            members, others = draw_samples("none", n, np.random.default_rng(0))
            fitted = model.fit(*members)
            start = time.process_time()
            report = audit(fitted, *members, *others, random_state=0)
            whole = time.process_time() - start
            start = time.process_time()
            units = _compared(members, others)
            comparability_facts(units, report.findings, report.guarantee, report.alpha)
            own = time.process_time() - start
            rows.append({"model": name, "n": n, "audit, s": whole, "baseline, s": own,
                         "share of the rest": own / (whole - own)})  # fmt: skip
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def pairs() -> None:
    """Print how many bounds exceed .1 for models of a third sample, and the bounds of members."""
    rows = []
    for kind in ("none", *_SHIFTS):
        for name in ("tree", "forest, leaf 5"):
            for trained_on in ("third sample", "members"):
                row = {"shift": kind, "model": name, "trained on": trained_on}
                rows.append(row | _bounds_of(kind, MODELS[name], trained_on == "members"))
    print(pd.DataFrame(rows).round(2).to_string(index=False))


def _bounds_of(kind: str, model: Any, trained_on_members: bool) -> dict[str, Any]:
    """Return the bounds above .1 and their median, over all records and on matched pairs."""
    found: dict[str, list[float]] = {}
    counts = []
    for seed in range(N_PAIRED):
        rng = np.random.default_rng(100 + seed)
        members, others, third = draw_samples(kind, N_COMPARED, rng, with_third=True)
        fitted = model.fit(*(members if trained_on_members else third))
        units = _compared(members, others)
        audits = {
            "audit": audit(fitted, *members, *others, claim=CLAIM, random_state=0),
            "predictions": audit_predictions(
                fitted.predict_proba(members[0]), members[1],
                fitted.predict_proba(others[0]), others[1],
                claim=CLAIM, classes=fitted.classes_, records=(members[0], others[0]),
            ),
        }  # fmt: skip
        for name, report in audits.items():
            matched = bound_pairs(units, report.findings, report.guarantee, report.alpha)
            found.setdefault(name, []).append(report.epsilon_lower_bound)
            bound = matched.epsilon_lower_bound
            found.setdefault(f"{name}, matched", []).append(np.nan if bound is None else bound)
            counts.append(matched.n_pairs)
    return {"pairs": int(np.median(counts))} | {
        name: f"{sum(b > CLAIM for b in bounds)}/{np.isfinite(bounds).sum()}, "
        f"{np.median(bounds):.2f}"
        for name, bounds in found.items()
    }


def draw_samples(
    kind: str, n: int, rng: np.random.Generator, *, with_third: bool = False
) -> list[Records]:
    """Return members and non-members of a shift, and a third sample of the members' kind."""
    X, y = _numeric_adult()
    weigh = _SHIFTS.get(kind, lambda X, y: (np.ones(len(y)), np.ones(len(y))))
    inside, outside = weigh(X, y)
    free, drawn = np.ones(len(y)), []
    for weights in (inside, outside, inside)[: 2 + with_third]:
        share = weights * free
        drawn.append(rng.choice(len(y), n, replace=False, p=share / share.sum()))
        free[drawn[-1]] = 0.0
    samples = [(X[rows].copy(), y[rows]) for rows in drawn]
    if kind == "year":
        later = samples[1][0]
        later[:, _COLUMNS.index("hours-per-week")] += np.round(rng.normal(2, 1, n))
        later[:, _COLUMNS.index("education-num")] += rng.random(n) < 0.35
    return samples


def _weigh_labels(X: Any, y: Any) -> tuple[Any, Any]:
    rich = y == ">50K"
    share = rich.mean()
    return tuple(np.where(rich, p / share, (1 - p) / (1 - share)) for p in (0.36, 0.16))


def _weigh_age(X: Any, y: Any) -> tuple[Any, Any]:
    age = X[:, _COLUMNS.index("age")]
    age = (age - age.mean()) / age.std()
    return np.exp(age / 2), np.exp(-age / 2)


_SHIFTS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "year": lambda X, y: (np.ones(len(y)), np.ones(len(y))),
    "labels": _weigh_labels,
    "age": _weigh_age,
}
_TABLES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "adult": lambda: fetch_adult(subset="all", as_frame=True, return_X_y=True),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
}
_COLUMNS: list[str] = []


@cache
def _numeric_adult() -> tuple[Any, Any]:
    """Return Adult with its texts as numbers, in sorted order."""
    X, y = fetch_adult(subset="all", as_frame=True, return_X_y=True)
    _COLUMNS[:] = list(X.columns)
    coded = {
        name: column if pd.api.types.is_numeric_dtype(column) else
        np.unique(column.astype(str), return_inverse=True)[1]
        for name, column in X.items()
    }  # fmt: skip
    return pd.DataFrame(coded).to_numpy(dtype=float), np.asarray(y)


def _compared(members: Any, others: Any) -> SampleUnits:
    return SampleUnits.from_records(*members, *others)


def _take(X: Any, y: Any, rows: Any) -> tuple[Any, Any]:
    return (X.iloc[rows] if hasattr(X, "iloc") else X[rows]), np.asarray(y)[rows]


def _count_below(p_values: Any) -> dict[str, int]:
    return {"splits": len(p_values)} | {
        f"p < {level:g}": int((p_values < level).sum()) for level in (0.01, 0.05, 0.1, 0.5)
    }


QUESTIONS: dict[str, Callable[[], None]] = {
    "splits": splits,
    "shifts": shifts,
    "cost": cost,
    "pairs": pairs,
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("questions", nargs="*", default=list(QUESTIONS), metavar="QUESTION")
    options = parser.parse_args()
    if unknown := set(options.questions) - set(QUESTIONS):
        parser.error(f"unknown questions {sorted(unknown)}; choose from {list(QUESTIONS)}")
    for question in options.questions:
        print(f"== {question}", flush=True)
        QUESTIONS[question]()


if __name__ == "__main__":
    main()
