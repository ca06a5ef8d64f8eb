"""audit_one_run: canaries, coins, one fit, and a verdict that holds."""

from __future__ import annotations

import inspect
from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skprivacy import DPSGDClassifier, PATEClassifier
from skprivacy.accounting import GaussianEvent, LaplaceEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.audit import audit_one_run
from skprivacy.audit.canaries import coins, one_run
from skprivacy.audit.canaries.one_run_report import OneRunAuditReport
from skprivacy.label_privacy import RandomizedResponseClassifier
from skprivacy.linear_model import OutputPerturbationClassifier

X, y = make_classification(2000, n_features=6, flip_y=0.1, random_state=0)
X = np.clip(X, -3, 3)
PRIVATE = OutputPerturbationClassifier(epsilon=1.0, bounds=(-3, 3), classes=[0, 1])


RANDOM = []


@pytest.fixture(autouse=True)
def seeded():
    RANDOM[:] = [np.random.default_rng(0)]


class Told(ClassifierMixin, BaseEstimator):
    """Releases a noisy number for all possible features: how often with label 1, less with 0.

    A record that comes, goes or is blanked moves one number by 1, so mu = 1/noise; one whose label
    becomes the other moves it by 2.
    """

    def __init__(self, noise=1.0, relation="add_remove", event=None, unit="record"):
        self.noise = noise
        self.relation = relation
        self.event = event
        self.unit = unit

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen_ = {(*x, label) for x, label in zip(X.tolist(), y.tolist(), strict=True)}
        event = GaussianEvent(1.0) if self.event is None else self.event
        at_delta = None if isinstance(event, LaplaceEvent) else 1e-5
        self.privacy_ = PrivacyGuarantee(event, at_delta, self.relation, unit=self.unit)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def told(model, X, y):
    """Score canaries by what the model releases."""

    def there(labels):
        rows = zip(X.tolist(), labels.tolist(), strict=True)
        return np.array([(*x, label) in model.seen_ for x, label in rows])

    return there(y) * 1.0 - there(1 - y) + model.noise * RANDOM[0].normal(size=len(y))


def many(runs, estimator, n=100, **params):
    reports = [
        audit_one_run(
            estimator, X[: 2 * n], y[: 2 * n], n_canaries=n, score=told, random_state=seed, **params
        )
        for seed in range(runs)
    ]
    return sum(report.verdict == "violated" for report in reports)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_true_claims_are_violated_in_at_most_alpha(relation):
    noise = 2.0 if relation == "replace_one" else 1.0
    wrong = many(150, Told(noise=noise, relation=relation), alpha=0.2, n_guesses=100)
    assert stats.binom(150, 0.2).sf(wrong - 1) > 1e-6


@pytest.mark.heavy
def test_a_coin_that_replaces_makes_two_steps_of_zero_out():
    assert many(5, Told(relation="zero_out"), n=500) <= 3
    with mock.patch.dict(coins._STEPS, {("zero_out", "replace_one"): 1}):  # the planted bug
        assert many(5, Told(relation="zero_out"), n=500) == 5


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_a_quarter_of_the_noise_is_found(relation):
    assert many(5, Told(noise=0.2, relation=relation), n=500) == 5


def test_too_few_canaries_are_told():
    claim = Told(relation="zero_out", event=GaussianEvent(0.2))
    few = audit_one_run(claim, X, y, n_canaries=50, score=told)
    assert few.verdict == "consistent"
    assert not few.within_reach
    assert "the claim would not be refuted" in repr(few)
    many = audit_one_run(Told(), X, y, n_canaries=1000, score=told)
    assert many.within_reach
    assert "too few" not in repr(many)


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(random_state=0),
        make_pipeline(StandardScaler(), RandomForestClassifier(30, random_state=0)),
    ],
)
def test_models_that_memorise_are_measured(model):
    report = audit_one_run(model, X, y, n_canaries=400, random_state=0)
    assert isinstance(report, OneRunAuditReport)
    assert report.verdict == "no claim"
    assert report.epsilon_lower_bound > 1
    assert report.bounds[1].epsilon > report.epsilon_lower_bound
    assert report.coin == "add_remove"
    assert len(report.scores) == len(report.trained) == 400


