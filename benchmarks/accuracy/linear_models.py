"""Accuracy and time of private linear models, beside diffprivlib and plain scikit-learn.

regression      test R2: diabetes, California-like, skewed
classification  test accuracy: an Adult-like table
adult           the same on Adult
speed           fit times

diffprivlib 0.6.6 needs scikit-learn 1.7 or older; without it its rows are left out. Each number is
the median over fits to one split, its 5% quantile beside it. On each generated table, scikit-learn
and diffprivlib score as on the real table of its name.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.neural_network import DPSGDClassifier, Optimizer

try:
    import diffprivlib.models as peer
except ImportError:
    peer = None

EPSILONS = choose((0.01, 0.1, 1.0, 10.0), (1.0,))
N_GENERATED, N_TRAIN = choose((20_000, 15_000), (400, 300))
DELTA = 1e-6


def diabetes() -> tuple[Any, ...]:
    """442 x 10; the bounds are round numbers that a clinician would name."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    lower = np.array([18, 1, 15, 60, 90, 40, 20, 2, 3, 55.0])
    upper = np.array([80, 2, 45, 140, 310, 250, 100, 10, 6.5, 130.0])
    return X, y, (lower, upper), (0.0, 300.0), 331


def california_like(n: int = N_GENERATED) -> tuple[Any, ...]:
    """Eight columns, some in pairs, that explain 0.69 of the target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 8))
    for a in (0, 2):
        X[:, a + 1] = 0.6 * X[:, a] + 0.8 * X[:, a + 1]
    signal = X @ rng.normal(size=8)
    y = signal / signal.std() * math.sqrt(0.683) + rng.normal(size=n) * math.sqrt(0.317)
    bound = np.full(8, 3.5)
    return np.clip(X, -bound, bound), np.clip(y, -3, 3), (-bound, bound), (-3.0, 3.0), N_TRAIN


def skewed(n: int = N_GENERATED) -> tuple[Any, ...]:
    """Eight skewed columns with loose bounds; the target's middle is far from its mean."""
    rng = np.random.default_rng(0)
    income = np.clip(rng.lognormal(1.25, 0.45, n), 0.5, 15)
    age = np.clip(rng.normal(29, 12.5, n), 1, 52)
    rooms = np.clip(rng.lognormal(1.65, 0.3, n), 1, 20)
    bedrooms = np.clip(0.2 * rooms * rng.lognormal(0, 0.12, n), 0.5, 5)
    people = np.clip(rng.lognormal(7, 0.7, n), 3, 10_000)
    household = np.clip(rng.lognormal(1.03, 0.25, n), 1, 10)
    south = rng.random(n) < 0.55
    latitude = np.where(south, rng.normal(34, 0.7, n), rng.normal(37.8, 1, n)).clip(32.5, 42)
    longitude = np.clip(-119.6 - 0.9 * (latitude - 35.6) + rng.normal(0, 0.8, n), -124.5, -114)
    X = np.c_[income, age, rooms, bedrooms, people, household, latitude, longitude]
    weights = np.array([0.44, 0.0095, -0.105, 0.6, -1e-5, -0.2, -0.42, -0.43])
    signal = X @ weights
    y = signal - signal.mean() + 2
    y = np.clip(y + rng.normal(0, np.std(y) * math.sqrt(0.31 / 0.69), n), 0.15, 5.0)
    lower = np.array([0, 0, 0, 0, 0, 0, 32.0, -125.0])
    upper = np.array([16, 53, 20, 6, 10_000, 10, 42.0, -114.0])
    return X, y, (lower, upper), (0.0, 5.0), N_TRAIN


def adult_like(n: int = choose(32_560, 400)) -> tuple[np.ndarray, np.ndarray]:
    """99 one-hot columns of 8 categories and 6 numbers, which share three causes: 105 columns."""
    rng = np.random.default_rng(0)
    latent, weight = rng.normal(size=(n, 3)), np.array([1.0, 0.5, 0.25])
    columns, logit = [], np.zeros(n)
    for k in (9, 16, 7, 15, 6, 5, 2, 39):
        loading = 1.6 * rng.normal(size=(3, k))
        scores = latent @ loading + np.log(rng.dirichlet(np.full(k, 0.8)) + 1e-3)
        code = (scores + rng.gumbel(size=(n, k))).argmax(axis=1)
        columns.append(np.eye(k)[code])
        rng.normal(size=k)
        logit += 0.265 / 1.6 * (weight @ loading)[code]
    spread = latent @ (0.3 * rng.normal(size=(3, 2))) + 0.3 * rng.normal(size=(n, 2))
    rare = np.where(rng.random((n, 2)) < 0.06, rng.uniform(-1, 1, (n, 2)), -1.0)
    numbers = np.c_[spread, 0.3 * rng.normal(size=(n, 2)), rare].clip(-1, 1)
    logit += 0.92 * numbers @ np.array([1.5, 1.2, 0.8, 0.3, 1.0, 0.6])
    logit -= np.quantile(logit, 0.7365)
    return np.hstack([*columns, numbers]), (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)


