"""A typical call can be followed without opening every file of the library."""

import pytest

from skprivacy import config_context, get_config

from ..tools.files_entered import CALLS, entered_when_warm, files_entered

# If a call enters more, merge two files of one idea, or move a function to the file that uses it.
# The fits of exact sums enter files of skprivacy/sums: the same program runs on engines.
LIMITS = {
    "DPSGDClassifier.fit": 22,
    "PATEClassifier.fit": 17,
    "FunctionalMechanismRegressor.fit": 14,
    "audit of a forest": 26,
    "PrivacySweepCV.fit of a linear model": 30,
}


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", LIMITS)
def test_a_call_enters_few_files(name):
    pytest.importorskip("torch")
    found = entered_when_warm(CALLS[name])
    assert len(found) <= LIMITS[name], found


def test_a_file_that_a_call_enters_is_found():
    assert files_entered(lambda: None) == []
    assert files_entered(get_config) == ["_config.py"]
    with config_context():
        assert files_entered(lambda: [get_config() for _ in range(3)]) == ["_config.py"]