def test_labels_alone_and_frames_will_do():
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(6)])
    names = np.array(["no", "yes"])[y]
    report = audit_one_run(
        make_pipeline(StandardScaler(), LinearSVC()), frame, names, n_canaries=200, random_state=0
    )
    assert set(report.scores.tolist()) <= {0.0, 1.0}
    assert report.epsilon_lower_bound == 0


class Liar(DecisionTreeClassifier):
    """A tree that claims epsilon 1 for whatever relation."""

    def __init__(self, relation="add_remove", random_state=None):
        super().__init__(random_state=random_state)
        self.relation = relation

    def fit(self, X, y):
        super().fit(X, y)
        self.privacy_ = PrivacyGuarantee(LaplaceEvent(1.0), relation=self.relation)
        return self


@pytest.mark.parametrize("relation", ["add_remove", "zero_out", "replace_one"])
def test_who_memorises_is_caught_under_every_relation(relation):
    report = audit_one_run(Liar(relation, random_state=0), X, y, n_canaries=600, random_state=0)
    assert report.verdict == "violated"
    assert report.coin == ("add_remove" if relation == "add_remove" else "replace_one")
    assert any("applied twice" in text for text in report.assumptions) == (relation == "zero_out")
    assert report.verdict in repr(report)


def test_the_number_of_records_stays_where_it_is_public():
    """In-or-out coins would change what a zero-out guarantee never hid."""
    sizes = []
    for relation in ("zero_out", "add_remove"):
        with mock.patch.object(Told, "fit", lambda s, X, y: sizes.append(len(X)) or FIT(s, X, y)):
            audit_one_run(Told(relation=relation), X, y, n_canaries=400, random_state=0)
    assert sizes[0] == 2000
    assert 1600 < sizes[1] < 2000


FIT = Told.fit


def test_the_coin_follows_what_the_parameters_announce():
    assert one_run.coin_for(PRIVATE) == "add_remove"
    assert one_run.coin_for(make_pipeline(StandardScaler(), PRIVATE)) == "add_remove"
    assert one_run.coin_for(DPSGDClassifier()) == "replace_one"
    assert one_run.coin_for(DPSGDClassifier(relation="add_remove", n_records=1000)) == "add_remove"
    assert one_run.coin_for(PATEClassifier()) == "replace_one"
    assert one_run.coin_for(DecisionTreeClassifier()) == "add_remove"


def test_private_models_are_consistent_and_charge_their_budget_once():
    budget = PrivacyBudget(epsilon=1.5)
    model = OutputPerturbationClassifier(epsilon=1.0, bounds=(-3, 3), classes=[0, 1], budget=budget)
    report = audit_one_run(model, X, y, n_canaries=400, random_state=0)
    assert report.verdict == "consistent"
    assert budget.spent() == pytest.approx(1.0)
    assert not hasattr(model, "coef_")


def test_a_bound_above_a_claim_that_stands_is_explained():
    report = audit_one_run(PRIVATE, X, y, n_canaries=100, random_state=0, alpha=1e-6)
    assert report.to_dict()["bounds_above_claim"] == []
    for bound, why in zip(
        report.bounds, ("from another test", "under its assumptions"), strict=True
    ):
        text = repr(replace(report, bounds=(replace(bound, epsilon=9.0),)))
        assert "9 is above the claimed 1, yet not refuted" in text
        assert why in text


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Told(event=NonPrivateEvent()), "no claim"),
        (Told(unit="patient"), "no claim about single records: the unit is patient"),
        (Told(relation="label"), "no claim about these coins: it is for label"),
    ],
)
def test_claims_that_coins_cannot_test_are_not_refuted(model, why):
    model.set_params(noise=1e-9)
    report = audit_one_run(model, X, y, n_canaries=100, score=told)
    assert report.untested.startswith(why)
    assert not report.refuted


def test_the_product_bound_comes_on_request_and_says_what_it_assumes():
    model = DecisionTreeClassifier(random_state=0)
    plain = audit_one_run(model, X, y, n_canaries=200, random_state=0)
    assert "interfere" not in repr(plain)
    asked = audit_one_run(model, X, y, n_canaries=200, random_state=0, independent_canaries=True)
    assert "holds only if canaries do not interfere" in repr(asked)
    assert asked.epsilon_lower_bound == plain.epsilon_lower_bound
    assert inspect.signature(audit_one_run).parameters["independent_canaries"].default is False


