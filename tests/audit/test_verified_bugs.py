"""Bugs of the kind that made other software leak, planted one by one: verify_privacy shows each.

Beside the bug that is found, every estimator holds without one. The long proofs are slow.
"""

from __future__ import annotations

import numpy as np
import pytest

from skprivacy.audit import verify_privacy
from skprivacy.linear_model._base import PrivateLinearRegressor
from skprivacy.mechanisms import (
    FloatGaussian,
    Gaussian,
    Laplace,
)
from skprivacy.mechanisms.bounds import UnitBall
from skprivacy.neural_network._gradients import clipping
from skprivacy.preprocessing._columns import Columns

from ..test_mutants import (
    half_noise,
    one_number_without_noise,
    patched,
)
from ..test_mutants_once import (
    centred,
    halved,
    twice,
    wide_target,
)
from .verified import FIT_PARAMS, VERIFIED

# Where mistakes show; given, so that it is not searched for in every test.
LAPLACE, GAUSSIAN = 2.0, 12.0


def from_the_global_generator(original):
    def noise(self, scale, size, random):
        return np.round(scale * np.random.normal(size=size)).astype(np.int64)  # noqa: NPY002

    return noise


ONE_RELEASE = {
    "half the Laplace noise": (
        Laplace, "_noise", halved,
        ["PrivateStandardScaler", "FunctionalMechanismRegressor", "FunctionalMechanismClassifier"],
        LAPLACE,
    ),
    "half the Gaussian noise": (
        Gaussian, "_noise", halved,
        [
            "PrivateStandardScaler-delta", "FunctionalMechanismRegressor-delta",
            "FunctionalMechanismClassifier-delta", "AdaSSPRegressor",
        ],
        GAUSSIAN,
    ),
    "noise of the global generator": (
        Laplace, "_noise", from_the_global_generator,
        ["PrivateStandardScaler", "FunctionalMechanismClassifier"], LAPLACE,
    ),
    "half the sensitivity of moments": (
        Columns, "mechanism", twice, ["PrivateStandardScaler-delta"], GAUSSIAN,
    ),
    "target beyond its bounds": (
        PrivateLinearRegressor, "_scaled_target", wide_target, ["AdaSSPRegressor"], GAUSSIAN,
    ),
    "centred by the data": (UnitBall, "transform", centred, ["AdaSSPRegressor"], GAUSSIAN),
}  # fmt: skip
NETWORKS = {
    "half the noise": (FloatGaussian, "_release", half_noise, GAUSSIAN),
    "one number bare": (FloatGaussian, "_release", one_number_without_noise, GAUSSIAN),
    "no clipping": (clipping, "_SAFETY", lambda _: np.inf, GAUSSIAN),
}
# Enough for what is planted, but for noise that is 10% too small.
RUNS = 800


def verified(name, epsilon, n_runs=RUNS, alpha=0.01):
    return verify_privacy(
        VERIFIED[name](),
        n_runs=n_runs,
        epsilon=epsilon,
        alpha=alpha,
        fit_params=FIT_PARAMS.get(name),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "name"), [(bug, name) for bug, planted in ONE_RELEASE.items() for name in planted[3]]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_planted_bug_is_shown(bug, name):
    owner, attribute, make, _, epsilon = ONE_RELEASE[bug]
    with patched(owner, attribute, make):
        assert verified(name, epsilon).broken


@pytest.mark.slow
@pytest.mark.parametrize("bug", NETWORKS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_planted_bug_of_a_network_is_shown(bug):
    owner, attribute, make, epsilon = NETWORKS[bug]
    with patched(owner, attribute, make):
        assert verified("DPSGDClassifier", epsilon).broken


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
