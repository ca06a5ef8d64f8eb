"""Test accuracy of private networks over several seeds, and without noise.

Prints one line for each task: mean and standard deviation of the accuracy, the accuracy of the same
training without noise (one seed; ``--private`` leaves it out), and seconds per fit. ``--list``
names the tasks. All settings are the library's defaults or stand in this file and in
``benchmarks/shared/networks.py``. Settings were chosen on these data, which are public or
generated: the search is not in epsilon.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from benchmarks.shared import networks
from benchmarks.shared.data import fetch_adult, fetch_location30
from benchmarks.shared.quick import choose, make_parser
from skprivacy.datasets import make_membership_benchmark
from skprivacy.neural_network import DPSGDClassifier, Optimizer
from skprivacy.preprocessing import SchemaTransformer

Split = tuple[NDArray, NDArray, NDArray, NDArray]  # X, y, X_test, y_test


@dataclass(frozen=True)
class Task:
    """Data (by the seed of their split), epsilon, delta, and settings beside the defaults."""

    data: Callable[[int], Split]
    epsilon: float
    delta: float
    settings: dict[str, Any] = field(default_factory=dict)


@cache
def adult(seed: int) -> Split:
    """The published split, whatever the seed."""
    train = fetch_adult(as_frame=True)
    test = fetch_adult(subset="test", as_frame=True)
    rows = SchemaTransformer(train.schema).fit(train.data).transform
    X, X_test = (np.asarray(rows(part.data), dtype=np.float32) for part in (train, test))
    return X, train.target.to_numpy(), X_test, test.target.to_numpy()


@cache
def image_features(seed: int) -> Split:
    X, y = networks.pixels("train")
    X_test, y_test = networks.pixels("test")
    return networks.features(X), y, networks.features(X_test), y_test


@cache
def images(seed: int) -> Split:
    return (*networks.pixels("train"), *networks.pixels("test"))


def split(load: Callable[..., tuple[NDArray, NDArray]], n_train: int, seed: int) -> Split:
    """Draw training and test records."""
    X, y = load(return_X_y=True)
    n_train = choose(n_train, len(X) * 2 // 3)
    X, X_test, y, y_test = train_test_split(
        X.astype(np.float32), y, train_size=n_train, random_state=seed
    )
    return X, y, X_test, y_test


def generated(name: str, n: int, seed: int) -> Split:
    """Draw a table anew, four fifths of it to train on."""
    make = partial(make_membership_benchmark, name, choose(n, 400), random_state=seed)
    return split(make, n * 4 // 5, seed)


def linear(n: int, rate: float) -> dict[str, Any]:
    """Return 120 steps on a quarter of the records each, at a constant rate."""
    return {
        "hidden_layer_sizes": (), "batch_size": choose(n // 4, 50), "epochs": choose(30, 1),
        "learning_rate": rate, "optimizer": Optimizer(schedule="constant"),
    }  # fmt: skip


TASKS = {
    "adult-1": Task(adult, 1.0, 1e-6),
    "adult-0.1": Task(adult, 0.1, 1e-6),
    "mnist-convolution": Task(images, 3.0, 1e-5, networks.CONVOLUTION),
    "mnist-scattering": Task(image_features, 3.0, 1e-5, networks.SCATTERING),
    "location-4000": Task(partial(split, fetch_location30, 4_000), 8.0, 1e-5, linear(4000, 0.76)),
    "location-1600": Task(partial(split, fetch_location30, 1_600), 8.0, 1e-5, linear(1600, 0.48)),
    "purchase-like": Task(
        partial(generated, "purchase100", 20_000), 8.0, 1e-5, linear(16_000, 1.0)
    ),
    "texas-like": Task(partial(generated, "texas100", 10_000), 8.0, 1e-5, linear(8000, 0.41)),
}


def fit(task: Task, seed: int, epsilon: float) -> tuple[float, float]:
    """Return test accuracy, and seconds of the fit."""
    X, y, X_test, y_test = task.data(seed)
    model = DPSGDClassifier(
        epsilon=epsilon, delta=task.delta, classes=np.unique(y), random_state=seed, **task.settings
    )
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    assert model.privacy_.kind == "proved"
    assert model.privacy_.epsilon(task.delta) <= epsilon
    return model.score(X_test, y_test), seconds


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("tasks", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    parser.add_argument("--private", action="store_true", help="leave out the fit without noise")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"unknown tasks {sorted(unknown)}; there are {list(TASKS)}")
    if options.list:
        print("\n".join(TASKS))
        return
    print("task               epsilon  delta          accuracy   no noise  s a fit")
    for name in options.tasks or TASKS:
        task = TASKS[name]
        found = [fit(task, seed, task.epsilon) for seed in range(options.seeds)]
        accuracies, seconds = zip(*found, strict=True)
        without = "-" if options.private else f"{fit(task, 0, np.inf)[0]:.3f}"
        print(
            f"{name:18} {task.epsilon:7g} {task.delta:6.0e} {np.mean(accuracies):7.4f} +- "
            f"{np.std(accuracies):.4f} {without:>10} {np.median(seconds):8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
