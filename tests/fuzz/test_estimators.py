"""Odd parameters and odd records for every estimator: nothing is spent and nothing is left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from skprivacy import defences, preprocessing
from skprivacy.accounting import PrivacyBudget

from ..contracts.cases import CASES, LABELS
from ..contracts.refusals import _state as state_of
from .oracle import Refused, attempt, few
from .values import arguments, odd_arrays, records

pytestmark = pytest.mark.heavy

# One of each class is enough: the others differ in parameters, which are odd here anyway.
PRIVATE = {name: case for name, case in {**CASES, **LABELS}.items() if "-" not in name}
N = 24
OF_SKORCH = {"DPNeuralNet"}  # whose set_params is skorch's
X = np.random.RandomState(0).normal(size=(N, 4))
y = np.arange(N) % 3
PLAIN = {
    "MemGuardClassifier": defences.MemGuardClassifier(LogisticRegression(), random_state=0),
    "RoundedClassifier": defences.RoundedClassifier(LogisticRegression(), decimals=2),
    "TemperatureClassifier": defences.TemperatureClassifier(LogisticRegression()),
    "TopKClassifier": defences.TopKClassifier(LogisticRegression()),
    "LocalPerturbation": preprocessing.LocalPerturbation(
        preprocessing.Schema({f"x{i}": preprocessing.BoundedColumn(-3, 3) for i in range(4)})
    ),
    "SchemaTransformer": preprocessing.SchemaTransformer(
        preprocessing.Schema({f"x{i}": preprocessing.BoundedColumn(-3, 3) for i in range(4)})
    ),
}
ANSWERS = ("predict", "predict_proba", "decision_function", "transform")


def _asked(model, names, data):
    """Ask a fitted model about odd records."""
    for answer in ANSWERS:
        if hasattr(model, answer):
            rows = data.draw(odd_arrays())
            attempt(lambda answer=answer, rows=rows: getattr(model, answer)(rows), names)


@pytest.mark.parametrize("name", PRIVATE)
@given(data=st.data())
@few(2)
def test_private_estimators(name, data):
    case = PRIVATE[name]
    budget = PrivacyBudget(100.0, 1e-2)
    model = case.make(budget=budget)
    valid = {k: v for k, v in model.get_params(deep=False).items() if k != "budget"}
    names = {*valid, *model.get_params(), "X", "y", "budget"}
    odd = data.draw(arguments(valid, most=0 if name in OF_SKORCH else 2))
    changed = {k: v for k, v in odd.items() if v is not valid[k]}
    if isinstance(attempt(lambda: model.set_params(**changed), names), Refused):
        return
    rows, target = data.draw(records(*case.data(N)))
    fitted = attempt(
        lambda: model.fit(rows, target),
        names,
        unchanged=lambda: (len(budget.entries()), state_of(model)),
    )
    if not isinstance(fitted, Refused):
        _check_claim(model, budget)
        _asked(model, names, data)


def _check_claim(model, budget):
    """What is claimed was charged, whatever the records were: not less, and no NaN."""
    assert list(budget.entries()["status"]) == ["commit"]
    assert 0 <= model.epsilon_ <= budget.spent(model.delta_) * 1.000001


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
@few(3)
def test_other_estimators(name, data):
    model = PLAIN[name]
    valid = model.get_params(deep=False)
    names = {*valid, *model.get_params(), "X", "y"}
    changed = type(model)(**data.draw(arguments(valid)))
    rows, target = data.draw(records(X, y))
    fitted = attempt(
        lambda: changed.fit(rows, target), names, unchanged=lambda: sorted(vars(changed))
    )
    if not isinstance(fitted, Refused):
        _asked(changed, names, data)
