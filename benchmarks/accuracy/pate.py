"""Accuracy and privacy cost of PATE on MNIST and Adult.

Prints a line for each fit.

mnist     60,000 private images; the test file's first 9,000 as public ones without labels, its last
          1,000 to evaluate on; 250 ridge teachers on scattering features, with a penalty chosen on
          scikit-learn's digits. Then, from other votes of such teachers, the figures of the papers,
          which depend on the votes and must not be released
adult     the training file is private, half of the test file public, the other half to evaluate on;
          queries are drawn from the public half, the schema, or noisy marginals, and from marginals
          that protect generated households of about three records
students  all students beside one another, from the same labels
networks  time of 250 small networks as teachers, beside scikit-learn's through joblib

The students' parameters were chosen on 10,000 images of MNIST's training file that were held aside,
with teachers of the other 50,000.
"""

from __future__ import annotations

import functools
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from benchmarks.accuracy.pate_students import compare, of_images, of_tables
from benchmarks.shared.data import fetch_adult, fetch_mnist
from benchmarks.shared.quick import choose, make_parser
from skprivacy import SchemaTransformer
from skprivacy.ensemble import (
    ConfidentGNMax,
    LNMax,
    PATEClassifier,
    PropagationStudent,
    analyze_votes,
)
from skprivacy.ensemble.teachers import count_votes
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.neural_network import DPSGDClassifier, ScatteringTransformer

DELTA = 1e-5
TEACHERS, N_PUBLIC, N_ANSWERS = choose((250, 9_000, 286), (10, 200, 10))
N_QUERIED = choose(400, 100)


class Images(NamedTuple):
    """MNIST for PATE: the private part, and the test file, of which 9,000 images are public."""

    private: NDArray
    labels: NDArray
    pixels: NDArray
    features: NDArray
    truth: NDArray


@functools.cache
def images() -> Images:
    train, test = fetch_mnist(subset="train"), fetch_mnist(subset="test")
    started = time.perf_counter()
    private, features = (_scattered(part.data / 255) for part in (train, test))
    print(f"features: {time.perf_counter() - started:.0f} s")
    pixels = np.asarray(test.data / 255, np.float32)
    return Images(private, np.asarray(train.target), pixels, features, np.asarray(test.target))


def _scattered(pixels: NDArray) -> NDArray:
    return ScatteringTransformer().fit_transform(pixels)


@functools.cache
def ridge() -> RidgeClassifier:
    """Return a teacher for 240 images, with the penalty that suits digits that are public."""
    small, truth = load_digits(return_X_y=True)
    enlarged = ndimage.zoom(small.reshape(-1, 8, 8), (1, 2.5, 2.5), order=1) / 16
    features = _scattered(np.pad(enlarged, ((0, 0), (4, 4), (4, 4))))
    parts = [np.random.default_rng(i).permutation(len(truth)) for i in range(5)]
    means = {
        penalty: np.mean([
            RidgeClassifier(alpha=penalty).fit(features[p[:240]], truth[p[:240]])
            .score(features[p[240:]], truth[p[240:]]) for p in parts
        ])
        for penalty in (1.0, 10.0, 100.0, 1000.0)
    }  # fmt: skip
    best = max(means, key=means.__getitem__)
    print("penalties on public digits:", {k: round(float(v), 4) for k, v in means.items()})
    return RidgeClassifier(alpha=best)


def _taught_on_images(student: Any, epsilon: float, n_queries: int | None, seed: int) -> Any:
    data = images()
    model = PATEClassifier(
        ridge(), student, n_teachers=TEACHERS,
        n_queries=n_queries or choose(round(100 * epsilon), 10),
        classes=range(10), epsilon=epsilon, delta=DELTA, store_labels=True, random_state=seed,
    )  # fmt: skip
    return model.fit(data.private, data.labels, X_public=data.features[:N_PUBLIC])


def mnist(epsilons: list[float], seeds: int, n_queries: int | None) -> None:
    data = images()
    for epsilon in epsilons:
        for seed in range(seeds):
            ridge()
            started = time.perf_counter()
            model = _taught_on_images(PropagationStudent(alpha=100.0), epsilon, n_queries, seed)
            seconds = time.perf_counter() - started
            asked = np.flatnonzero(model.labels_ >= 0)
            print(
                f"mnist epsilon={model.epsilon_:.3f} seed={seed} {model.aggregator_} "
                f"queries={len(asked)} "
                f"labels={np.mean(model.labels_[asked] == data.truth[asked]):.4f} "
                f"public={model.score(data.features[:N_PUBLIC], data.truth[:N_PUBLIC]):.4f} "
                f"student={model.score(data.features[N_PUBLIC:], data.truth[N_PUBLIC:]):.4f} "
                f"{seconds:.0f} s",
                flush=True,
            )
    _not_releasable()


