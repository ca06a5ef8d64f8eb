"""A sweep that is killed: ``python -m tests.model_selection.killed_sweep FOLDER SIGNAL N_JOBS``."""

import os
import signal
import sys
from pathlib import Path

from sklearn.datasets import make_classification

from skprivacy import PrivacyBudget
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV

X, y = make_classification(200, n_features=4, random_state=0)
EPSILONS, N_SPLITS = [1.0, 2.0], 3
LAST = 4  # the fit at the end of which the signal comes


class Logged(OutputPerturbationClassifier):
    """It writes a line for each fit, and may be killed once that is charged."""

    def fit(self, X, y):
        super().fit(X, y)
        folder = Path(os.environ["SWEEP_FOLDER"])
        with (folder / "fits").open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        number = len((folder / "fits").read_text().splitlines())
        if number == LAST and "SWEEP_SIGNAL" in os.environ:
            os.kill(os.getpid(), getattr(signal, os.environ["SWEEP_SIGNAL"]))
        return self


def sweep(folder, n_jobs=None, **changes):
    os.environ["SWEEP_FOLDER"] = str(folder)
    budget = PrivacyBudget(100.0, path=folder / "ledger")
    model = Logged(bounds=(-6, 6), classes=[0, 1], relation="zero_out", budget=budget)
    arguments = {"epsilons": EPSILONS, "cv": N_SPLITS, "baseline": None} | changes
    return PrivacySweepCV(model, path=folder / "results", n_jobs=n_jobs, **arguments)


if __name__ == "__main__":
    os.environ["SWEEP_SIGNAL"] = sys.argv[2]
    # A shell that runs the tests in the background lets every child ignore the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.model_selection import killed_sweep  # classes known by this name

    killed_sweep.sweep(Path(sys.argv[1]), int(sys.argv[3]) or None).fit(X, y)
