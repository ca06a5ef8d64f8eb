"""Contract of estimators that protect groups: neighbours differ in a whole group."""

import json
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from skprivacy.accounting import PrivacyBudget, PrivacyGuarantee
from skprivacy.exceptions import PrivacyWarning
from skprivacy.preprocessing import PrivateStandardScaler

from . import neighbors as neighbours
from .cases import Case
from .neighbors import GROUPS, NAMES, N
from .replay import compare, fitted, replay, same_rows_drawn
from .tape import Tape, recording

NOBODY = [
    [None, *range(N - 1)],
    np.full(N, np.nan),
    list(range(N - 1)),
    np.zeros((N, 1)),
    np.ma.masked_array(np.zeros(N), np.arange(N) == 3),
    pd.Series(np.zeros(N), name="record"),
    7,
]


def check_people_replay(case: Case) -> None:
    """Without a group's records, or with another's, inputs differ by one record's at most."""
    replay(case, neighbours.GROUP)
    for pair in neighbours.REPLACED_GROUP.pairs(case):
        compare(case.make(**pair.params), pair)


def check_people_label_replay(case: Case) -> None:
    """Other labels of all records of a group cost what is claimed, of one of them."""
    replay(case, neighbours.LABELS_OF_GROUP)


def check_unit(case: Case) -> None:
    """The unit is said by the guarantee, and in whatever form, and never added to another."""
    X, y = case.data(N)
    budget = PrivacyBudget(1e6, 0.9)
    model = fitted(case.make(budget=budget), X, y, pd.Series(GROUPS, name="patient"))
    assert model.privacy_.unit == "patient"
    assert "patient" in repr(model.privacy_)
    assert PrivacyGuarantee.from_dict(json.loads(json.dumps(model.privacy_.to_dict()))) == (
        model.privacy_
    )
    assert set(budget.entries()["unit"]) == {"patient"}
    with pytest.raises(ValueError, match="patient"):
        fitted(case.make(budget=budget), X, y)
    assert len(budget.entries()) == 1
    assert fitted(case.make(), X, y, GROUPS).privacy_.unit == "group"
    plain = fitted(case.make(), X, y)
    assert plain.privacy_.unit == "record"
    # a training has fewer groups than records to draw from, and a search to hold out
    if case.once and not hasattr(model, "best_estimator_"):
        assert plain.privacy_event_ == model.privacy_event_


def check_bad_groups(case: Case) -> None:
    """Groups that leave a record unprotected are refused before anything is charged or released."""
    X, y = case.data(N)
    for groups in NOBODY:
        budget, tape = PrivacyBudget(1e6, 0.9), Tape()
        model = case.make(budget=budget)
        with recording(tape), pytest.raises(ValueError, match=r"groups|inconsistent"):
            fitted(model, X, y, groups)
        assert not len(budget.entries()), "a refused fit is charged"
        assert not tape.inputs, "a refused fit releases"
        assert not hasattr(model, "privacy_")


def check_another_order(case: Case) -> None:
    """Groups whose rows are those of X in another order, by their indices, are other people's."""
    X, y = case.data(N)
    budget = PrivacyBudget(1e6, 0.9)
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    with pytest.raises(ValueError, match="index of X in another order"):
        fitted(case.make(budget=budget), frame.iloc[::-1], y, pd.Series(GROUPS, name="patient"))
    assert not len(budget.entries())


def check_each_by_itself(case: Case) -> None:
    """Where everybody has one record, groups change nothing but the unit."""
    X, y = case.data(N)
    tapes = [Tape(), Tape()]
    for tape, groups in zip(tapes, (None, np.arange(N)[::-1]), strict=True):
        with recording(tape), warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # of the seed
            fitted(case.make(noise_seed=3), X, y, groups)
    assert tapes[0].mechanisms == tapes[1].mechanisms
    for name in ("inputs", "outputs"):
        for one, two in zip(*(getattr(tape, name) for tape in tapes), strict=True):
            assert_equal(one, two)


def assert_equal(one: Any, two: Any) -> None:
    """Compare what two releases were given, or returned: an array, or several."""
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (one, two)), strict=True):
        np.testing.assert_array_equal(a, b)


def check_delta_counts_people(case: Case) -> None:
    """A delta below 1 / people is accepted, if it exceeds 1 / records; one above is not."""
    X, y = case.data(N)
    model = case.make()
    if not getattr(model, "delta", 0):
        pytest.skip("a pure guarantee has no delta")
    between = (1 / N + 1 / len(NAMES)) / 2
    if isinstance(model, PrivateStandardScaler):
        pytest.skip("a scaler does not hold its delta against the number of records")
    with pytest.raises(ValueError, match="delta"):
        fitted(case.make(delta=between), X, y)
    assert fitted(case.make(delta=between), X, y, GROUPS).delta_ == between
    few = np.arange(N) % (N - 1)
    with pytest.raises(ValueError, match="delta"):
        fitted(case.make(delta=1.001 / (N - 1)), X, y, few)


def check_order_and_names(case: Case) -> None:
    """Names and types of groups do not change a release."""
    X, y = case.data(N)
    blob = pickle.dumps(case.make())
    inputs = []
    with same_rows_drawn():
        for groups in (GROUPS, NAMES[GROUPS], pd.Series(GROUPS).astype("category")):
            tape = Tape()
            with recording(tape):
                fitted(pickle.loads(blob), X, y, groups)
            inputs.append(tape.inputs[0])
    for other in inputs[1:]:
        assert_equal(inputs[0], other)