class PlainSufficientStatistics:
    """Gaussian noise on X'X and X'y in the unit ball, and a fixed ridge: the usual baseline."""

    def __init__(self, epsilon: float, bounds: Any, target_bounds: Any) -> None:
        self.epsilon, self.bounds, self.target_bounds = epsilon, bounds, target_bounds

    def _rows(self, X: np.ndarray) -> np.ndarray:
        lower, upper = self.bounds
        Z = 2 * (np.clip(X, lower, upper) - lower) / (upper - lower) - 1
        radius = math.sqrt(Z.shape[1]) / 2
        Z /= np.maximum(1, np.linalg.norm(Z, axis=1) / radius)[:, None]
        return np.c_[Z / radius, np.full(len(Z), 0.5)] / math.sqrt(1.25)

    def fit(self, X: np.ndarray, y: np.ndarray) -> PlainSufficientStatistics:
        low, high = self.target_bounds
        Z, t = self._rows(X), 2 * (np.clip(y, low, high) - low) / (high - low) - 1
        p, rng = Z.shape[1], np.random.default_rng()
        std = math.sqrt(2) * analytic_noise_multiplier(self.epsilon, DELTA)
        noise = rng.normal(0, std / math.sqrt(2), (p, p))
        moments = Z.T @ Z + (noise + noise.T) / math.sqrt(2) + 3 * std * np.eye(p)
        self.solution = np.linalg.solve(moments, Z.T @ t + rng.normal(0, std, p))
        return self

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        low, high = self.target_bounds
        predicted = low + (high - low) * (self._rows(X) @ self.solution + 1) / 2
        return float(1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


class NoisyGradientDescent:
    """Full-batch gradient descent on records scaled to norm 1, the mean of its second half."""

    def __init__(self, epsilon: float, norm: float) -> None:
        self.epsilon, self.norm, self.steps = epsilon, norm, steps(epsilon)

    def _rows(self, X: np.ndarray) -> np.ndarray:
        return np.c_[X / self.norm, np.full(len(X), 0.35)] / math.hypot(1, 0.35)

    def fit(self, X: np.ndarray, y: np.ndarray) -> NoisyGradientDescent:
        Z, rng = self._rows(X), np.random.default_rng()
        std = analytic_noise_multiplier(self.epsilon, DELTA) * math.sqrt(self.steps)
        w, self.mean = np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
        for step in range(self.steps):
            gradient = Z.T @ (1 / (1 + np.exp(-Z @ w)) - y) + std * rng.normal(size=len(w))
            w = w - 64 * gradient / len(Z)
            self.mean += w * (step >= self.steps // 2)
        return self

    def score(self, X: np.ndarray, y: np.ndarray) -> float:
        return float(((self._rows(X) @ self.mean > 0) == y).mean())


def steps(epsilon: float) -> int:
    """Few steps where noise decides, more where there is little of it."""
    return 20 if epsilon < 0.3 else 60


def row(name: str, make: Callable[[float], Any], splits: list, epsilons: Any = EPSILONS) -> None:
    cells = []
    for epsilon in epsilons:
        scores = [make(epsilon).fit(X, y).score(A, b) for X, A, y, b in splits]
        cells.append(f"{np.median(scores):.3g} ({np.quantile(scores, 0.05):.3g})")
    print(f"{name:44s}" + "".join(f"{c:>22s}" for c in cells), flush=True)


def header(title: str, epsilons: Any = EPSILONS) -> None:
    print(f"\n{title}\n{'median (5% quantile) at epsilon':44s}" + "".join(
        f"{e:>22g}" for e in epsilons
    ))  # fmt: skip


def regressors(bounds: Any, target_bounds: Any) -> Iterator[tuple[str, Callable[[float], Any]]]:
    public = {"bounds": bounds, "target_bounds": target_bounds}
    for relation in ("add_remove", "replace_one"):
        for delta in (0.0, DELTA):
            yield (
                f"functional mechanism, delta={delta:g}, {relation}",
                partial(_functional, delta=delta, relation=relation, **public),
            )
    yield "AdaSSP, delta=1e-6", lambda e: AdaSSPRegressor(epsilon=e, delta=DELTA, **public)
    yield (
        "plain sufficient statistics, delta=1e-6",
        lambda e: PlainSufficientStatistics(e, bounds, target_bounds),
    )
    if peer:
        yield (
            "diffprivlib LinearRegression",
            lambda e: peer.LinearRegression(epsilon=e, bounds_X=bounds, bounds_y=target_bounds),
        )


def _functional(epsilon: float, **params: Any) -> FunctionalMechanismRegressor:
    return FunctionalMechanismRegressor(epsilon=epsilon, **params)


def regression(repeats: int) -> None:
    for table in (diabetes, california_like, skewed):
        X, y, bounds, target_bounds, train = table()
        splits = [train_test_split(X, y, train_size=train, random_state=0)] * repeats
        header(f"{table.__name__}, {train} x {X.shape[1]}, test R2")
        row("no privacy", lambda e: LinearRegression(), splits[:1], [math.inf])
        middle = sum(target_bounds) / 2
        scores = [1 - np.mean((b - middle) ** 2) / b.var() for *_, b in splits]
        print(f"{'the middle of target_bounds':44s}{np.median(scores):8.3f}")
        for name, make in regressors(bounds, target_bounds):
            row(name, make, splits)


def compare_classifiers(title: str, splits: list, radius: float) -> None:
    X, _, _, b = splits[0]
    epsilons = choose((0.1, 1.0, 10.0), (1.0,))
    title = f"{title}, {X.shape[0]} x {X.shape[1]}, base rate {max(b.mean(), 1 - b.mean()):.3f}"
    header(title, epsilons)
    row("no privacy", lambda e: LogisticRegression(max_iter=1000), splits[:1], [math.inf])
    public = {"bounds": (-1, 1), "classes": [0, 1], "radius": radius}
    for kind in (
        ObjectivePerturbationClassifier, FunctionalMechanismClassifier, OutputPerturbationClassifier
    ):  # fmt: skip
        for delta in (0.0, DELTA):
            row(
                f"{kind.__name__}, delta={delta:g}",
                lambda e, k=kind, d=delta: k(epsilon=e, delta=d, **public), splits, epsilons,
            )  # fmt: skip
    row("DPSGDClassifier, linear, delta=1e-06", partial(_linear_network, len(X)), splits, epsilons)
    norm = float(np.linalg.norm(X, axis=1).max())
    row("noisy gradient descent, delta=1e-06", lambda e: NoisyGradientDescent(e, norm), splits,
        epsilons)  # fmt: skip
    if peer:
        row(
            "diffprivlib LogisticRegression",
            lambda e: peer.LogisticRegression(epsilon=e, data_norm=norm), splits, epsilons,
        )  # fmt: skip


def _linear_network(n: int, epsilon: float) -> DPSGDClassifier:
    return DPSGDClassifier(
        hidden_layer_sizes=(), epsilon=epsilon, delta=DELTA, classes=[0, 1], batch_size=n,
        epochs=steps(epsilon), learning_rate=12.0, optimizer=Optimizer(momentum=0.0),
    )  # fmt: skip


def classification(repeats: int) -> None:
    X, y = adult_like()
    split = train_test_split(X, y, train_size=0.75, random_state=0)
    compare_classifiers("Adult-like", [split] * repeats, radius=3.4)


def adult(repeats: int) -> None:
    from skprivacy.preprocessing import SchemaTransformer

    train, test = (fetch_adult(subset=s, as_frame=True) for s in ("train", "test"))
    encode = SchemaTransformer(train.schema).fit(train.data)
    rich = [(np.asarray(s.target) == ">50K").astype(int) for s in (train, test)]
    split = encode.transform(train.data), encode.transform(test.data), *rich
    compare_classifiers("Adult", [split] * repeats, radius=3.5)


def speed(repeats: int) -> None:
    """Interleaved medians of processor time, ratios to the plain model on the same rows."""
    print(f"\n{'fit, milliseconds (ratio)':44s}{'plain':>12s}{'private':>12s}{'ratio':>8s}")
    cases = []
    for table in (diabetes, california_like):
        X, y, bounds, target_bounds, train = table()
        public = {"bounds": bounds, "target_bounds": target_bounds, "delta": DELTA}
        for kind in (FunctionalMechanismRegressor, AdaSSPRegressor):
            cases.append((table.__name__, LinearRegression(), kind(**public), X[:train], y[:train]))
    X, y = adult_like()
    public = {"bounds": (-1, 1), "classes": [0, 1], "radius": 3.4, "delta": DELTA}
    for kind in (
        FunctionalMechanismClassifier, ObjectivePerturbationClassifier, OutputPerturbationClassifier
    ):  # fmt: skip
        cases.append(("adult_like", LogisticRegression(max_iter=1000), kind(**public), X, y))
    for name, plain, private, X, y in cases:
        times = np.array([[timed(m, X, y) for m in (plain, private)] for _ in range(repeats)])
        a, b = np.median(times, axis=0) * 1e3
        print(f"{name + ', ' + type(private).__name__:44s}{a:12.2f}{b:12.2f}{b / a:8.2f}")


def timed(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    start = time.process_time()  # other programs on the machine do not count
    model.fit(X, y)
    return time.process_time() - start


def main() -> None:
    parts = {
        "regression": regression, "classification": classification, "adult": adult, "speed": speed,
    }  # fmt: skip
    parser = make_parser(__doc__)
    parser.add_argument("parts", nargs="*", default=list(parts), metavar="PART")
    parser.add_argument("--repeats", type=int, default=choose(50, 1))
    options = parser.parse_args()
    if unknown := set(options.parts) - set(parts):
        parser.error(f"unknown parts {sorted(unknown)}; there are {list(parts)}")
    warnings.filterwarnings("ignore")  # the peer's, of bounds and norms
    for part in options.parts:
        parts[part](options.repeats)


if __name__ == "__main__":
    main()
