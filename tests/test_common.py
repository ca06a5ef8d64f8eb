"""scikit-learn's own checks on every public estimator."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivacy.neural_network import DPSGDClassifier

# The checks fit on a few dozen rows; a large epsilon lets them look at learning, not at noise.
ESTIMATORS = [
    DPSGDClassifier(epsilon=100.0, epochs=60),
    DPSGDClassifier(epsilon=100.0, hidden_layer_sizes=(), device="cpu"),
]


# The checks cannot pass classes=..., so that labels are read off y each time.
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyLeakWarning")
# scikit-learn reports its own skipped checks as a warning.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
