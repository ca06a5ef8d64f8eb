"""How well membership in published means is inferred, against what theory expects.

``python benchmarks/aggregates.py power`` attacks the means of 1,000 records: columns of zeros and
ones or genotypes of 0, 1/2 and 1, frequencies uniform on (.05, .95), without noise and with noise
of standard deviation .02; the mean area under the curve of 10 repeats, and Homer's statistic.

``python benchmarks/aggregates.py panel`` has the attacker know the population by other records.

``python benchmarks/aggregates.py private`` attacks 100 private means and counts those whose ROC
curve, with its simultaneous band of 95%, lies above what the guarantee allows; the error of the
band allows 5.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skprivacy.attacks import AggregateAttack, AttackResult, expected_power
from skprivacy.preprocessing import private_mean

N = 1_000


def drawn(
    d: int, copies: int, seed: int, more: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return records, their frequencies and the variances of columns."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, d)
    return rng.binomial(copies, p, size=(2 * N + more, d)) / copies, p, p * (1 - p) / copies


def power(repeats: int) -> None:
    print("columns    noise      d  theory  linear   Homer")
    for kind, copies in (("0/1", 1), ("genotypes", 2)):
        for noise in (0.0, 0.02):
            for d in (1_000, 5_000, 20_000):
                aucs = np.array([_attacked(d, copies, noise, r) for r in range(repeats)])
                print(f"{kind:9}{noise:7}{d:7}" + "".join(f"{a:8.3f}" for a in aucs.mean(axis=0)))


def _attacked(d: int, copies: int, noise: float, seed: int) -> list[float]:
    X, p, v = drawn(d, copies, seed)
    released = X[:N].mean(axis=0) + noise * np.random.default_rng(seed + 999).normal(size=d)
    found = [expected_power(N, v, noise=noise).auc]
    for statistic in ("linear", "homer"):
        attack = AggregateAttack(N, statistic=statistic, noise=noise)
        attack.fit(released, means=p, variances=v)
        found.append(attack.evaluate(X[:N], X[N : 2 * N]).auc)
    return found


def panel(repeats: int) -> None:
    print("reference  theory  measured (5,000 columns)")
    for m in (200, 1_000, 5_000):
        found = []
        for seed in range(repeats):
            X, _, v = drawn(5_000, 1, seed, m)
            attack = AggregateAttack(N).fit(X[:N].mean(axis=0), X[2 * N :])
            expected = expected_power(N, v, n_reference=m).auc
            found.append((expected, attack.evaluate(X[:N], X[N : 2 * N]).auc))
        theory, measured = np.mean(found, axis=0)
        print(f"{m:9}{theory:8.3f}{measured:10.3f}")


def private(repeats: int) -> None:
    print("epsilon      d    AUC  above the guarantee")
    for epsilon in (0.5, 1.0, 4.0):
        for d in (20, 1_000):
            aucs, above = [], 0
            for seed in range(repeats):
                X, p, _ = drawn(d, 1, seed)
                release = private_mean(
                    X[:N], bounds=(0, 1), epsilon=epsilon, delta=1e-6, relation="zero_out"
                )
                attack = AggregateAttack(N, noise=None).fit(release.value, means=p)
                result = attack.evaluate(X[:N], X[N:])
                aucs.append(result.auc)
                above += _above(result, release.privacy.tpr_bound)
            print(f"{epsilon:7}{d:7}{np.mean(aucs):7.3f}{above:10} of {repeats}")


def _above(result: AttackResult, bound: Callable[..., Any], alpha: float = 0.05) -> bool:
    """Return whether the band of Dvoretzky, Kiefer, Wolfowitz and Massart leaves the bound."""
    grid = np.unique(np.concatenate([result.scores_in, result.scores_out]))
    tpr = 1 - np.searchsorted(np.sort(result.scores_in), grid) / N
    fpr = 1 - np.searchsorted(np.sort(result.scores_out), grid) / N
    width = np.sqrt(np.log(4 / alpha) / (2 * N))
    return bool((tpr - width > bound(np.minimum(fpr + width, 1.0))).any())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["power", "panel", "private"])
    parser.add_argument("--repeats", type=int, default=None)
    options = parser.parse_args()
    programs = {"power": (power, 10), "panel": (panel, 10), "private": (private, 100)}
    program, repeats = programs[options.what]
    program(options.repeats or repeats)


if __name__ == "__main__":
    main()
