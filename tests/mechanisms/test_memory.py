"""Records are worked on a few at a time: what a fit takes beyond its data is about one copy."""

import tracemalloc

import numpy as np
import pytest

from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.mechanisms.base import UnitBall
from skprivacy.preprocessing import PrivateStandardScaler

ROWS, COLUMNS = 120_000, 10
RECORDS = np.random.RandomState(0).normal(size=(ROWS, COLUMNS))
LABELS = (RECORDS[:, 0] > 0).astype(float)
PUBLIC = {"bounds": (-4.0, 4.0)}
CLASSES = {"classes": [0.0, 1.0]}
# In units of the data. One copy of the records with a constant column is 1.1 of them, and each
# vector of one number a record, of which there are several, 0.1. Margins are 0.2 or more; with
# copies of the whole table, as there were, each fit took 2.5 or more.
PEAKS = {
    AdaSSPRegressor: ({**PUBLIC, "target_bounds": (0, 1)}, 1.9),
    FunctionalMechanismRegressor: ({**PUBLIC, "target_bounds": (0, 1)}, 2.2),
    FunctionalMechanismClassifier: ({**PUBLIC, **CLASSES}, 2.1),
    ObjectivePerturbationClassifier: ({**PUBLIC, **CLASSES, "epsilon": 10.0}, 2.1),
    OutputPerturbationClassifier: ({**PUBLIC, **CLASSES, "epsilon": 10.0}, 2.1),
    ALMFineTuner: ({**CLASSES, "delta": 0.0}, 2.4),
    PrivateStandardScaler: (PUBLIC, 1.2),
}


@pytest.mark.everyday(2)
@pytest.mark.parametrize("kind", PEAKS)
def test_a_fit_takes_about_one_copy_of_its_records(kind):
    parameters, allowed = PEAKS[kind]
    kind(**parameters).fit(RECORDS[:500], LABELS[:500])  # what is imported and kept
    tracemalloc.start()
    try:
        kind(**parameters).fit(RECORDS, LABELS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < allowed * RECORDS.nbytes, f"{peak / RECORDS.nbytes:.2f} of the data"


def test_a_row_is_what_it_is_whatever_else_is_worked_on():
    X = RECORDS[:40_000].copy()
    X[7], X[8] = np.nan, np.inf
    ball = UnitBall((-2.0,) * COLUMNS, (3.0,) * COLUMNS, 1.5, 0.3)
    rows, weights = ball.transform(X)
    for part in (slice(0, 1), slice(5, 20_001), slice(16_383, 16_386), slice(39_999, None)):
        some, their_weights = ball.transform(X[part])
        np.testing.assert_array_equal(some, rows[part])
        np.testing.assert_array_equal(their_weights, weights[part])
