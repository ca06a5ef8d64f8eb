"""Audits whose members are people: nobody on both sides, and the claim is one for them."""

import json
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.accounting.events import RandomizedResponseEvent
from skprivacy.attacks import (
    LabelCanaries,
    LabelInferenceAttack,
    LiRA,
    LossThreshold,
    SupervisedAttack,
)
from skprivacy.attacks.record_tables import fingerprints
from skprivacy.audit import audit, audit_predictions, check_disclosure
from skprivacy.audit import runner as attacking

CLAIM = PrivacyGuarantee(ApproxDPEvent(0.5, 1e-6), 1e-6, "zero_out", unit="patient")


def test_groups_in_another_order_than_the_rows_are_refused():
    rows = pd.DataFrame({"a": np.arange(6.0), "b": [1.0] * 6}, index=[3, 5, 1, 0, 4, 2])
    labels, people = np.array([0, 1] * 3), pd.Series(np.arange(6), name="patient")
    model = DecisionTreeClassifier().fit(rows, labels)
    pair = people.set_axis(rows.index), people + 6
    with pytest.raises(ValueError, match="index of X in another order"):
        audit(model, rows, labels, rows + 1, labels, groups=pair)


@pytest.mark.heavy
def test_people_of_a_frame_are_those_of_an_array():
    """Shuffled rows were mistaken for rows in another order than the groups."""
    rng = np.random.default_rng(0)
    rows, labels, people = rng.normal(size=(80, 2)), rng.integers(0, 2, 80), np.arange(80) // 2
    model, found = LogisticRegression().fit(rows[:40], labels[:40]), []
    for table in (rows, pd.DataFrame(rows)):
        parts = table[:40], labels[:40], table[40:], labels[40:]
        pair = people[:40], people[40:]
        with warnings.catch_warnings():  # the model has not seen names of columns
            warnings.simplefilter("ignore")
            report = audit(model, *parts, groups=pair, n_shadows=4, random_state=0)
        found.append([finding.result.scores_in for finding in report.findings])
    assert np.array_equal(found[0], found[1])


class Whispering(ClassifierMixin, BaseEstimator):
    """Hardly surer of a row that it was trained on, under cover of noise; claims epsilon 0.5."""

    GIVEN: list = []

    def __init__(self, claim=CLAIM, whisper=0.5, random_state=0):
        self.claim = claim
        self.whisper = whisper
        self.random_state = random_state

    def fit(self, X, y, groups=None):
        self.GIVEN.append(groups)
        self.rows_, self.classes_, self.privacy_ = fingerprints(X), np.unique(y), self.claim
        return self

    def predict_proba(self, X):
        seed = (fingerprints(X) + np.uint64(self.random_state)) % np.uint64(2**32)
        noise = [np.random.default_rng(s).normal() for s in seed]  # a model answers alike
        known = np.isin(fingerprints(X), self.rows_)
        sure = 1 / (1 + np.exp(-(self.whisper * known + noise)))
        first = np.asarray(X)[:, 0] > 0  # which is the class
        return np.where(first[:, None], np.c_[1 - sure, sure], np.c_[sure, 1 - sure])

    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0).astype(int)


def visits(n_people=300, rows=20):
    rng = np.random.default_rng(0)
    patient = pd.Series(np.repeat(np.arange(n_people), rows), name="patient")
    X = rng.normal(size=(len(patient), 3))
    return X, (X[:, 0] > 0).astype(int), patient


def halves(X, y, patient):
    inside = (patient < patient.max() / 2).to_numpy()
    records = X[inside], y[inside], X[~inside], y[~inside]
    return records, (patient[inside], patient[~inside])


@pytest.mark.slow
def test_a_leak_about_people_that_no_record_shows():
    records, groups = halves(*visits())
    model = Whispering().fit(*records[:2])
    single = audit(model, *records, attacks=[LossThreshold()])
    people = audit(model, *records, attacks=[LossThreshold()], groups=groups)
    assert single.verdict != "violated"
    assert people.verdict == "violated"
    assert people.attacked == people.unit == "patient"
    assert (people.n_train, people.n_test) == (150, 150)
    assert [f.result.attack for f in people.findings] == [
        "LossThreshold, all records together of each patient",
        "LossThreshold, the best record of each patient",
    ]
    assert any("Pass groups=" in caveat for caveat in single.caveats)
    assert not any("Pass groups=" in caveat for caveat in people.caveats)
    assert people.to_dict()["attacked"] == "patient"
    assert json.loads(people.to_json())["n_train"] == 150
    assert (people.exposed_records()["row"] < 150).all()


