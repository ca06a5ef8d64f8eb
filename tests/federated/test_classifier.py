"""A federated classifier as its users meet it: claims, refusals, searches, files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skprivacy import save_model
from skprivacy.accounting import GaussianEvent, PoissonSampledEvent, PrivacyBudget, RepeatedEvent
from skprivacy.certificates import issue_certificate, verify_certificate
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.federated import DPFederatedClassifier
from skprivacy.model_selection import PrivacySweepCV

N = 90
RNG = np.random.RandomState(0)
y = np.arange(N) % 2
X = RNG.normal(size=(N, 3)) + 2.0 * y[:, None]
PARTIES = RNG.randint(6, size=N)


def federation(**params):
    """Return one with a guarantee so weak that it learns from few records."""
    return DPFederatedClassifier(
        **{"epsilon": 50.0, "delta": 1e-3, "classes": [0, 1], "n_rounds": 20, **params}
    )


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:noise_seed")
def test_it_learns():
    assert federation(noise_seed=0).fit(X, y, parties=PARTIES).score(X, y) > 0.85
    many = federation(unit="party", epsilon=200.0, noise_seed=0).fit(
        X, y, parties=np.arange(N) % 30
    )
    assert many.score(X, y) > 0.85
    three = federation(epsilon=100.0, n_rounds=60, classes=["a", "b", "c"], noise_seed=0)
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [0.0, 2.0])]
    three.fit(X, labels, parties=PARTIES)
    assert three.coef_.shape == (3, 3)
    assert three.score(X, labels) > 0.6


@pytest.mark.parametrize(
    ("params", "unit", "relation", "said"),
    [
        ({}, "record", "zero_out", ["sees only the sum", "trusted with its own", "of the 6"]),
        (
            {"relation": "add_remove", "n_records": 90},
            "record",
            "add_remove",
            ["the parties that take part are public"],
        ),
        ({"server": "trusted"}, "record", "zero_out", ["the server is trusted"]),
        ({"unit": "party"}, "party", "zero_out", ["the number of groups is public"]),
        ({"n_untrusted": 4}, "record", "zero_out", ["4 at most drop out or use what they know"]),
    ],
)
def test_a_guarantee_says_whom_it_trusts(params, unit, relation, said):
    privacy = federation(**params).fit(X, y, parties=PARTIES).privacy_
    assert (privacy.unit, privacy.relation, privacy.kind) == (unit, relation, "proved")
    assert all(any(part in one for one in privacy.assumptions) for part in said)


def test_a_party_is_called_by_the_name_of_its_column():
    hospital = pd.Series(PARTIES, name="hospital")
    assert federation(unit="party").fit(X, y, parties=hospital).privacy_.unit == "hospital"
    assert federation().fit(X, y, parties=hospital).privacy_.unit == "record"


@pytest.mark.parametrize(("params", "rate"), [({"batch_size": 30}, 1 / 3), ({"unit": "party"}, 1)])
def test_the_accounted_event(params, rate):
    model = federation(epsilon=3.0, **params).fit(X, y, parties=PARTIES)
    step = PoissonSampledEvent(rate, GaussianEvent(model.noise_multiplier_))
    assert model.privacy_event_ == RepeatedEvent(step, 20)
    assert 2.99 < model.epsilon_ <= 3.0


ODD = {
    "too few": (PARTIES[:-1], "parties has 89 values for 90 records"),
    "of two dimensions": (PARTIES[:, None], "parties has shape"),
    "nan": (np.where(np.arange(N) == 4, np.nan, PARTIES), "parties has missing values"),
    "None": ([None, *PARTIES[1:]], "parties has missing values"),
    "one party": (np.zeros(N), "parties has 1 party"),
    "numbers and text": ([1, "1"] * (N // 2), "both as a number and as text"),
    "a record": (pd.Series(PARTIES, name="record"), "parties is named 'record'"),
    "a number": (7, "parties must have one value for each record; got one int"),
    "a set": ([{1}] * N, "parties holds values that have no hash"),
    "masked": (np.ma.masked_array(PARTIES, PARTIES == 3), "parties"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_parties_are_refused_before_anything_is_spent(name):
    parties, said = ODD[name]
    budget = PrivacyBudget(100.0, 1e-2)
    model = federation(budget=budget)
    with pytest.raises(ValueError, match=said):
        model.fit(X, y, parties=parties)
    assert not len(budget.entries())
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"unit": "party", "batch_size": 10}, "batch_size=10 is for unit='record'"),
        (
            {"unit": "party", "relation": "add_remove", "n_records": 90},
            "n_records=90 is for unit='record'",
        ),
        ({"local_steps": 2}, "local_steps=2 must be 1 if records are protected"),
        ({"n_untrusted": 6}, "n_untrusted=6 must be below n_parties=6"),
        ({"party_names": [("a", 1), ("b", 2)]}, "must be numbers or text"),
        ({"party_names": []}, "a name which is not in party_names"),
        ({"party_names": [0, 1, 2, 3]}, "a name which is not in party_names"),
        (
            {"party_names": ["0", "1", "2", "3", "4", "5"]},
            "a name which is not in party_names",
        ),
        ({"party_names": [0, 1, 2, 3, 4, 5, 5]}, "must name each party once"),
        ({"party_names": [0, 1, 2, 3, 4, 5, "5"]}, "must name each party once"),
        ({"delta": 0.02}, "delta=0.02 must be below 1 / 90, the number of records"),
        ({"delta": 0.2, "unit": "party"}, "delta=0.2 must be below 1 / 6, the number of parties"),
        ({"classes": [0, 2]}, "y holds labels that are not in classes"),
        ({"classes": [1]}, "at least two classes"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"unit": "patient"}, "unit"),
        ({"server": "evil"}, "server"),
        ({"momentum": 1.0}, "momentum"),
    ],
)
def test_contradictory_settings_are_refused_before_any_charge(params, said):
    budget = PrivacyBudget(100.0, 0.5)
    with pytest.raises(ValueError, match=said):
        federation(budget=budget, **params).fit(X, y, parties=PARTIES)
    assert not len(budget.entries())


@pytest.mark.parametrize("params", [{"unit": "party"}, {"relation": "add_remove", "n_records": 90}])
def test_records_without_a_party_are_refused_where_parties_matter(params):
    with pytest.raises(ValueError, match="parties=None makes each record a separate party"):
        federation(**params).fit(X, y)


def test_parties_of_one_class_or_without_records_take_part():
    sorted_by_label = np.where(y == 0, PARTIES % 3, 3 + PARTIES % 3)
    with pytest.warns(PrivacyLeakWarning, match="classes=None"):
        model = federation(classes=None, party_names=range(9)).fit(X, y, parties=sorted_by_label)
    assert model.n_parties_ == 9
    assert "the set of class labels is public" in " ".join(model.privacy_.assumptions)
    model = federation(unit="party", party_names=[*range(6), 99]).fit(X, y, parties=PARTIES)
    assert model.n_parties_ == 7


@pytest.mark.parametrize("dtype", ["category", "string", object])
def test_parties_are_known_by_names_of_any_type(dtype):
    names = pd.Series(np.array(list("abcdef"))[PARTIES], name="hospital").astype(dtype)
    model = federation(unit="party", party_names=np.array(list("abcdefg"))).fit(X, y, parties=names)
    assert (model.n_parties_, model.privacy_.unit) == (7, "hospital")
    assert federation().fit(X, y, parties=names.tolist()).n_parties_ == 6


def test_values_that_cannot_be_computed_with_are_left_out():
    rows = X.copy()
    rows[::7, 0] = [np.nan, np.inf, -np.inf, 1e200, 1e308] * 2 + [np.nan] * 3
    for unit in ("record", "party"):
        model = federation(unit=unit, epsilon=np.inf).fit(rows, y, parties=PARTIES)
        without = federation(unit=unit, epsilon=np.inf)
        assert np.isfinite(model.coef_).all()
        if unit == "party":
            left = np.isfinite(rows[:, 0]) & (np.abs(rows[:, 0]) < 1e100)
            without.fit(rows[left], y[left], parties=PARTIES[left])
            assert np.array_equal(without.coef_, model.coef_)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@pytest.mark.parametrize("unit", ["record", "party"])
def test_how_many_threads_work_does_not_matter(unit):
    fits = [
        federation(unit=unit, noise_seed=3, n_jobs=n).fit(X, y, parties=PARTIES)
        for n in (None, 1, 3)
    ]
    assert all(np.array_equal(fits[0].coef_, model.coef_) for model in fits[1:])
    assert fits[0].privacy_.kind == "estimate"


@pytest.mark.heavy
def test_pipelines_searches_and_sweeps_hand_parties_on():
    made = make_pipeline(FunctionTransformer(), federation())
    fitted = made.fit(X, y, dpfederatedclassifier__parties=PARTIES)
    assert fitted[-1].n_parties_ == 6
    with config_context(enable_metadata_routing=True):
        model = federation().set_fit_request(parties=True)
        search = GridSearchCV(model, {"epsilon": [40.0, 60.0]}, cv=2)
        search.fit(X, y, parties=PARTIES)
        assert search.best_estimator_.n_parties_ == 6
        scores = cross_val_score(model, X, y, cv=2, params={"parties": PARTIES})
        assert len(scores) == 2
    sweep = PrivacySweepCV(federation(), epsilons=[50.0], cv=2, baseline=None)
    sweep.fit(X, y, parties=PARTIES)
    assert "honest but curious" in repr(sweep.guarantees_[0])


@pytest.mark.slow
@pytest.mark.heavy
def test_a_certificate_states_the_trust(tmp_path):
    model = federation(unit="party").fit(X, y, parties=pd.Series(PARTIES, name="hospital"))
    save_model(model, tmp_path / "m")
    key = Ed25519PrivateKey.generate()
    written = issue_certificate(model, tmp_path / "c", key=key, model_file=tmp_path / "m")
    assert "honest but curious" in str(written)
    found = verify_certificate(tmp_path / "c", key=key.public_key())
    assert "hospital" in str(found)
