"""Votes behind the figures of the PATE papers: of teachers on MNIST, and simulated ones.

Features and votes on MNIST are kept in a folder. They are **private**: no noise was added to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier

from benchmarks.shared.data import fetch_mnist
from benchmarks.shared.quick import choose
from skprivacy.ensemble import PATEClassifier, PropagationStudent
from skprivacy.neural_network import DPSGDClassifier, ScatteringTransformer

DELTA = 1e-5
PUBLIC = choose(9000, 200)  # images of the test file that teachers vote on
TESTED = choose(1000, 100)  # the others
PENALTY = 100.0
TEACHERS = choose((10, 100, 250), (3, 5, 10))

Counts = NDArray[np.int64]
Labels = NDArray[Any]


def load_features(folder: Path) -> list[NDArray[np.float32]]:
    """Return scattering features of the private and of the other images, kept in the folder."""
    found = []
    for subset in ("train", "test"):
        path = folder / f"features_{subset}.npy"
        if not path.exists():
            images = fetch_mnist(subset=subset).data / 255
            np.save(path, ScatteringTransformer().fit_transform(images).astype(np.float32))
        found.append(np.load(path, mmap_mode="r"))
    return found


def load_digits() -> list[Labels]:
    """Return the digits of the private and of the other images."""
    return [np.asarray(fetch_mnist(subset=subset).target) for subset in ("train", "test")]


def load_teacher_votes(folder: Path, n_teachers: int) -> tuple[Counts, Labels]:
    """Return votes of shape (9000, 10) of so many teachers, and the true digits."""
    y, y_test = load_digits()
    path = folder / f"votes_{n_teachers}.npy"
    if not path.exists():
        private, others = load_features(folder)
        public = np.asarray(others[:PUBLIC])
        parts = np.random.default_rng(0).permutation(len(y)) % n_teachers
        votes = np.zeros((PUBLIC, 10), np.int64)
        for teacher in range(n_teachers):
            part = np.flatnonzero(parts == teacher)
            model = RidgeClassifier(alpha=PENALTY).fit(private[part], y[part])
            votes[np.arange(PUBLIC), model.predict(public)] += 1
        np.save(path, votes)
    return np.load(path), y_test[:PUBLIC]


def simulate_votes(
    n_queries: int, n_teachers: int = 5000, n_classes: int = 150, seed: int = 0
) -> tuple[Counts, Labels]:
    """Return votes as on a hard task with many classes; the papers' own were never published.

    Teachers know most queries well, and one in ten badly. Those that are wrong agree on a few
    classes that look alike.

    Parameters
    ----------
    n_queries, n_teachers, n_classes, seed : int

    Returns
    -------
    votes : ndarray of shape (n_queries, n_classes)
        Counts; each row has the sum ``n_teachers``.
    truth : ndarray of shape (n_queries,)
        The right classes.
    """
    random = np.random.default_rng(seed)
    truth = random.integers(n_classes, size=n_queries)
    hard = random.random(n_queries) < 0.1
    known = np.where(hard, random.beta(2, 2, n_queries), random.beta(20, 2, n_queries))
    law = random.dirichlet(np.full(n_classes, 0.02), n_queries) * (1 - known[:, None])
    law[np.arange(n_queries), truth] += known
    law /= law.sum(axis=1, keepdims=True)
    return random.multinomial(n_teachers, law), truth


def score_pate(folder: Path, epsilon: float, seed: int) -> float:
    """Return the accuracy of a student on the last 1,000 images."""
    (private, others), (y, y_test) = load_features(folder), load_digits()
    n_queries = int(np.clip(100 * epsilon, *choose((25, 100), (5, 10))))
    model = PATEClassifier(
        RidgeClassifier(alpha=PENALTY), PropagationStudent(alpha=PENALTY), n_teachers=TEACHERS[-1],
        n_queries=n_queries, classes=range(10), epsilon=epsilon, delta=DELTA, random_state=seed,
    )  # fmt: skip
    model.fit(np.asarray(private), y, X_public=np.asarray(others[:PUBLIC]))
    return float(model.score(np.asarray(others[PUBLIC:]), y_test[PUBLIC:]))


def score_dpsgd(folder: Path, epsilon: float, seed: int) -> float:
    """Return the accuracy of a linear model trained with noise on the last 1,000 images."""
    (private, others), (y, y_test) = load_features(folder), load_digits()
    model = DPSGDClassifier(
        hidden_layer_sizes=(), batch_size=choose(15_000, 100), epochs=choose(50, 2),
        epsilon=epsilon, delta=DELTA, classes=range(10), random_state=seed,
    )  # fmt: skip
    model.fit(np.asarray(private), y)
    return float(model.score(np.asarray(others[PUBLIC:]), y_test[PUBLIC:]))