@pytest.mark.heavy
def test_the_exposed_people_are_found_and_no_others():
    X, y, patient = visits()
    X[:, 1] = ward = patient % 2  # of each person, in all records
    records, groups = halves(X, y, patient)
    model = Whispering().fit(*records[:2])
    model.rows_ = fingerprints(records[0][records[0][:, 1] == 1])  # it whispers of one ward
    report = audit(model, *records, attacks=[LossThreshold()], groups=groups, subgroups=1)
    table = report.by_group()
    assert set(table["by"]) == {"1"}  # and no class, which is of records
    assert len(table) == 4  # two wards, two ways of joining
    assert (table["n_in"] == 75).all()
    assert (table["n_out"] == 75).all()
    assert dict(table.groupby("group")["exposed"].any()) == {"0": False, "1": True}
    page = report.to_html()
    for text in ("Values of patient<small>in training, not", "Single values of patient",
                 "150 used in training, 150 not"):  # fmt: skip
        assert text in page
    ward[3] = 1 - ward[3]  # one visit of one patient
    pair = tuple(ward[whose.index] for whose in groups)
    with pytest.raises(ValueError, match=r"differ within 1 values of patient.* equal in all"):
        audit(model, *records, attacks=[LossThreshold()], groups=groups, subgroups=pair)


def test_an_honest_model_is_not_accused():
    records, groups = halves(*visits(rows=8))
    model = Whispering(whisper=0.0).fit(*records[:2])
    report = audit(model, *records, attacks=[LossThreshold()], groups=groups)
    assert report.verdict == "consistent"
    assert report.epsilon_lower_bound == 0


@pytest.mark.heavy
def test_a_claim_for_records_is_none_for_people():
    records, groups = halves(*visits(rows=4))
    for claim, about in (
        (PrivacyGuarantee(ApproxDPEvent(0.5)), "is about single records"),
        (PrivacyGuarantee(ApproxDPEvent(0.5), unit="home"), "is about values of home"),
    ):
        model = Whispering(claim).fit(*records[:2])
        report = audit(model, *records, attacks=[LossThreshold()], groups=groups)
        assert report.reason.startswith("no claim for patient: ")
        assert report.reason.endswith(about)
        assert not report.cost_of_search
        assert "For a claim about patient, train with groups." in report.caveats[0]
    bounded = PrivacyGuarantee(ApproxDPEvent(0.5)).group(4, unit="patient")
    model = Whispering(bounded).fit(*records[:2])
    assert audit(model, *records, attacks=[LossThreshold()], groups=groups).claimed_epsilon == 2.0


def test_nobody_is_on_both_sides():
    X, y, patient = visits(rows=4)
    records, groups = halves(X, y, patient)
    model = Whispering().fit(*records[:2])
    moved = groups[1].copy()
    moved.iloc[0] = 0
    with pytest.raises(ValueError, match="1 values of patient are among both members"):
        audit(model, *records, groups=(groups[0], moved))
    for bad in (groups[0], (groups[0], groups[1][1:]), "patient"):
        with pytest.raises(ValueError, match="groups must be a pair"):
            audit(model, *records, groups=bad)
    with pytest.raises(ValueError, match="at least 2 values of patient"):
        audit(model, *records, groups=(0 * groups[0], groups[1]))


def test_shadow_models_are_trained_on_halves_of_people_and_given_their_groups():
    records, groups = halves(*visits(40, 5))
    model = Whispering().fit(*records[:2])
    with mock.patch.object(Whispering, "GIVEN", []):
        report = audit(model, *records, attacks=[LiRA(pool=4)], n_shadows=4, groups=groups)
        given = Whispering.GIVEN
    assert report.n_shadows == len(given) == 4
    for series in given:
        assert series.name == "patient"
        # in order of appearance among shuffled records, independent of membership
        assert sorted(series.value_counts()) == [5] * 20


@pytest.mark.heavy
def test_who_learns_from_known_members_is_judged_on_other_people():
    records, groups = halves(*visits(60, 5))
    model = Whispering().fit(*records[:2])
    met = []

    class Noting(SupervisedAttack):
        def fit(self, X, y=None):
            met.append(set(fingerprints(X.X)))
            return super().fit(X, y)

        def evaluate(self, *parts):
            met.append(set(fingerprints(np.concatenate([part.X for part in parts]))))
            return super().evaluate(*parts)

    report = audit(model, *records, attacks=[Noting()], groups=groups)
    patient = pd.concat(groups).to_numpy()
    prints = fingerprints(np.concatenate(records[::2]))
    learned, judged = (set(patient[np.isin(prints, list(rows))]) for rows in met)
    assert not learned & judged
    assert len(report.findings[0].result.scores_in) == len([p for p in judged if p < 30])


def test_every_way_of_joining_has_its_share_of_the_error():
    records, groups = halves(*visits(rows=4))
    model = Whispering().fit(*records[:2])
    shares = []
    whole = attacking.AttackFinding.from_result

    def noting(result, guarantee, alpha, corrected, evaluated):
        shares.append(corrected)
        return whole(result, guarantee, alpha, corrected, evaluated)

    with mock.patch.object(attacking.AttackFinding, "from_result", noting):
        audit(model, *records, attacks=[LossThreshold()], groups=groups, alpha=0.1)
    assert shares == [0.05, 0.05]


