"""Odd arguments for the methods of what the library returns, and for what a fit takes besides."""

from __future__ import annotations

import inspect
from functools import cache

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from skprivacy import attacks, audit, display, ensemble, model_selection, preprocessing, synthesis
from skprivacy.accounting import GaussianEvent, PrivacyBudget, PrivacyGuarantee, pld
from skprivacy.federated import FederatedPlan
from skprivacy.linear_model import FunctionalMechanismRegressor, OutputPerturbationClassifier

from ..contracts.refusals import _state as state_of
from .oracle import attempt, few
from .test_estimators import PRIVATE
from .values import arguments, odd_arrays, odd_values

pytestmark = pytest.mark.heavy

N = 24
X = np.random.RandomState(0).uniform(size=(N, 3))
y = np.arange(N) % 2
GROUPS = {"groups_in": np.arange(N) % 5, "groups_out": 5 + np.arange(N) % 5}
VOTES = np.array([[20, 3, 1], [10, 10, 4]])
TABLE = pd.DataFrame({"age": np.arange(N) * 2.0, "ill": y})
SCHEMA = preprocessing.Schema(
    {"age": preprocessing.BoundedColumn(0, 100), "ill": preprocessing.CategoricalColumn([0, 1])}
)
GUARANTEE = PrivacyGuarantee(GaussianEvent(2.0), 1e-6, "zero_out")
TARGET = LogisticRegression().fit(X, y)


@cache
def attacked():
    return attacks.AttackResult(X[:, 0], X[:, 1], "made up")


@cache
def inverted():
    attack = attacks.FirstLayerInversion(TARGET).fit(X, y)
    return attack.evaluate([attacks.party_gradient(TARGET, X[:2], y[:2])], [(X[:2], y[:2])])


@cache
def report():
    return audit.audit(TARGET, X, y, X + 0.1, y, attacks=[attacks.LossThreshold()])


@cache
def sweep():
    model = OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1])
    return model_selection.PrivacySweepCV(model, epsilons=[0.5, 1.0], cv=2, refit=1.0).fit(X, y)


@cache
def search():
    model = OutputPerturbationClassifier(bounds=(0, 1), classes=[0, 1])
    return model_selection.PrivateSearchCV(
        model, param_distributions={"alpha": [0.1, 1.0]}, epsilon=4.0, n_trials=2, n_records=N
    )


@cache
def quality():
    return synthesis.synthetic_quality(TABLE, TABLE[::-1], SCHEMA)


@cache
def pool():
    return attacks.ShadowPool(GaussianNB(), n_shadows=2, random_state=0).fit(X, y)


@cache
def plan():
    return FederatedPlan(n_features=3, n_outputs=1, n_parties=4, n_units=30, n_rounds=5)


@cache
def losses():
    return pld(GaussianEvent(2.0))


@cache
def votes():
    return ensemble.analyze_votes(VOTES, ensemble.GNMax(5.0), delta=1e-5)


@cache
def transformer():
    return preprocessing.SchemaTransformer(SCHEMA).fit(TABLE)


@cache
def regressor():
    return FunctionalMechanismRegressor(bounds=(0, 1), target_bounds=(0, 1)).fit(X, X[:, 0])


def aggregator():
    return ensemble.GNMax(5.0)


def curve():
    return display.MembershipRocDisplay


def panels():
    return display.PrivacyUtilityDisplay


# Who is asked, and each method with arguments that it takes. Where something is to be drawn,
# matplotlib is left to refuse what are no axes.
ASKED = {
    attacked: {
        "joined": {**GROUPS, "how": "sum"}, "epsilon_lower_bound": {"delta": 0.0, "alpha": 0.05}
    },
    inverted: {
        "best_rows": {"share": 0.5, "by": "recovery"},
        "refutes": {"guarantee": GUARANTEE, "alpha": 0.05}, "bound": {"guarantee": GUARANTEE},
    },
    report: {
        "to_html": {"path": None, "about": None, "records": False},
        "to_json": {"path": None, "about": None, "records": False},
        "to_dict": {"records": False},
    },
    sweep: {
        "to_html": {"path": None, "name": "the records", "about": None},
        "predict_proba": {"X": X}, "decision_function": {"X": X},
    },
    search: {"plan": {"X": X, "y": y, "groups": None}},
    quality: {
        "to_html": {"path": None, "name": "the records", "guarantee": None},
        "plot": {"columns": None},
    },
    pool: {"left_out": {"X": X}},
    plan: {
        "event_at": {"noise_multiplier": 2.0},
        "with_noise_for": {"epsilon": 1.0, "delta": 1e-6, "relation": "add_remove"},
    },
    regressor: {"regularization_path": {"alphas": [0.1, 1.0]}},
    losses: {
        "deltas": {"epsilons": np.array([0.5, 1.0])}, "delta": {"epsilon": 1.0},
        "epsilon": {"delta": 1e-6}, "estimate": {"delta": 1e-6},
    },
    votes: {"private_epsilon": {"n_queries": 1}},
    aggregator: {"with_noise": {"noise": 2.0}},
    transformer: {"get_feature_names_out": {"input_features": None}, "transform": {"X": TABLE}},
    curve: {"from_result": {"result": st.builds(attacked), "bound": None}},
    panels: {"from_estimator": {"sweep": st.builds(sweep)}},
}  # fmt: skip
CALLS = [
    pytest.param(who, method, id=f"{who.__name__}-{method}")
    for who, methods in ASKED.items()
    for method in methods
]


@pytest.mark.parametrize(("who", "method"), CALLS)
@given(data=st.data())
@few(2)
def test_methods(who, method, data):
    asked, given_ = who(), data.draw(arguments(ASKED[who][method], least=1))
    if isinstance(given_.get("path"), str | bytes):
        given_["path"] = None  # it would be written to, as asked
    if not callable(given_.get("bound")):  # what a function of the caller's raises is passed on
        attempt(lambda: _whole(getattr(asked, method)(**given_)), given_)
    plt.close("all")


def _whole(answer):
    """Return all that a generator gives."""
    return list(answer) if inspect.isgenerator(answer) else answer


TAKING = {
    name: taken
    for name, case in PRIVATE.items()
    if (taken := {*inspect.signature(case.make().fit).parameters} - {"X", "y", "fit_params"})
}


@pytest.mark.parametrize("name", TAKING)
@given(data=st.data())
@few(2)
def test_what_a_fit_takes_besides(name, data):
    """Groups, parties and public records: nothing is charged if they are refused."""
    case, budget = PRIVATE[name], PrivacyBudget(100.0, 1e-2)
    model = case.make(budget=budget)
    rows, target = case.data(N)
    besides = {
        taken: data.draw(st.one_of(odd_arrays(), odd_values(), st.just(np.arange(N) // 2)))
        for taken in sorted(TAKING[name])
    }
    attempt(
        lambda: model.fit(rows, target, **besides),
        {*model.get_params(), *besides, "X", "y", "unit"},
        unchanged=lambda: (len(budget.entries()), state_of(model)),
    )
