"""Time of a sampled sensitivity beside full retraining, and the difference of their results.

Trains ``2 * pairs`` heads without one record each, by one factorised Hessian and a few Newton
steps, and a few of them from zero. The time of ``2 * pairs`` full trainings is the time of the few,
scaled. Both are timed in turns, five rounds. Prints the ratio of the times, the largest difference
in L2 of a head from its full retraining to a gradient of 1e-9, and the sampled sensitivity in L2
and L1 beside the proved one.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.quick import choose, make_parser
from skprivacy.fine_tuning import SoftmaxHead
from skprivacy.fine_tuning.features import with_constant
from skprivacy.fine_tuning.head import HeadInput, Task
from skprivacy.fine_tuning.leave_one_out import leave_one_out
from skprivacy.linear_model.logistic_regression import minimize

ROUNDS = choose(5, 1)


def clusters(n: int, size: int, n_classes: int) -> HeadInput:
    """Return records of random clusters, as in the tests."""
    random = np.random.default_rng(0)
    labels = random.integers(n_classes, size=n)
    centres = random.normal(size=(n_classes, size))
    rows, counts = with_constant(centres[labels] + random.normal(size=(n, size)))
    return HeadInput(rows, counts.astype(float), labels, n_classes)


def retrained(
    head: SoftmaxHead, task: Task, records: HeadInput, i: int, gradient: float
) -> NDArray:
    """Train from zero on a data set that does not have record i at all."""
    kept = np.delete(np.arange(len(records.rows)), i)
    less = HeadInput(
        records.rows[kept], records.counts[kept], records.labels[kept], records.n_classes
    )
    return head.flatten_minimizer(task, minimize(head.loss(task, less), gradient))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--records", type=int, default=choose(10_000, 300))
    parser.add_argument("--features", type=int, default=choose(64, 8))
    parser.add_argument("--classes", type=int, default=choose(10, 3))
    parser.add_argument("--ridge", type=float, default=6.0)
    parser.add_argument("--pairs", type=int, default=choose(500, 20))
    parser.add_argument("--retrained", type=int, default=choose(8, 2))
    args = parser.parse_args()
    records = clusters(args.records, args.features, args.classes)
    task = Task(args.features + 1, args.classes, 1.0, 1e-5, "replace_one", args.records)
    head = SoftmaxHead(args.ridge)
    which = np.random.default_rng(1).integers(args.records, size=2 * args.pairs)
    few = which[: args.retrained]
    ratios = []
    for _ in range(ROUNDS):
        started = time.process_time()
        fast = leave_one_out(head, task, records, which)
        between = time.process_time()
        for i in few:
            retrained(head, task, records, i, 1e-6)
        whole = (time.process_time() - between) / len(few) * len(which)
        ratios.append((between - started) / whole)
        print(f"{args.pairs} pairs {between - started:.2f} s, {len(which)} trainings {whole:.0f} s:"
              f" one in {1 / ratios[-1]:.1f}", flush=True)  # fmt: skip
    exact = np.array([retrained(head, task, records, i, 1e-9) for i in few])
    off = np.linalg.norm(fast[: len(few)] - exact, axis=1).max()
    print(f"median one in {1 / np.median(ratios):.1f}; heads differ by at most {off:.1e}")
    moved = fast[: args.pairs] - fast[args.pairs :]
    l2, l1 = np.linalg.norm(moved, axis=1).max(), np.abs(moved).sum(axis=1).max()
    print(f"sampled L2 {l2:.4g}, proved {head.sensitivity(task).l2:.4g}; sampled L1 {l1:.4g}")


if __name__ == "__main__":
    main()
