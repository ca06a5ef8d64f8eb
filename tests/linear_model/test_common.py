"""scikit-learn's own checks."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)


# The checks cannot pass bounds and classes, and compare fits, which only a seed makes equal.
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@parametrize_with_checks(
    [
        FunctionalMechanismRegressor(noise_seed=0),
        FunctionalMechanismClassifier(noise_seed=0),
        ObjectivePerturbationClassifier(noise_seed=0),
        OutputPerturbationClassifier(noise_seed=0),
        AdaSSPRegressor(noise_seed=0),
    ]
)
def test_scikit_learn(estimator, check):
    check(estimator)
