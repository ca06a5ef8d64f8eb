"""Accuracy on Adult's published split with more and with fewer public facts.

facts   linear models at epsilon 0.1 and 1, with bounds and classes given by hand and the default
        radius, and by ``make_private_pipeline``
bins    ``DPSGDClassifier`` at epsilon 0.1, 1, 3 and 10 and delta 1e-6: as it comes, with 100
        epochs, and as it comes with 16 bins for each bounded column

No setting was chosen by these numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy import SchemaTransformer, make_private_pipeline
from skprivacy.linear_model import (
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.neural_network import DPSGDClassifier

DELTA = 1e-6


@cache
def adult() -> tuple[Any, Any]:
    """Return the training and the test part."""
    train, test = (fetch_adult(subset=part, as_frame=True) for part in ("train", "test"))
    return train, test


def show(name: str, epsilon: float, make: Callable[[int], Any], seeds: int) -> None:
    """Fit and score a model for each seed."""
    train, test = adult()
    found = [
        make(seed).fit(train.data, train.target).score(test.data, test.target)
        for seed in range(seeds)
    ]
    print(f"{name:40s} {epsilon:7g} {np.mean(found):8.4f} +- {np.std(found):.4f}", flush=True)


def facts(seeds: int) -> None:
    schema = adult()[0].schema
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
            name = f"{kind.__name__.removesuffix('Classifier')}, delta {delta:g}"
            show(f"{name}, default", epsilon, lambda _, m=default: m, seeds)
            show(f"{name}, told", epsilon, lambda _, m=told: m, seeds)


def bins(seeds: int) -> None:
    schema = adult()[0].schema
    for epsilon in choose((0.1, 1.0, 3.0, 10.0), (1.0,)):
        for name, described, settings in (
            ("DPSGDClassifier, default", schema, {}),
            ("DPSGDClassifier, 100 epochs", schema, {"epochs": choose(100, 2)}),
            ("DPSGDClassifier, 16 bins", schema.with_bins(16), {}),
        ):

            def make(
                seed: int, described: Any = described, settings: Any = settings, e: float = epsilon
            ) -> Any:
                model = DPSGDClassifier(epsilon=e, delta=DELTA, random_state=seed, **settings)
                return make_private_pipeline(described, model)

            show(name, epsilon, make, seeds)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    options = parser.parse_args()
    parts = {"facts": facts, "bins": bins}
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(parts)}")
    for name in options.parts or parts:
        parts[name](options.seeds)


if __name__ == "__main__":
    main()
