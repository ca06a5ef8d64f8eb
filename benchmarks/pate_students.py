"""Students of PATE beside one another: the same noisy labels, the same public records.

``compare`` prints a line for each. Networks learn from 200 principal components of the features,
of images one also from their pixels, with shifted views.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from torch import nn

from skprivacy.ensemble import PropagationStudent
from skprivacy.neural_network import ColumnCorruption, ConsistencyStudent, RandomShift, VATStudent

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from pate_gan_student import GANStudent

EPOCHS = 20


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
    return PCA(200, random_state=0)


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
    """Print how each student does on the public records and on others.

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
