"""A private generator of digits: what a classifier learns from records that it makes.

``SKPRIVACY_DATA=... python benchmarks/synthetic_images.py [--epsilon 10] [--seeds 1] [--side 14]
[--set NAME=VALUE ...]`` trains ``DPGANSynthesizer`` on the 60,000 training images of MNIST, draws
20,000 images, trains a perceptron with 100 hidden units on them, and prints its accuracy on the
10,000 real test images, with processor seconds of the fit. ``--side 14`` takes means of two by two
pixels, 28 the pixels themselves. ``--set`` changes parameters of the synthesizer. delta is 1e-6.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from skprivacy.datasets import fetch_mnist
from skprivacy.preprocessing import Bounded, Schema
from skprivacy.synthesis import DPGANSynthesizer

DELTA = 1e-6
DRAWN = 20_000


def digits(subset: str, side: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    found = fetch_mnist(subset=subset)
    step = 28 // side
    images = np.asarray(found.data, dtype=np.float64).reshape(-1, side, step, side, step)
    return images.mean(axis=(2, 4)).reshape(len(images), -1), np.asarray(found.target).astype(int)


def accuracy(side: int, epsilon: float, seed: int, settings: dict[str, Any]) -> tuple[float, float]:
    X, y = digits("train", side)
    schema = Schema({f"p{i}": Bounded(0, 255) for i in range(X.shape[1])}, classes=range(10))
    start = time.process_time()
    synthesizer = DPGANSynthesizer(
        epsilon, DELTA, schema=schema, random_state=seed, **settings
    ).fit(X, y)
    seconds = time.process_time() - start
    drawn, labels = synthesizer.sample(DRAWN, return_X_y=True, random_state=seed)
    model = MLPClassifier((100,), max_iter=20, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(drawn.to_numpy() / 255, labels)
    X_test, y_test = digits("test", side)
    return float(model.score(X_test / 255, y_test)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--side", type=int, default=14, choices=[14, 28])
    parser.add_argument("--set", nargs="*", default=[], dest="settings")
    args = parser.parse_args()
    settings = {name: json.loads(value) for name, value in (s.split("=") for s in args.settings)}
    found = [accuracy(args.side, args.epsilon, seed, settings) for seed in range(args.seeds)]
    mean, seconds = np.mean(found, axis=0)
    print(
        f"MNIST {args.side} by {args.side} epsilon={args.epsilon:g} {settings}: accuracy "
        f"{mean:.4f} +- {np.std([a for a, _ in found]):.4f}, {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
