"""Bad input gets a clear error, and costs nothing."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from skprivacy.accounting import PrivacyBudget
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)
from skprivacy.preprocessing import (
    PrivateStandardScaler,
    private_count,
    private_histogram,
    private_mean,
    private_quantile,
    private_sum,
    private_variance,
)

NUMBERS = np.linspace(-1, 1, 60).reshape(20, 3)
LABELS = np.arange(20) % 2
TEXT = np.array([["ill", 1, 2]] * 20, dtype=object)
DATES = pd.DataFrame({"born": pd.date_range("2020", periods=20), "age": range(20)})


def networks():
    pytest.importorskip("torch")
    from skprivacy.neural_network import DPSGDClassifier, DPSGDRegressor

    return [DPSGDClassifier(classes=[0, 1]), DPSGDRegressor(target_bounds=(0, 1))]


def estimators():
    for kind in (AdaSSPRegressor, FunctionalMechanismRegressor):
        yield kind(bounds=(-1, 1), target_bounds=(0, 1))
    for kind in (
        FunctionalMechanismClassifier,
        ObjectivePerturbationClassifier,
        OutputPerturbationClassifier,
    ):
        yield kind(bounds=(-1, 1), classes=[0, 1])
    yield PrivateStandardScaler(bounds=(-1, 1))
    yield from networks()


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (TEXT, LABELS, "X holds text or dates; expected numbers.*SchemaTransformer"),
        (DATES, LABELS, r"X holds text or dates in the columns \['born'\]"),
        (sparse.csr_matrix(NUMBERS), LABELS, "Sparse data was passed"),
        (sparse.csr_array(NUMBERS), LABELS, "Sparse data was passed"),
        (NUMBERS[:0], LABELS[:0], "minimum of 1 is required"),
        (NUMBERS[:, :0], LABELS, "minimum of 1 is required"),
        (NUMBERS[:, 0], LABELS, "Reshape your data"),
        (pd.DataFrame(NUMBERS, columns=list("aab")), LABELS, "more than one column named 'a'"),
    ],
)
def test_estimators_refuse_records_that_are_none(X, y, message):
    for estimator in estimators():
        budget = PrivacyBudget(1e3, 0.01)
        with pytest.raises((ValueError, TypeError), match=message):
            estimator.set_params(budget=budget).fit(X, y)
        assert budget.entries().empty


@pytest.mark.parametrize("y", [LABELS[:-1], np.full(20, "ill"), np.full(20, np.nan), LABELS + 0.5])
def test_estimators_refuse_targets_that_are_none(y):
    for estimator in estimators():
        if isinstance(estimator, PrivateStandardScaler):
            continue
        if (y[0] == 0.5) and not hasattr(estimator, "classes"):
            continue
        budget = PrivacyBudget(1e3, 0.01)
        with pytest.raises(ValueError, match=r"\by\b|label type|inconsistent"):
            estimator.set_params(budget=budget).fit(NUMBERS, y)
        assert budget.entries().empty


STATISTICS = [
    private_count,
    partial(private_mean, bounds=(0, 1)),
    partial(private_sum, bounds=(0, 1)),
    partial(private_variance, bounds=(0, 1)),
    partial(private_quantile, q=0.5, bounds=(0, 1)),
    partial(private_histogram, bins=[0, 1]),
]


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (["ill", "well"], "holds text or dates; expected numbers|expected booleans"),
        (pd.Series(pd.date_range("2020", periods=3)), "holds text or dates|expected booleans"),
        (sparse.csr_matrix(NUMBERS), "(?i)sparse"),
        (sparse.csr_array(NUMBERS), "(?i)sparse"),
        (np.array([1 + 1j]), "(?i)complex"),
    ],
)
def test_statistics_refuse_what_is_no_column_of_numbers(statistic, x, message):
    budget = PrivacyBudget(1e3)
    with pytest.raises((ValueError, TypeError), match=message):
        statistic(x, epsilon=1.0, budget=budget)
    assert budget.entries().empty


def test_numbers_that_are_written_as_text_pass():
    X = np.array([["1", "0.5"], ["-1", "nan"]] * 10, dtype=object)
    model = AdaSSPRegressor(bounds=(-1, 1), target_bounds=(0, 1)).fit(X, LABELS)
    assert model.coef_.shape == (2,)
    assert 0 <= private_mean(["0.5", "1"], bounds=(0, 1), epsilon=1.0).value <= 1
