"""Peak memory of a fit beyond its data, in units of the data.

Fits each estimator in a process of its own to a million rows of 100 numbers of double precision.
Prints the highest resident memory of the process (``VmHWM``, Linux only) above its memory before
the fit, divided by the size of the data. For an attack, the fit is the whole attack: shadow models
trained one after the other, and all records scored.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.naive_bayes import GaussianNB

from benchmarks.shared.quick import ROOT, choose, make_parser

COLUMNS = 100
PUBLIC = {"epsilon": 1.0, "bounds": (-4.0, 4.0)}


def _sgd(name: str, **params: Any) -> Any:
    from skprivacy import neural_network

    few = {
        "hidden_layer_sizes": (),
        "epochs": 1,
        "batch_size": 4096,
        "epsilon": None,
        "noise_multiplier": 1.0,
    }
    return getattr(neural_network, name)(**few, **params)


def _linear(name: str, **params: Any) -> Any:
    from skprivacy import linear_model

    return getattr(linear_model, name)(**PUBLIC, **params)


def _scaler() -> Any:
    from skprivacy.preprocessing import PrivateStandardScaler

    return PrivateStandardScaler(**PUBLIC)


def _of_votes(name: str, *models: Any, **params: Any) -> Any:
    from skprivacy import ensemble

    kind: Any = getattr(ensemble, name)

    class WithPublicRecords(kind):
        def fit(self, X: Any, y: Any) -> Any:
            return super().fit(X, y, X_public=np.asarray(X[:1000]))

    return WithPublicRecords(
        *models, n_queries=100, epsilon=2.0, delta=1e-7, classes=[0, 1], random_state=0, **params
    )


def _fine_tuner() -> Any:
    from skprivacy.fine_tuning import ALMFineTuner

    return ALMFineTuner(epsilon=1.0, delta=0.0, classes=[0, 1])


def _labels(name: str, *models: Any, **params: Any) -> Any:
    from skprivacy import label_privacy

    kind = getattr(label_privacy, name)
    return kind(*models, epsilon=1.0, classes=[0, 1], random_state=0, **params)


def _net() -> Any:
    from torch import nn

    from skprivacy.neural_network import DPNeuralNet

    class OfDoubles(DPNeuralNet):
        def fit(self, X: Any, y: Any) -> Any:  # networks take single precision: half a copy
            return super().fit(X.astype(np.float32), y)

    return OfDoubles(
        nn.Linear(COLUMNS, 2), nn.CrossEntropyLoss, epsilon=None, noise_multiplier=1.0,
        delta=1e-7, batch_size=4096, max_epochs=1,
    )  # fmt: skip


def _federated() -> Any:
    from skprivacy.federated import DPFederatedClassifier

    class InTen(DPFederatedClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            return super().fit(X, y, parties=np.arange(len(X)) % 10)

    return InTen(epsilon=4.0, delta=1e-7, n_rounds=2, classes=[0, 1])


def _synthesizer(name: str, **params: Any) -> Any:
    from skprivacy import synthesis
    from skprivacy.preprocessing import BoundedColumn, Schema

    schema = Schema({f"x{i}": BoundedColumn(-4, 4) for i in range(COLUMNS)}, classes=[0, 1])
    return getattr(synthesis, name)(2.0, 1e-7, schema=schema, **params)


def _lira() -> Any:
    from skprivacy.attacks import LabeledRecords, LiRA

    class Attacked(LiRA):
        """The attack from the training of its shadow models to its result."""

        def fit(self, X: Any, y: Any) -> Any:
            self.target, half = GaussianNB().fit(X[:1000], y[:1000]), len(X) // 2
            records = LabeledRecords(X, y)
            super().fit(records).evaluate(records[:half], records[half:])
            return self

    return Attacked(pool=4, random_state=0)


def _smoothed() -> Any:
    from skprivacy.defenses import SmoothedClassifier

    return SmoothedClassifier(GaussianNB(), random_state=0)


MAKERS: dict[str, Callable[[], Any]] = {
    "DPSGDClassifier": lambda: _sgd("DPSGDClassifier", classes=[0, 1], delta=1e-7),
    "DPSGDRegressor": lambda: _sgd("DPSGDRegressor", target_bounds=(0, 1), delta=1e-7),
    "AdaSSPRegressor": lambda: _linear("AdaSSPRegressor", target_bounds=(0, 1), delta=1e-7),
    "FunctionalMechanismRegressor": lambda: _linear(
        "FunctionalMechanismRegressor", target_bounds=(0, 1)
    ),
    "FunctionalMechanismClassifier": lambda: _linear(
        "FunctionalMechanismClassifier", classes=[0, 1]
    ),
    "ObjectivePerturbationClassifier": lambda: _linear(
        "ObjectivePerturbationClassifier", classes=[0, 1]
    ),
    "OutputPerturbationClassifier": lambda: _linear("OutputPerturbationClassifier", classes=[0, 1]),
    "PrivateStandardScaler": _scaler,
    "SmoothedClassifier": _smoothed,
    "DPNeuralNet": _net,
    "PATEClassifier": lambda: _of_votes(
        "PATEClassifier", GaussianNB(), GaussianNB(), n_teachers=20
    ),
    "PrivateKNNClassifier": lambda: _of_votes("PrivateKNNClassifier", GaussianNB()),
    "ALMFineTuner": _fine_tuner,
    "RandomizedResponseClassifier": lambda: _labels("RandomizedResponseClassifier", GaussianNB()),
    "LP2STClassifier": lambda: _labels("LP2STClassifier", GaussianNB()),
    "ALIBIClassifier": lambda: _labels("ALIBIClassifier", GaussianNB()),
    "LabelPATEClassifier": lambda: _labels(
        "LabelPATEClassifier", GaussianNB(), GaussianNB(), n_teachers=20, delta=1e-7
    ),
    "DPFederatedClassifier": _federated,
    "MarginalSynthesizer": lambda: _synthesizer("MarginalSynthesizer"),
    "DPGANSynthesizer": lambda: _synthesizer(
        "DPGANSynthesizer", batch_size=4096, epochs=1, discriminator_steps=1
    ),
    "LiRA": _lira,
}


def resident(field: str) -> int:
    """Return a figure of this process's memory, in bytes: VmRSS, or VmHWM for the highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def beyond_data(make: Callable[[], Any], rows: int) -> float:
    """Return the peak of a fit beyond what was there before, in units of the data."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=rows)
    make().fit(rng.normal(size=(200, COLUMNS)), y[:200])  # imports
    X = rng.standard_normal((rows, COLUMNS))
    Path("/proc/self/clear_refs").write_text("5")  # the highest begins anew
    before = resident("VmRSS")
    make().fit(X, y)
    return (resident("VmHWM") - before) / X.nbytes


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="ESTIMATOR", help=", ".join(MAKERS))
    parser.add_argument("--rows", type=int, default=choose(1_000_000, 2_000))
    parser.add_argument("--in-process", action="store_true", help="measure in this process")
    options = parser.parse_args()
    if unknown := set(options.names) - set(MAKERS):
        parser.error(f"unknown estimators {sorted(unknown)}; choose from {list(MAKERS)}")
    if options.in_process:
        warnings.simplefilter("ignore")
        for name in options.names:
            print(f"{beyond_data(MAKERS[name], options.rows):.2f} of the data")
        return
    for name in options.names or choose(list(MAKERS), ["AdaSSPRegressor", "LiRA"]):
        command = [sys.executable, "benchmarks/run.py", "speed/memory", name, "--in-process"]
        command += ["--rows", str(options.rows)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        print(f"{name:34s}{done.stdout.strip() or done.stderr.strip()[-300:]}", flush=True)
        if done.returncode:
            sys.exit(f"{name} could not be measured")


if __name__ == "__main__":
    main()
