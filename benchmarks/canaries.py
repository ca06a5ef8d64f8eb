"""How much of the claimed epsilon gradient canaries show, in one run of private gradient descent.

python benchmarks/canaries.py sum        # one noisy sum of all records
python benchmarks/canaries.py training   # as the network comes: 120 steps on a quarter of them
python benchmarks/canaries.py many       # 80,000 canaries, minutes each
"""

from __future__ import annotations

import sys
import time

import numpy as np
from sklearn.datasets import make_classification

from skprivacy.audit import audit_one_run
from skprivacy.neural_network import DPSGDClassifier

ONE_SUM = {"epochs": 1, "batch_size": 10**6, "epsilon": None}
QUESTIONS = {
    "sum": [({**ONE_SUM, "noise_multiplier": noise}, 5000, 10) for noise in (1.0, 0.5)],
    "training": [({"epsilon": epsilon}, 5000, 10) for epsilon in (1.0, 2.0, 4.0)],
    "many": [
        ({"epsilon": epsilon, "hidden_layer_sizes": (512, 128)}, 80_000, 1)
        for epsilon in (1.0, 2.0, 4.0)
    ],
}


def main(question: str) -> None:
    X, y = make_classification(4000, n_features=100, n_informative=10, random_state=0)
    for params, n_canaries, runs in QUESTIONS[question]:
        network = DPSGDClassifier(classes=[0, 1], device="cpu", **params)
        start = time.process_time()
        reports = [
            audit_one_run(
                network, X, y, canaries="gradient", n_canaries=n_canaries, random_state=seed,
                n_guesses=1414 if question == "many" else None,  # for the bound without assumptions
            )
            for seed in range(runs)
        ]  # fmt: skip
        claim = reports[0].claim.guarantee
        print(f"\n{params}: {claim}, {n_canaries:,} canaries, {runs} runs, "
              f"{(time.process_time() - start) / runs:.1f} s of processor time each, "
              f"{sum(r.refuted for r in reports)} refuted")  # fmt: skip
        for bounds in zip(*(report.bounds for report in reports), strict=True):
            found = [bound.epsilon for bound in bounds]
            print(
                f"  {np.median(found):6.2f} ({min(found):.2f} to {max(found):.2f})"
                f"  {np.median(found) / claim.epsilon():5.0%}  {bounds[0].bound}"
            )


if __name__ == "__main__":
    main(sys.argv[1])
