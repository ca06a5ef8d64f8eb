"""Run a sweep and a pool on a local cluster of two workers; print what came of it as JSON.

``python -m tests.nightly.on_cluster dask FOLDER`` (or ``ray``). A worker process is killed
in the middle of the second sweep. Every fit notes what it was charged for in a file of its own, so
that the ledger can be held against what happened.
"""

import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from joblib import parallel_config
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skprivacy import config_context, get_config
from skprivacy.accounting import PrivacyBudget
from skprivacy.attacks import ShadowPool
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV

X = np.random.RandomState(0).uniform(-1, 1, size=(300, 3))
Y = (X[:, 0] > 0).astype(int)


class Noted(ObjectivePerturbationClassifier):
    """Notes each fit once it was charged; the first one in a folder with a fuse is killed."""

    def __init__(self, folder=None, epsilon=1.0, budget=None, noise_seed=None):
        super().__init__(
            epsilon=epsilon, delta=1e-6, classes=[0, 1], bounds=(-1, 1), budget=budget,
            noise_seed=noise_seed,
        )  # fmt: skip
        self.folder = folder

    def fit(self, X, y):
        """Fit, note, and perhaps be killed before anybody hears of the result."""
        super().fit(X, y)
        if self.folder is not None:
            with (Path(self.folder) / "fits").open("a") as notes:
                notes.write(f"{os.getpid()} {get_config()['strict']}\n")
            fuse = Path(self.folder) / "fuse"
            try:
                if fuse.read_text() == str(os.getpid()):  # joblib does without a single worker
                    return self
                fuse.unlink()
            except FileNotFoundError:
                return self
            os.kill(os.getpid(), signal.SIGKILL)
        return self


@contextmanager
def dask():
    """Start two worker processes of Dask's, which begins killed tasks anew."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        parallel_config(backend="dask"),
    ):
        # joblib does without a single worker: what was killed must be back before the next sweep.
        yield lambda: client.wait_for_workers(2)


@contextmanager
def ray():
    """Start two worker processes of Ray's, and have killed tasks begun anew."""
    import ray
    from ray.util.joblib import register_ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    again = {"max_restarts": 3, "max_task_retries": 3}
    with parallel_config(backend="ray", ray_remote_args=again):
        yield lambda: None
    ray.shutdown()


def sweep(model):
    """Return a sweep of four fits."""
    return PrivacySweepCV(model, epsilons=[1, 2], cv=2, baseline=None, n_jobs=2).fit(X, Y)


def results(model):
    """Return what does not depend on the speed of the machine."""
    found = sweep(model).cv_results_
    names = ("mean_test_score", "mean_attack_auc", "mean_attack_tpr_at_0.01")
    return {name: found[name].tolist() for name in names}


def lost():
    """Return the errors by which Dask says that a task cannot be begun anew, if it runs here."""
    client = sys.modules.get("distributed.client")
    return [client.FutureCancelledError] if client else []


def charges(folder):
    """Return what a new ledger was charged for in a sweep, and what was noted meanwhile."""
    folder.mkdir()
    budget = PrivacyBudget(100, 1e-3, path=folder / "ledger")
    return budget, Noted(folder, budget=budget)


def what_came_of_it(folder, wait=None):
    """Yield names and values; on a cluster, ``wait`` waits for its workers."""
    yield "results", results(Noted(noise_seed=1))
    if wait:
        (folder / "fuse").write_text(str(os.getpid()))
    with suppress(*lost()):  # what Dask had sent to the killed worker alone is gone
        yield "results, killed", results(Noted(folder, noise_seed=1))
    for kind in (LogisticRegression(), MLPClassifier(hidden_layer_sizes=(4,), max_iter=3)):
        pool = ShadowPool(kind, n_shadows=4, n_jobs=2, random_state=0).fit(X, Y)
        found = [model.predict_proba(X[:5]).round(6).tolist() for model in pool.estimators_]
        yield type(kind).__name__, found
    for name in ("whole", "killed"):
        budget, model = charges(folder / name)
        if wait:
            wait()
        if name == "killed" and wait:
            (folder / name / "fuse").write_text(str(os.getpid()))
        with suppress(*(lost() if name == "killed" else [])):
            sweep(model)
        budget.verify(budget.digest)
        notes = (folder / name / "fits").read_text().splitlines()
        yield name, {"fits": len(notes), "charges": len(budget.entries())}
        yield f"{name}, workers", len({note.split()[0] for note in notes} - {str(os.getpid())})
        yield f"{name}, strict", sorted({note.split()[1] for note in notes})


def main(engine, folder):
    """Print what came of it."""
    if engine == "here":
        print(json.dumps(dict(what_came_of_it(folder))))
        return
    with config_context(strict=True), {"dask": dask, "ray": ray}[engine]() as wait:
        print(json.dumps(dict(what_came_of_it(folder, wait))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
