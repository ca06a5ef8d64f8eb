"""Tightness of lower bounds on epsilon, and how often they are wrong.

tightness  medians over 401 draws of coins and noise
above      bounds above the truth, in 200 draws of each mechanism
nulls      false alarms in 2,000 audits of models that leak nothing
sum        bounds from gradient canaries in one noisy sum of all records
training   the same for a network with default settings: 120 steps on a quarter of the records
many       the same with 80,000 canaries, minutes each

For the first three, alpha is .05 and delta 1e-5. The number of guesses is fixed before any draw: of
2 n coins, 4.9 sqrt(2 n) for the bounds that hold for interfering canaries, three quarters for the
product bound, all for randomised response.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, log_ndtr
from scipy.stats import binom, laplace
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification

from benchmarks.shared.quick import choose, make_parser
from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.attacks import LossThreshold
from skprivacy.audit import audit_one_run, claim_of
from skprivacy.audit.runner import run_attacks
from skprivacy.metrics import bound_from_guesses, epsilon_lower_bound
from skprivacy.metrics.coin_guesses import default_n_guesses, guess_top_scores
from skprivacy.metrics.evidence import multi_split_bound
from skprivacy.neural_network import DPSGDClassifier

ALPHA, DELTA = 0.05, 1e-5
SIZES = choose((200, 1000, 5000), (200,))
N_DRAWS, N_ABOVE, N_NULLS = choose((401, 200, 2000), (3, 8, 3))

Floats = np.ndarray
Draw = Callable[[np.random.Generator, int], tuple[Floats, Floats]]


def tightness() -> None:
    """Print medians of every bound for Gaussian noise and for randomised response."""
    rows = []
    for mu in (1.0, 2.0):
        for n in SIZES:
            few, draw = default_n_guesses(2 * n), _gaussian(mu)
            row = {"mechanism": f"Gaussian, mu={mu:g}", "n": n, "truth": _gaussian_epsilon(mu)}
            row["split and area"] = _median_of_scores(draw, n)
            for bound, guesses in (
                ("approximate", few),
                ("gaussian", few),
                ("product", 3 * n // 2),
            ):
                row[bound] = _median_of_guesses(draw, n, guesses, bound)
            rows.append(row)
    for epsilon in (1.0, 4.0):
        draw, n = _response(epsilon), choose(1000, 200)
        row = {"mechanism": f"randomised response, {epsilon:g}", "n": n, "truth": epsilon}
        row["split and area"] = _median_of_scores(draw, n)
        row["approximate"] = _median_of_guesses(draw, n, 2 * n, "approximate")
        right = int(binom(2 * n, expit(epsilon)).median())
        row["approximate, delta=0"] = bound_from_guesses(right, 2 * n, 2 * n).epsilon
        rows.append(row)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def above() -> None:
    """Count bounds that exceed the true epsilon."""
    cases: dict[str, tuple[Draw, float]] = {
        "randomised response, 0.5": (_response(0.5), 0.5),
        "randomised response, 3": (_response(3.0), 3.0),
        "Laplace, 1": (_laplace(1.0), 1.0),
        "Gaussian, mu=1": (_gaussian(1.0), _gaussian_epsilon(1.0)),
        "a tenth leaks, 4": (_subset(0.1, 4.0), _epsilon_of_subset(0.1, 4.0)),
        "half leaks, 1": (_subset(0.5, 1.0), _epsilon_of_subset(0.5, 1.0)),
        "nothing": (_response(0.0), 0.0),
    }
    rows, runs = [], N_ABOVE
    for name, (draw, truth) in cases.items():
        for n in choose((30, 489, 1726), (30,)):
            rng = np.random.default_rng(n)
            row: dict[str, Any] = {"mechanism": name, "n": n, "truth": truth}
            found: dict[str, list[float]] = {"one split": [], "many splits": [], "guesses": []}
            for run in range(runs):
                scores = draw(rng, n)
                found["one split"].append(epsilon_lower_bound(*scores, delta=DELTA))
                if run < runs // 8:
                    found["many splits"].append(multi_split_bound(*scores, delta=DELTA))
                found["guesses"].append(_by_guesses(rng, draw, n, 2 * n, "approximate"))
            row |= {kind: f"{sum(e > truth for e in v)}/{len(v)}" for kind, v in found.items()}
            rows.append(row)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def nulls(runs: int = N_NULLS) -> int:
    """Count false alarms of an attack on models that are independent of their members."""
    wrong, kinds = 0, list(_NULLS)
    for run, n in zip(range(runs), _sizes(runs), strict=True):
        rng = np.random.default_rng(run)
        p = _NULLS[kinds[run % len(kinds)]](rng, 2 * n)
        X, y = np.column_stack([p, np.arange(2 * n)]), np.zeros(2 * n, dtype=int)
        y[:2] = y[-2:] = 0, 1
        records, attack = (X[:n], y[:n], X[n:], y[n:]), LossThreshold(target=Oracle())
        (finding,) = run_attacks([attack], records, claim_of(Oracle(), X), ALPHA)
        wrong += finding.epsilon_lower_bound > 0 or bool(finding.refutation)
    print(f"violated: {wrong} of {runs}, {len(kinds)} kinds of scores, sizes 20 to 6,000")
    return wrong


class Oracle(ClassifierMixin, BaseEstimator):
    """A model whose probabilities are the records' first column; it claims epsilon=0."""

    def __init__(self) -> None:
        self.classes_ = np.array([0, 1])
        self.privacy_ = PrivacyGuarantee(ApproxDPEvent(0.0, 0.0), at_delta=1e-9)

    def fit(self, X: Any, y: Any) -> Oracle:
        return self

    def predict_proba(self, X: Any) -> Floats:
        return np.column_stack([X[:, 0], 1 - X[:, 0]])

    def predict(self, X: Any) -> Floats:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


