"""Accuracy and time of models that protect groups of records, such as a person's rows.

accuracy       networks trained on Adult's records dealt out to groups of 1 to 50 rows (Zipf,
               exponent 1.75): the test accuracy for each number of rows of a group, by mean and by
               sum. Delta is 1e-5, all settings are the defaults
group-privacy  networks that protect records, at an epsilon at which fifty of them are protected
               together as groups are above
linear         linear classifiers at epsilon 1, fitted with groups and to the first row of each
steps          time of a training step beside one that protects records and sees as many rows, in
               turns

Without a name, each part runs with its default options.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from torch import nn

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy._groups import Groups
from skprivacy.datasets.adult import ADULT_SCHEMA
from skprivacy.linear_model import (
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.mechanisms import PoissonSampler, SecureRandom
from skprivacy.neural_network import Clipping, DPSGDClassifier
from skprivacy.neural_network._gradients.perceptron import make_mlp
from skprivacy.neural_network._training.engine import SingleProcess as Alone
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.training_config import PerGroup, TrainingConfig
from skprivacy.preprocessing import SchemaTransformer, make_private_pipeline

N_ROWS, N_GROUPS, MAX_ROWS, EXPONENT = choose(32_561, 600), choose(8_525, 150), 50, 1.75
Table = tuple[NDArray, NDArray, NDArray]  # rows, labels, group of each row
_KEPT = 0.8  # of the values of a record in each perturbed copy


MODELS = {
    kind.__name__: kind(epsilon=1.0, delta=1e-5)
    for kind in (
        FunctionalMechanismClassifier, ObjectivePerturbationClassifier,
        OutputPerturbationClassifier,
    )
}  # fmt: skip


def draw_sizes(n_groups: int, n_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the number of rows of each group; random groups are changed until the sum is right."""
    shares = np.arange(1, MAX_ROWS + 1) ** -EXPONENT
    found = rng.choice(np.arange(1, MAX_ROWS + 1), size=n_groups, p=shares / shares.sum())
    while (more := n_rows - found.sum()) != 0:
        one = rng.integers(n_groups)
        found[one] = np.clip(found[one] + np.sign(more), 1, MAX_ROWS)
    return found


def deal_at_random(X: NDArray, y: NDArray, own: NDArray, rng: np.random.Generator) -> Table:
    """Deal out records at random."""
    order = rng.permutation(len(X))[: own.sum()]
    return X[order], y[order], np.repeat(np.arange(len(own)), own)


def deal_nearest(X: NDArray, y: NDArray, own: NDArray, rng: np.random.Generator) -> Table:
    """Give each group the free records that are nearest to one of them."""
    near = NearestNeighbors(n_neighbors=choose(600, 200)).fit(X)
    order = near.kneighbors(X, return_distance=False)
    codes = np.full(len(X), -1)
    for group in np.argsort(-own, kind="stable"):
        free = np.flatnonzero(codes < 0)
        first = rng.choice(free)
        close = order[first][codes[order[first]] < 0]
        if len(close) < own[group]:
            distances = ((X[free] - X[first]) ** 2).sum(1)
            close = free[np.argsort(distances, kind="stable")]
        codes[np.concatenate([[first], close[close != first]])[: own[group]]] = group
    taken = codes >= 0
    return X[taken], y[taken], codes[taken]


def copy_records(
    data: Any, y: NDArray, own: NDArray, rng: np.random.Generator, transform: Callable
) -> Table:
    """Give each group copies of one record, with some values drawn from other records."""
    base = np.repeat(rng.permutation(len(data))[: len(own)], own)
    copies = data.iloc[base].reset_index(drop=True)
    for column in copies.columns:
        other = rng.random(len(copies)) > _KEPT
        drawn = data[column].to_numpy()[rng.integers(len(data), size=int(other.sum()))]
        copies.loc[other, column] = drawn
    return transform(copies), y[base], np.repeat(np.arange(len(own)), own)


