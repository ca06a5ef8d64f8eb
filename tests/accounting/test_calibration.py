"""The noise that each accountant asks for: enough by its own count, and no more."""

import warnings

import pytest

from skprivacy.accounting import (
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    RepeatedEvent,
    calibrate_noise_multiplier,
    compare_accountants,
    epsilon_of,
)
from skprivacy.accounting.events import DiscreteGaussianEvent, NonPrivateEvent

BLUNTEST_FIRST = ["naive", "advanced", "zcdp", "rdp", "pld"]
RUNS = {
    "full batches": lambda z: RepeatedEvent(GaussianEvent(z), 1000),
    "sampled": lambda z: RepeatedEvent(PoissonSampledEvent(0.01, GaussianEvent(z)), 1000),
    "Laplace": lambda z: RepeatedEvent(LaplaceEvent(z), 100),
    "a grid": lambda z: RepeatedEvent(DiscreteGaussianEvent(z, 1.5, 3), 20),
}


@pytest.mark.heavy
@pytest.mark.parametrize("accountant", BLUNTEST_FIRST)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
def test_calibration_finds_the_least_noise_of_each_accountant(accountant, run, epsilon):
    make = RUNS[run]
    z = calibrate_noise_multiplier(make, epsilon, 1e-5, accountant=accountant)

    def count(noise):
        if accountant == "pld":
            return epsilon_of(make(noise), 1e-5)
        with warnings.catch_warnings():  # the best order may lie at the edge of the grid
            warnings.simplefilter("ignore")
            return compare_accountants(make(noise), 1e-5)[accountant]["epsilon"]

    assert count(z) <= epsilon < count(z * (1 - 1e-3))
    assert epsilon_of(make(z), 1e-5) <= epsilon  # whoever counts, the promise is true


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
@pytest.mark.parametrize("count", [100, 10_000])
def test_sharper_accountants_take_less_noise(epsilon, count):
    """As in Jayaraman and Evans (2019): many steps of full batches."""

    def make(z):
        return RepeatedEvent(GaussianEvent(z), count)

    noise = [
        calibrate_noise_multiplier(make, epsilon, 1e-5, accountant=name) for name in BLUNTEST_FIRST
    ]
    assert noise == sorted(noise, reverse=True)
    assert noise[0] > 1.5 * noise[1]
    assert noise[-1] == calibrate_noise_multiplier(make, epsilon, 1e-5)  # the default


def test_every_accountant_says_what_no_noise_reaches():
    assert calibrate_noise_multiplier(LaplaceEvent, 1.0, 0.0) == pytest.approx(1.0, rel=1e-3)
    for name in BLUNTEST_FIRST:
        with pytest.raises(ValueError, match="No noise multiplier"):
            calibrate_noise_multiplier(lambda z: NonPrivateEvent(), 1.0, 1e-5, accountant=name)


@pytest.mark.parametrize("guess", [1e-3, 3.7, 1e4])
def test_calibration_meets_the_target_from_any_guess(guess):
    delta = 1e-5 * (1 + guess)  # nothing is remembered from another guess
    noise = calibrate_noise_multiplier(GaussianEvent, 1.0, min(delta, 1e-2), guess=guess)
    assert 0.999 <= epsilon_of(GaussianEvent(noise), min(delta, 1e-2)) <= 1.0
