"""A teacher's votes depend only on its partition, to the last bit, however it is trained."""

from __future__ import annotations

import random
import time
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skprivacy._stacked import train_stacked
from skprivacy.accounting import PrivacyBudget
from skprivacy.ensemble import PATEClassifier, pate, teachers

pytestmark = pytest.mark.heavy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 4))
CLASSES = np.array(["dead", "ill", "well"])
Y = CLASSES[(X[:, 0] > -1).astype(int) + (X[:, 1] > 0)]
PUBLIC = RNG.normal(size=(40, 4))
N_TEACHERS = 6
SEEDS = np.arange(N_TEACHERS)
CHANGED = 2  # the teacher whose part a neighbour changes
# Its part is the largest, by one record more than four batches.
PARTS = RNG.permutation(np.repeat(SEEDS, [90, 100, 121, 95, 97, 97]))
OWN = np.flatnonzero(PARTS == CHANGED)
SMALL = MLPClassifier((5,), batch_size=30, max_iter=8, learning_rate_init=0.03)
NETS = {
    "network": SMALL,
    "full batches": MLPClassifier((7, 3), "tanh", max_iter=20, n_iter_no_change=2),
    "pipeline": make_pipeline(StandardScaler(), SMALL),
}


def trained(net, X, y, parts):
    """Return the votes of each teacher, and the weights of each that was trained, by its seed."""
    members = {}

    def kept(teacher, X, y, classes, seed):
        member = original(teacher, X, y, classes, seed)
        members[seed] = b"".join(v.tobytes() for layer in member.layers for v in layer)
        return member

    original = teachers.train_alone
    with mock.patch.object(teachers, "train_alone", kept):
        votes = teachers.collect_votes(net, X, y, parts, N_TEACHERS, PUBLIC, CLASSES, SEEDS)
    return np.array(votes), members


def with_values(value):
    def change(X, y, parts):
        X = X.copy()
        X[OWN[3]] = value
        return X, y, parts

    return change


def shortened(X, y, parts):
    return tuple(np.delete(part, OWN[0], axis=0) for part in (X, y, parts))


def emptied(X, y, parts):
    return tuple(np.delete(part, OWN, axis=0) for part in (X, y, parts))


def grown(X, y, parts):
    """Ten times as many records: more batches, hence more steps."""
    more = np.repeat(OWN, 9)
    return np.vstack([X, X[more]]), np.append(y, y[more]), np.append(parts, parts[more])


def of_one_class(X, y, parts):
    return X, np.where(parts == CHANGED, "ill", y), parts


def of_a_missing_class(X, y, parts):
    return X, np.where((parts == CHANGED) & (y == "dead"), "ill", y), parts


CHANGES = {
    "changed": with_values(1.5),
    "huge": with_values(1e300),
    "beyond the root of what single precision holds": with_values(1e30),
    "missing": with_values(np.nan),
    "shortened": shortened,
    "emptied": emptied,
    "grown": grown,
    "one class": of_one_class,
    "two of three classes": of_a_missing_class,
}


@pytest.mark.everyday(1)
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_no_part_reaches_another_network(net):
    votes, members = trained(net, X, Y, PARTS)
    others = np.arange(N_TEACHERS) != CHANGED
    assert len(set(members.values())) == N_TEACHERS
    for name, change in CHANGES.items():
        votes_then, members_then = trained(net, *change(X, Y, PARTS))
        np.testing.assert_array_equal(votes_then[others], votes[others], err_msg=name)
        assert members_then.pop(CHANGED, None) != members[CHANGED], f"{name} changes nothing"
        assert members_then == {k: v for k, v in members.items() if k != CHANGED}, name


def side_by_side(net, X, y, parts):
    """Return the weights of all but the changed teacher, trained in one stack."""
    rows = [np.flatnonzero(parts == i) for i in SEEDS]
    able = [i for i in SEEDS if len(np.unique(y[rows[i]])) > 1]
    members = train_stacked(net, X, y, [rows[i] for i in able], able, n_jobs=1)
    return {i: m.layers[0][0].tobytes() for i, m in zip(able, members, strict=True) if i != CHANGED}


