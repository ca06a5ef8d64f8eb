"""A release contains everything that a model holds, wherever the model holds it."""

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
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.tree import DecisionTreeRegressor

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.audit import verify_privacy
from skprivacy.audit.verification.releases import (
    IndependentFits,
    parameters_before_fit,
    released_numbers,
)
from skprivacy.preprocessing import PrivateStandardScaler


class Slotted:
    __slots__ = ("row",)

    def __init__(self, row):
        self.row = row

    def of(self, question):
        return question


class Model(BaseEstimator):
    """It gives no answers; it reveals only its attributes."""

    def __init__(self, public=0.75):
        self.public = public

    def fit_twice(self):
        """Fit the part inside, which then holds the whole."""
        self.public.parent_, self.public.kept_ = self, 0.5
        return self


def numbers(kept):
    model = Model()
    model.kept_ = kept
    return released_numbers(model, np.zeros((1, 1)))


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
def test_values_other_than_floats_are_released_too(one, other):
    first, again, second = map(numbers, (one, one, other))
    np.testing.assert_array_equal(first, again)
    assert first.shape == second.shape
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("kept", [None, np.random.default_rng(0), np, object(), memoryview(b"a")])
def test_attributes_without_data_are_left_out(kept):
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


class SetsBounds(PrivateStandardScaler):
    """It reads its bounds off the data, and writes them into its own parameter."""

    def fit(self, X, y=None):
        self.bounds = (X.min(axis=0), X.max(axis=0))
        return super().fit(X)


class SetsInner(BaseEstimator):
    """It makes a scaler like the one that it is given, but for the bounds if it likes."""

    def __init__(self, scaler=None, bounds_of_data=False):
        self.scaler = scaler
        self.bounds_of_data = bounds_of_data

    def fit(self, X, y=None):
        found = {"bounds": (X.min(axis=0), X.max(axis=0))} if self.bounds_of_data else {}
        self.scaler_ = clone(self.scaler).set_params(**found).fit(X)
        return self


class CostsWhatTheDataSay(PrivateStandardScaler):
    def fit(self, X, y=None):
        super().fit(X)
        self.epsilon_ = self.epsilon_ * (1 - 1e-6 * np.abs(X).max())
        return self


BOUNDS = ([-1.0], [1.0])
SCALER = PrivateStandardScaler(bounds=BOUNDS)
MADE_OF_SCALERS = {
    "itself": lambda scaler: scaler,
    "pipeline": make_pipeline,
    "pipelines": lambda scaler: make_pipeline(make_pipeline(scaler), "passthrough"),
    "union": lambda scaler: FeatureUnion([("one", scaler)]),
    "wrapper": SetsInner,
}


def bare(estimator):
    """Return how many numbers are alike in all runs on some data, and others on other data."""
    fits, half = (
        IndependentFits(estimator, probes=np.zeros((1, 1))),
        np.linspace(-0.5, 0.5, 9)[:, None],
    )
    some, other = (np.stack([fits((X, None)) for _ in range(3)]) for X in (half, half / 2))
    alike = (np.ptp(some, axis=0) == 0) & (np.ptp(other, axis=0) == 0)
    return int(np.sum(alike & (some[0] != other[0])))


@pytest.mark.parametrize("made", MADE_OF_SCALERS)
@pytest.mark.parametrize("leaky", [KeepsFrame, SetsBounds, CostsWhatTheDataSay])
def test_stored_values_are_found_wherever_a_fit_puts_them(leaky, made):
    """A pipeline's steps are its parameters, which were taken for public: any leak was "held"."""
    assert bare(MADE_OF_SCALERS[made](leaky(bounds=BOUNDS))) > 0
    assert bare(MADE_OF_SCALERS[made](SCALER)) == 0


def test_parameters_that_a_fit_makes_up_are_told():
    assert bare(SetsInner(SCALER, bounds_of_data=True)) > 0


@pytest.mark.parametrize("made", MADE_OF_SCALERS)
def test_parameters_that_a_fit_leaves_alone_are_not_told(made):
    model = MADE_OF_SCALERS[made](PCA(1, tol=0.123))
    told = released_numbers(clone(model).fit(np.eye(3)), np.eye(3), parameters_before_fit(model))
    assert len(told) > 9
    assert 0.123 not in told


@pytest.mark.slow
def test_a_part_that_holds_the_whole_does_not_run_in_circles():
    model = Model(public=Model()).fit_twice()
    assert 0.5 in released_numbers(
        model, np.zeros((1, 1)), parameters_before_fit(Model(public=Model()))
    )


@pytest.mark.heavy
def test_a_pipeline_that_keeps_its_table_is_found():
    model = make_pipeline(KeepsFrame(bounds=BOUNDS))
    assert verify_privacy(model, n_runs=20, claim=PrivacyGuarantee(ApproxDPEvent(1.0))).broken