def test_the_number_of_guesses_depends_on_the_claim_alone():
    found = [
        audit_one_run(Told(noise=noise), X, y, n_canaries=200, score=told, random_state=seed)
        for noise, seed in [(0.01, 0), (1.0, 1), (9.0, 2)]
    ]
    assert len({report.guesses for report in found}) == 1
    assert len({report.right for report in found}) > 1


class Seeded(Told):
    """It releases only random numbers from its seed, and nothing about records."""

    def __init__(self, random_state=0):
        super().__init__()
        self.random_state = random_state

    def fit(self, X, y):
        super().fit(X, y)
        stream = np.random.default_rng(self.random_state)
        stream.integers(2**31)
        self.numbers_ = stream.random(200)
        return self


def test_the_model_s_own_seed_is_no_key_to_the_coins():
    def by_seed(model, X, y):
        return -model.numbers_

    def audited():
        return audit_one_run(Seeded(7), X, y, n_canaries=200, score=by_seed, random_state=7)

    assert audited().verdict == "consistent"
    with mock.patch.object(one_run, "coin_entropy", lambda seed: seed):  # the planted bug
        assert audited().verdict == "violated"


def test_canaries_stand_in_the_place_of_records():
    """The order of the training data does not reveal the coins either."""
    records, labels = np.arange(50.0).reshape(-1, 1), np.arange(50) % 2
    rows, crafted, own = np.arange(0, 50, 5), -1 - np.arange(10.0).reshape(-1, 1), np.full(10, 9)
    trained = np.arange(10) % 3 == 0
    mixed, mixed_y = coins.insert_canaries(
        records, labels, rows, crafted, own, trained, "replace_one"
    )
    stays = np.ones(50, bool)
    stays[rows[trained]] = False
    np.testing.assert_array_equal(mixed[stays], records[stays])
    np.testing.assert_array_equal(mixed[~stays], crafted[trained])
    np.testing.assert_array_equal(mixed_y, np.where(stays, labels, 9))
    fewer, fewer_y = coins.insert_canaries(
        records, labels, rows, crafted, own, trained, "add_remove"
    )
    kept = np.ones(50, bool)
    kept[rows[~trained]] = False
    np.testing.assert_array_equal(fewer, mixed[kept])
    np.testing.assert_array_equal(fewer_y, mixed_y[kept])


def test_coins_are_fair_and_seeded():
    first, again, other = (
        audit_one_run(Told(), X, y, n_canaries=1000, score=told, random_state=seed).trained
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert stats.binomtest(int((first == other).sum()), 1000).pvalue > 1e-6
    assert stats.binomtest(int(first.sum()), 1000).pvalue > 1e-6


def test_crafted_canaries_are_trained_on():
    far = np.random.default_rng(0).normal(scale=9, size=(300, 6))
    report = audit_one_run(
        DecisionTreeClassifier(random_state=0), X, y, n_canaries=300, random_state=0,
        canaries=(far, np.random.default_rng(1).integers(2, size=300)),
    )  # fmt: skip
    assert report.epsilon_lower_bound > 0.3


class Regressor(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        raise AssertionError("trained")


@pytest.mark.parametrize(
    ("model", "params", "error", "message"),
    [
        (PRIVATE, {"n_canaries": 19}, ValueError, "n_canaries=19"),
        (PRIVATE, {"n_canaries": 1001}, ValueError, "1000"),
        (PRIVATE, {"n_canaries": 100.0}, ValueError, "n_canaries=100.0"),
        (PRIVATE, {"n_canaries": 100, "n_guesses": 101}, ValueError, "n_guesses=101"),
        (PRIVATE, {"alpha": 1.0}, ValueError, "alpha=1.0"),
        (PRIVATE, {"alpha": 1e-99}, ValueError, "at least 1e-80"),
        (PRIVATE, {"random_state": "a"}, ValueError, "random_state='a'"),
        (PRIVATE, {"canaries": (X[:5], y[:5])}, ValueError, "canaries"),
        (RandomizedResponseClassifier(), {}, ValueError, "Use audit"),
        (Regressor(), {}, TypeError, "must be a classifier"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(model, params, error, message):
    with (
        mock.patch.object(type(model), "fit", side_effect=AssertionError("trained")),
        pytest.raises(error, match=message),
    ):
        audit_one_run(model, X, y, **params)


def test_scores_must_be_numbers():
    with pytest.raises(ValueError, match="expected 100 finite numbers"):
        audit_one_run(Told(), X, y, n_canaries=100, score=lambda *_: np.full(100, np.nan))