def make_tables(kind: str, n_groups: int, seed: int) -> tuple[Table, NDArray, NDArray]:
    train = fetch_adult(as_frame=True)
    test = fetch_adult(subset="test", as_frame=True)
    fitted = SchemaTransformer(train.schema).fit(train.data)

    def rows(frame) -> NDArray:
        return np.asarray(fitted.transform(frame), dtype=np.float32)

    y = train.target.to_numpy()
    rng = np.random.default_rng(seed)
    own = draw_sizes(n_groups, round(N_ROWS * n_groups / N_GROUPS), rng)
    if kind == "copies":
        table = copy_records(train.data, y, own, rng, rows)
    else:
        deal = {"nearest": deal_nearest, "random": deal_at_random}[kind]
        table = deal(rows(train.data), y, own, rng)
    return table, rows(test.data), test.target.to_numpy()


def accuracy(args: argparse.Namespace) -> None:
    for kind in args.table:
        made = [make_tables(kind, args.groups, seed) for seed in range(args.seeds)]
        for epsilon in args.epsilon:
            for how, most in [("mean", 1), *((h, k) for h in args.how for k in args.rows)]:
                start, scores = time.process_time(), []
                for seed, ((X, y, codes), X_test, y_test) in enumerate(made):
                    model = DPSGDClassifier(
                        epsilon=epsilon,
                        classes=np.unique(y_test),
                        max_group_size=most or None,
                        max_grad_norm=Clipping(group_contribution=how),
                        random_state=seed,
                        device="cpu",
                    ).fit(X, y, groups=codes)
                    scores.append(100 * model.score(X_test, y_test))
                seconds = (time.process_time() - start) / len(made)
                print(
                    f"{kind:8} {args.groups} groups, epsilon {epsilon:g}, {how:4} of "
                    f"{most or 'all':>3}: {np.mean(scores):.2f} +- {np.std(scores):.2f}  "
                    f"({seconds:.1f} s a fit; {' '.join(f'{s:.2f}' for s in scores)})",
                    flush=True,
                )


def print_group_privacy(args: argparse.Namespace) -> None:
    """Protect records at an epsilon at which fifty of them are protected together."""
    for kind in args.table:
        for epsilon in args.epsilon:
            own = epsilon / MAX_ROWS
            delta = 1e-5 * math.expm1(own) / math.expm1(epsilon)
            scores = []
            for seed in range(args.seeds):
                (X, y, _), X_test, y_test = make_tables(kind, args.groups, seed)
                model = DPSGDClassifier(
                    epsilon=own,
                    delta=delta,
                    classes=np.unique(y_test),
                    random_state=seed,
                    device="cpu",
                ).fit(X, y)
                scores.append(100 * model.score(X_test, y_test))
            print(
                f"{kind:8} {args.groups} groups, epsilon {epsilon:g} by group privacy of "
                f"{MAX_ROWS} records: {np.mean(scores):.2f} +- {np.std(scores):.2f}",
                flush=True,
            )


def deal_records(
    n_groups: int, n_records: int, rng: np.random.Generator
) -> tuple[NDArray, NDArray]:
    """Return positions of records, some twice if there are too few, and the group of each."""
    sizes = np.arange(1, MAX_ROWS + 1)
    own = rng.choice(sizes, n_groups, p=sizes**-EXPONENT / (sizes**-EXPONENT).sum())
    return np.resize(rng.permutation(n_records), own.sum()), np.repeat(np.arange(n_groups), own)


def linear_accuracy(model: Any, train: Any, test: Any, rows: NDArray, codes: NDArray) -> float:
    """Return the accuracy in per cent."""
    made = make_private_pipeline(ADULT_SCHEMA, model)
    groups = {f"{made.steps[-1][0]}__groups": codes}
    made.fit(train[0].iloc[rows], np.asarray(train[1])[rows], **groups)
    return 100.0 * float(made.score(*test))