@pytest.mark.parametrize("change", ["shortened", "grown", "emptied"])
def test_networks_that_are_trained_side_by_side_are_caught(change):
    """The planted bug: all are padded to the largest part, and take as many steps as it does."""
    assert side_by_side(SMALL, X, Y, PARTS) != side_by_side(SMALL, *CHANGES[change](X, Y, PARTS))


@pytest.mark.parametrize("change", ["missing", "huge", "emptied", "one class"])
def test_a_part_that_trains_no_network_votes_by_the_public_rule(change):
    votes, members = trained(SMALL, *CHANGES[change](X, Y, PARTS))
    assert CHANGED not in members
    rule = "ill" if change == "one class" else CLASSES[CHANGED % 3]
    assert set(CLASSES[votes[CHANGED]]) == {rule}


def test_a_network_whose_weights_diverge_votes_by_the_public_rule():
    steep = clone(SMALL).set_params(learning_rate_init=1e38)
    with pytest.raises(ValueError, match="diverged"):
        teachers.train_alone(steep, X, Y, CLASSES, 0)
    votes, members = trained(steep, X, Y, PARTS)
    assert not members
    np.testing.assert_array_equal(votes, np.repeat(SEEDS[:, None] % 3, len(PUBLIC), axis=1))


def test_a_network_has_an_output_for_each_class_whichever_its_part_has():
    rare = Y != "dead"
    member = teachers.train_alone(SMALL, X[rare], Y[rare], CLASSES, 0)
    assert member.predict_proba(PUBLIC).shape == (40, 3)
    single = teachers.train_alone(SMALL, X[rare], Y[rare], CLASSES[1:], 0)
    for network in (member, single):
        assert np.mean(network.predict(X[rare]) == Y[rare]) > 0.9


