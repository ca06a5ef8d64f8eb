"""Twenty bugs of the kind that made other software leak, and how each is planted in an estimator.

Some are shared with the mutants that the contracts catch; these are told from the outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from skprivacy.ensemble import aggregators, knn
from skprivacy.fine_tuning import GradientHead
from skprivacy.fine_tuning import heads as gradient
from skprivacy.fine_tuning.heads import LeastSquaresHead, PrototypeHead
from skprivacy.label_privacy import noisy_labels as alibi
from skprivacy.linear_model import AdaSSPRegressor, OutputPerturbationClassifier
from skprivacy.linear_model import base as _base
from skprivacy.linear_model.base import PrivateLinearRegressor
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.linear_model.polynomial_objective import PolynomialObjective
from skprivacy.mechanisms import (
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    Mechanism,
    PoissonSampler,
    RandomizedResponse,
)
from skprivacy.mechanisms import (
    float_noise as floating,
)
from skprivacy.mechanisms.bounds import UnitBall
from skprivacy.neural_network._gradients import clipping
from skprivacy.neural_network._gradients import perceptron as perceptron_sum
from skprivacy.neural_network._gradients.clipped_sum import BatchSum, ClippedGradientSum
from skprivacy.neural_network._gradients.contributions import OuterProduct
from skprivacy.neural_network._training.engine import Training
from skprivacy.preprocessing import standard_scaler as scaler
from skprivacy.preprocessing.bounded_moments import BoundedColumns, Statistic

from .test_single_release import (
    data_bounds,
    half_sensitivity,
    half_tilt,
    halved,
    seeded,
    twice,
    unclipped,
    wide_target,
)
from .test_training import (
    blanks_nothing,
    double_clip,
    half_noise,
    one_step_more,
    passes_all,
    patched,
    shuffled,
)
from .verified import VERIFIED
from .visible_bugs import (
    bare,
    clips_the_mean,
    columns_beyond_their_bounds,
    divides_by_n,
    features_beyond_the_ball,
    first_number_bare,
    half_distance,
    half_gradient,
    half_spread,
    half_statistic,
    keeps_n,
    keeps_rows,
    looked_at_by_nobody,
    mirrored,
    mirrored_in_place,
    never_lies,
    no_noise,
    no_tilt,
    not_at_all,
    of_the_global_generator,
    polished_on_the_data,
    released_twice,
    reported_twice,
    too_true,
    twice_the_steps,
)

__all__ = [
    "BUGS",
    "FAINT",
    "epsilon_of_bug",
    "mechanism_of",
    "planted",
    "runs_for",
    "why_not",
]

# What is put in the place of ``owner.name``: a function of the original.
Patch = tuple[Any, str, Callable[[Any], Any]]
# Of an estimator, by the beginning of its name: the patches that plant a bug, or why it has none.
Places = Mapping[str, tuple[Patch, ...] | str]
Find = Callable[[str], tuple[Patch, ...] | str]

# Epsilons at which mistakes show: of pure noise on one number and on several, of Gaussian noise,
# and where batches are drawn.
PURE, VECTOR, GAUSSIAN, DRAWN = 2.0, 3.0, 12.0, 24.0

# Laplace noise on two or three numbers: it reaches a claim in a corner alone.
SEVERAL = {
    "PrivateStandardScaler", "FunctionalMechanismRegressor", "FunctionalMechanismClassifier",
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


class OfNoise:
    """A bug of a mechanism, wherever that is used; a text says why a mechanism cannot have it."""

    def __init__(self, places: Mapping[type[Mechanism], tuple[str, Any] | str]) -> None:
        self.places = places

    def __call__(self, name: str) -> tuple[Patch, ...] | str:
        mechanism = mechanism_of(name)
        found = self.places[mechanism]
        return found if isinstance(found, str) else ((mechanism, *found),)


class OfPlace:
    """A bug in one place of some estimators; ``why`` the others cannot have it."""

    def __init__(self, places: Places, why: str) -> None:
        self.places, self.why = places, why

    def __call__(self, name: str) -> tuple[Patch, ...] | str:
        starts = [start for start in self.places if name.startswith(start)]
        return self.places[max(starts, key=len)] if starts else self.why


def of_fit(make: Any) -> Find:
    """Return a bug around ``fit``, in every estimator."""
    return lambda name: ((type(VERIFIED[name]()), "fit", make),)


def unless(find: Find, why: Mapping[str, str]) -> Find:
    """Return a bug that some estimators, by the beginning of their names, cannot have."""

    def places(name: str) -> tuple[Patch, ...] | str:
        return next((why[start] for start in why if name.startswith(start)), find(name))

    return places


GRID = (Laplace, Gaussian, KNorm)
INSIDE = "the noise is inside the objective, it is not added to numbers"
ONE_WORD = "a report is one category, not a vector of numbers"
NO_BOUNDS = "it has no bounds of features"
NETWORK_ALONE = "it clips no gradients"
PUBLIC_SIZE = "the number of records is public under its relation"
PUBLIC_FEATURES = "features are public"
MEAN_CLIPPED = (
    (BatchSum, "__call__", clips_the_mean),
    (clipping, "_SAFETY", not_at_all),  # and not the records
)
NAN_SUMMED = (
    (OuterProduct, "without", passes_all),
    (perceptron_sum, "_zero_rows", blanks_nothing),
    (floating, "check_finite", looked_at_by_nobody),  # else the noise refuses the sum
)

BUGS: dict[str, Find] = {
    "half the noise": OfNoise({
        **dict.fromkeys(GRID, ("_noise", halved)),
        FloatGaussian: ("_release", half_noise),
        ObjectivePerturbation: ("_release", half_tilt),
        RandomizedResponse: ("truth_probability", too_true),
    }),
    "no noise": OfNoise({
        **dict.fromkeys(GRID, ("_noise", no_noise)),
        FloatGaussian: ("_release", bare),
        ObjectivePerturbation: ("scale", no_tilt),
        RandomizedResponse: ("truth_probability", never_lies),
    }),
    "noise of a fixed seed": OfNoise(dict.fromkeys(
        (*GRID, FloatGaussian, ObjectivePerturbation, RandomizedResponse), ("_release", seeded)
    )),
    "noise of the global generator": OfNoise(dict.fromkeys(
        (*GRID, FloatGaussian, ObjectivePerturbation, RandomizedResponse),
        ("_release", of_the_global_generator),
    )),
    "mirrored noise": unless(
        OfNoise({
            **dict.fromkeys(GRID, ("_noise", mirrored)),
            FloatGaussian: ("_release", mirrored_in_place),
            ObjectivePerturbation: INSIDE,
            RandomizedResponse: ONE_WORD,
        }),
        {
            "OutputPerturbation": "what it releases here is one number",
            **dict.fromkeys(
                ("PrivateKNN", "PATE"),
                "a vote moves from class to class, along which there is more noise",
            ),
        },
    ),
    "one number bare": OfNoise({
        **dict.fromkeys(
            (*GRID, FloatGaussian, RandomizedResponse), ("_release", first_number_bare)
        ),
        ObjectivePerturbation: INSIDE,
    }),
    "two releases for the price of one": OfNoise({
        **dict.fromkeys(
            (*GRID, FloatGaussian, ObjectivePerturbation), ("_release", released_twice)
        ),
        RandomizedResponse: ("_release", reported_twice),
    }),
    "half the sensitivity": OfPlace({
        "PrivateStandardScaler": ((Statistic, "mechanism", twice),),
        "FunctionalMechanism": ((PolynomialObjective, "sensitivity", half_sensitivity),),
        "AdaSSP": ((AdaSSPRegressor, "_single_mechanism", half_distance),),
        "OutputPerturbation": (
            (OutputPerturbationClassifier, "_single_mechanism", half_distance),
        ),
        "ObjectivePerturbation": ((ObjectivePerturbation, "sensitivity", half_gradient),),
        "DPSGD": ((ClippedGradientSum, "__init__", double_clip),),
        "ALMFineTuner-gradient": ((gradient, "Gaussian", half_spread),),
        "ALMFineTuner-prototypes": ((PrototypeHead, "sensitivity", half_statistic),),
        "ALMFineTuner-least": ((LeastSquaresHead, "sensitivity", half_statistic),),
        "PATE": ((aggregators, "Gaussian", half_spread),),
        "PrivateKNN": ((knn, "Gaussian", half_spread),),
        "ALIBI": ((alibi, "Laplace", half_spread),),
    }, "randomised response has no sensitivity"),
    "features that are not clipped": OfPlace({
        "PrivateStandardScaler": ((BoundedColumns, "_unit", columns_beyond_their_bounds),),
        **dict.fromkeys(
            ("FunctionalMechanism", "AdaSSP", "OutputPerturbation", "ObjectivePerturbation"),
            ((UnitBall, "transform", features_beyond_the_ball),),
        ),
        "DPSGD": "its gradients are clipped, not its features",
        "ALM": "its features have norm 1, not bounds",
        "PATE": "features reach no more than a vote",
        "PrivateKNN": "features reach no more than a vote",
    }, PUBLIC_FEATURES),
    "bounds of the data": OfPlace({
        "PrivateStandardScaler": ((scaler, "public_bounds", data_bounds),),
        **dict.fromkeys(
            ("FunctionalMechanism", "AdaSSP", "OutputPerturbation", "ObjectivePerturbation"),
            ((_base, "public_bounds", data_bounds),),
        ),
    }, NO_BOUNDS),
    "targets beyond their bounds": OfPlace({
        "AdaSSP": ((PrivateLinearRegressor, "_scale_target", wide_target),),
        "FunctionalMechanismRegressor": "what it sums is clipped once more: its claim stays true",
        "DPSGDRegressor": "its gradients are clipped, whatever the target: its claim stays true",
    }, "its targets are classes"),
    "a constant without protection": OfPlace({
        start: ((type(VERIFIED[start]()), "fit", polished_on_the_data),)
        for start in (
            "FunctionalMechanismRegressor", "FunctionalMechanismClassifier", "AdaSSPRegressor",
            "OutputPerturbationClassifier", "ObjectivePerturbationClassifier",
        )
    }, "it has no constant of its own"),
    "records kept": of_fit(keeps_rows),
    "the number of records kept": unless(
        of_fit(keeps_n),
        dict.fromkeys(("DPSGD", "RandomizedResponse", "LP2ST", "ALIBI"), PUBLIC_SIZE),
    ),
    "divided by the number of records": OfPlace(
        {"PrivateStandardScaler": ((BoundedColumns, "moments", divides_by_n),)},
        "it divides by no number of records, or by a public one",
    ),
    "no clipping": OfPlace({
        "DPSGD": ((clipping, "_SAFETY", not_at_all),),
        "ALMFineTuner-gradient": ((GradientHead, "_residuals", unclipped),),
    }, NETWORK_ALONE),
    "the mean gradient clipped": OfPlace({
        "DPSGD": MEAN_CLIPPED,
        "ALMFineTuner-gradient": "it clips a sum that has no batches",
    }, NETWORK_ALONE),
    "missing values reach the sum": OfPlace(
        {"DPSGD": NAN_SUMMED},
        "a missing value would be refused, on both of two neighbours",
    ),
    "shuffled batches": OfPlace({
        "DPSGDClassifier-sampled": ((PoissonSampler, "draw", shuffled),),
    }, "all records take part in every step"),
    "steps that are not accounted for": OfPlace({
        "DPSGD": ((Training, "run", one_step_more),),
        "ALMFineTuner-gradient": ((GradientHead, "release", twice_the_steps),),
    }, "it releases once"),
}  # fmt: skip


# Bugs that leave noise, only too little of it, take more runs than what is plain.
FAINT = {
    "half the noise", "two releases for the price of one", "half the sensitivity",
    "shuffled batches", "steps that are not accounted for",
}  # fmt: skip


def runs_for(bug: str, name: str) -> int:
    """Return how many fresh runs a side show a bug, so that no test fails by chance."""
    if bug not in FAINT:
        return 600
    return 12_000 if name in SEVERAL else 4_000


def why_not(bug: str, name: str) -> str:
    """Return why an estimator cannot have a bug; nothing if it can."""
    found = BUGS[bug](name)
    return found if isinstance(found, str) else ""


@contextmanager
def planted(bug: str, name: str) -> Iterator[None]:
    """Plant one bug in what an estimator uses."""
    patches = BUGS[bug](name)
    assert not isinstance(patches, str), patches
    with ExitStack() as stack:
        for owner, attribute, make in patches:
            stack.enter_context(patched(owner, attribute, make))
        yield
