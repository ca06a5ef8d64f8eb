"""Masked arrays: what converts them to ordinary ones uses the very values that were hidden."""

import numpy as np
import pytest

from skprivacy.accounting import GaussianEvent, PrivacyBudget, Repeated
from skprivacy.linear_model import AdaSSPRegressor, ObjectivePerturbationClassifier
from skprivacy.mechanisms import Exponential, Laplace, ReportNoisyMax, SecureRandom
from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor
from skprivacy.preprocessing import (
    PrivateStandardScaler,
    private_count,
    private_histogram,
    private_mean,
    private_quantile,
    private_sum,
)

ROWS = np.random.default_rng(0).random((40, 2))
MASKED = np.ma.masked_array(ROWS, mask=ROWS > 0.5)
COLUMN = np.ma.masked_array(np.arange(40.0) % 2, mask=np.arange(40) < 10)


@pytest.mark.parametrize(
    "estimator",
    [
        AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)),
        ObjectivePerturbationClassifier(bounds=(0, 1), classes=[0, 1]),
        DPSGDClassifier(classes=[0, 1]),
        DPSGDRegressor(target_bounds=(0, 1)),
        PrivateStandardScaler(bounds=(0, 1)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_masked_records_and_targets_are_refused_at_no_cost(estimator):
    budget = PrivacyBudget(100.0, 1e-3)
    estimator.set_params(budget=budget)
    with pytest.raises(ValueError, match="X is a masked array"):
        estimator.fit(MASKED, np.asarray(COLUMN))
    if not isinstance(estimator, PrivateStandardScaler):
        with pytest.raises(ValueError, match="y is a masked array"):
            estimator.fit(ROWS, COLUMN)
    assert len(budget.entries()) == 0


@pytest.mark.parametrize(
    "statistic",
    [
        lambda x: private_mean(x, bounds=(0, 1), epsilon=1.0),
        lambda x: private_sum(x, bounds=(0, 1), epsilon=1.0),
        lambda x: private_quantile(x, 0.5, bounds=(0, 1), epsilon=1.0),
        lambda x: private_histogram(x, categories=[0, 1], epsilon=1.0),
        lambda x: private_histogram(x, bins=[0, 1, 2], epsilon=1.0),
        lambda x: private_count(x, epsilon=1.0),
        lambda x: Laplace(1.0, sensitivity=1.0).release(x, SecureRandom()),
    ],
)
def test_masked_values_are_refused(statistic):
    with pytest.raises(ValueError, match="is a masked array"):
        statistic(COLUMN)


@pytest.mark.parametrize("kind", [Exponential, ReportNoisyMax])
@pytest.mark.parametrize("monotonic", ["no", 1, None, [False]])
def test_only_true_means_monotonic(kind, monotonic):
    """Any other true value would halve the noise."""
    with pytest.raises(ValueError, match=r"monotonic=.* must be True or False"):
        kind(1.0, 1.0, monotonic)


def test_dates_are_no_targets():
    dates = np.arange(40).astype("datetime64[D]")
    for y in (dates, dates - dates[0]):
        with pytest.raises(ValueError, match="y holds text or dates"):
            AdaSSPRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(ROWS, y)


def test_numbers_of_numpy_are_numbers():
    budget = PrivacyBudget(np.int64(3), np.float32(0.5))
    assert budget.cap == (3.0, 0.5)
    for number in (np.int64(2), np.float32(2), np.float64(2)):
        event = Repeated(GaussianEvent(number), np.int64(4))
        assert event == Repeated(GaussianEvent(2.0), 4)
        assert event.to_dict() == Repeated(GaussianEvent(2.0), 4).to_dict()
        budget.reserve(event)
    assert len(budget.entries()) == 3
