"""What estimators owe to people, whose records are a group: neighbours differ in a whole group.

As in ``contracts.py``, a fit on D records what every release was given and what it gave; a fit on
the neighbour is given the same answers.
"""

from __future__ import annotations

import inspect
import json
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from skprivacy._groups import Groups
from skprivacy.accounting import PrivacyBudget, PrivacyGuarantee
from skprivacy.exceptions import PrivacyWarning
from skprivacy.linear_model.perturbation import _PerturbedClassifier
from skprivacy.preprocessing import PrivateStandardScaler

from . import contracts_labels
from .contracts import RECORDS, Tape, compare, fitted, recording
from .private_estimators import Case

PEOPLE = np.array([3, 1, 0, 1, 2, 1, 4, 3, 5, 6, 2, 7, 3, 8, 1, 9, 4, 7, 9, 1, 0, 3, 9, 3])
N = len(PEOPLE)
NAMES = np.array(["Ada", "Bea", "Cy", "Dan", "Eve", "Flo", "Gil", "Hal", "Ida", "Jo"])
CHOSEN = (1, 3, 8)  # of 5, 5 and 1 records; the last has the only one of its class
NOBODY = [
    [None, *range(N - 1)],
    np.full(N, np.nan),
    list(range(N - 1)),
    np.zeros((N, 1)),
    np.ma.masked_array(np.zeros(N), np.arange(N) == 3),
    pd.Series(np.zeros(N), name="record"),
    7,
]


def takes_groups(case: Case) -> bool:
    return "groups" in inspect.signature(type(case.make()).fit).parameters


@contextmanager
def same_records_drawn() -> Iterator[None]:
    """Draw the last k records of each group, in place of any: both fits draw the same."""

    def at_most(self: Groups, k: int, random: Any) -> NDArray[np.int64]:
        later = pd.Series(self.codes).groupby(self.codes).cumcount(ascending=False)
        return np.flatnonzero(later < k)

    with mock.patch.object(Groups, "at_most", at_most):
        yield


def check_people_replay(case: Case) -> None:
    """Without somebody's records, or with another's, inputs differ by one record's at most."""
    reached = []
    with same_records_drawn():
        for name, change in RECORDS.items():
            for person in CHOSEN:
                for alike in (False, True):
                    reached += _without(case, name, change, person, alike)
            if "replace_one" in _relations(case):
                reached += _replaced(case, name, change)
    assert max(reached) > case.reaches, "no neighbour comes near the sensitivity: proves nothing"


def _relations(case: Case) -> set[str]:
    known = getattr(type(case.make()), "_parameter_constraints", {}).get("relation", [])
    return {option for kind in known if kind is not None for option in kind.options}


def _without(case: Case, name: str, change: Any, person: int, alike: bool) -> list[float]:
    """Compare with the data where somebody's records contribute nothing, or are not there."""
    X, y = case.data(N)
    own = person == PEOPLE
    X[own] = [change(row) for row in X[own]]
    if alike:
        y[own] = y[own][0]
    groups, found = NAMES[PEOPLE], []
    if case.null_label is not None:
        X_null, y_null = X.copy(), y.copy()
        X_null[own], y_null[own] = np.nan, case.null_label
        found += compare(case.make(), (X, y, groups), (X_null, y_null, groups), name)
    if case.add_remove:
        model = case.make(n_records=len(NAMES))
        left = X[~own], y[~own], groups[~own]
        found += compare(model, left, (X, y, groups), f"added {name}")
    return found


def _replaced(case: Case, name: str, change: Any) -> list[float]:
    """Compare with the data where another person, of more records, is in somebody's place."""
    model = case.make(relation="replace_one")
    # Perturbed objectives remove and add: each is charged for half of epsilon.
    most = 2.0 if isinstance(model, _PerturbedClassifier) else 1.0
    X, y = case.data(N)
    one, other = PEOPLE == 2, PEOPLE == 1
    X[one] = [-change(row) for row in X[one]]
    X[other] = [change(row) for row in X[other]]
    both = [(X[~away], y[~away], NAMES[PEOPLE][~away]) for away in (one, other)]
    return compare(model, *both, f"replaced {name}", most=most)


def check_people_label_replay(case: Case) -> None:
    """Other labels of all of somebody's records cost what is claimed, of one of them."""
    X, y = case.data(N)
    changed = 0
    with same_records_drawn():
        for person in CHOSEN:
            for label in np.unique(y):
                changed += contracts_labels.compare(case, X, y, person == PEOPLE, label, PEOPLE)
    assert changed, "no label reached a mechanism: proves nothing"


def check_unit(case: Case) -> None:
    """The unit is said by the guarantee, and in whatever form, and never added to another."""
    X, y = case.data(N)
    budget = PrivacyBudget(1e6, 0.9)
    model = fitted(case.make(budget=budget), X, y, pd.Series(PEOPLE, name="patient"))
    assert model.privacy_.unit == "patient"
    assert "patient" in repr(model.privacy_)
    assert PrivacyGuarantee.from_dict(json.loads(json.dumps(model.privacy_.to_dict()))) == (
        model.privacy_
    )
    assert set(budget.entries()["unit"]) == {"patient"}
    with pytest.raises(ValueError, match="patient"):
        fitted(case.make(budget=budget), X, y)
    assert len(budget.entries()) == 1
    assert fitted(case.make(), X, y, PEOPLE).privacy_.unit == "group"
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


def check_each_by_itself(case: Case) -> None:
    """Where everybody has one record, groups change nothing but the unit."""
    X, y = case.data(N)
    tapes, releases = [Tape(), Tape()], []
    for tape, groups in zip(tapes, (None, np.arange(N)[::-1]), strict=True):
        with recording(tape), warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)  # of the seed
            model = fitted(case.make(noise_seed=3), X, y, groups)
        releases.append(model)
    assert tapes[0].mechanisms == tapes[1].mechanisms
    for a, b in zip(tapes[0].inputs, tapes[1].inputs, strict=True):
        for one, two in zip(*(v if isinstance(v, tuple) else (v,) for v in (a, b)), strict=True):
            np.testing.assert_array_equal(one, two)
    for one, two in zip(tapes[0].outputs, tapes[1].outputs, strict=True):
        np.testing.assert_array_equal(one, two)


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
    assert fitted(case.make(delta=between), X, y, PEOPLE).delta_ == between
    few = np.arange(N) % (N - 1)
    with pytest.raises(ValueError, match="delta"):
        fitted(case.make(delta=1.001 / (N - 1)), X, y, few)


def check_order_and_names(case: Case) -> None:
    """What groups are called, and of which type, changes nothing that is released."""
    X, y = case.data(N)
    blob = pickle.dumps(case.make())
    inputs = []
    with same_records_drawn():
        for groups in (PEOPLE, NAMES[PEOPLE], pd.Series(PEOPLE).astype("category")):
            tape = Tape()
            with recording(tape):
                fitted(pickle.loads(blob), X, y, groups)
            inputs.append(tape.inputs[0])
    for other in inputs[1:]:
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (inputs[0], other)),
                        strict=True):  # fmt: skip
            np.testing.assert_array_equal(a, b)