def _not_releasable() -> None:
    """Print what the settings of the papers cost on these votes: private figures."""
    data, random = images(), np.random.default_rng(0)
    parts = random.integers(TEACHERS, size=len(data.labels))
    votes = count_votes(
        ridge(), data.private, data.labels, parts, TEACHERS, data.features[:N_PUBLIC],
        np.arange(10), np.zeros(TEACHERS, np.int64),
    )  # fmt: skip
    right = votes[np.arange(N_PUBLIC), data.truth[:N_PUBLIC]].mean() / TEACHERS
    print(f"teachers' mean accuracy on the public images: {right:.4f}")
    confident = ConfidentGNMax(0.8 * TEACHERS, N_ANSWERS, threshold_noise=150.0, noise=40.0)
    passed = votes.max(axis=1) + random.normal(0, 150.0, len(votes)) >= 0.8 * TEACHERS
    asked = 1 + int(np.searchsorted(np.cumsum(passed), N_ANSWERS))
    settings: list[tuple[Any, int, dict[str, Any]]] = [
        (LNMax(20.0), 100, {"moments": 8, "conversion": "classic"}),
        (LNMax(20.0), 1000, {"moments": 8, "conversion": "classic"}),
        (confident, asked, {"answered": passed[:asked], "conversion": "classic"}),
    ]
    for aggregator, n, options in settings:
        analysis = analyze_votes(votes[:n], aggregator, delta=DELTA, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyLeakWarning)
            private = analysis.private_epsilon()
        print(
            f"papers' setting {aggregator}, {n} asked: epsilon={analysis.epsilon():.3f} whatever "
            f"the votes; for these votes {private:.3f}, NOT RELEASABLE"
        )


def students(epsilons: list[float], seeds: int, n_queries: int | None) -> None:
    data = images()
    public = {"features": data.features[:N_PUBLIC], "pixels": data.pixels[:N_PUBLIC]}
    others = {"features": data.features[N_PUBLIC:], "pixels": data.pixels[N_PUBLIC:]}
    for epsilon in epsilons:
        for seed in range(seeds):
            labels = _taught_on_images(ridge(), epsilon, n_queries, seed).labels_
            compare(
                f"mnist epsilon={epsilon} seed={seed}", of_images(seed), public,
                data.truth[:N_PUBLIC], others, data.truth[N_PUBLIC:], labels,
            )  # fmt: skip
    _students_of_adult(seeds, n_queries)


def _students_of_adult(seeds: int, n_queries: int | None) -> None:
    train = fetch_adult(subset="train", as_frame=True)
    test = fetch_adult(subset="test", as_frame=True)
    half = len(test.data) // 2
    transformer = SchemaTransformer(train.schema).fit(train.data)
    private, rows = (np.asarray(transformer.transform(part.data)) for part in (train, test))
    truth = np.searchsorted(np.sort(train.classes), np.asarray(test.target))
    for seed in range(seeds):
        model = PATEClassifier(
            LogisticRegression(max_iter=1000), LogisticRegression(max_iter=1000),
            n_teachers=TEACHERS, n_queries=n_queries or choose(400, 60), classes=train.classes,
            epsilon=1.0, delta=DELTA, store_labels=True, random_state=seed,
        )  # fmt: skip
        labels = model.fit(private, np.asarray(train.target), X_public=rows[:half]).labels_
        compare(
            f"adult epsilon=1.0 seed={seed}", of_tables(seed), {"features": rows[:half]},
            truth[:half], {"features": rows[half:]}, truth[half:], labels,
        )  # fmt: skip


def adult(epsilons: list[float], seeds: int, n_queries: int | None) -> None:
    train = fetch_adult(subset="train", as_frame=True)
    test = fetch_adult(subset="test", as_frame=True)
    half = len(test.data) // 2

    def learner() -> Any:
        return make_pipeline(SchemaTransformer(train.schema), LogisticRegression(max_iter=1000))

    for epsilon in epsilons:
        for seed in range(seeds):
            pate = PATEClassifier(
                learner(), learner(), n_teachers=TEACHERS, n_queries=n_queries or choose(400, 60),
                schema=train.schema,
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
    """A network that scikit-learn trains: skprivacy trains the plain ``MLPClassifier`` alone."""


def networks(n_teachers: int = choose(250, 4), n_jobs: int = choose(2, 1)) -> None:
    """Print the time of small networks as teachers, trained by skprivacy and by scikit-learn."""
    for n_records, n_features, n_classes, units in ((130, 104, 2, 32), (240, 64, 10, 32)):
        X, y = make_classification(
            n_records * n_teachers, n_features, n_informative=n_features // 2,
            n_classes=n_classes, random_state=0,
        )  # fmt: skip
        parts = np.random.default_rng(0).integers(n_teachers, size=len(X))
        seeds, seconds, right = np.arange(n_teachers), {}, {}
        for kind in (MLPClassifier, _ScikitLearns):
            args = X, y, parts, n_teachers, X[:N_QUERIED], np.arange(n_classes), seeds, n_jobs
            count_votes(kind((units,), max_iter=1), *args)  # starts the processes
            started = time.perf_counter()
            votes = count_votes(kind((units,)), *args)
            seconds[kind] = time.perf_counter() - started
            right[kind] = np.mean(votes.argmax(axis=1) == y[:N_QUERIED])
        ours, theirs = MLPClassifier, _ScikitLearns
        print(
            f"networks {n_teachers} of {n_features}-{units}-{n_classes}, {n_records} records each, "
            f"{n_jobs} processes: {seconds[ours]:.1f} s, labels={right[ours]:.3f}; scikit-learn "
            f"{seconds[theirs]:.1f} s, labels={right[theirs]:.3f}; "
            f"ratio {seconds[theirs] / seconds[ours]:.2f}",
            flush=True,
        )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "data",
        nargs="*",
        default=choose(["mnist", "adult"], ["mnist", "adult", "students", "networks"]),
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=choose([0.5, 1.0], [1.0]))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--queries", type=int, help="default: 50 and 100 of MNIST's images, 400 of Adult's records"
    )
    args = parser.parse_args()
    for name in args.data:
        if name == "networks":
            networks()
        else:
            runs = {"mnist": mnist, "adult": adult, "students": students}
            runs[name](args.epsilons, args.seeds, args.queries)


if __name__ == "__main__":
    main()
