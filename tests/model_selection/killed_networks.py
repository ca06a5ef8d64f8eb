"""A sweep of networks that is killed in training: ``python -m ... FOLDER STEP``."""

import os
import signal
import sys
from pathlib import Path

from sklearn.datasets import make_classification

from skprivacy import DPSGDClassifier, PrivacyBudget
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.neural_network._training.engine import Training

X, y = make_classification(200, n_features=4, random_state=0)


def sweep(folder):
    budget = PrivacyBudget(100.0, 1e-2, path=folder / "ledger")
    model = DPSGDClassifier(
        delta=1e-3, classes=[0, 1], hidden_layer_sizes=(3,), epochs=2, random_state=0, budget=budget
    )
    return PrivacySweepCV(
        model, epsilons=[1.0, 2.0, 4.0, 8.0], cv=3, baseline=None, path=folder / "results"
    )


if __name__ == "__main__":
    released, kill_at = Training.release_and_update, int(sys.argv[2])
    count = 0

    def killing(self, *args):
        """Kill this process at the first release, or at a later one."""
        global count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        released(self, *args)

    Training.release_and_update = killing
    sweep(Path(sys.argv[1])).fit(X, y)
