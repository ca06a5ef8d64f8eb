"""verify_privacy shows what planted.py plants, and holds each estimator without it: slow proofs."""

from __future__ import annotations

import pytest

from skprivacy.audit import verify_privacy
from skprivacy.mechanisms import Gaussian

from ..test_mutants import patched
from .planted import BUGS, planted
from .verified import FIT_PARAMS, VERIFIED

CASES = [
    pytest.param(plant, name, id=f"{bug}-{name}")
    for bug, plants in BUGS.items()
    for plant in plants
    for name in plant.estimators
]


def verified(name, epsilon, n_runs):
    return verify_privacy(
        VERIFIED[name](), n_runs=n_runs, epsilon=epsilon, fit_params=FIT_PARAMS.get(name)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "name"), CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the bugs compute with NaN
def test_planted_bug_is_shown(plant, name):
    with planted(plant):
        assert verified(name, plant.epsilon, plant.n_runs).broken


def scaled(share):
    def make(original):
        def noise(self, scale, size, random):
            return original(self, max(1, round(share * scale)), size, random)

        return noise

    return make


LESS = ["PrivateStandardScaler-delta", "FunctionalMechanismRegressor-delta", "AdaSSPRegressor"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LESS)
def test_noise_that_is_10_percent_too_small_is_shown(name):
    """Where a record reaches the sensitivity; elsewhere the claim is still true, and holds."""
    with patched(Gaussian, "_noise", scaled(0.9)):
        assert verified(name, 14.0, 4_000).broken


@pytest.mark.slow
@pytest.mark.parametrize("name", VERIFIED)
def test_every_estimator_holds(name):
    held = verify_privacy(VERIFIED[name](), n_runs=300, alpha=1e-6, fit_params=FIT_PARAMS.get(name))
    assert not held.broken
