"""Students that learn from few released labels among public records."""

from __future__ import annotations

import numpy as np
import pytest

from skprivacy.ensemble import PropagationStudent


@pytest.mark.parametrize("seed", [32, 39, 47, 52, 54])
def test_no_class_dies_out_over_the_rounds(seed):
    """A small class lost ground from round to round, and then a larger one, up to a constant."""
    random = np.random.RandomState(seed)
    rows = random.uniform(-1, 1, (150, 3))
    classes = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0.5)
    known = np.full(150, -1)
    asked = random.permutation(150)[:60]
    known[asked] = classes[asked]
    found = PropagationStudent().fit(rows, known).predict(rows)
    assert len(np.unique(found)) > 1
    assert (found == classes).mean() > 0.6
