"""A missing value in y is told of y, by every estimator, and nothing is charged."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from skprivacy.accounting import PrivacyBudget

from ..contracts.cases import CASES, LABELS

pytestmark = pytest.mark.heavy

ALL = {**CASES, **LABELS}
# A scaler takes no y; the loss of a DPNeuralNet decides what a target may be, and ignores a record
# without a finite one; a synthesizer leaves out a record without a value, of whatever column.
OTHERWISE = ("PrivateStandardScaler", "DPNeuralNet", "MarginalSynthesizer", "DPGANSynthesizer")


@pytest.mark.everyday(16)
@pytest.mark.parametrize("name", [name for name in ALL if not name.startswith(OTHERWISE)])
def test_a_missing_target_is_told_of_y(name):
    X, y = ALL[name].data(40)
    y = np.array(y, dtype=float if y.dtype.kind in "iuf" else object)
    y[3] = np.nan
    budget = PrivacyBudget(epsilon=100, delta=1e-2)
    with pytest.raises(ValueError, match=r"\by\b.*(NaN|missing|finite)"):
        ALL[name].make(budget=budget).fit(X, y)
    assert budget.entries().empty


@pytest.mark.parametrize("missing", [None, pd.NA, pd.NaT, Decimal("NaN")], ids=repr)
@pytest.mark.parametrize(
    "name", ["AdaSSPRegressor", "DPSGDRegressor", "OutputPerturbationClassifier"]
)
def test_whatever_stands_for_it(name, missing):
    """None became NaN after the check, was charged, and no model came of it."""
    X, y = ALL[name].data(40)
    y = y.astype(object)
    y[3] = missing
    budget = PrivacyBudget(epsilon=100, delta=1e-2)
    with pytest.raises(ValueError, match=r"y contains NaN or another missing value"):
        ALL[name].make(budget=budget).fit(X, y)
    assert budget.entries().empty
