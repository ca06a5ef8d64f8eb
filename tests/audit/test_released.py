"""Whoever has a model has all that it holds, whatever holds it there."""

from __future__ import annotations

from collections import Counter, deque
from datetime import date
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.interpolate import interp1d
from scipy.stats import gaussian_kde
from sklearn.base import BaseEstimator
from sklearn.tree import DecisionTreeRegressor

from skprivacy.audit import verify_privacy
from skprivacy.audit._released import numbers_of
from skprivacy.preprocessing import PrivateStandardScaler


class Slotted:
    __slots__ = ("row",)

    def __init__(self, row):
        self.row = row

    def of(self, question):
        return question


class Model(BaseEstimator):
    """It has no answers; all that it tells is what it holds."""

    def __init__(self, public=0.75):
        self.public = public


def numbers(kept):
    model = Model()
    model.kept_ = kept
    return numbers_of(model, np.zeros((1, 1)))


def asks(row):
    return lambda question: row + question


HOLDERS = {
    "frame": lambda row: pd.DataFrame({"a": row, "b": ["text"] * len(row)}),
    "series": pd.Series,
    "index": lambda row: pd.Series(0, index=row),
    "keys": lambda row: dict.fromkeys(row.tolist(), 0),
    "counter": lambda row: Counter(row.tolist()),
    "set": lambda row: set(row.tolist()),
    "deque": deque,
    "complex": lambda row: 1j * row,
    "fields": lambda row: np.array([tuple(row)], dtype=[("a", float), ("b", float)]),
    "slots": Slotted,
    "method": lambda row: Slotted(row).of,
    "closure": asks,
    "partial": lambda row: partial(np.add, row),
    "callable": lambda row: interp1d(row, row),
    "density": gaussian_kde,
    "namespace": lambda row: SimpleNamespace(a=[(row,)]),
    "tree": lambda row: DecisionTreeRegressor().fit(row[:, None], row),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_record_is_seen_in_whatever_keeps_it(holder):
    """The rows of a DataFrame, of a set or in a density were not: a leak of them was "held"."""
    row = np.array([0.123456, 0.654321])
    assert set(row) <= set(numbers(HOLDERS[holder](row)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("anna", "hanna"),
        (b"anna", b"annb"),
        (np.array(["anna", "paul"]), np.array(["anna", "pauk"])),
        (date(1980, 1, 2), date(1980, 1, 3)),
        (np.array(["1980-01-02"], "datetime64[D]"), np.array(["1980-01-03"], "datetime64[D]")),
        (Decimal("1.50"), Decimal("1.51")),
        (10**400, 10**400 + 1),
        (range(3), range(4)),
    ],
    ids=repr,
)
def test_what_is_no_float_tells_as_well(one, other):
    first, again, second = map(numbers, (one, one, other))
    np.testing.assert_array_equal(first, again)
    assert first.shape == second.shape
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("kept", [None, np.random.default_rng(0), np, object(), memoryview(b"a")])
def test_what_holds_no_data_is_left_out(kept):
    np.testing.assert_array_equal(numbers(kept), numbers(None))


def test_parts_that_are_alike_all_count():
    """Of a list that is gone another may have the id: it was taken for one that was seen."""
    rows = [Slotted(np.array([float(i)])) for i in range(50)]
    assert set(range(50)) <= set(numbers(rows))


class KeepsFrame(PrivateStandardScaler):
    def fit(self, X, y=None):
        super().fit(X)
        self.table_ = pd.DataFrame(X)
        return self


def test_a_model_that_keeps_its_table_is_found():
    found = verify_privacy(KeepsFrame(bounds=([-1.0], [1.0])), n_runs=30, epsilon=1.0)
    assert found.broken
