"""Time and accuracy of kinds of noise, clipping and averaging in private networks on Adult.

Everything else is equal: 64 units, 30 epochs in batches of a quarter of the records at a constant
step size, which are the settings of a network with a given noise multiplier.

averaging  weight averages of the same trainings
clipping   rules and norms of clipping
kinds      mechanisms of noise
streams    one epoch in the order of the records
cost       time of a number of noise and of a step; needs no data
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy.mechanisms import FloatGaussian, Gaussian, Mechanism, SecureRandom
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.neural_network import Clipping, DPSGDClassifier
from skprivacy.neural_network._training import training_config as noise
from skprivacy.neural_network._training.engine import SingleProcess, Training, WeightAverage
from skprivacy.neural_network._training.training_config import TrainingConfig
from skprivacy.preprocessing import SchemaTransformer

SEEDS = choose(3, 2)
EPSILONS, EPOCHS = choose(((0.1, 1.0), 30), ((1.0,), 1))
DELTA = 1e-6

AVERAGING: dict[str, tuple[float | str, float]] = {
    "last step alone": (0.0, 0.0),
    "last half": (0.5, 0.0),
    "all steps": (1.0, 0.0),
    "ema 0.9": ("ema", 0.9),
    "ema 0.95": ("ema", 0.95),
    "ema 0.98": ("ema", 0.98),
}
CLIPPING: dict[str, dict] = {
    f"{clipping}, norm {norm:g}": {"max_grad_norm": Clipping(clipping, norm)}
    for clipping in ("flat", "automatic", "adaptive")
    for norm in (0.1, 1.0, 10.0)
}
KINDS: dict[str, dict] = {
    k: {"noise": k} for k in ("gaussian", "exact", "logistic", "banded", "tree")
}
STREAMS: dict[str, dict] = {
    f"{noise}, batch {size}": {"noise": noise, "batch_size": size, "epochs": 1}
    for noise in ("gaussian", "banded", "tree", "independent")
    for size in choose((128, 512, 2048), (128,))
}
QUESTIONS = {"clipping": CLIPPING, "kinds": KINDS, "streams": STREAMS}


@contextmanager
def kind(params: dict) -> Iterator[dict]:
    """Yield the parameters; "independent" is a stream whose noise is not correlated."""
    if params.get("noise") != "independent":
        yield params
        return
    with mock.patch.object(noise, "square_root_band", return_value=(1.0,)):
        yield {**params, "noise": "banded"}


def planned(n: int, epsilon: float, params: dict) -> TrainingConfig:
    """Return the run that all others are compared with, but for some parameters."""
    plan = TrainingConfig.planned(n, **{"epochs": EPOCHS, **params})
    return plan.with_noise_for(epsilon, DELTA)


def private(plan: TrainingConfig, classes: np.ndarray, seed: int, params: dict) -> DPSGDClassifier:
    """Return a network with the noise of the plan, and with its other settings as they come."""
    return DPSGDClassifier(
        epsilon=None, noise_multiplier=plan.noise_multiplier, delta=DELTA, classes=classes,
        random_state=seed, **{"epochs": EPOCHS, **params},
    )  # fmt: skip


def accuracy(table: tuple, epsilon: float, params: dict) -> list[float]:
    """Return the test accuracy of each seed."""
    X, y, X_test, y_test, classes = table
    with kind(params) as chosen:
        plan = planned(len(X), epsilon, chosen)
        return [
            private(plan, classes, seed, chosen).fit(X, y).score(X_test, y_test)
            for seed in range(SEEDS)
        ]


def table() -> tuple[np.ndarray, ...]:
    """Return the training and the test table, transformed by the public schema."""
    train, test = (fetch_adult(subset=s, as_frame=True) for s in ("train", "test"))
    transformer = SchemaTransformer(train.schema).fit(train.data)
    return (
        transformer.transform(train.data), train.target, transformer.transform(test.data),
        test.target, train.classes,
    )  # fmt: skip


def averaging(data: tuple) -> None:
    """Average the same trainings in every way, so that the ways can be told apart."""
    X, y, X_test, y_test, classes = data
    for epsilon in EPSILONS:
        scores: dict[str, list[float]] = {name: [] for name in AVERAGING}
        plan = planned(len(X), epsilon, {})
        for seed in range(2 * SEEDS):
            path: list[torch.Tensor] = []
            with mock.patch.object(WeightAverage, "add", lambda _, w, to=path: to.append(w + 0)):
                model = private(plan, classes, seed, {}).fit(X, y)
            for name, (kind, decay) in AVERAGING.items():
                average = WeightAverage(replace(plan, averaging=kind, averaging_decay=decay))
                for weights in path:
                    average.add(weights)
                vector_to_parameters(average.result(path[-1]), model.module_.parameters())
                scores[name].append(model.score(X_test, y_test))
        default = np.array(scores["last half"])
        for name, values in scores.items():
            less = np.array(values) - default
            print(
                f"  epsilon {epsilon}: {name:24s} {np.mean(values):.4f}, "
                f"{less.mean():+.4f} +- {less.std(ddof=1) / np.sqrt(len(less)):.4f} to last half"
            )


ONE_NUMBER: dict[type[Mechanism], int] = {
    FloatGaussian: 200_000, FloatLogistic: 200_000, RoundedGaussian: 200_000,
    Gaussian: choose(20_000, 1_000),
}  # fmt: skip
NETWORKS = {"9 k weights": (105, 64, 32, 2), "200 k weights": (600, 256, 128, 100)}
BATCHES = choose((256, 1024), (64,))
REPEATS = choose(30, 2)


def cost() -> None:
    """Print the processor time of a number of noise, and of a step; interleaved, the least."""
    random = SecureRandom()
    for mechanism, size in ONE_NUMBER.items():
        value = np.zeros(size, np.float32 if "Float" in mechanism.__name__ else np.float64)
        release = partial(mechanism(1.0, 1.0).release, value, random)
        seconds = min(timed(release) for _ in range(choose(9, 1)))
        print(f"  {mechanism.__name__:16s} {1e9 * seconds / size:6.1f} ns a number")
    for name, sizes in NETWORKS.items():
        for batch in BATCHES:
            steps = {kind: step(kind, sizes, batch) for kind in ("gaussian", "exact")}
            least = dict.fromkeys(steps, np.inf)
            for _ in range(REPEATS):
                for kind, one_step in steps.items():
                    least[kind] = min(least[kind], timed(one_step))
            print(
                f"  {name}, batch {batch}: a step {1e3 * least['gaussian']:.2f} ms, "
                f"exact {1e3 * least['exact']:.2f} ms: {least['exact'] / least['gaussian']:.2f}"
            )


def timed(function: Callable[[], object]) -> float:
    """Return the seconds of processor time that a call takes."""
    start = time.process_time()
    function()
    return time.process_time() - start


def step(kind: str, sizes: tuple[int, ...], batch: int) -> Callable[[], None]:
    """Return a step of training on random rows."""
    layers = [layer for n, m in pairwise(sizes) for layer in (nn.Linear(n, m), nn.Tanh())][:-1]
    config = TrainingConfig.planned(
        batch, batch_size=batch, epochs=1, noise=kind, noise_multiplier=1.0
    )
    loss = nn.CrossEntropyLoss(reduction="none")
    training = Training(config, nn.Sequential(*layers), loss)
    X, y = torch.randn(batch, sizes[0]), torch.randint(sizes[-1], (batch,))
    return lambda: training.step(X, y, torch.arange(batch), SingleProcess())


def main() -> None:
    every = ["averaging", *QUESTIONS, "cost"]
    parser = make_parser(__doc__)
    parser.add_argument("questions", nargs="*", default=every, metavar="QUESTION")
    questions = list(parser.parse_args().questions)
    if unknown := set(questions) - set(every):
        parser.error(f"unknown questions {sorted(unknown)}; choose from {every}")
    if "cost" in questions:
        torch.set_num_threads(1)
        cost()
        questions.remove("cost")
    if not questions:
        return
    data = table()
    if "averaging" in questions:
        questions.remove("averaging")
        averaging(data)
    for question in questions:
        print(f"{question}: accuracy, mean of {SEEDS} seeds +- standard error")
        for name, params in QUESTIONS[question].items():
            cells = []
            start = time.perf_counter()
            for epsilon in EPSILONS:
                scores = accuracy(data, epsilon, params)
                error = np.std(scores, ddof=1) / np.sqrt(SEEDS)
                cells.append(f"epsilon {epsilon}: {np.mean(scores):.4f} +- {error:.4f}")
            seconds = (time.perf_counter() - start) / len(EPSILONS) / SEEDS
            print(f"  {name:24s} {'   '.join(cells)}   ({seconds:.1f} s a fit)", flush=True)


if __name__ == "__main__":
    main()
