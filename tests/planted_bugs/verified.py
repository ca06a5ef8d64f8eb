"""Private estimators in which one record can show all that a claim allows, and bugs in them.

With one feature, no intercept and a radius of 1, records reach the sensitivity, which is a bound
elsewhere. Networks are linear and take few steps. Teachers and students learn the larger class, for
what is released are labels.

``planted`` puts into one of them a bug that ``verify_privacy`` shows; ``why_not`` says
why an estimator cannot have a bug.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier

from skprivacy.ensemble import ConfidentGNMax, PATEClassifier, PrivateKNNClassifier
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.fine_tuning.heads import GradientHead
from skprivacy.label_privacy import ALIBIClassifier, LP2STClassifier, RandomizedResponseClassifier
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.mechanisms import (
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    Mechanism,
    RandomizedResponse,
)
from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor
from skprivacy.preprocessing import PrivateStandardScaler

from . import mechanism_bugs, single_release_bugs, training_bugs
from .bug import Bug

BOUNDS = ([-1.0], [1.0])
TWO = [0, 1]
PUBLIC = np.linspace(-1, 1, 3)[:, None]


LINEAR = {"bounds": BOUNDS, "fit_intercept": False, "radius": 1.0}
NETWORK = {
    "hidden_layer_sizes": (), "batch_size": 24, "epochs": 2, "delta": 1e-4, "learning_rate": 0.1,
}  # fmt: skip
VOTES = {
    "teacher": DummyClassifier(), "student": DummyClassifier(), "n_teachers": 3, "n_queries": 1,
    "classes": TWO, "delta": 1e-4, "store_labels": True,
}  # fmt: skip
TUNER = partial(ALMFineTuner, PCA(1), classes=TWO, delta=1e-4)
LABELS = {
    "estimator": DummyClassifier(), "n_rounds": 1, "n_folds": 2, "classes": TWO,
    "store_labels": True,
}  # fmt: skip


def with_delta(kind: type, **params: Any) -> dict[str, Callable[[], Any]]:
    """Return an estimator with a pure guarantee, and one with a delta."""
    pure = partial(kind, **params)
    return {kind.__name__: pure, f"{kind.__name__}-delta": partial(pure, delta=1e-4)}


VERIFIED: dict[str, Callable[[], Any]] = {
    **with_delta(PrivateStandardScaler, bounds=BOUNDS),
    **with_delta(FunctionalMechanismRegressor, **LINEAR, target_bounds=(-1, 1)),
    **with_delta(FunctionalMechanismClassifier, **LINEAR, classes=TWO),
    "AdaSSPRegressor": partial(AdaSSPRegressor, **LINEAR, target_bounds=(-1, 1), delta=1e-4),
    **with_delta(OutputPerturbationClassifier, **LINEAR, classes=TWO),
    "ObjectivePerturbationClassifier": partial(
        ObjectivePerturbationClassifier, **LINEAR, classes=TWO, alpha=0.0
    ),
    # What claims one point of the curve of Gaussian noise is exceeded in few runs where delta is
    # large: by theory two releases for the price of one take 1,700, and 220,000 at 1e-4.
    "ObjectivePerturbationClassifier-delta": partial(
        ObjectivePerturbationClassifier, **LINEAR, classes=TWO, alpha=0.0, delta=0.05
    ),
    "DPSGDClassifier": partial(DPSGDClassifier, **NETWORK, classes=TWO),
    "DPSGDClassifier-sampled": partial(DPSGDClassifier, **NETWORK | {"batch_size": 8}, classes=TWO),
    "DPSGDRegressor": partial(DPSGDRegressor, **NETWORK, target_bounds=(-1.0, 1.0)),
    "ALMFineTuner-gradient": partial(TUNER, head=GradientHead(n_steps=2)),
    "ALMFineTuner-prototypes": partial(TUNER, head="prototypes", mechanism="gaussian"),
    "ALMFineTuner-least-squares": partial(TUNER, head="least_squares", mechanism="gaussian"),
    # With so few numbers "auto" takes this noise, which is smaller.
    "ALMFineTuner-least-squares-k-norm": partial(TUNER, head="least_squares", mechanism="k_norm"),
    # One winner tells all that it is charged for, if two votes of three become one; several do not.
    "PATEClassifier": partial(PATEClassifier, **VOTES),
    # With a threshold below any count it answers all; fewer answers leak less than claimed.
    "PATEClassifier-confident": partial(
        PATEClassifier, **VOTES, aggregator=ConfidentGNMax(threshold=-20.0, max_answers=1)
    ),
    "PrivateKNNClassifier": partial(
        PrivateKNNClassifier, DummyClassifier(), n_neighbors=3, sampling_rate=1.0, n_queries=3,
        classes=TWO, delta=1e-4,
    ),
    **{kind.__name__: partial(kind, **LABELS)
       for kind in (RandomizedResponseClassifier, LP2STClassifier, ALIBIClassifier)},
}  # fmt: skip

# They learn from public records beside the private ones.
FIT_PARAMS: dict[str, dict[str, Any]] = {
    name: {"X_public": PUBLIC}
    for name in VERIFIED
    if name.startswith(("ALM", "PATE", "PrivateKNN"))
}

# Epsilons at which mistakes show: of pure noise on one number and on several, of Gaussian noise,
# and where batches are drawn.
PURE, VECTOR, GAUSSIAN, DRAWN = 2.0, 3.0, 12.0, 24.0

# Laplace noise on two or three numbers: it reaches a claim in a corner alone.
SEVERAL = {
    "PrivateStandardScaler", "FunctionalMechanismRegressor", "FunctionalMechanismClassifier",
}  # fmt: skip

# Bugs that leave noise, only too little of it, take more runs than what is plain.
FAINT = {
    "half the noise", "two releases for the price of one", "half the sensitivity",
    "shuffled batches", "steps that are not accounted for",
}  # fmt: skip

ROWS = [
    bug
    for table in (mechanism_bugs, single_release_bugs, training_bugs)
    for bug in table.BUGS
    if bug.visible_outside
]
# Twenty bugs of the kind that made other software leak.
BUGS = sorted({bug.name for bug in ROWS})

INSIDE = "the noise is inside the objective, it is not added to numbers"
VOTE = "a vote moves from class to class, along which there is more noise"
NO_VOTE = "features reach no more than a vote"
PUBLIC_SIZE = "the number of records is public under its relation"
NO_CLIPPING = "it clips no gradients"
# Why an estimator, by the beginning of its name, cannot have a bug; "" stands for all others.
REASONS: dict[str, dict[str, str]] = {
    "mirrored noise": {
        "ObjectivePerturbation": INSIDE, "PrivateKNN": VOTE, "PATE": VOTE,
        "OutputPerturbation": "what it releases here is one number",
        "": "a report is one category, not a vector of numbers",
    },
    "one number bare": {"": INSIDE},
    "half the sensitivity": {"": "randomised response has no sensitivity"},
    "features that are not clipped": {
        "DPSGD": "its gradients are clipped, not its features",
        "ALM": "its features have norm 1, not bounds", "PATE": NO_VOTE, "PrivateKNN": NO_VOTE,
        "": "features are public",
    },
    "bounds of the data": {"": "it has no bounds of features"},
    "targets beyond their bounds": {
        "FunctionalMechanismRegressor": "what it sums is clipped once more: its claim stays true",
        "DPSGDRegressor": "its gradients are clipped, whatever the target: its claim stays true",
        "": "its targets are classes",
    },
    "a constant without protection": {"": "it has no constant of its own"},
    "the number of records kept": dict.fromkeys(
        ("DPSGD", "RandomizedResponse", "LP2ST", "ALIBI"), PUBLIC_SIZE
    ),
    "divided by the number of records": {"": "it divides by no number of records, or a public one"},
    "no clipping": {"": NO_CLIPPING},
    "the mean gradient clipped": {
        "ALMFineTuner-gradient": "it clips a sum that has no batches", "": NO_CLIPPING,
    },
    "missing values reach the sum": {
        "": "a missing value would be refused, on both of two neighbours"
    },
    "shuffled batches": {"": "all records take part in every step"},
    "steps that are not accounted for": {"": "it releases once"},
}  # fmt: skip


def mechanism_of(name: str) -> type[Mechanism]:
    """Return the mechanism through which an estimator releases."""
    for start, mechanism in {
        "DPSGD": FloatGaussian,
        "ObjectivePerturbation": ObjectivePerturbation,
        "RandomizedResponse": RandomizedResponse,
        "LP2ST": RandomizedResponse,
        "ALMFineTuner-least-squares-k-norm": KNorm,
        "ALMFineTuner": Gaussian,
        "AdaSSP": Gaussian,
        "PATE": Gaussian,
        "PrivateKNN": Gaussian,
    }.items():
        if name.startswith(start):
            return mechanism
    return Gaussian if name.endswith("-delta") else Laplace


def epsilon_of_bug(name: str) -> float:
    """Return the epsilon at which a bug in an estimator shows; so no test has to look for it."""
    if name.endswith("-sampled"):
        return DRAWN
    if mechanism_of(name) is KNorm or name in SEVERAL:
        return VECTOR
    pure = mechanism_of(name) in (Laplace, RandomizedResponse)
    one_point = name.startswith("ObjectivePerturbation")  # of the curve, and exceeded there alone
    return PURE if pure or one_point else GAUSSIAN


def runs_for(bug: str, name: str) -> int:
    """Return how many fresh runs a side show a bug, so that no test fails by chance."""
    if bug not in FAINT:
        return 600
    return 12_000 if name in SEVERAL else 4_000


def _rows_of(bug: str, name: str) -> list[Bug]:
    def is_shown(row: Bug) -> bool:
        if row.visible_outside is True:
            return row.owner is mechanism_of(name)
        return name.startswith(row.visible_outside)

    return [row for row in ROWS if row.name == bug and is_shown(row)]


def why_not(bug: str, name: str) -> str:
    """Return why an estimator cannot have a bug; nothing if it can."""
    reasons = REASONS.get(bug, {})
    of_name = next((why for start, why in reasons.items() if start and name.startswith(start)), "")
    return of_name or ("" if _rows_of(bug, name) else reasons[""])


def planted(bug: str, name: str) -> AbstractContextManager[None]:
    """Plant one bug in the code that an estimator uses."""
    assert not (why := why_not(bug, name)), why
    (row,) = _rows_of(bug, name)
    return row.planted(type(VERIFIED[name]()))
