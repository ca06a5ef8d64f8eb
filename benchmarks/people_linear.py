"""Linear classifiers that protect people, beside ones that know one row of each.

``python benchmarks/people_linear.py [--seeds N] [--people N ...]`` deals Adult's records out to
people with 1 to 50 rows (Zipf, exponent 1.75), any records to anybody, and prints the accuracy on
adult.test at epsilon 1 and delta 1e-5: fitted with groups, and to the first row of each. It needs
SKPRIVACY_DATA.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skprivacy.datasets import fetch_adult
from skprivacy.datasets.adult import ADULT_SCHEMA
from skprivacy.linear_model import (
    FunctionalMechanismClassifier,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.preprocessing import make_private_pipeline

MOST, EXPONENT = 50, 1.75
MODELS = {
    kind.__name__: kind(epsilon=1.0, delta=1e-5)
    for kind in (
        FunctionalMechanismClassifier, ObjectivePerturbationClassifier,
        OutputPerturbationClassifier,
    )
}  # fmt: skip


def dealt(n_people: int, n_records: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Return positions of records, some twice if there are too few, and whose they are."""
    sizes = np.arange(1, MOST + 1)
    own = rng.choice(sizes, n_people, p=sizes**-EXPONENT / (sizes**-EXPONENT).sum())
    return np.resize(rng.permutation(n_records), own.sum()), np.repeat(np.arange(n_people), own)


def accuracy(model: Any, train: Any, test: Any, rows: NDArray, whose: NDArray) -> float:
    """Return the accuracy in per cent."""
    made = make_private_pipeline(ADULT_SCHEMA, model)
    groups = {f"{made.steps[-1][0]}__groups": whose}
    made.fit(train[0].iloc[rows], np.asarray(train[1])[rows], **groups)
    return 100.0 * float(made.score(*test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--people", type=int, nargs="+", default=[1000, 8525])
    given = parser.parse_args()
    train, test = (
        fetch_adult(subset=part, as_frame=True, return_X_y=True) for part in ("train", "test")
    )
    for n_people in given.people:
        for name, model in MODELS.items():
            found = []
            for seed in range(given.seeds):
                rows, whose = dealt(n_people, len(train[0]), np.random.default_rng(seed))
                first = np.unique(whose, return_index=True)[1]
                found.append(
                    [accuracy(model, train, test, rows[k], whose[k]) for k in (slice(None), first)]
                )
            (groups, one), error = (
                np.mean(found, 0),
                np.std(found, 0, ddof=1).max() / given.seeds**0.5,
            )
            print(f"{n_people:6} {name:32} {groups:.2f} one row {one:.2f} (+-{error:.2f})")


if __name__ == "__main__":
    main()
