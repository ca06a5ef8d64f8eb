"""The door for private records: groups, targets and cells are checked once, where they enter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import validation

from skprivacy import _validation
from skprivacy._input_data import read_records, validate_data
from skprivacy.linear_model import FunctionalMechanismRegressor
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import PrivateStandardScaler, private_mean

ROWS = np.random.default_rng(0).random((30, 2))
LABELS = np.arange(30) % 2
MIXED = pd.DataFrame({"age": ROWS[:, 0], "ward": ["A"] * 30})
FITS = {
    "DPSGDClassifier": lambda X: DPSGDClassifier(classes=[0, 1], epochs=1).fit(X, LABELS),
    "FunctionalMechanismRegressor": lambda X: FunctionalMechanismRegressor(
        bounds=(0, 1), target_bounds=(0, 1)
    ).fit(X, LABELS),
    "PrivateStandardScaler": lambda X: PrivateStandardScaler(bounds=(0, 1)).fit(X),
    "private_mean": lambda X: private_mean(X, bounds=(0, 1), epsilon=1.0),
}


class Count:
    """Count how often one array is given to a function."""

    def __init__(self, monkeypatch, owner, name, array):
        self.n, self.array, self.original = 0, array, getattr(owner, name)
        monkeypatch.setattr(owner, name, self)

    def __call__(self, values, *args, **kwargs):
        self.n += np.shares_memory(values, self.array) if isinstance(values, np.ndarray) else 0
        return self.original(values, *args, **kwargs)


@pytest.mark.parametrize("name", FITS)
def test_records_are_converted_and_asked_for_a_mask_once(name, monkeypatch):
    X = ROWS.copy()
    masks = Count(monkeypatch, _validation.np.ma, "isMaskedArray", X)
    conversions = Count(monkeypatch, validation, "check_array", X)
    FITS[name](X)
    assert (masks.n, conversions.n) == (1, 1)


def test_groups_are_refused_before_records_are_read():
    groups = pd.Series(np.arange(30), index=np.arange(30)[::-1], name="patient")
    frame = MIXED.assign(age="many")  # which is refused, too
    with pytest.raises(ValueError, match="groups has the index of X in another order"):
        read_records(BaseEstimator(), frame, LABELS, groups)
    with pytest.raises(ValueError, match="X holds text or dates in the columns"):
        read_records(BaseEstimator(), frame, LABELS, groups.loc[frame.index])


def test_records_come_with_their_targets_and_groups():
    missing = np.where(ROWS > 0.9, np.nan, ROWS)  # refusing one would reveal it
    found = read_records(BaseEstimator(), np.asfortranarray(missing), LABELS.tolist(), LABELS)
    assert found.rows.flags.c_contiguous
    np.testing.assert_array_equal(found.rows, missing)
    assert found.y.tolist() == LABELS.tolist()
    assert (found.groups.n, found.groups.unit) == (2, "group")
    alone = read_records(BaseEstimator(), ROWS)
    assert (alone.y, alone.groups.n, alone.groups.unit) == (None, 30, "record")


@pytest.mark.parametrize(
    ("X", "tables", "is_kept"),
    [
        (MIXED, "keep", True),
        (MIXED, "keep_text", True),
        (MIXED[["age"]], "keep", True),
        (MIXED[["age"]], "keep_text", False),
        (ROWS, "keep", False),
    ],
)
def test_tables_are_kept_or_converted_as_asked(X, tables, is_kept):
    estimator = BaseEstimator()
    rows, y = validate_data(estimator, X, LABELS, tables=tables)
    assert (rows is X) == (is_kept or X is ROWS)
    assert isinstance(rows, pd.DataFrame) == is_kept
    assert y.tolist() == LABELS.tolist()
    assert estimator.n_features_in_ == X.shape[1]
    is_frame = isinstance(X, pd.DataFrame)
    other = pd.concat([X, X.add_suffix("_")], axis=1) if is_frame else np.c_[X, X]
    with pytest.raises(ValueError, match=r"feature names|features, but"):
        validate_data(estimator, other, tables=tables, reset=False)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[30, 29\]"):
        validate_data(estimator, X, LABELS[1:], tables=tables)
    with pytest.raises(ValueError, match=r"0 sample"):
        validate_data(estimator, X[:0], tables=tables, reset=False)


def test_several_targets_of_a_kept_table_are_refused():
    with pytest.raises(ValueError, match=r"y should be a 1d array|shape"):
        validate_data(BaseEstimator(), MIXED, ROWS, tables="keep")
    with pytest.raises(ValueError, match="y should be a 1d array, got None"):
        validate_data(BaseEstimator(), MIXED, None, tables="keep")
