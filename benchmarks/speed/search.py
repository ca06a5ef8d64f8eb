"""Accuracy and time of a private search on Adult, beside one fit with defaults.

Both have the same total epsilon.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from benchmarks.shared.data import fetch_adult
from benchmarks.shared.quick import choose, make_parser
from skprivacy import DPSGDClassifier, PrivateSearchCV, SchemaTransformer

GRID = {
    "dpsgdclassifier__hidden_layer_sizes": [(), (64,)],
    "dpsgdclassifier__epochs": choose([10, 30, 60], [1, 2]),
    "dpsgdclassifier__learning_rate": ["auto", 0.1],
}


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--trials", type=float, nargs="+", default=choose([3, 10], [3]))
    parser.add_argument("--repeats", type=int, default=choose(3, 1))
    args = parser.parse_args()
    train, test = (fetch_adult(subset=s, as_frame=True) for s in ("train", "test"))
    model = make_pipeline(
        SchemaTransformer(train.schema),
        DPSGDClassifier(epsilon=args.epsilon, delta=args.delta, classes=train.classes),
    )
    ways = {"defaults, one fit": model}
    for n in args.trials:
        ways[f"search, {n:g} trials"] = PrivateSearchCV(
            model, GRID, epsilon=args.epsilon, delta=args.delta, n_trials=n
        )
    for name, way in ways.items():
        scores, seconds = [], time.perf_counter()
        for _ in range(args.repeats):
            fitted = clone(way).fit(train.data, train.target)
            scores.append(fitted.score(test.data, test.target))
        seconds = (time.perf_counter() - seconds) / args.repeats
        each = getattr(fitted, "plan_", None)
        of_trial = f", trials at {each.trial_epsilon:.2f}" if each else ""
        print(
            f"{name:22} {np.mean(scores):.4f} (from {min(scores):.4f} to {max(scores):.4f}), "
            f"{seconds:.0f} s{of_trial}",
            flush=True,
        )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
