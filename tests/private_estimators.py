"""Every private estimator of the library, with what the contract tests need to know of it.

A new estimator is one more line in ``CASES``; ``tests/test_contracts.py`` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skprivacy.neural_network import DPSGDClassifier


@dataclass(frozen=True)
class Case:
    """A private estimator: how to make it, and on what."""

    make: Callable[..., Any]
    data: Callable[[int], tuple[NDArray, NDArray]]
    null_label: Any  # a label that a record without contribution may carry
    samples: bool = False  # whether it draws Poisson batches


def three_classes(n: int) -> tuple[NDArray, NDArray]:
    """Three blobs in four dimensions; the third class has one record, the last."""
    rng = np.random.RandomState(0)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 4)) * 0.5 + y[:, None]
    y[-1] = 2
    X[-1] = -2.0
    return X, y


def _dpsgd(**params: Any) -> DPSGDClassifier:
    defaults = {
        "classes": [0, 1, 2], "hidden_layer_sizes": (5,), "epochs": 6, "batch_size": 8,
        "epsilon": 4.0, "delta": 1e-4, "max_grad_norm": 0.7, "random_state": 0,
    }  # fmt: skip
    return DPSGDClassifier(**{**defaults, **params})


CASES = {
    "DPSGDClassifier": Case(_dpsgd, three_classes, null_label=0, samples=True),
    "DPSGDClassifier-linear": Case(
        lambda **p: _dpsgd(**{"hidden_layer_sizes": (), **p}), three_classes, 0, samples=True
    ),
    "DPSGDClassifier-full-batch": Case(
        lambda **p: _dpsgd(**{"batch_size": 10**6, **p}), three_classes, 0, samples=True
    ),
}
