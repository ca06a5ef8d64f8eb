"""Private fits one by one and side by side, in turns.

shapes     processor time of a step, by features, units and batch
sweep      30 fits of Adult: 10 epsilons and 3 splits, the private fits alone
default    the same sweep with its baselines, scores and attacks

Wall time means little on a busy machine; its ratio, of runs that take turns, means more.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from unittest import mock

import numpy as np
from sklearn.pipeline import make_pipeline

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from benchmarks.shared.timing import describe_load
from skprivacy import DPSGDClassifier, PrivacySweepCV, SchemaTransformer
from skprivacy._environment import blas_threads
from skprivacy._stacked import MAX_FITS, PlannedFit, fit_together
from skprivacy.model_selection import sweep_runner

_EPSILONS = choose([0.1, 0.2, 0.5, 1, 2, 3, 5, 8, 10, 30], [1.0, 3.0])
_SHAPES = choose(
    [
        (d, h, b)
        for d, h in [(105, 64), (105, 256), (20, 64), (20, 0)]
        for b in (64, 256, 512, 1024)
    ],
    [(20, 8, 64)],
)
_STEPS = choose(600, 20)


def compare(what: str, ways: dict[str, Callable[[], object]], rounds: int) -> None:
    """Print the median time of two ways and the median of the ratios of their turns."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            wall, spent = time.perf_counter(), time.process_time()
            way()
            found[name].append((time.perf_counter() - wall, time.process_time() - spent))
    alone, together = found.values()
    told = []
    for i, clock in enumerate(("wall", "processor")):
        pairs = [(a[i], b[i]) for a, b in zip(alone, together, strict=True)]
        before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        told.append(f"{clock} {before:.2f} and {after:.2f} s, ratio {ratio:.2f}")
    print(f"{what}: {'; '.join(told)}; {describe_load()}", flush=True)


def shapes(rounds: int) -> None:
    """Train eight networks of each shape on 20,000 records."""
    n, rng = 20_000, np.random.default_rng(0)
    for d, hidden, batch in _SHAPES:
        X = rng.uniform(-1, 1, (n, d)).astype(np.float32)
        y = (X[:, 0] > 0).astype(int)

        def plan(X=X, y=y, hidden=hidden, batch=batch) -> list[PlannedFit]:
            return [
                PlannedFit(
                    DPSGDClassifier(
                        delta=1e-6, classes=[0, 1], batch_size=batch, random_state=seed,
                        epochs=max(1, round(_STEPS * batch / n)),
                        hidden_layer_sizes=(hidden,) if hidden else (),
                    ), X, y, {},
                )
                for seed in range(MAX_FITS)
            ]  # fmt: skip

        ways = {
            "one by one": lambda plan=plan: [fit.finish() for fit in plan()],
            "side by side": lambda plan=plan: fit_together(plan()),
        }
        compare(f"{d} features, {hidden} units, batch {batch}", ways, rounds)


def sweep(rounds: int, **changes: object) -> None:
    """Sweep over Adult with the default network."""
    adult = fetch_adult(subset=choose("train", "test"), as_frame=True)
    model = make_pipeline(
        SchemaTransformer(adult.schema, dtype=np.float32),
        DPSGDClassifier(delta=1e-6, classes=adult.classes, random_state=0),
    )
    found = PrivacySweepCV(model, epsilons=_EPSILONS, cv=choose(3, 2), **changes)

    def run(most: int) -> None:
        with mock.patch.object(sweep_runner, "MAX_FITS", most):
            found.fit(adult.data, adult.target)

    compare(
        f"{len(_EPSILONS)} epsilons, {found.cv} splits, {changes or 'with baselines'}",
        {"one by one": lambda: run(1), "side by side": lambda: run(MAX_FITS)},
        rounds,
    )


def main() -> None:
    ways = {
        "shapes": shapes,
        "sweep": lambda rounds: sweep(rounds, baseline=None),
        "default": sweep,
    }
    parser = make_parser(__doc__)
    parser.add_argument("what", nargs="*", choices=[*ways, []], default=[])
    parser.add_argument("--rounds", type=int, default=choose(3, 1))
    args = parser.parse_args()
    print(f"{blas_threads()} threads")
    for name in args.what or ways:
        ways[name](args.rounds)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
