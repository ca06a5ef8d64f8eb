"""Label-PATE keeps to what the cost of its votes was proved for."""

from __future__ import annotations

import numpy as np
import pytest

from skprivacy.ensemble import PATEClassifier
from skprivacy.label_privacy import LabelPATEClassifier


@pytest.mark.parametrize("kind", [PATEClassifier, LabelPATEClassifier])
def test_no_more_teachers_than_the_cost_of_votes_is_proved_for(kind):
    """Counts beyond this lose digits, and ties become likelier than the proof allows for."""
    model = kind(n_teachers=(1 << 18) + 1, classes=[0, 1], random_state=0)
    with pytest.raises(ValueError, match="n_teachers"):
        model.fit(np.zeros((4, 1)), [0, 1, 0, 1])
