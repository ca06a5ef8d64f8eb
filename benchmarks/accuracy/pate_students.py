"""Accuracy of PATE's students of tables on few noisy labels: the graph, the linear, the choice.

Prints accuracy on records that are not public, means of four draws, with 1,000 public records: the
table of ``doc/how_to/pate.rst``.

``accuracy/pate students`` compares more students on the same labels and public records with
``compare``. Networks learn from 200 principal components of the features, those of images also from
pixels with shifted views.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from torch import nn

from benchmarks.shared.quick import ROOT, choose, make_parser
from skprivacy.ensemble import PropagationStudent
from skprivacy.ensemble.student_classifier import choose_queries
from skprivacy.ensemble.students import default_students, fit_student, select_student
from skprivacy.neural_network import ConsistencyStudent, RandomShift, VATStudent
from skprivacy.neural_network.semi_supervised import ColumnCorruption

sys.path.append(str(ROOT / "examples" / "train"))
from pate_gan_student import GANStudent

N_PUBLIC, N_DRAWS = choose((1000, 4), (200, 1))
EPOCHS = choose(20, 2)


class SmallConvNet(nn.Sequential):
    """Two convolutions for images of 28 by 28 pixels."""

    def __init__(self) -> None:
        super().__init__(
            nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(1568, 10),
        )  # fmt: skip


def _leading() -> PCA:
    return PCA(choose(200, 10), random_state=0)


def _self_training(C: float = 1.0) -> SelfTrainingClassifier:
    return SelfTrainingClassifier(LogisticRegression(C=C, max_iter=1000, tol=1e-3), threshold=0.9)


def of_images(seed: int) -> dict[str, Any]:
    """Return students of scattering features, one of them of pixels (its name says so)."""
    networks = {"epochs": EPOCHS, "random_state": seed}
    return {
        "ridge, labels alone": RidgeClassifier(alpha=100.0),
        "propagation": PropagationStudent(alpha=100.0),
        "pseudo-labels": make_pipeline(_leading(), _self_training(0.01)),
        "VAT": make_pipeline(_leading(), VATStudent(**networks)),
        "FixMatch, columns": make_pipeline(_leading(), ConsistencyStudent(**networks)),
        "FixMatch, pixels": ConsistencyStudent(
            module=SmallConvNet, weak=RandomShift((1, 28, 28), 1),
            strong=[RandomShift((1, 28, 28), 3), ColumnCorruption(0.2)],
            **{**networks, "epochs": EPOCHS // 2},
        ),
        "improved GAN": make_pipeline(_leading(), StandardScaler(), GANStudent(**networks)),
    }  # fmt: skip


def of_tables(seed: int) -> dict[str, Any]:
    """Return students of numbers of one scale."""
    networks = {"epochs": EPOCHS, "random_state": seed}
    return {
        "logistic, labels alone": LogisticRegression(max_iter=1000),
        "propagation": PropagationStudent(),
        "pseudo-labels": _self_training(),
        "VAT": VATStudent(**networks),
        "FixMatch, columns": ConsistencyStudent(**networks),
        "improved GAN": make_pipeline(StandardScaler(), GANStudent(**networks)),
    }


def compare(
    title: str,
    students: dict[str, Any],
    public: dict[str, NDArray],
    truth: NDArray,
    others: dict[str, NDArray],
    their_truth: NDArray,
    labels: NDArray[np.int64],
) -> None:
    """Print the accuracy of each student on the public records and on others.

    ``public`` and ``others`` give records as "features", those of images as "pixels" too.
    """
    asked = labels >= 0
    print(
        f"{title}: {asked.sum()} labels, {np.mean(labels[asked] == truth[asked]):.3f} of them right"
    )
    for name, student in students.items():
        view = "pixels" if "pixels" in name else "features"
        some = asked if "alone" in name else slice(None)
        started = time.perf_counter()
        student.fit(public[view][some], labels[some])
        seconds = time.perf_counter() - started
        print(
            f"{title} {name:24s} public={student.score(public[view], truth):.4f} "
            f"test={student.score(others[view], their_truth):.4f} {seconds:.0f} s",
            flush=True,
        )


def mixed(random):
    """Return six numbers and four categories as indicators, with a logistic truth."""
    numbers = random.normal(size=(4200, 6))
    log_odds = numbers @ [1.0, 0.8, -0.6, 0.4, 0.0, 0.0]
    columns = [numbers]
    for n_values in (3, 5, 8, 2):
        value = random.integers(n_values, size=len(numbers))
        log_odds += random.normal(size=n_values)[value]
        columns.append(np.eye(n_values)[value])
    y = random.random(len(numbers)) < 1 / (1 + np.exp(-1.5 * log_odds))
    return np.hstack(columns), y.astype(np.int64)


def cancer(random):
    """Return 2,000 records of each class, between two real ones and blurred."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    found = []
    for own in (X[y == 0], X[y == 1]):
        first, second = own[random.integers(len(own), size=(2, 2000))]
        share = random.random((2000, 1)) / 2
        noise = 0.3 * random.normal(size=first.shape)
        found.append(first * (1 - share) + second * share + noise)
    return np.concatenate(found), np.repeat([0, 1], 2000)


def made(**params):
    """Return a function that draws a table by scikit-learn's generator."""
    return lambda random: make_classification(4200, random_state=1, **params)


TABLES = {
    "logistic truth, 6 numbers and 4 categories": mixed,
    "breast cancer, blurred copies": cancer,
    "make_classification, 20 columns": made(n_features=20),
    "40 columns, 8 informative, 4 classes": made(n_features=40, n_informative=8, n_classes=4),
    "100 columns, 20 informative": made(n_features=100, n_informative=20),
    "digits": lambda random: load_digits(return_X_y=True),
}


def accuracies(X, y, n_labels, right, random):
    """Return the accuracy of both students and of the chosen one."""
    order = random.permutation(len(X))
    public, others = order[:N_PUBLIC], order[N_PUBLIC:]
    truth, n_classes = y[public], y.max() + 1
    asked = choose_queries(X[public], n_labels, np.random.RandomState(random.integers(1 << 31)))
    wrong = (truth[asked] + random.integers(1, n_classes, len(asked))) % n_classes
    labels = np.full(N_PUBLIC, -1)
    labels[asked] = np.where(random.random(len(asked)) < right, truth[asked], wrong)
    chosen = select_student(X[public], labels) or DummyClassifier()  # most frequent answer
    students = [*default_students(X[public]), chosen]
    return [fit_student(s, X[public], labels).score(X[others], y[others]) for s in students]


def main():
    """Print a line for each table and number of labels."""
    make_parser(__doc__).parse_args()
    random = np.random.default_rng(0)
    for name, drawn in TABLES.items():
        X, y = drawn(random)
        for n_labels, right in choose(((50, 0.9), (100, 0.85)), ((50, 0.9),)):
            found = [accuracies(X, y, n_labels, right, random) for _ in range(N_DRAWS)]
            graph, linear, chosen = np.mean(found, axis=0)
            print(f"{name:45}{n_labels:4}  {graph:.3f}, {linear:.3f}, {chosen:.3f}", flush=True)


if __name__ == "__main__":
    main()
