"""Twenty-two bugs of the kind that made other software leak, and where each is planted.

Some are shared with the mutants that the contracts catch; these are told from the outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from skprivacy.linear_model import (
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    _base,
)
from skprivacy.linear_model._base import PrivateLinearRegressor
from skprivacy.linear_model.polynomial import PolynomialObjective
from skprivacy.mechanisms import (
    FloatGaussian,
    Gaussian,
    Laplace,
    PoissonSampler,
    RandomizedResponse,
)
from skprivacy.mechanisms.bounds import UnitBall, quantize
from skprivacy.neural_network._gradients import clipping
from skprivacy.neural_network._gradients.clipped_sum import BatchSum
from skprivacy.neural_network._training.engine import Training
from skprivacy.preprocessing import PrivateStandardScaler
from skprivacy.preprocessing._columns import Columns

from ..test_mutants import (
    half_noise,
    one_step_more,
    patched,
    shuffled,
)
from ..test_mutants_once import (
    data_bounds,
    half_sensitivity,
    halved,
    keeps_rows,
    one_number_bare,
    polishes_on_the_data,
    seeded,
    twice,
    wide_target,
)

__all__ = ["BUGS", "Plant", "planted"]


class Plant(NamedTuple):
    """What is put in the place of ``owner.name``, and the estimators that it makes leak.

    ``epsilon`` is where it shows; it is given, so that no test has to look for it. ``n_runs`` are
    many more than it takes, so that no test fails by chance.
    """

    owner: Any
    name: str
    make: Callable[[Any], Any]
    epsilon: float
    estimators: tuple[str, ...]
    n_runs: int = 1_000


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Put one bug in its place."""
    with ExitStack() as stack:
        stack.enter_context(patched(plant.owner, plant.name, plant.make))
        if plant.make is clips_the_mean:  # and not the records
            stack.enter_context(patched(clipping, "_SAFETY", not_at_all))
        yield


def of_the_global_generator(original):
    def noise(self, scale, size, random):
        return np.round(scale * np.random.normal(size=size)).astype(np.int64)  # noqa: NPY002

    return noise


def mirrored(original):
    """Give the second half of a vector the first half's noise, turned round."""

    def noise(self, scale, size, random):
        half = original(self, scale, (size + 1) // 2, random)
        return np.r_[half, -half][:size]

    return noise


def unclipped_features(original):
    def transform(self, X):
        lower, upper = np.array(self.lower), np.array(self.upper)
        rows = 2 * (np.nan_to_num(X) - lower) / (upper - lower) - 1
        return quantize(rows / self.norm), np.ones(len(X))

    return transform


def no_noise(original):
    return lambda self, scale, size, random: np.zeros(size, np.int64)


def divides_by_n(original):
    """Divide noisy sums by the number of records, which is not public."""

    def release(self, degree, mechanism, relation, random):
        return original(self, degree, mechanism, "zero_out", random)

    return release


def keeps_n(original):
    def fit(self, X, y=None):
        original(self, X)
        self.n_samples_seen_ = len(X)
        return self

    return fit


def released_twice(original):
    """Release the same sums once more, in a better mean, for the price of one."""

    def release(self, *args):
        return (original(self, *args) + original(self, *args)) / 2

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


def too_true(original):
    """Lie with half the probability."""
    return property(lambda self: (1.0 + original.fget(self)) / 2)


# Epsilons at which mistakes show: of Laplace and Gaussian noise, and where batches are drawn.
PURE, GAUSSIAN, DRAWN = 2.0, 12.0, 48.0
SCALER, REGRESSOR = "PrivateStandardScaler", "FunctionalMechanismRegressor"
CLASSIFIER = "FunctionalMechanismClassifier"
OBJECTIVE = "ObjectivePerturbationClassifier"

BUGS: dict[str, tuple[Plant, ...]] = {
    "half the noise": (
        Plant(Laplace, "_noise", halved, PURE, (SCALER, REGRESSOR, CLASSIFIER)),
        Plant(
            Gaussian, "_noise", halved, GAUSSIAN,
            (
                f"{SCALER}-delta", f"{REGRESSOR}-delta", f"{CLASSIFIER}-delta", "AdaSSPRegressor",
                "ALMFineTuner-least-squares",
            ),
        ),
        Plant(FloatGaussian, "_release", half_noise, GAUSSIAN, ("DPSGDClassifier",)),
    ),
    "noise of a fixed seed": (
        Plant(Laplace, "_release", seeded, PURE, (SCALER,)),
    ),
    "noise of the global generator": (
        Plant(Laplace, "_noise", of_the_global_generator, PURE, (SCALER,)),
    ),
    "mirrored noise": (
        Plant(Laplace, "_noise", mirrored, PURE, (SCALER,)),
    ),
    "half the sensitivity of moments": (
        Plant(Columns, "mechanism", twice, PURE, (SCALER,)),
    ),
    "half the sensitivity of a polynomial": (
        Plant(PolynomialObjective, "sensitivity", half_sensitivity, PURE, (REGRESSOR,)),
    ),
    "features that are not clipped": (
        Plant(UnitBall, "transform", unclipped_features, PURE, (REGRESSOR,)),
    ),
    "bounds of the data": (
        Plant(_base, "public_bounds", data_bounds, PURE, (REGRESSOR,)),
    ),
    "targets beyond their bounds": (
        # A functional mechanism clips what it sums once more: its claim is still true.
        Plant(
            PrivateLinearRegressor, "_scaled_target", wide_target, GAUSSIAN, ("AdaSSPRegressor",)
        ),
    ),
    "an intercept without protection": (
        Plant(FunctionalMechanismRegressor, "fit", polishes_on_the_data, PURE, (REGRESSOR,)),
    ),
    "one number bare": (
        Plant(Laplace, "_release", one_number_bare, PURE, (SCALER,)),
    ),
    "no noise": (
        Plant(Laplace, "_noise", no_noise, PURE, (SCALER,)),
    ),
    "the number of records kept": (
        Plant(PrivateStandardScaler, "fit", keeps_n, PURE, (SCALER,)),
    ),
    "divided by the number of records": (
        Plant(Columns, "release", divides_by_n, PURE, (SCALER,)),
    ),
    "two releases for the price of one": (
        Plant(Columns, "release", released_twice, PURE, (SCALER,), n_runs=4_000),
    ),
    "the mean gradient clipped": (
        Plant(BatchSum, "__call__", clips_the_mean, GAUSSIAN, ("DPSGDClassifier",)),
    ),
    "no clipping": (Plant(clipping, "_SAFETY", not_at_all, GAUSSIAN, ("DPSGDClassifier",)),),
    "shuffled batches": (
        Plant(PoissonSampler, "draw", shuffled, DRAWN, ("DPSGDClassifier-sampled",)),
    ),
    "an epoch more than accounted for": (
        Plant(Training, "run", one_step_more, GAUSSIAN, ("DPSGDClassifier",)),
    ),
    "records kept": (
        Plant(ObjectivePerturbationClassifier, "fit", keeps_rows, PURE, (OBJECTIVE,)),
    ),
    "votes without noise": (
        Plant(
            Gaussian, "_noise", no_noise, GAUSSIAN,
            ("PATEClassifier", "PATEClassifier-confident", "PrivateKNNClassifier"),
        ),
    ),
    "labels that are too true": (
        Plant(
            RandomizedResponse, "truth_probability", too_true, PURE,
            ("RandomizedResponseClassifier",),
        ),
    ),
}  # fmt: skip
