"""Attacks on people: nobody is in both halves, and all records of a person count together."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy.attacks import AttackResult, LabeledRecords, LiRA, ShadowPool
from skprivacy.attacks.record_tables import fingerprints


class Overfitted(ClassifierMixin, BaseEstimator):
    """A little surer of its training rows; notes the groups it was given."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y, groups=None):
        self.groups_ = groups
        self.rows_, self.classes_ = fingerprints(X), np.unique(y)
        return self

    def predict_proba(self, X):
        noise = np.random.default_rng(self.random_state).normal(size=len(X))
        sure = 1 / (1 + np.exp(-(0.5 * np.isin(fingerprints(X), self.rows_) + noise)))
        first = np.asarray(X)[:, 0] > 0  # which is the class
        return np.where(first[:, None], np.c_[1 - sure, sure], np.c_[sure, 1 - sure])


def visits(n_people=30, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, n_people)
    patient = pd.Series(np.repeat(np.arange(n_people) + 100, sizes), name="patient")
    X = rng.normal(size=(len(patient), 3))
    return X, (X[:, 0] > 0).astype(int), patient


def together(mask, patient):
    return all(len(set(mask[patient == who])) == 1 for who in patient.unique())


def test_all_records_of_a_person_are_in_one_half():
    X, y, patient = visits()
    pool = ShadowPool(GaussianNB(), n_shadows=6, random_state=0).fit(X, y, groups=patient)
    trained, known = pool.membership(X)
    assert known.all()
    assert all(together(mask, patient) for mask in trained)
    assert (trained.sum(axis=0) == 3).all()
    alone = ShadowPool(GaussianNB(), n_shadows=6, random_state=0).fit(X, y).membership(X)[0]
    assert not any(together(mask, patient) for mask in alone)


def test_people_who_share_a_row_are_in_one_half():
    X, y, patient = visits()
    X[patient == 101] = X[(patient == 100).argmax()]
    pool = ShadowPool(GaussianNB(), n_shadows=8, random_state=0).fit(X, y, groups=patient)
    both = patient.isin([100, 101])
    assert all(len(set(mask[both])) == 1 for mask in pool.membership(X)[0])


def test_records_that_all_hang_together_cannot_be_halved():
    X, y, patient = visits()
    with pytest.raises(ValueError, match="are connected by equal rows of different values"):
        ShadowPool(GaussianNB(), n_shadows=2).fit(np.round(X), y, groups=patient)
    few = np.flatnonzero(patient < 103)
    with pytest.raises(ValueError, match="3 values of patient"):
        ShadowPool(GaussianNB(), n_shadows=2).fit(X[few], y[few], groups=patient[few])


def test_shadow_models_are_given_the_groups_of_their_records():
    X, y, patient = visits()
    for model in (Overfitted(), make_pipeline(StandardScaler(), Overfitted())):
        pool = ShadowPool(model, n_shadows=2, random_state=0).fit(X, y, groups=patient)
        for shadow, mask in zip(pool.estimators_, pool.membership(X)[0], strict=True):
            given = getattr(shadow, "steps", [("", shadow)])[-1][1].groups_
            assert given.name == "patient"
            ours = pd.factorize(patient[mask])[0]
            assert (pd.factorize(given)[0] == ours).all()


def test_kept_models_are_not_those_of_other_people(tmp_path):
    X, y, patient = visits()
    pool = ShadowPool(GaussianNB(), n_shadows=2, random_state=0, path=tmp_path)
    pool.fit(X, y, groups=patient)
    pool.fit(X, y, groups=patient)
    with pytest.raises(ValueError, match="other records"):
        pool.fit(X, y, groups=patient.sample(frac=1, random_state=0).to_numpy())


def test_all_records_together_tell_more_than_the_best_one_or_any():
    """User-level LiRA: log ratios add up over a person's rows."""
    X, y, patient = visits(400)
    inside = patient < 300
    model = Overfitted(0).fit(X[inside], y[inside])
    pool = ShadowPool(Overfitted(), n_shadows=8, random_state=1).fit(X, y, groups=patient)
    records = LabeledRecords(X, y)
    attack = LiRA(model, online=True, pool=pool).fit(records)
    single = attack.evaluate(records[inside], records[~inside])
    people = single.join_groups(patient[inside], patient[~inside])
    best = single.join_groups(patient[inside], patient[~inside], how="max")
    assert (len(people.scores_in), len(people.scores_out)) == (200, 200)
    assert people.auc > single.auc + 0.03
    assert people.auc > best.auc
    assert people.attack == "LiRA, all records together of each patient"
    assert best.attack == "LiRA, the best record of each patient"


def test_joined_scores_do_not_count_records():
    """A person with many uninformative records is not likelier to be a member."""
    rng = np.random.default_rng(0)
    many = AttackResult(rng.normal(5, 1, 5000), rng.normal(5, 1, 500))
    people = many.join_groups(np.repeat(np.arange(500), 10), np.arange(500, 1000))
    low, high = people.auc_interval
    assert low < 0.5 < high


@pytest.mark.parametrize(
    ("groups", "how", "words"),
    [
        ((["a", "b"], ["b", "c"]), "sum", "1 values of group are among both members and non-"),
        (([1, 2], ["2", "3"]), "sum", "1 values of group are among both"),  # one was read as text
        (([1, 2], [3, 4]), "mean", "how="),
        (([1], [3, 4]), "sum", "expected one group per score"),
        ((pd.Series([1, 2], name="a"), pd.Series([3, 4], name="b")), "sum", "named 'a' .* and 'b'"),
    ],
)
def test_groups_that_cannot_be_joined_are_refused(groups, how, words):
    with pytest.raises(ValueError, match=words):
        AttackResult([1.0, 2.0], [0.0, 1.0]).join_groups(*groups, how=how)
