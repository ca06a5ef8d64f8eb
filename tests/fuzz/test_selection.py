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
from .values import arguments, records

N = 24
X = np.random.RandomState(0).uniform(size=(N, 3))
y = np.arange(N) % 2
SWEEP = {
    "epsilons": [0.5, 1.0], "attack": None, "param_name": None, "cv": 2, "scoring": None,
    "n_jobs": None, "verbose": 0, "refit": None, "baseline": "auto", "path": None,
}  # fmt: skip
SEARCH = {
    "param_distributions": {"alpha": [0.1, 1.0]}, "epsilon": 4.0, "delta": 1e-6, "n_trials": 2,
    "eta": 1.0, "n_candidates": 2, "scoring": None, "test_size": 0.2, "n_records": None,
    "random_state": 0, "noise_seed": None,
}  # fmt: skip
CALLS = {
    model_selection.loss_auc: {
        "model": LogisticRegression().fit(X, y), "X_train": X, "y_train": y, "X_new": X, "y_new": y
    },
    model_selection.make_leakage_scorer: {"X": X, "y": y, "cv": None, "groups": None},
}  # fmt: skip
OF_SWEEPS = {
    "smallest_epsilon": {
        "loss": 0.1, "compared_with": None, "confidence": 0.95, "score": None, "estimator": None
    },
    "by_group": {"compared_with": None, "confidence": 0.95},
    "knee": {"score": None, "estimator": None},
    "predict": {"X": X},
    "score": {"X": X, "y": y},
}  # fmt: skip


def _private(budget=None):
    return OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1], budget=budget)


@pytest.mark.parametrize(
    ("kind", "parameters"), [(PrivacySweepCV, SWEEP), (PrivateSearchCV, SEARCH)]
)
@given(data=st.data())
@few(6)
def test_selection(kind, parameters, data):
    budget = PrivacyBudget(1e6, 0.01)
    given_ = data.draw(arguments(parameters))
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
    return PrivacySweepCV(_private(), **{**SWEEP, "refit": 1.0}).fit(X, y)


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
