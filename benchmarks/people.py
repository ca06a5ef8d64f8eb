"""Networks that protect people: what is learned from tables of people, and what a step costs.

``python benchmarks/people.py accuracy [--table NAME ...] [--seeds N]`` trains on Adult's
records dealt out to people with 1 to 50 rows (Zipf, exponent 1.75) and prints the test accuracy for
each number of rows a person may use, by mean and by sum, as each is done. Delta is 1e-5, all
settings are the defaults. ``group-privacy`` protects records instead, so well that fifty of them
are protected as well. ``python benchmarks/people.py steps [--rounds N]`` prints how long a step
takes beside one that protects records and sees as many rows, in turns.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import nn

from skprivacy._groups import Groups
from skprivacy.datasets import fetch_adult
from skprivacy.mechanisms import PoissonSampler, SecureRandom
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.neural_network._gradients.perceptron import make_mlp
from skprivacy.neural_network._training.engine import SingleProcess, Training
from skprivacy.neural_network._training.training_config import PerGroup, TrainingConfig
from skprivacy.preprocessing import SchemaTransformer

N_ROWS, N_PEOPLE, MOST, EXPONENT = 32_561, 8_525, 50, 1.75
Table = tuple[NDArray, NDArray, NDArray]  # rows, labels, whose
_KEPT = 0.8  # of the values of a record in each perturbed copy


def sizes(n_people: int, n_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw how many rows each has until the sum is right; the last people make it so."""
    shares = np.arange(1, MOST + 1) ** -EXPONENT
    found = rng.choice(np.arange(1, MOST + 1), size=n_people, p=shares / shares.sum())
    while (more := n_rows - found.sum()) != 0:
        one = rng.integers(n_people)
        found[one] = np.clip(found[one] + np.sign(more), 1, MOST)
    return found


def random_records(X: NDArray, y: NDArray, own: NDArray, rng: np.random.Generator) -> Table:
    """A person's rows are any records."""
    order = rng.permutation(len(X))[: own.sum()]
    return X[order], y[order], np.repeat(np.arange(len(own)), own)


def nearest_records(X: NDArray, y: NDArray, own: NDArray, rng: np.random.Generator) -> Table:
    """A person's rows are the records nearest to one of them that nobody has yet."""
    near = NearestNeighbors(n_neighbors=600).fit(X)
    order = near.kneighbors(X, return_distance=False)
    whose = np.full(len(X), -1)
    for person in np.argsort(-own, kind="stable"):
        free = np.flatnonzero(whose < 0)
        first = rng.choice(free)
        close = order[first][whose[order[first]] < 0]
        if len(close) < own[person]:
            distances = ((X[free] - X[first]) ** 2).sum(1)
            close = free[np.argsort(distances, kind="stable")]
        whose[np.concatenate([[first], close[close != first]])[: own[person]]] = person
    taken = whose >= 0
    return X[taken], y[taken], whose[taken]


def perturbed_copies(
    data, y: NDArray, own: NDArray, rng: np.random.Generator, transform: Callable
) -> Table:
    """A person's rows are copies of a record with some values of other records in their place."""
    base = np.repeat(rng.permutation(len(data))[: len(own)], own)
    copies = data.iloc[base].reset_index(drop=True)
    for column in copies.columns:
        other = rng.random(len(copies)) > _KEPT
        drawn = data[column].to_numpy()[rng.integers(len(data), size=int(other.sum()))]
        copies.loc[other, column] = drawn
    return transform(copies), y[base], np.repeat(np.arange(len(own)), own)


def tables(kind: str, n_people: int, seed: int) -> tuple[Table, NDArray, NDArray]:
    train = fetch_adult(as_frame=True)
    test = fetch_adult(subset="test", as_frame=True)
    fitted = SchemaTransformer(train.schema).fit(train.data)

    def rows(frame) -> NDArray:
        return np.asarray(fitted.transform(frame), dtype=np.float32)

    y = train.target.to_numpy()
    rng = np.random.default_rng(seed)
    own = sizes(n_people, round(N_ROWS * n_people / N_PEOPLE), rng)
    if kind == "copies":
        table = perturbed_copies(train.data, y, own, rng, rows)
    else:
        deal = {"nearest": nearest_records, "random": random_records}[kind]
        table = deal(rows(train.data), y, own, rng)
    return table, rows(test.data), test.target.to_numpy()


