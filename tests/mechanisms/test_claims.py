"""Every mechanism keeps what its event says: measured between neighbours, against the accountant.

A new mechanism is one more line in ``CASES``; without it a test fails. What else a mechanism owes,
its exact law above all, is tested beside it.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from skprivacy import mechanisms
from skprivacy.accounting.accountants import delta_of
from skprivacy.accounting.events import BandedFactorizationEvent
from skprivacy.accounting.smooth_sensitivity import Smoothed
from skprivacy.mechanisms import (
    Exponential,
    FloatGaussian,
    Gaussian,
    KNorm,
    Laplace,
    Mechanism,
    RandomizedResponse,
    ReportNoisyMax,
    SecureRandom,
)
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.matrix_gaussian import MatrixGaussian
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.mechanisms.selection import RandomizedResponseWithPrior
from skprivacy.mechanisms.special_noise import Logistic, SmoothGaussian
from skprivacy.preprocessing import PrivateStandardScaler

from .chance import check_claim

pytestmark = pytest.mark.heavy


@dataclass(frozen=True)
class Case:
    """Neighbours as far apart as they may be, and the bug that the test must catch."""

    make: Callable[[float], Mechanism]  # of the noise multiplier, or of 1 / epsilon
    value: Any  # of one release
    neighbour: Any
    forgotten: float = 0.7  # share of the noise that is so little that it must be noticed
    relation: str = "add_remove"
    together: bool = True  # an array of values is as many releases
    n: int = 100_000
    given: Callable[[Any], Any] = np.asarray  # what the mechanism takes, of an array of values


MANY = [1.0] + 7 * [0.0], [0.0] + 7 * [1.0]  # the one loses what the many gain
STEPS = 2**36


def of_two(values):
    """Return what the one of two parties has whose value is protected, and the other's."""
    return np.stack([values, np.full_like(values, -7)])


STREAM = partial(BandedFactorizationEvent, steps_per_epoch=1, epochs=1)
SMOOTH = Smoothed(0.5, 0.02), Smoothed(0.48, 0.02 * np.exp(0.1))
CASES = {
    "Laplace": Case(lambda z: Laplace(z, 2.5), 0.3, 2.8),
    "Gaussian": Case(lambda z: Gaussian(z, 2.5), 0.3, 2.8),
    # Of a single number it is Laplace noise; of many, numbers share their size.
    "KNorm": Case(lambda z: KNorm(z, 2.5), 0.3, 2.8, together=False, n=1000, forgotten=0.4),
    "Logistic": Case(lambda z: Logistic(z, 2.5), 0.3, 2.8),
    "FloatGaussian": Case(lambda z: FloatGaussian(z, 2.5), 0.3, 2.8),
    "RoundedGaussian": Case(lambda z: RoundedGaussian(z, 2.5), 0.3, 2.8),
    # In many dimensions; of a single number the claim is not tight.
    "FloatLogistic": Case(lambda z: FloatLogistic(z, 2.5), 0.3, 2.8, forgotten=0.4),
    "MatrixGaussian": Case(
        lambda z: MatrixGaussian(STREAM(z), 2.5), 0.3, 2.8, relation="zero_out"
    ),
    # A third party has dropped out.
    "DistributedGaussian": Case(
        lambda z: DistributedGaussian(z, 3, n_untrusted=1), 5, 5 - STEPS, given=of_two
    ),
    "RandomizedResponse": Case(
        lambda z: RandomizedResponse(1 / z, 3), 0, 2, relation="replace_one"
    ),
    "RandomizedResponseWithPrior": Case(
        lambda z: RandomizedResponseWithPrior(1 / z, 3), 0, 2, relation="label"
    ),
    "Exponential": Case(
        lambda z: Exponential(1 / z, 1.0), *MANY, forgotten=0.5, together=False, n=4000
    ),
    "ReportNoisyMax": Case(
        lambda z: ReportNoisyMax(1 / z, 1.0), *MANY, forgotten=0.5, together=False, n=4000
    ),
    # Its claim is a Renyi bound, far above what neighbours show.
    "SmoothGaussian": Case(
        lambda z: SmoothGaussian(z, 0.1), *SMOOTH, forgotten=0.1, together=False, n=1500
    ),
}  # fmt: skip


def check(case: Case, share: float = 1.0) -> None:
    """Measure ``share`` of the noise against the claim of all of it."""
    random, event = SecureRandom(seed=0), case.make(1.0).event

    def sample(value, n):
        if case.together:
            values = np.full(n, value, dtype=np.result_type(value))
            return case.make(share).release(case.given(values), random).astype(float)
        mechanism = case.make(share)
        return np.array([mechanism.release(value, random) for _ in range(n)], dtype=float)

    def claim(epsilon):
        return delta_of(event, epsilon, case.relation) + 1e-9

    check_claim(sample, case.value, case.neighbour, claim, (0.0, 0.5, 1.0, 2.0), case.n)


@pytest.mark.everyday(4)
@pytest.mark.parametrize("name", CASES)
def test_the_claim_is_kept_and_too_little_noise_is_caught(name):
    case = CASES[name]
    check(case)
    with pytest.raises(AssertionError, match="claimed"):
        check(case, case.forgotten)


def every(kind):
    return {below for child in kind.__subclasses__() for below in (child, *every(child))}


def test_every_mechanism_is_tested():
    for module in pkgutil.iter_modules(mechanisms.__path__, "skprivacy.mechanisms."):
        if not module.name.endswith("chacha_triton"):  # which needs a GPU
            importlib.import_module(module.name)
    # one of an estimator is tested with it, such as the perturbation of an objective
    ours = {
        kind for kind in every(Mechanism) if kind.__module__.startswith("skprivacy.mechanisms.")
    }
    assert {kind.__name__ for kind in ours if not inspect.isabstract(kind)} == set(CASES)
    assert all(type(case.make(1.0)).__name__ == name for name, case in CASES.items())


@pytest.mark.parametrize("kind", [FloatGaussian, FloatLogistic, RoundedGaussian])
@pytest.mark.parametrize("number", [np.uint8(20), np.int8(100), np.int16(300)])
def test_the_noise_is_no_smaller_than_claimed_whatever_the_type_of_number(kind, number):
    """Twenty times twenty in bytes is 144: the noise would be a third of what is accounted for."""
    whole = kind(noise_multiplier=float(number), sensitivity=float(number))
    narrow = kind(noise_multiplier=number, sensitivity=number)
    released = [
        mechanism.release(np.zeros(1000), SecureRandom(0)).std() for mechanism in (whole, narrow)
    ]
    assert released[0] == released[1]
    assert narrow.event == whole.event


@pytest.mark.parametrize("number", [np.uint8(200), np.float16(0.5)])
def test_numbers_that_overflow_are_no_parameters(number):
    model = PrivateStandardScaler(bounds=(0, 1), epsilon=number)
    with pytest.raises(ValueError, match="'epsilon' parameter"):
        model.fit(np.zeros((10, 1)))
