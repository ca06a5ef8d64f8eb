"""A private fit can be followed without opening every file of the library."""

from __future__ import annotations

import pytest

from skprivacy import config_context, get_config

from ..tools.files_entered import entered_by_a_private_fit, files_entered

# "auto", groups, frozen parts, names of columns, a perceptron's arithmetic, its short sums and
# threads have files of their own
MOST, MOST_OF_NETWORKS = 47, 18


def test_a_private_fit_enters_few_files():
    pytest.importorskip("torch")
    found = entered_by_a_private_fit()
    assert "neural_network/dpsgd_classifier.py" in found
    assert len(found) <= MOST, found
    assert sum(name.startswith("neural_network/") for name in found) <= MOST_OF_NETWORKS, found


def test_a_file_that_a_call_enters_is_found():
    assert files_entered(lambda: None) == []
    assert files_entered(get_config) == ["_config.py"]
    with config_context():
        assert files_entered(lambda: [get_config() for _ in range(3)]) == ["_config.py"]
