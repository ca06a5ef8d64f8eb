"""Input once accepted in silence: masks, booleans, dates, infinities and numpy numbers."""

import numpy as np
import pytest

from skprivacy.accounting import GaussianEvent, PrivacyBudget, RepeatedEvent
from skprivacy.accounting.events import TreeAggregationEvent
from skprivacy.ensemble import PATEClassifier, PrivateKNNClassifier
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.linear_model import AdaSSPRegressor
from skprivacy.mechanisms import FloatGaussian, Laplace, SecureRandom
from skprivacy.mechanisms.float_noise import FloatLogistic
from skprivacy.mechanisms.matrix_gaussian import MatrixGaussian
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.preprocessing import (
    PrivateStandardScaler,
)

from ..contracts.cases import CASES, LABELS

ROWS = np.random.default_rng(0).random((40, 2))


def masked(values):
    hidden = np.arange(np.size(values)) % 7 == 0
    return np.ma.masked_array(values, mask=hidden.reshape(np.shape(values)))


@pytest.mark.everyday(16)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [*CASES, *LABELS])
def test_masked_records_and_targets_are_refused_at_no_cost(name):
    case = (CASES | LABELS)[name]
    X, y = case.data(60)
    budget = PrivacyBudget(1e6, 1e-3)
    with pytest.raises(ValueError, match="X is a masked array"):
        case.make(budget=budget).fit(masked(X), y)
    if y is not None and not isinstance(case.make(), PrivateStandardScaler):
        with pytest.raises(ValueError, match="y is a masked array"):
            case.make(budget=budget).fit(X, masked(y))
    assert len(budget.entries()) == 0


def test_masked_groups_and_public_records_are_refused():
    y, public = np.arange(40) % 2, ROWS + 1.0
    with pytest.raises(ValueError, match="groups is a masked array"):
        PATEClassifier(classes=[0, 1]).fit(ROWS, y, X_public=public, groups=masked(np.arange(40)))
    for kind in (PATEClassifier, PrivateKNNClassifier, ALMFineTuner):
        with pytest.raises(ValueError, match="X_public is a masked array"):
            kind(classes=[0, 1]).fit(ROWS, y, X_public=masked(public))


def test_masked_values_are_not_released():
    with pytest.raises(ValueError, match="is a masked array"):
        Laplace(1.0, sensitivity=1.0).release(masked(np.zeros(4)), SecureRandom())


def test_dates_are_no_targets():
    dates = np.arange(40).astype("datetime64[D]")
    for y in (dates, dates - dates[0]):
        with pytest.raises(ValueError, match="y holds text or dates"):
            AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(ROWS, y)


def test_numbers_of_numpy_are_numbers():
    budget = PrivacyBudget(np.int64(3), np.float32(0.5))
    assert budget.cap == (3.0, 0.5)
    assert budget.scope("adult", np.int64(1), np.float32(0.25)).cap == (1.0, 0.25)
    for number in (np.int64(2), np.float32(2), np.float64(2)):
        event = RepeatedEvent(GaussianEvent(number), np.int64(4))
        assert event == RepeatedEvent(GaussianEvent(2.0), 4)
        assert event.to_dict() == RepeatedEvent(GaussianEvent(2.0), 4).to_dict()
        budget.reserve(event)
    assert len(budget.entries()) == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "mechanism",
    [
        FloatGaussian(1.0, 1.0),
        FloatLogistic(1.0, 1.0),
        RoundedGaussian(1.0, 1.0),
        MatrixGaussian(TreeAggregationEvent(1.0, 4, 1), 1.0),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_values_that_no_noise_hides_are_not_released(mechanism, bad):
    value = np.array([0.0, bad, 1.0], np.float32)
    before = value.copy()
    with pytest.raises(ValueError, match="value holds NaN or infinity"):
        mechanism.release(value, SecureRandom())
    np.testing.assert_array_equal(value, before)
