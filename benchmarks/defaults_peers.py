"""Private models of others on the tables that ``defaults.py`` holds back, and boosted trees.

``python benchmarks/defaults_peers.py [ebm | diffprivlib | trees ...] [--seeds N]``: mean test
accuracy in per cent and its standard deviation over splits, at delta 1e-5 where there is one. Needs
interpret-core and diffprivlib, not this library: an environment of their own will do.

ebm          DP-EBM as it comes, on the raw columns within their bounds; two classes only
diffprivlib  its logistic regression, on the columns that our models get, with the root of the
             number of source columns for the norm of a row
trees        histogram gradient boosting without privacy, on tables of 30,000 rows and more
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from defaults_tables import CATEGORIES, HELD_BACK, raw, split, table
from pandas.api.types import is_numeric_dtype
from sklearn.ensemble import HistGradientBoostingClassifier

DELTA = 1e-5
EPSILONS = (1.0, 3.0)


def boosted(name: str, epsilon: float, seed: int) -> float | None:
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


def logistic(name: str, epsilon: float, seed: int) -> float:
    from diffprivlib.models import LogisticRegression

    at = split(name, seed, 10**6)
    norm = float(np.sqrt(raw(name)[0].shape[1]))
    model = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1000, random_state=seed)
    return float(model.fit(at.X, at.y).score(at.X_test, at.y_test))


def trees(name: str, epsilon: float, seed: int) -> float | None:
    if len(table(name)[0]) < 30_000 or epsilon != EPSILONS[0]:
        return None
    at = split(name, seed, 10**6)
    model = HistGradientBoostingClassifier(random_state=seed).fit(at.X, at.y)
    return float(model.score(at.X_test, at.y_test))


def main() -> None:
    kinds: dict[str, Any] = {"ebm": boosted, "diffprivlib": logistic, "trees": trees}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--tables", nargs="*", default=HELD_BACK)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for kind in options.kinds or kinds:
        for name in options.tables:
            for epsilon in EPSILONS:
                scores = [kinds[kind](name, epsilon, seed) for seed in range(options.seeds)]
                if None not in scores:
                    print(f"{kind:12s} {name:14s} {epsilon:4g} {100 * np.mean(scores):6.1f} "
                          f"+- {100 * np.std(scores):.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
