"""PATE on MNIST and Adult, with private student accuracy and what it cost.

``python benchmarks/pate.py [mnist] [adult] [networks] [--epsilons E ...] [--seeds N]`` prints a
line for each fit. MNIST: 60,000 private images, the test file's first 9,000 as public ones without
labels, its last 1,000 to evaluate on; 250 ridge teachers on scattering features, with a penalty of
100 that was not tuned. Adult: the training file is private, half of the test file public, the other
half to evaluate on; queries are drawn from the public half, the schema, or noisy marginals, and
from these with some three records to each of 10,000 made-up households, per household. Both need
the files, see ``skprivacy.datasets``. Networks: how long 250 small
ones take as teachers, against scikit-learn's through joblib.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from skprivacy import SchemaTransformer
from skprivacy.datasets import fetch_adult, fetch_mnist
from skprivacy.ensemble import PATEClassifier, PropagationStudent
from skprivacy.ensemble.teachers import count_votes
from skprivacy.neural_network import DPSGDClassifier, ScatteringTransformer

DELTA = 1e-5


def mnist(epsilons: list[float], seeds: int, n_queries: int) -> None:
    train, test = fetch_mnist(subset="train"), fetch_mnist(subset="test")
    transformer = ScatteringTransformer().fit(train.data[:1])
    started = time.perf_counter()
    private, others = (transformer.transform(part.data / 255) for part in (train, test))
    print(f"features: {time.perf_counter() - started:.0f} s")
    public, truth = others[:9000], np.asarray(test.target)[:9000]
    for epsilon in epsilons:
        for seed in range(seeds):
            model = PATEClassifier(
                RidgeClassifier(alpha=100.0), PropagationStudent(alpha=100.0), n_teachers=250,
                n_queries=n_queries, classes=range(10), epsilon=epsilon, delta=DELTA,
                keep_labels=True, random_state=seed,
            )  # fmt: skip
            started = time.perf_counter()
            model.fit(private, np.asarray(train.target), X_public=public)
            seconds = time.perf_counter() - started
            asked = model.labels_ >= 0
            print(
                f"mnist epsilon={model.epsilon_:.3f} seed={seed} {model.aggregator_} "
                f"labels={np.mean(model.labels_[asked] == truth[asked]):.4f} "
                f"public={model.score(public, truth):.4f} "
                f"student={model.score(others[9000:], np.asarray(test.target)[9000:]):.4f} "
                f"{seconds:.0f} s",
                flush=True,
            )


def adult(epsilons: list[float], seeds: int, n_queries: int) -> None:
    train = fetch_adult(subset="train", as_frame=True)
    test = fetch_adult(subset="test", as_frame=True)
    half = len(test.data) // 2

    def learner() -> Any:
        return make_pipeline(SchemaTransformer(train.schema), LogisticRegression(max_iter=1000))

    for epsilon in epsilons:
        for seed in range(seeds):
            pate = PATEClassifier(
                learner(), learner(), n_teachers=250, n_queries=n_queries, schema=train.schema,
                classes=train.classes, epsilon=epsilon, delta=DELTA, random_state=seed,
            )  # fmt: skip
            counting = clone(pate).set_params(marginal_share=0.2)
            households = np.random.default_rng(seed).integers(
                len(train.data) // 3, size=len(train.data)
            )
            models = {
                "pate": clone(pate).fit(train.data, train.target, X_public=test.data[:half]),
                "pate, from the schema": clone(pate).fit(train.data, train.target),
                "pate, from marginals": clone(counting).fit(train.data, train.target),
                "pate, from marginals, by household": clone(counting).fit(
                    train.data, train.target, groups=households
                ),
                "dp-sgd": make_pipeline(
                    SchemaTransformer(train.schema),
                    DPSGDClassifier(epsilon=epsilon, delta=DELTA, classes=train.classes),
                ).fit(train.data, train.target),
            }  # fmt: skip
            scores = {k: m.score(test.data[half:], test.target[half:]) for k, m in models.items()}
            print(f"adult epsilon={epsilon} seed={seed} {scores}", flush=True)


class _ScikitLearns(MLPClassifier):
    """A network that scikit-learn trains: what is no plain ``MLPClassifier`` is fitted as it is."""


def networks(n_teachers: int = 250, n_jobs: int = 2) -> None:
    """Print how long teachers take that are small networks, by the library and by scikit-learn."""
    for n_records, n_features, n_classes, units in ((130, 104, 2, 32), (240, 64, 10, 32)):
        X, y = make_classification(
            n_records * n_teachers, n_features, n_informative=n_features // 2,
            n_classes=n_classes, random_state=0,
        )  # fmt: skip
        parts = np.random.default_rng(0).integers(n_teachers, size=len(X))
        seeds, seconds, right = np.arange(n_teachers), {}, {}
        for kind in (MLPClassifier, _ScikitLearns):
            args = X, y, parts, n_teachers, X[:400], np.arange(n_classes), seeds, n_jobs
            count_votes(kind((units,), max_iter=1), *args)  # starts the processes
            started = time.perf_counter()
            votes = count_votes(kind((units,)), *args)
            seconds[kind] = time.perf_counter() - started
            right[kind] = np.mean(votes.argmax(axis=1) == y[:400])
        ours, theirs = MLPClassifier, _ScikitLearns
        print(
            f"networks {n_teachers} of {n_features}-{units}-{n_classes}, {n_records} records each, "
            f"{n_jobs} processes: {seconds[ours]:.1f} s, labels={right[ours]:.3f}; scikit-learn "
            f"{seconds[theirs]:.1f} s, labels={right[theirs]:.3f}; "
            f"ratio {seconds[theirs] / seconds[ours]:.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="*", default=["mnist", "adult"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--queries", type=int, default=100)
    args = parser.parse_args()
    for name in args.data:
        if name == "networks":
            networks()
        else:
            {"mnist": mnist, "adult": adult}[name](args.epsilons, args.seeds, args.queries)


if __name__ == "__main__":
    main()