def linear(args: argparse.Namespace) -> None:
    """Print the accuracy of linear classifiers, with groups and with the first row of each."""
    train, test = (
        fetch_adult(subset=part, as_frame=True, return_X_y=True) for part in ("train", "test")
    )
    for n_groups in args.groups:
        for name, model in MODELS.items():
            found = []
            for seed in range(args.seeds):
                rows, codes = deal_records(n_groups, len(train[0]), np.random.default_rng(seed))
                first = np.unique(codes, return_index=True)[1]
                found.append(
                    [
                        linear_accuracy(model, train, test, rows[k], codes[k])
                        for k in (slice(None), first)
                    ]
                )
            (groups, one), spread = np.mean(found, 0), np.std(found, 0, ddof=1).max()
            error = spread / args.seeds**0.5
            print(f"{n_groups:6} {name:32} {groups:.2f} one row {one:.2f} (+-{error:.2f})")


def make_step(
    groups: Groups | None, X, y, batch: int, most: int | None = None
) -> Callable[[], None]:
    """Return a step of training on records, or on groups."""
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
        training._group_rows = training._draw_group_rows(groups, Alone())
    sampler, random, alone = PoissonSampler(batch / n), SecureRandom(), Alone()

    def step() -> None:
        training.step(X, y, torch.from_numpy(sampler.draw(n, random)), alone)

    return step


def steps(args: argparse.Namespace) -> None:
    """Time steps in turns, in processor time: a busy machine slows both alike."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    own = draw_sizes(N_GROUPS, N_ROWS, rng)
    codes = np.unique(rng.permutation(np.repeat(np.arange(N_GROUPS), own)), return_inverse=True)[1]
    groups = Groups(codes.astype(np.int64), N_GROUPS, "person")
    X = torch.from_numpy((rng.random((N_ROWS, 105)) < 0.2).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 2, N_ROWS))
    for batch in args.groups:
        for most in (k or None for k in args.rows):
            n_rows = round(batch * float(np.minimum(own, most or MAX_ROWS).mean()))
            both = make_step(None, X, y, n_rows), make_step(groups, X, y, batch, most)
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(args.rounds + 2):
                for step, found in zip(both, times, strict=True):
                    start = time.process_time()
                    for _ in range(5):
                        step()
                    if turn > 1:
                        found.append((time.process_time() - start) / 5)
            records, grouped = map(statistics.median, times)
            print(
                f"{batch} groups with at most {most or 'all':>3} rows, {n_rows} rows a step: "
                f"{1e3 * grouped:.2f} ms, records {1e3 * records:.2f} ms, ratio "
                f"{grouped / records:.2f}",
                flush=True,
            )


def main() -> None:
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(dest="part", metavar="PART")
    for name, run in (("accuracy", accuracy), ("group-privacy", print_group_privacy)):
        learn = commands.add_parser(name)
        learn.set_defaults(run=run)
        learn.add_argument("--table", nargs="+", default=["nearest", "copies", "random"])
        learn.add_argument("--seeds", type=int, default=choose(5, 1))
        learn.add_argument("--groups", type=int, default=N_GROUPS)
        learn.add_argument("--epsilon", nargs="+", type=float, default=choose([1.0, 3.0], [3.0]))
        learn.add_argument(
            "--rows", nargs="+", type=int, default=choose([2, 5, 0], [2]), help="0: all"
        )
        learn.add_argument("--how", nargs="+", default=["mean", "sum"])
    cost = commands.add_parser("steps")
    cost.set_defaults(run=steps)
    cost.add_argument("--groups", nargs="+", type=int, default=choose([1024, 256], [32]))
    cost.add_argument(
        "--rows", nargs="+", type=int, default=choose([1, 2, 5, 0], [2, 0]), help="0: all"
    )
    cost.add_argument("--rounds", type=int, default=choose(40, 1))
    straight = commands.add_parser("linear")
    straight.set_defaults(run=linear)
    straight.add_argument("--seeds", type=int, default=choose(5, 2))
    straight.add_argument("--groups", nargs="+", type=int, default=choose([1000, 8525], [150]))
    args = parser.parse_args()
    for part in [args.part] if args.part else commands.choices:
        parsed = args if args.part else parser.parse_args([part])
        parsed.run(parsed)


if __name__ == "__main__":
    main()