_NULLS: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "continuous": lambda rng, n: rng.random(n),
    "constant": lambda rng, n: np.full(n, 0.7),
    "two values": lambda rng, n: np.where(rng.random(n) < 0.3, 0.9, 0.4),
    "two values, one rare": lambda rng, n: np.where(rng.random(n) < 0.02, 0.9, 0.4),
    "votes of ten trees": lambda rng, n: rng.binomial(10, 0.8, n) / 10,
    "half saturated": lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, rng.random(n)),
    "rounded": lambda rng, n: rng.random(n).round(1),
}


def _sizes(runs: int) -> Iterator[int]:
    sizes = np.geomspace(20, choose(6000, 200), runs).round().astype(int)
    yield from np.random.default_rng(0).permutation(sizes).tolist()


def _gaussian(mu: float) -> Draw:
    return lambda rng, n: (mu + rng.normal(size=n), rng.normal(size=n))


def _laplace(epsilon: float) -> Draw:
    return lambda rng, n: (
        1 + laplace.rvs(scale=1 / epsilon, size=n, random_state=rng),
        laplace.rvs(scale=1 / epsilon, size=n, random_state=rng),
    )


def _response(epsilon: float) -> Draw:
    told = expit(epsilon)
    return lambda rng, n: ((rng.random(n) < told) * 1.0, (rng.random(n) >= told) * 1.0)


