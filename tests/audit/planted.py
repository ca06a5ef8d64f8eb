"""Twenty bugs of the kind that made other software leak, and how each is planted in an estimator.

Some are shared with the mutants that the contracts catch; these are told from the outside.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from skprivacy.ensemble import aggregators, knn
from skprivacy.fine_tuning import GradientHead, gradient
from skprivacy.fine_tuning.least_squares import LeastSquaresHead
from skprivacy.fine_tuning.prototypes import PrototypeHead
from skprivacy.fine_tuning.release import Sensitivity
from skprivacy.label_privacy import alibi
from skprivacy.linear_model import _base, perturbation, sufficient
from skprivacy.linear_model._base import PrivateLinearRegressor
from skprivacy.linear_model.objective import ObjectivePerturbation
from skprivacy.linear_model.polynomial import PolynomialObjective
from skprivacy.mechanisms import (
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    Mechanism,
    PoissonSampler,
    RandomizedResponse,
    SecureRandom,
)
from skprivacy.mechanisms.bounds import UnitBall, quantize
from skprivacy.neural_network._gradients import clipping
from skprivacy.neural_network._gradients.clipped_sum import BatchSum, ClippedGradientSum
from skprivacy.neural_network._gradients.contributions import OuterProduct
from skprivacy.neural_network._training.engine import Training
from skprivacy.preprocessing import scaler
from skprivacy.preprocessing._columns import Columns

from ..test_mutants import double_clip, half_noise, one_step_more, passes_all, patched, shuffled
from ..test_mutants_once import (
    data_bounds,
    half_sensitivity,
    half_tilt,
    halved,
    seeded,
    twice,
    unclipped,
    wide_target,
)
from .verified import VERIFIED

__all__ = ["BUGS", "epsilon_of_bug", "mechanism_of", "planted", "scaled", "why_not"]

# What is put in the place of ``owner.name``: a function of the original.
Patch = tuple[Any, str, Callable[[Any], Any]]
# Of an estimator, by the beginning of its name: the patches that plant a bug, or why it has none.
Places = Mapping[str, tuple[Patch, ...] | str]
Find = Callable[[str], tuple[Patch, ...] | str]

# Epsilons at which mistakes show: of pure and Gaussian noise, and where batches are drawn.
PURE, GAUSSIAN, DRAWN = 2.0, 12.0, 48.0


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
    # Some claim no more of their Gaussian noise than one point of its curve.
    one_point = name.startswith(("OutputPerturbation", "ObjectivePerturbation"))
    pure = mechanism_of(name) in (Laplace, KNorm, RandomizedResponse)
    return PURE if pure or one_point else GAUSSIAN


def too_true(original):
    """Lie with half the probability."""
    return property(lambda self: (1.0 + original.fget(self)) / 2)


def never_lies(original):
    return property(lambda self: 1.0)


def no_noise(original):
    return lambda self, scale, size, random: np.zeros(size, np.int64)


def bare(original):
    return lambda self, value, random: value


def no_tilt(original):
    return lambda self, size: 0.0


def of_the_global_generator(original):
    def release(self, value, random):
        seed = int(np.random.randint(2**31))  # noqa: NPY002
        return original(self, value, SecureRandom(seed))

    return release


def mirrored(original):
    """Give the second half of a vector the first half's noise, turned round."""

    def noise(self, scale, size, random):
        half = original(self, scale, (size + 1) // 2, random)
        return np.r_[half, -half][:size]

    return noise


def mirrored_in_place(original):
    def release(self, value, random):
        before, half = value.copy(), (len(value) + 1) // 2
        noise = original(self, value, random) - before
        value[:] = before + np.r_[noise[:half], -noise[:half]][: len(value)]
        return value

    return release


def first_number_bare(original):
    def release(self, value, random):
        first = np.ravel(value)[0]
        noisy = original(self, value, random)
        np.ravel(noisy)[0] = first  # of a view
        return noisy

    return release


def released_twice(original):
    """Release the same once more, in a better mean, for the price of one."""

    def release(self, value, random):
        again = np.array(value, copy=True) if isinstance(value, np.ndarray) else value
        return (original(self, value, random) + original(self, again, random)) / 2

    return release


def reported_twice(original):
    """Report what is true if one of two reports says so, for the price of one."""

    def release(self, value, random):
        first, second = (original(self, value, random) for _ in range(2))
        return np.where(second == value, second, first)

    return release


def half_spread(original):
    """Halve the sensitivity of every mechanism that is made in a place."""
    return lambda noise_multiplier, sensitivity: original(noise_multiplier, sensitivity / 2)


def half_distance(original):
    return lambda epsilon, delta, l2, size: original(epsilon, delta, l2 / 2, size)


def half_gradient(original):
    return property(lambda self: original.fget(self) / 2)


def half_statistic(original):
    return lambda self, task: Sensitivity(original(self, task).l2 / 2)


def features_beyond_the_ball(original):
    def transform(self, X):
        lower, upper = np.array(self.lower), np.array(self.upper)
        rows = 2 * (np.nan_to_num(X) - lower) / (upper - lower) - 1
        return quantize(rows / self.norm), np.ones(len(X))

    return transform


def columns_beyond_their_bounds(original):
    def unit(self, middle, half):
        return quantize(10.0 * original(self, middle, half))

    return unit


def polished_on_the_data(original):
    """Move the constant by the mean of the private targets, bare."""

    def fit(self, X, y, **params):
        original(self, X, y, **params)
        self.intercept_ = self.intercept_ + np.mean(np.clip(np.nan_to_num(y), -1, 1))
        return self

    return fit


def keeps_rows(original):
    def fit(self, X, y=None, **params):
        self.kept_ = np.array(X) if y is None else np.c_[np.array(X), y]
        return original(self, X, y, **params)

    return fit


def keeps_n(original):
    def fit(self, X, y=None, **params):
        self.seen_ = len(X)
        return original(self, X, y, **params)

    return fit


def divides_by_n(original):
    """Divide noisy sums by the number of records, which is not public."""

    def release(self, degree, mechanism, relation, random):
        return original(self, degree, mechanism, "zero_out", random)

    return release


def not_at_all(original):
    return np.inf


def clips_the_mean(original):
    """Clip the mean gradient of a batch and not that of each record."""

    def total(self, X, y, indices):
        summed = original(self, X, y, indices)
        allowed = self._expected * self._clipped.max_grad_norm
        return summed * min(1.0, allowed / (float(summed.norm()) + 1e-30))

    return total


def twice_the_steps(original):
    """Take twice the steps that the noise is for."""

    def release(self, task, records, random):
        class More(GradientHead):
            def _multiplier(this, task):
                return self._multiplier(task)

        more = More(**{**dataclasses.asdict(self), "steps": 2 * self.steps})
        return original(more, task, records, random)

    return release


def scaled(share):
    """Return what makes the noise of a grid smaller."""

    def make(original):
        def noise(self, scale, size, random):
            return original(self, max(1, round(share * scale)), size, random)

        return noise

    return make


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
            "PrivateKNN": "a vote moves from class to class, along which there is more noise",
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
        "PrivateStandardScaler": ((Columns, "mechanism", twice),),
        "FunctionalMechanism": ((PolynomialObjective, "sensitivity", half_sensitivity),),
        "AdaSSP": ((sufficient, "Gaussian", half_spread),),
        "OutputPerturbation": ((perturbation, "_additive", half_distance),),
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
        "PrivateStandardScaler": ((Columns, "_unit", columns_beyond_their_bounds),),
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
        "AdaSSP": ((PrivateLinearRegressor, "_scaled_target", wide_target),),
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
        {"PrivateStandardScaler": ((Columns, "release", divides_by_n),)},
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
        {"DPSGD": ((OuterProduct, "without", passes_all),)},
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
