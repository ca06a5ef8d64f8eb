"""Odd settings and records for sweeps and searches: nothing is spent if they are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from skprivacy import model_selection
from skprivacy.accounting import PrivacyBudget
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV, PrivateSearchCV

from .oracle import Refused, attempt, few
from .values import arguments, odd_arrays, records

pytestmark = pytest.mark.heavy

N = 24
X = np.random.RandomState(0).uniform(size=(N, 3))
y = np.arange(N) % 2
SWEEP = {
    "epsilons": [0.5, 1.0], "attack": None, "param_name": None, "scoring": None, "verbose": 0,
    "refit": None, "baseline": "auto", "path": None, "n_jobs": st.sampled_from([None, 1, 2]),
    "cv": st.one_of(st.just(2), st.deferred(lambda: odd_splits())),
}  # fmt: skip
SEARCH = {
    "param_distributions": {"alpha": [0.1, 1.0]}, "epsilon": 4.0, "delta": 1e-6, "n_trials": 2,
    "eta": 1.0, "n_candidates": 2, "scoring": None, "test_size": 0.2, "n_records": None,
    "random_state": 0, "noise_seed": None,
}  # fmt: skip
PARAMETERS = {PrivacySweepCV: SWEEP, PrivateSearchCV: SEARCH}
CALLS = {
    model_selection.loss_auc: {
        "model": LogisticRegression().fit(X, y), "X_train": X, "y_train": y, "X_new": X, "y_new": y
    },
    model_selection.make_leakage_scorer: {
        "X": X, "y": y, "cv": st.one_of(st.none(), st.deferred(lambda: odd_splits())),
        "groups": None,
    },
}  # fmt: skip
OF_SWEEPS = {
    "smallest_epsilon": {
        "loss": 0.1, "compared_with": None, "alpha": 0.05, "score": None, "estimator": None
    },
    "by_group": {"compared_with": None, "alpha": 0.05},
    "knee": {"score": None, "estimator": None},
    "predict": {"X": X},
    "score": {"X": X, "y": y},
}  # fmt: skip


def odd_splits():
    """Draw what almost divides the records, each part by numbers or by a mask."""
    part = st.one_of(
        st.sampled_from([np.arange(12), np.arange(12, N), np.arange(N) < 12, list(range(12, N))]),
        odd_arrays(),
    )
    pair = st.one_of(st.tuples(part, part), st.lists(part, max_size=3))
    return st.one_of(st.lists(pair, max_size=3), st.lists(pair, max_size=2).map(iter))


def _private(budget=None):
    return OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1], budget=budget)


@pytest.mark.parametrize("kind", PARAMETERS)
@given(data=st.data())
@few(3)
def test_selection(kind, data):
    budget = PrivacyBudget(1e6, 0.01)
    given_ = data.draw(arguments(PARAMETERS[kind]))
    if isinstance(given_.get("path"), str | bytes):
        given_["path"] = None  # it would be written to, as asked
    if kind is PrivacySweepCV:
        model = PrivacySweepCV(_private(budget), **given_)
    else:
        model = PrivateSearchCV(_private(), **given_, budget=budget)
    rows, labels = data.draw(records(X, y))
    names = {*given_, "X", "y", "alpha", "estimator", "budget"}
    attempt(
        lambda: model.fit(rows, labels),
        names,
        # What a sweep has trained before a model is refused stays charged, and is said so.
        unchanged=lambda: (kind is PrivacySweepCV or len(budget.entries()), sorted(vars(model))),
    )


@pytest.fixture(scope="module")
def sweep():
    return PrivacySweepCV(_private(), epsilons=[0.5, 1.0, 2.0], cv=2, refit=1.0).fit(X, y)


@pytest.mark.parametrize("method", OF_SWEEPS)
@given(data=st.data())
@few(3)
def test_sweeps(sweep, method, data):
    given_ = data.draw(arguments(OF_SWEEPS[method], least=1))
    attempt(lambda: getattr(sweep, method)(**given_), {*given_, "subgroups"})


@pytest.mark.parametrize("function", CALLS)
@given(data=st.data())
@few(5)
def test_scorers(function, data):
    given_ = data.draw(arguments(CALLS[function], least=1))
    answer = attempt(lambda: function(**given_), given_)
    if function is model_selection.make_leakage_scorer and not isinstance(answer, Refused):
        attempt(lambda: answer(LogisticRegression(), X, y), given_)
