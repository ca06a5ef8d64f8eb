"""Power of Nasr et al.'s white-box attack, beside a linear model on norms and beside the loss.

Networks of 128 units; half of the records are members. Attacks that learn know the membership of
1,600 records. All are judged on the others, 1,600 of Location-30 and 2,000 Purchase-like ones.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier

from benchmarks.attacks.peers import location
from benchmarks.shared.quick import choose, make_parser
from skprivacy import attacks
from skprivacy.attacks import LabeledRecords
from skprivacy.datasets import make_membership_benchmark

N_KNOWN = choose(1600, 150)


def purchase(seed: int) -> tuple[Any, Any, Any]:
    """Return 3,600 records of 20 classes, and a network that overfits them."""
    X, y = make_membership_benchmark(
        "purchase100", choose(3600, 300), n_classes=20, random_state=seed, return_X_y=True
    )
    return X.astype(np.float32), y, MLPClassifier((128,), max_iter=30)


def evaluate_attacks(X: Any, y: Any, net: Any, seed: int) -> dict[str, float]:
    """Return the AUC of each attack on records of unknown membership."""
    random = np.random.default_rng(seed)
    member = random.permutation(len(y)) < len(y) // 2
    known = random.permutation(len(y)) < N_KNOWN
    target = clone(net).set_params(random_state=seed).fit(X[member], y[member])
    records = LabeledRecords(X, y)
    known_records = records[known], member[known]
    inside, outside = member & ~known, ~member & ~known
    tried = {
        "loss": attacks.LossThreshold(target).fit(*known_records),
        "gradient norms": attacks.WhiteBoxAttack(target, attack_model="linear").fit(*known_records),
        "white box": attacks.WhiteBoxAttack(target, random_state=seed).fit(*known_records),
        "white box, no record known": attacks.WhiteBoxAttack(target, random_state=seed).fit(
            records
        ),
    }
    return {
        name: float(attack.evaluate(records[inside], records[outside]).auc)
        for name, attack in tried.items()
    }


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=choose([0, 1, 2], [0]))
    seeds = parser.parse_args().seeds
    warnings.simplefilter("ignore")
    rows = []
    for make in (location, purchase):
        for seed in seeds:
            rows.append(
                {"data": make.__name__, "seed": seed, **evaluate_attacks(*make(seed), seed)}
            )
            print(pd.DataFrame(rows[-1:]).round(4).to_string(header=seed == seeds[0]), flush=True)
    print(pd.DataFrame(rows).groupby("data").mean().drop(columns="seed").round(3).to_string())


if __name__ == "__main__":
    main()
