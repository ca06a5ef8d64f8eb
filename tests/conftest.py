"""Nothing that a test does may depend on luck that is not what the test is about.

What is drawn without a seed by numpy's and torch's global generators, as scikit-learn's estimators
and torch's layers do, is the same in every run and in every order of the tests. Private noise is
not: it is fresh each time, and a test of it says how often it fails by chance, less than once in a
million runs.
"""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, however slow the machine. --hypothesis-profile=default seeks more.
settings.register_profile(
    "everyday", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("everyday")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before the fixtures, so that it is those too that begin alike."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the legacy state is what estimators fall back on
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
