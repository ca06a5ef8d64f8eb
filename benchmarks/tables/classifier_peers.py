"""Accuracy of other libraries' private classifiers on the tables of ``automatic_settings``.

Prints the mean test accuracy in per cent and its standard deviation over splits, at delta 1e-5
where there is one. A missing peer is left out.

ebm          DP-EBM as it comes, on the raw columns within their bounds; two classes only
diffprivlib  its logistic regression, on the columns that our models get, with the root of the
             number of source columns for the norm of a row
trees        histogram gradient boosting without privacy, on tables of 30,000 rows and more
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from pandas.api.types import is_numeric_dtype
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.shared.keel_tables import CATEGORIES, HELD_BACK, raw, split, table
from benchmarks.shared.quick import choose, has_peer, make_parser

DELTA = 1e-5
EPSILONS = (1.0, 3.0)
LARGE = choose(30_000, 100)  # rows of a table for boosted trees
PEERS = {
    "ebm": ("interpret.privacy", "pip install interpret-core"),
    "diffprivlib": ("diffprivlib", "pip install diffprivlib"),
}


def score_ebm(name: str, epsilon: float, seed: int) -> float | None:
    """Return the test accuracy of DP-EBM on the split ``seed``; None for more than two classes."""
    from interpret.privacy import DPExplainableBoostingClassifier

    frame, labels = raw(name)
    if labels.nunique() > 2:
        return None
    frame.columns = [f"c{i}" for i in range(frame.shape[1])]
    categories = CATEGORIES.get(name, ())
    named = [i in categories or not is_numeric_dtype(frame[c]) for i, c in enumerate(frame.columns)]
    frame = frame.astype({c: object for c, is_name in zip(frame, named, strict=True) if is_name})
    order = np.random.default_rng(seed).permutation(len(frame))  # that of split
    n = len(frame) * 7 // 10
    train, test = order[:n], order[n : n + 4000]
    model = DPExplainableBoostingClassifier(
        feature_types=["nominal" if is_name else "continuous" for is_name in named],
        privacy_bounds={
            c: (float(frame[c].min()), float(frame[c].max()))
            for c, is_name in zip(frame, named, strict=True)
            if not is_name
        },
        epsilon=epsilon, delta=DELTA, n_jobs=1, random_state=seed,
    )  # fmt: skip
    y = labels.astype(str).to_numpy()
    model.fit(frame.iloc[train], y[train])
    return float(np.mean(model.predict(frame.iloc[test]) == y[test]))


def score_diffprivlib(name: str, epsilon: float, seed: int) -> float:
    from diffprivlib.models import LogisticRegression

    at = split(name, seed, 10**6)
    norm = float(np.sqrt(raw(name)[0].shape[1]))
    model = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1000, random_state=seed)
    return float(model.fit(at.X, at.y).score(at.X_test, at.y_test))


def score_trees(name: str, epsilon: float, seed: int) -> float | None:
    if len(table(name)[0]) < LARGE or epsilon != EPSILONS[0]:
        return None
    at = split(name, seed, 10**6)
    model = HistGradientBoostingClassifier(random_state=seed).fit(at.X, at.y)
    return float(model.score(at.X_test, at.y_test))


def main() -> None:
    kinds: dict[str, Any] = {
        "ebm": score_ebm,
        "diffprivlib": score_diffprivlib,
        "trees": score_trees,
    }
    parser = make_parser(__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--tables", nargs="*", default=choose(HELD_BACK, ("breast_cancer",)))
    parser.add_argument("--seeds", type=int, default=choose(5, 1))
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(kinds):
        parser.error(f"unknown kinds {sorted(unknown)}; there are {list(kinds)}")
    for kind in options.kinds or kinds:
        if kind in PEERS and not has_peer(*PEERS[kind]):
            continue
        for name in options.tables:
            for epsilon in EPSILONS:
                scores = [kinds[kind](name, epsilon, seed) for seed in range(options.seeds)]
                if None not in scores:
                    print(f"{kind:12s} {name:14s} {epsilon:4g} {100 * np.mean(scores):6.1f} "
                          f"+- {100 * np.std(scores):.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
