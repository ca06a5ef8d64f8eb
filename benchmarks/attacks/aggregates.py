"""Membership inference from published means and tables, beside the power that theory predicts.

power      means of 1,000 records: columns of zeros and ones or genotypes of 0, 1/2 and 1,
           frequencies uniform on (.05, .95), without noise and with noise of standard deviation
           .02; the mean area under the curve of 10 repeats, and Homer's statistic
mixtures   the same for mixtures of 100 to 2,000 genotypes
panel      the attacker knows the population from other records
marginals  all two-way tables of 6 columns of five values, with and without the correlations of
           their cells
private    100 releases each of private means, of a private histogram and of a set of private
           two-way tables: counts ROC curves above the guarantee's bound by more than their
           simultaneous band of 95%, which errs in 5 of 100
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.quick import choose, make_parser
from skprivacy.accounting import (
    GaussianEvent,
    PrivacyGuarantee,
    calibrate_noise_multiplier,
)
from skprivacy.attacks import AggregateAttack, AttackResult
from skprivacy.preprocessing import private_histogram, private_mean

N, N_COLUMNS = choose((1_000, 5_000), (100, 200))
N_REPEATS, N_RELEASES = choose((10, 100), (1, 2))
SIZES, EPSILONS = choose(((1_000, 5_000, 20_000), (0.5, 1.0, 4.0)), ((100,), (1.0,)))


def draw_records(
    d: int, copies: int, seed: int, more: int = 0, n: int = N
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return records, their frequencies and the variances of columns."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.05, 0.95, d)
    return rng.binomial(copies, p, size=(2 * n + more, d)) / copies, p, p * (1 - p) / copies


def power(repeats: int) -> None:
    print("columns    noise      d  theory  linear   Homer")
    for kind, copies in (("0/1", 1), ("genotypes", 2)):
        for noise in (0.0, 0.02):
            for d in SIZES:
                aucs = np.array([attack_means(d, copies, noise, r) for r in range(repeats)])
                print(f"{kind:9}{noise:7}{d:7}" + "".join(f"{a:8.3f}" for a in aucs.mean(axis=0)))


def attack_means(d: int, copies: int, noise: float, seed: int) -> list[float]:
    X, p, v = draw_records(d, copies, seed)
    released = X[:N].mean(axis=0) + noise * np.random.default_rng(seed + 999).normal(size=d)
    found = [AggregateAttack.expected_power(N, v, noise_std=noise).auc]
    for statistic in ("linear", "homer"):
        attack = AggregateAttack(N, statistic=statistic, noise_std=noise)
        attack.fit(released, means=p, variances=v)
        found.append(attack.evaluate(X[:N], X[N : 2 * N]).auc)
    return found


def panel(repeats: int) -> None:
    print(f"reference  theory  measured ({N_COLUMNS:,} columns)")
    for m in choose((200, 1_000, 5_000), (200,)):
        found = []
        for seed in range(repeats):
            X, _, v = draw_records(N_COLUMNS, 1, seed, m)
            attack = AggregateAttack(N).fit(X[:N].mean(axis=0), X[2 * N :])
            expected = AggregateAttack.expected_power(N, v, n_reference=m).auc
            found.append((expected, attack.evaluate(X[:N], X[N : 2 * N]).auc))
        theory, measured = np.mean(found, axis=0)
        print(f"{m:9}{theory:8.3f}{measured:10.3f}")


def mixtures(repeats: int) -> None:
    print("records      d  theory  linear   Homer")
    for n in choose((100, 500, 2_000), (100,)):
        for d in (n, 5 * n):
            aucs = np.mean([attack_mixture(n, d, seed) for seed in range(repeats)], axis=0)
            print(f"{n:7}{d:7}" + "".join(f"{auc:8.3f}" for auc in aucs))


def attack_mixture(n: int, d: int, seed: int) -> list[float]:
    X, p, v = draw_records(d, 2, seed, n=n)
    found = [AggregateAttack.expected_power(n, v).auc]
    for statistic in ("linear", "homer"):
        attack = AggregateAttack(n, statistic=statistic).fit(
            X[:n].mean(axis=0), means=p, variances=v
        )
        found.append(attack.evaluate(X[:n], X[n : 2 * n]).auc)
    return found


def make_tables(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return records of 6 correlated columns of five values, and the cells of all pairs."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    values = np.digitize(0.6 * common + 0.8 * rng.normal(size=(n, 6)), [-1.0, -0.3, 0.3, 1.0])
    pairs = [values[:, i] * 5 + values[:, j] for i, j in combinations(range(6), 2)]
    return values, np.hstack([np.eye(25)[cell] for cell in pairs])


def marginals(repeats: int) -> None:
    print("records  cells by themselves  correlated")
    for n in choose((200, 1_000), (200,)):
        found = []
        for seed in range(repeats):
            _, X = make_tables(2 * n + 3_000, seed)
            released, reference = X[:n].mean(axis=0), X[2 * n :]
            found.append(
                [
                    AggregateAttack(n, correlated=correlated)
                    .fit(released, reference)
                    .evaluate(X[:n], X[n : 2 * n])
                    .auc
                    for correlated in (False, True)
                ]
            )
        print(f"{n:7}" + "".join(f"{auc:16.3f}" for auc in np.mean(found, axis=0)))


def private(repeats: int) -> None:
    print("release      epsilon    AUC  above the guarantee")
    releases = {
        "20 means": (attack_private_means, 20),
        "1,000 means": (attack_private_means, choose(1_000, 100)),
    }
    releases |= {
        "histogram": (attack_private_histogram, 500),
        "marginals": (attack_private_tables, 0),
    }
    for name, (attacked, size) in releases.items():
        for epsilon in EPSILONS:
            aucs, above = [], 0
            for seed in range(repeats):
                result, guarantee = attacked(size, epsilon, seed)
                aucs.append(result.auc)
                above += is_above_bound(result, guarantee.tpr_bound)
            print(f"{name:12}{epsilon:8}{np.mean(aucs):7.3f}{above:10} of {repeats}", flush=True)


def attack_private_means(d: int, epsilon: float, seed: int) -> tuple[AttackResult, Any]:
    X, p, _ = draw_records(d, 1, seed)
    release = private_mean(X[:N], bounds=(0, 1), epsilon=epsilon, delta=1e-6, relation="zero_out")
    attack = AggregateAttack(N, noise_std=None).fit(release.value, means=p)
    return attack.evaluate(X[:N], X[N:]), release.privacy


def attack_private_histogram(n_bins: int, epsilon: float, seed: int) -> tuple[AttackResult, Any]:
    values, edges = np.random.default_rng(seed).random(2 * N), np.linspace(0, 1, n_bins + 1)
    X = np.eye(n_bins)[np.digitize(values, edges[1:-1])]
    release = private_histogram(values[:N], bins=edges, epsilon=epsilon)
    attack = AggregateAttack(N, noise_std=None)
    attack.fit(np.ravel(release.value) / N, means=np.full(n_bins, 1 / n_bins))
    return attack.evaluate(X[:N], X[N:]), release.privacy


def attack_private_tables(_: int, epsilon: float, seed: int) -> tuple[AttackResult, Any]:
    """Attack all 15 tables of one release: a record has one cell in each of them."""
    _, X = make_tables(2 * N + 1_000, seed)
    event = GaussianEvent(calibrate_noise(epsilon))
    scale = event.noise_multiplier * np.sqrt(15) / N
    noisy = X[:N].mean(axis=0) + scale * np.random.default_rng(seed + 999).normal(size=X.shape[1])
    attack = AggregateAttack(N, noise_std=scale, correlated=True).fit(noisy, X[2 * N :])
    guarantee = PrivacyGuarantee(event, at_delta=1e-6, relation="zero_out")
    return attack.evaluate(X[:N], X[N : 2 * N]), guarantee


@cache
def calibrate_noise(epsilon: float) -> float:
    return calibrate_noise_multiplier(GaussianEvent, epsilon, 1e-6, relation="zero_out")


def is_above_bound(result: AttackResult, bound: Callable[..., Any], alpha: float = 0.05) -> bool:
    """Return whether the band of Dvoretzky, Kiefer, Wolfowitz and Massart leaves the bound."""
    grid = np.unique(np.concatenate([result.scores_in, result.scores_out]))
    tpr = 1 - np.searchsorted(np.sort(result.scores_in), grid) / N
    fpr = 1 - np.searchsorted(np.sort(result.scores_out), grid) / N
    width = np.sqrt(np.log(4 / alpha) / (2 * N))
    return bool((tpr - width > bound(np.minimum(fpr + width, 1.0))).any())


PROGRAMS = {
    "power": (power, N_REPEATS), "mixtures": (mixtures, N_REPEATS), "panel": (panel, N_REPEATS),
    "marginals": (marginals, N_REPEATS), "private": (private, N_RELEASES),
}  # fmt: skip


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", default=list(PROGRAMS), metavar="PART")
    parser.add_argument("--repeats", type=int, default=None)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PROGRAMS):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(PROGRAMS)}")
    for part in options.parts:
        program, repeats = PROGRAMS[part]
        program(options.repeats or repeats)


if __name__ == "__main__":
    main()