def _subset(share: float, epsilon: float) -> Draw:
    """Randomised response for some records, a fair coin for the others."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        told = np.where(rng.random((2, n)) < share, expit(epsilon), 0.5)
        said = rng.random((2, n)) < told
        return said[0] * 1.0, ~said[1] * 1.0

    return draw


def _epsilon_of_subset(share: float, epsilon: float) -> float:
    """Return epsilon of a record that is drawn for leaking with a probability."""
    told = share * expit(epsilon) + (1 - share) / 2
    return math.log(told / (1 - told))


def _gaussian_epsilon(mu: float) -> float:
    grid = np.linspace(0, 20, 2_000_001)
    beyond = grid / mu
    excess = np.exp(log_ndtr(mu / 2 - beyond)) - np.exp(grid + log_ndtr(-mu / 2 - beyond))
    return float(grid[np.argmax(excess <= DELTA)])


def _median_of_scores(draw: Draw, n: int) -> float:
    rng = np.random.default_rng(0)
    return float(
        np.median([epsilon_lower_bound(*draw(rng, n), delta=DELTA) for _ in range(_runs(n))])
    )


def _median_of_guesses(draw: Draw, n: int, guesses: int, bound: str) -> float:
    rng = np.random.default_rng(0)
    runs = range(N_DRAWS)
    return float(np.median([_by_guesses(rng, draw, n, guesses, bound) for _ in runs]))


def _by_guesses(rng: np.random.Generator, draw: Draw, n: int, guesses: int, bound: str) -> float:
    """Throw ``2 n`` coins, draw a score for each, and guess them."""
    coins = rng.random(2 * n) < 0.5
    members, others = draw(rng, 2 * n)
    chosen, guess = guess_top_scores(np.where(coins, members, others), guesses, rng)
    return _bound(int((guess == coins[chosen]).sum()), guesses, 2 * n, bound)


@cache
def _bound(right: int, guesses: int, n_coins: int, bound: str) -> float:
    return bound_from_guesses(right, guesses, n_coins, bound=bound, delta=DELTA).epsilon


def _runs(n: int) -> int:
    return N_DRAWS // 4 + 1 if n > 1000 else N_DRAWS


ONE_SUM = {"epochs": 1, "batch_size": 10**6, "epsilon": None}
N_CANARIES, N_RUNS = choose((5000, 10), (100, 2))
EPSILONS = choose((1.0, 2.0, 4.0), (4.0,))
CANARIES: dict[str, list[tuple[dict[str, Any], int, int]]] = {
    "sum": [
        ({**ONE_SUM, "noise_multiplier": z}, N_CANARIES, N_RUNS) for z in choose((1.0, 0.5), (1.0,))
    ],
    "training": [({"epsilon": epsilon}, N_CANARIES, N_RUNS) for epsilon in EPSILONS],
    "many": [
        ({"epsilon": epsilon, "hidden_layer_sizes": (512, 128)}, choose(80_000, 2_000), 1)
        for epsilon in EPSILONS
    ],
}


def canaries(question: str) -> None:
    """Print the share of the claimed epsilon that gradient canaries show in one run."""
    X, y = make_classification(choose(4000, 200), n_features=100, n_informative=10, random_state=0)
    for params, n_canaries, runs in CANARIES[question]:
        network = DPSGDClassifier(classes=[0, 1], device="cpu", **params)
        start = time.process_time()
        n_guesses = (
            choose(1414, 100) if question == "many" else None
        )  # for the assumption-free bound
        reports = [
            audit_one_run(
                network, X, y, canaries="gradient", n_canaries=n_canaries, random_state=seed,
                n_guesses=n_guesses,
            )
            for seed in range(runs)
        ]  # fmt: skip
        claim = reports[0].claim.guarantee
        print(f"\n{params}: {claim}, {n_canaries:,} canaries, {runs} runs, "
              f"{(time.process_time() - start) / runs:.1f} s of processor time each, "
              f"{sum(r.refuted for r in reports)} refuted")  # fmt: skip
        for bounds in zip(*(report.bounds for report in reports), strict=True):
            found = [bound.epsilon for bound in bounds]
            print(
                f"  {np.median(found):6.2f} ({min(found):.2f} to {max(found):.2f})"
                f"  {np.median(found) / claim.epsilon():5.0%}  {bounds[0].bound}"
            )


QUESTIONS: dict[str, Callable[[], object]] = {
    "tightness": tightness,
    "above": above,
    "nulls": nulls,
    **{question: partial(canaries, question) for question in CANARIES},
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("questions", nargs="*", default=list(QUESTIONS), metavar="QUESTION")
    options = parser.parse_args()
    if unknown := set(options.questions) - set(QUESTIONS):
        parser.error(f"unknown questions {sorted(unknown)}; choose from {list(QUESTIONS)}")
    for question in options.questions:
        print(f"== {question}", flush=True)
        QUESTIONS[question]()


if __name__ == "__main__":
    main()