@pytest.mark.parametrize(
    "other",
    [
        LogisticRegression(),
        MLPClassifier(solver="sgd"),
        MLPClassifier(early_stopping=True),
        type("Sampled", (Pipeline,), {})([("net", SMALL)]),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
)
def test_teachers_outside_the_stack_are_fitted_singly(other):
    with mock.patch.object(teachers, "train_alone", side_effect=AssertionError):
        teachers.check_teacher(other, PUBLIC, CLASSES)
    assert trained(SMALL, X, Y, PARTS)[1]  # and what it trains goes there


def test_a_pipeline_may_make_features_of_its_own_part():
    """One-hot columns by the words that occur: networks of different widths."""
    frame = pd.DataFrame({"a": X[:, 0], "word": np.where(X[:, 1] > 0, "yes", "no")})
    frame.loc[OWN[0], "word"] = "maybe"
    words = OneHotEncoder(handle_unknown="ignore")
    net = make_pipeline(make_column_transformer((words, ["word"]), remainder="passthrough"), SMALL)
    votes = [
        teachers.collect_votes(net, rows, Y, PARTS, N_TEACHERS, frame[:40], CLASSES, SEEDS)
        for rows in (frame, frame.assign(word=frame["word"].replace("maybe", "no")))
    ]
    others = np.arange(N_TEACHERS) != CHANGED
    np.testing.assert_array_equal(np.array(votes[0])[others], np.array(votes[1])[others])


class Coded(DecisionTreeClassifier):
    """Learns from the codes of a categorical column, as gradient boosting libraries do."""

    def fit(self, X, y):
        return super().fit(X.assign(word=X["word"].cat.codes), y)

    def predict(self, X):
        return super().predict(X.assign(word=X["word"].cat.codes))


def test_a_category_that_one_record_has_renumbers_no_other_part():
    frame = pd.DataFrame({"a": X[:, 0], "word": np.where(X[:, 1] > 0, "no", "yes")})
    public = pd.DataFrame({"a": PUBLIC[:, 0], "word": pd.Categorical(["no"] * 20 + ["yes"] * 20)})
    rare = frame.assign(word=frame["word"].where(frame.index != OWN[0], "maybe"))
    votes = []

    def kept(*args):
        votes.append(np.array(teachers.collect_votes(*args)))
        return teachers.count_votes(*args)

    for rows in (frame, rare):
        rows = rows.astype({"word": "category"})
        model = PATEClassifier(
            Coded(random_state=0), make_pipeline(OrdinalEncoder(), GaussianNB()), partition="index",
            n_teachers=10, classes=CLASSES, epsilon=np.inf, random_state=0,
        )  # fmt: skip
        with mock.patch.object(pate, "count_votes", kept):
            model.fit(rows, Y, X_public=public)
    moved = (votes[0] != votes[1]).any(axis=1)
    assert moved.sum() <= 1
    assert len({vote.tobytes() for vote in votes[0]}) > 3  # by the public rule there are three


# ------------------------------------------------------------------------- generators all share


class Gambler(ClassifierMixin, BaseEstimator):
    """Draws as often as it has records, from generators that it is not given."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        for _ in X:
            self.chosen_ = [random.random(), np.random.random(), torch.rand(()).item()]  # noqa: NPY002
        return self

    def predict(self, X):
        return self.classes_[(np.outer(X.sum(axis=1), self.chosen_).sum(axis=1) % 2).astype(int)]


def test_how_far_a_teacher_has_drawn_from_a_shared_generator_reaches_no_other():
    votes = trained(Gambler(), X, Y, PARTS)[0]
    again = trained(Gambler(), *shortened(X, Y, PARTS))[0]
    others = np.arange(N_TEACHERS) != CHANGED
    np.testing.assert_array_equal(again[others], votes[others])
    assert (again[CHANGED] != votes[CHANGED]).any()
    assert len({vote.tobytes() for vote in votes}) > N_TEACHERS // 2  # each has its own


def test_shared_generators_are_left_as_they_were():
    drawn = []
    for fits in (False, True):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        if fits:
            trained(Gambler(), X, Y, PARTS)
        drawn.append((random.random(), np.random.random(), torch.rand(()).item()))  # noqa: NPY002
    assert drawn[0] == drawn[1]


class SlowGambler(Gambler):
    """Draws while others do."""

    def fit(self, X, y):
        for _ in X:
            time.sleep(1e-5)  # lets other threads go on
            random.random(), np.random.random(), torch.rand(())  # noqa: NPY002
        return super().fit(X, y)


def test_teachers_in_threads_draw_from_no_generator_of_each_other():
    """A user may have chosen threads for all of joblib."""
    alone = trained(SlowGambler(), X, Y, PARTS)[0]
    with parallel_config("threading", n_jobs=N_TEACHERS):
        beside = trained(SlowGambler(), X, Y, PARTS)[0]
    np.testing.assert_array_equal(beside, alone)


# ------------------------------------------------------------------------ tried before the charge


class Speechless(LogisticRegression):
    """Answers in numbers where classes are words."""

    def predict(self, X):
        return np.zeros(len(X))


@pytest.mark.parametrize(
    ("teacher", "named"),
    [
        (LogisticRegression(C=-1.0), "cannot be fitted to public records"),
        (MLPClassifier(alpha=-1.0), "cannot be fitted to public records"),
        (Speechless(), "does not predict one of classes"),
    ],
)
def test_a_teacher_that_never_learns_is_found_before_the_charge(teacher, named):
    """Each would have voted by the public rule, and been paid for."""
    budget = PrivacyBudget(10.0, 1e-3)
    model = PATEClassifier(teacher, n_teachers=20, classes=CLASSES, epsilon=1.0, budget=budget)
    with pytest.raises(ValueError, match=named):
        model.fit(X, Y, X_public=PUBLIC)
    assert budget.entries().empty


def test_a_teacher_is_tried_on_many_records_however_few_are_public():
    folds = make_pipeline(StandardScaler(), LogisticRegressionCV(cv=5))
    teachers.check_teacher(folds, PUBLIC[:3], CLASSES)
