"""Accuracy of federations of parties with Adult's records, beside a central model.

Prints the accuracy on Adult's test file of logistic regressions with default settings: the mean,
the least and the largest of several fits.

records  20 parties, records protected at epsilon 1 and delta 1e-5, and the central model
parties  1,000 parties, parties protected at epsilon 1 and 3 and delta 1e-4. "alike": each record
         goes to any party. "skewed": the shares of the labels differ by party, Dirichlet(0.5) times
         their shares in the table
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy.datasets.adult import ADULT_SCHEMA
from skprivacy.federated import DPFederatedClassifier
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import SchemaTransformer

CONCENTRATION = 0.5
N_PARTIES, FEW = choose((1000, 20), (40, 4))
Table = tuple[NDArray, NDArray]


def alike(y: NDArray, n: int, rng: np.random.Generator) -> NDArray:
    """Deal each record out to any of ``n`` parties."""
    return rng.integers(n, size=len(y))


def skewed(y: NDArray, n: int, rng: np.random.Generator) -> NDArray:
    """Deal records out to parties of about one size that differ in the shares of their labels."""
    classes, codes = np.unique(y, return_inverse=True)
    overall = np.bincount(codes) / len(y)
    shares = rng.dirichlet(CONCENTRATION * len(classes) * overall, size=n)
    found = np.empty(len(y), int)
    for code in range(len(classes)):
        own = codes == code
        found[own] = rng.choice(n, own.sum(), p=shares[:, code] / shares[:, code].sum())
    return found


def show(name: str, fit: Callable[[int], Any], test: Table, seeds: int) -> None:
    """Print the accuracy of some fits."""
    began = time.process_time()
    found = 100 * np.array([fit(seed).score(*test) for seed in range(seeds)])
    spent = (time.process_time() - began) / seeds
    span = f"{found.min():.2f} - {found.max():.2f}"
    print(f"{name:44s} {found.mean():.2f}  ({span})  {spent:.0f} s", flush=True)


def records(train: Table, test: Table, seeds: int) -> None:
    """Compare some parties with one model of all records."""
    settings = {"epsilon": 1.0, "delta": 1e-5, "classes": np.unique(train[1])}

    def central(seed: int) -> Any:
        return DPSGDClassifier(hidden_layer_sizes=(), **settings).fit(*train)

    def federated(seed: int, **params: Any) -> Any:
        parties = alike(train[1], FEW, np.random.default_rng(seed))
        return DPFederatedClassifier(**settings, **params).fit(*train, parties=parties)

    show("central, DP-SGD", central, test, seeds)
    show(f"{FEW} parties, trusted server", lambda s: federated(s, server="trusted"), test, seeds)
    show(f"{FEW} parties, curious server", federated, test, seeds)


def parties(train: Table, test: Table, seeds: int) -> None:
    """Protect each of many parties."""
    for epsilon in choose((1.0, 3.0), (3.0,)):
        for dealt in (alike, skewed):

            def fit(seed: int, dealt: Any = dealt, epsilon: float = epsilon) -> Any:
                model = DPFederatedClassifier(
                    epsilon=epsilon, delta=1e-4, unit="party", classes=np.unique(train[1]),
                    party_names=range(N_PARTIES),
                )  # fmt: skip
                codes = dealt(train[1], N_PARTIES, np.random.default_rng(seed))
                return model.fit(*train, parties=codes)

            show(f"{N_PARTIES:,} parties, epsilon {epsilon:g}, {dealt.__name__}", fit, test, seeds)


PARTS = {"records": records, "parties": parties}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    tables = [fetch_adult(subset=s, as_frame=True, return_X_y=True) for s in ("train", "test")]
    scale = SchemaTransformer(ADULT_SCHEMA).fit(tables[0][0])
    train, test = ((np.asarray(scale.transform(X), float), np.asarray(y)) for X, y in tables)
    for part in given.only:
        PARTS[part](train, test, given.seeds)


if __name__ == "__main__":
    main()