class Remembering(ClassifierMixin, BaseEstimator):
    """Hardly surer of the labels that it was trained on, under cover of noise."""

    def __init__(self, unit="patient", random_state=0):
        self.unit = unit
        self.random_state = random_state

    def fit(self, X, y, groups=None):
        self.given_, self.classes_ = groups, np.unique(y)
        self.labels_ = dict(zip(fingerprints(X).tolist(), np.asarray(y).tolist(), strict=True))
        self.privacy_ = PrivacyGuarantee(
            RandomizedResponseEvent(0.5), relation="label", unit=self.unit
        )
        return self

    def predict_proba(self, X):
        prints = fingerprints(X)
        seed = (prints + np.uint64(self.random_state)) % np.uint64(2**32)
        noise = np.array([np.random.default_rng(s).normal() for s in seed])
        label = np.array([self.labels_.get(p, 0.5) for p in prints.tolist()])
        sure = 1 / (1 + np.exp(-(0.5 * label - 0.25 + noise)))
        return np.c_[1 - sure, sure]

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


@pytest.mark.heavy
def test_labels_of_a_person_are_guessed_by_one_coin_and_from_all_records():
    records, groups = halves(*visits(900, 20))
    model = Remembering().fit(*records[:2], groups=groups[0])
    attack = LabelInferenceAttack(prior=LogisticRegression(), n_canaries=100, random_state=0)
    report = audit(model, *records, attacks=attack, groups=groups)
    assert (report.unit, report.attacked, report.n_train) == ("patient", "patient", 450)
    assert report.n_canaries == 100
    single = audit(model, *records, attacks=attack)
    assert single.n_canaries == 100
    assert report.epsilon_lower_bound > 0.5 > single.epsilon_lower_bound
    assert report.verdict == "violated"
    of_records = audit(Remembering("record").fit(*records[:2]), *records, attacks=attack,
                       groups=groups)  # fmt: skip
    assert of_records.guarantee is None
    assert "no claim for patient" in repr(of_records)


def test_coins_of_people_flip_all_of_their_labels_or_none():
    whose = np.repeat(np.arange(50), 4)
    y = np.arange(200) % 3
    canaries = LabelCanaries.draw(y, 20, random_state=0, groups=whose)
    assert len(canaries.kept) == 20
    assert len(canaries.rows) == 80
    flipped = (canaries.labels != y).reshape(50, 4)
    assert (flipped.all(axis=1) | ~flipped.any(axis=1)).all()
    assert flipped.any(axis=1).sum() == (~canaries.kept).sum()
    np.testing.assert_array_equal(canaries._sum_by_canary(np.ones(80)), np.full(20, 4.0))
    with pytest.raises(ValueError, match="number of values of group, 50"):
        LabelCanaries.draw(y, 51, groups=whose)


@pytest.mark.heavy
def test_tables_of_probabilities_are_audited_by_people_too():
    records, groups = halves(*visits())
    model = Whispering().fit(*records[:2])
    tables = [model.predict_proba(X) for X in records[::2]]
    given = (tables[0], records[1], tables[1], records[3])
    claim = {"claim": (0.5, 1e-6), "attacks": [LossThreshold()]}
    report = audit_predictions(*given, **claim, groups=groups)
    assert (report.unit, report.attacked, report.n_train) == ("patient", "patient", 150)
    assert report.verdict == "violated"
    assert audit_predictions(*given, **claim).verdict == "consistent"
    n, rng = len(groups[0]), np.random.default_rng(0)
    shadows = np.full((4, 2 * n, 2), 0.5)
    halved = np.stack([rng.permutation(300) < 150 for _ in range(2)])
    of_people = np.repeat(np.concatenate([halved, ~halved]), 20, axis=1)
    pooled = {**claim, "attacks": [LiRA(pool=4, online=True)], "shadow_probas": shadows}
    found = audit_predictions(*given, **pooled, shadow_trained=of_people, groups=groups)
    assert found.n_shadows == 4
    of_records = of_people.copy()
    of_records[0, 0] = ~of_records[0, 0]
    with pytest.raises(ValueError, match="only some records of a patient, in 1 cases"):
        audit_predictions(*given, **pooled, shadow_trained=of_records, groups=groups)


def test_one_persons_many_records_hide_nobody():
    X, y = np.repeat(np.arange(8.0), 20)[:, None], np.repeat([0, 1] * 4, 20)
    patient = pd.Series(np.repeat(np.arange(8), 20), name="patient")
    tree = DecisionTreeClassifier(random_state=0).fit(X[:120], y[:120])
    of_records = check_disclosure(tree, X[:120], y[:120])
    of_people = check_disclosure(tree, X[:120], y[:120], groups=patient[:120])
    assert of_records["k-anonymity"].value == 60
    assert of_people["k-anonymity"].value == 3
    assert "k = 3 of patient" in of_people["k-anonymity"].says
    line = LogisticRegression().fit(X, y)
    assert check_disclosure(line, X, y)["degrees of freedom"].value == 158
    assert check_disclosure(line, X, y, groups=patient)["degrees of freedom"].value == 6
