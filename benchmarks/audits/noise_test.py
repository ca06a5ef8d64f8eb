"""Faults in the noise of one training run that its canaries show, and false alarms.

faults   how often each fault is found, at an error of 1e-6, by shape (steps x weights)
honest   p-values of correct noise: how many are below .05, .01 and 1e-6
cost     processor time of the test beside that of a one-run audit
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification

from benchmarks.shared.quick import choose, make_parser
from skprivacy.audit import audit_one_run
from skprivacy.audit.canaries.noise_test import NEVER, NOISE_FAULTS, NoiseTest
from skprivacy.neural_network import DPSGDClassifier

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Floats]
SHAPES = choose(((20, 100), (60, 600)), ((20, 100),))
RUNS = choose(60, 2)
STD = 1.4


def divided(divisor: float) -> Draw:
    return lambda random, steps, weights: random.normal(size=(steps, weights)) / divisor


def missing(share: float) -> Draw:
    def draw(random: np.random.Generator, steps: int, weights: int) -> Floats:
        kept = random.random((steps, 1)) >= share
        return kept * random.normal(size=(steps, weights))

    return draw


def uniform(random: np.random.Generator, steps: int, weights: int) -> Floats:
    return random.uniform(-np.sqrt(3), np.sqrt(3), size=(steps, weights))


def reused(random: np.random.Generator, steps: int, weights: int) -> Floats:
    noise = random.normal(size=(steps, weights))
    noise[11] = noise[3]
    return noise


FAULTS: dict[str, Draw] = {
    **{f"noise divided by {divisor}": divided(divisor) for divisor in (1.02, 1.05, 1.1, 1.5)},
    "noise missing in 5% of the steps": missing(0.05),
    "noise missing in 1% of the steps": missing(0.01),
    "uniform noise": uniform,
    "noise of an earlier step": reused,
}


def smallest_p_value(noise: Floats, random: np.random.Generator) -> float:
    """Return the corrected p-value of noise (n_steps, n_weights), in deviations."""
    steps, weights = noise.shape
    config = SimpleNamespace(
        noise="gaussian", noise_multiplier=STD, max_grad_norm=1.0, n_steps=steps
    )
    test = NoiseTest(cast(Any, config), np.ones(weights, dtype=bool))
    for step in noise:
        clean = 30 * random.normal(size=weights)
        test.add(clean + STD * step, clean)
    return len(NOISE_FAULTS) * min(test.p_values().values())


def faults() -> None:
    """Print how often each fault is found, by shape."""
    for name, draw in FAULTS.items():
        counts = []
        for steps, weights in SHAPES:
            random = np.random.default_rng(0)
            found = [
                smallest_p_value(draw(random, steps, weights), random) < NEVER for _ in range(RUNS)
            ]
            counts.append(f"{sum(found)} of {RUNS} ({steps} x {weights})")
        print(f"{name}: {', '.join(counts)}", flush=True)


def honest() -> None:
    """Print how many corrected p-values of correct noise are small."""
    random, draw, (steps, weights) = np.random.default_rng(0), divided(1.0), SHAPES[0]
    runs = choose(3000, 5)
    found = np.array([smallest_p_value(draw(random, steps, weights), random) for _ in range(runs)])
    counts = ", ".join(f"{np.sum(found < level)} below {level:g}" for level in (0.05, 0.01, NEVER))
    print(f"of {runs:,} runs of correct noise: {counts}")


def cost() -> None:
    """Print the processor time of a one-run audit, and the part that the test takes."""
    X, y = make_classification(choose(4000, 300), n_features=100, random_state=0)
    spent = 0.0
    methods = {name: getattr(NoiseTest, name) for name in ("add", "p_values")}

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal spent
            started = time.process_time()
            try:
                return method(*arguments)
            finally:
                spent += time.process_time() - started

        return run

    for name, method in methods.items():
        setattr(NoiseTest, name, timed(method))
    try:
        started = time.process_time()
        network = DPSGDClassifier(classes=[0, 1], epsilon=4.0, device="cpu")
        audit_one_run(network, X, y, canaries="gradient", n_canaries=1000, random_state=0)
        total = time.process_time() - started
    finally:
        for name, method in methods.items():
            setattr(NoiseTest, name, method)
    print(f"{spent:.3f} s of {total:.2f} s of a core")


QUESTIONS = {"faults": faults, "honest": honest, "cost": cost}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("questions", nargs="*", default=list(QUESTIONS), metavar="QUESTION")
    for question in parser.parse_args().questions:
        print(f"== {question}", flush=True)
        QUESTIONS[question]()


if __name__ == "__main__":
    main()