def accuracy(args: argparse.Namespace) -> None:
    for kind in args.table:
        made = [tables(kind, args.people, seed) for seed in range(args.seeds)]
        for epsilon in args.epsilon:
            for how, most in [("mean", 1), *((h, k) for h in args.how for k in args.rows)]:
                start, scores = time.process_time(), []
                for seed, ((X, y, whose), X_test, y_test) in enumerate(made):
                    model = DPSGDClassifier(
                        epsilon=epsilon,
                        classes=np.unique(y_test),
                        max_group_rows=most or None,
                        group_contribution=how,
                        random_state=seed,
                        device="cpu",
                    ).fit(X, y, groups=whose)
                    scores.append(100 * model.score(X_test, y_test))
                seconds = (time.process_time() - start) / len(made)
                print(
                    f"{kind:8} {args.people} people, epsilon {epsilon:g}, {how:4} of "
                    f"{most or 'all':>3}: {np.mean(scores):.2f} +- {np.std(scores):.2f}  "
                    f"({seconds:.1f} s a fit; {' '.join(f'{s:.2f}' for s in scores)})",
                    flush=True,
                )


def by_group_privacy(args: argparse.Namespace) -> None:
    """Protect records so well that fifty of them are protected as people are above."""
    for kind in args.table:
        for epsilon in args.epsilon:
            own = epsilon / MOST
            delta = 1e-5 * math.expm1(own) / math.expm1(epsilon)
            scores = []
            for seed in range(args.seeds):
                (X, y, _), X_test, y_test = tables(kind, args.people, seed)
                model = DPSGDClassifier(
                    epsilon=own,
                    delta=delta,
                    classes=np.unique(y_test),
                    random_state=seed,
                    device="cpu",
                ).fit(X, y)
                scores.append(100 * model.score(X_test, y_test))
            print(
                f"{kind:8} {args.people} people, epsilon {epsilon:g} by group privacy of {MOST} "
                f"records: {np.mean(scores):.2f} +- {np.std(scores):.2f}",
                flush=True,
            )


def step_of(groups: Groups | None, X, y, batch: int, most: int | None = None) -> Callable[[], None]:
    """Return a step of training on records, or on people."""
    n = len(X) if groups is None else groups.n
    config = TrainingConfig(
        n_records=n,
        batch_size=batch,
        epochs=1,
        relation="zero_out",
        noise_multiplier=1.0,
        optimizer_params={"momentum": 0.9},
        learning_rate=0.01,
        averaging=0.0,
        per_group=None if groups is None else PerGroup("person", most, "mean"),
    )
    module = make_mlp(X.shape[1], (64,), 2, "tanh", np.random.RandomState(0))
    training = Training(config, module, nn.CrossEntropyLoss(reduction="none"))
    if groups is not None:
        training._people = training._draw_group_rows(groups, SingleProcess())
    sampler, random, alone = PoissonSampler(batch / n), SecureRandom(), SingleProcess()

    def step() -> None:
        training.step(X, y, torch.from_numpy(sampler.draw(n, random)), alone)

    return step


def steps(args: argparse.Namespace) -> None:
    """Take turns, in processor time: a busy machine then meets both alike."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    own = sizes(N_PEOPLE, N_ROWS, rng)
    codes = np.unique(rng.permutation(np.repeat(np.arange(N_PEOPLE), own)), return_inverse=True)[1]
    groups = Groups(codes.astype(np.int64), N_PEOPLE, "person")
    X = torch.from_numpy((rng.random((N_ROWS, 105)) < 0.2).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 2, N_ROWS))
    for batch in args.people:
        for most in (k or None for k in args.rows):
            n_rows = round(batch * float(np.minimum(own, most or MOST).mean()))
            both = step_of(None, X, y, n_rows), step_of(groups, X, y, batch, most)
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(args.rounds + 2):
                for step, found in zip(both, times, strict=True):
                    start = time.process_time()
                    for _ in range(5):
                        step()
                    if turn > 1:
                        found.append((time.process_time() - start) / 5)
            records, people = map(statistics.median, times)
            print(
                f"{batch} people with at most {most or 'all':>3} rows, {n_rows} rows a step: "
                f"{1e3 * people:.2f} ms, records {1e3 * records:.2f} ms, ratio "
                f"{people / records:.2f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    for name, run in (("accuracy", accuracy), ("group-privacy", by_group_privacy)):
        learn = commands.add_parser(name)
        learn.set_defaults(run=run)
        learn.add_argument("--table", nargs="+", default=["nearest", "copies", "random"])
        learn.add_argument("--seeds", type=int, default=5)
        learn.add_argument("--people", type=int, default=N_PEOPLE)
        learn.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 3.0])
        learn.add_argument("--rows", nargs="+", type=int, default=[2, 5, 0], help="0: all")
        learn.add_argument("--how", nargs="+", default=["mean", "sum"])
    cost = commands.add_parser("steps")
    cost.set_defaults(run=steps)
    cost.add_argument("--people", nargs="+", type=int, default=[1024, 256])
    cost.add_argument("--rows", nargs="+", type=int, default=[1, 2, 5, 0], help="0: all")
    cost.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
