"""Files of the library that a call enters, which a reader must open to follow it.

``python -m tests.tools.files_entered`` lists the files that five typical calls enter. A file counts
if a function of it runs; code executed when a module is imported does not count.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import skprivacy

ROOT = Path(skprivacy.__file__).parent


def files_entered(call: Callable[[], Any]) -> list[str]:
    """Return the files of the package, relative to it, of which ``call`` runs a function."""
    entered: set[str] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return sorted(
        str(Path(name).relative_to(ROOT)) for name in entered if Path(name).is_relative_to(ROOT)
    )


def fit_dpsgd() -> None:
    from skprivacy.neural_network import DPSGDClassifier

    DPSGDClassifier(classes=[0, 1], delta=1e-3, epochs=2).fit(X, y)


def fit_pate() -> None:
    from skprivacy.ensemble import PATEClassifier

    # with little noise: a student of one class, which noise may cause, enters files that warn
    model = PATEClassifier(n_teachers=20, n_queries=20, classes=[0, 1], epsilon=100.0)
    model.fit(X, y, X_public=X_PUBLIC)


def fit_functional_mechanism() -> None:
    from skprivacy.linear_model import FunctionalMechanismRegressor

    FunctionalMechanismRegressor(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])


def audit_forest() -> None:
    from skprivacy.audit import audit

    forest = RandomForestClassifier(10, random_state=0).fit(X[:100], y[:100])
    audit(forest, X[:100], y[:100], X[100:], y[100:], n_shadows=4)


def sweep_linear_model() -> None:
    from skprivacy import ObjectivePerturbationClassifier, PrivacySweepCV

    model = ObjectivePerturbationClassifier(bounds=(-1, 1), classes=[0, 1])
    PrivacySweepCV(model, epsilons=[1.0, 3.0]).fit(X, y)


def entered_when_warm(call: Callable[[], Any]) -> list[str]:
    """Return the files that a call enters the second time, when accountants have cached answers."""
    call()
    return files_entered(call)


X = np.random.RandomState(0).uniform(-1, 1, size=(200, 3))
X_PUBLIC = np.random.RandomState(1).uniform(-1, 1, size=(60, 3))
y = (X[:, 0] > 0).astype(int)
CALLS = {
    "DPSGDClassifier.fit": fit_dpsgd,
    "PATEClassifier.fit": fit_pate,
    "FunctionalMechanismRegressor.fit": fit_functional_mechanism,
    "audit of a forest": audit_forest,
    "PrivacySweepCV.fit of a linear model": sweep_linear_model,
}

if __name__ == "__main__":
    for name, call in CALLS.items():
        found = entered_when_warm(call)
        print(f"{name}: {len(found)} files", *found, sep="\n  ")
