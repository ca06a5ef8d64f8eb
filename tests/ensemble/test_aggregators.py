"""Interactive-GNMax: answered and unanswered queries, their cost, and access to votes."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

import skprivacy.ensemble.pate as pate
from skprivacy.accounting import PrivacyBudget, epsilon_of
from skprivacy.ensemble import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from skprivacy.ensemble.aggregators import InteractiveGNMax as Owner
from skprivacy.mechanisms import SecureRandom

from ..contracts import cases
from ..contracts import records as contracts
from ..contracts import single_release as contracts_once
from ..contracts.cases import CASES, Case, three_classes
from .test_pate import PUBLIC, X, Y, free_tests, model

RNG = np.random.default_rng(0)
SILENT = {"threshold_noise": 0.0, "noise": 0.0}  # without chance


def ask(votes, student, **params):
    aggregator = InteractiveGNMax(**{"max_answers": 99, "n_rounds": 2, **SILENT, **params})
    return aggregator.release(np.array(votes), 1, SecureRandom(0), student)


# --------------------------------------------------------------------------------------- its rule


def test_contradictions_are_answered_sure_labels_used_and_the_rest_dropped():
    votes = [[9, 1], [9, 1], [9, 1], [2, 8], [6, 4], [9, 1]]
    expected = np.array([[0, 0]] * 3 + [[10, 0], [5, 5], [9.4, 0.6]], float)

    def student(labels):
        return expected

    labels = ask(votes, student, threshold=5, reinforce=0.9)
    #            answered as by Confident, then: contradicted, unsure, agreed
    assert labels.tolist() == [0, 0, 0, 1, -1, 0]
    assert ask(votes, student, threshold=5, reinforce=0.95).tolist() == [0, 0, 0, 1, -1, -1]
    assert ask(votes, student, threshold=9, reinforce=0.9).tolist() == [0, 0, 0, 0, -1, 0]
    few = ask(votes, student, threshold=5, max_answers=2)
    assert few.tolist() == [0, 0, -1, -1, -1, 0]  # what is contradicted is not kept either


def test_expected_votes_are_taken_off_as_whole_ones():
    """So that what is tested is exact, and moves by no more than votes do."""
    seen = []

    def noted(self, largest, moved, random):
        seen.append(largest)
        return largest > 99

    with mock.patch.object(InteractiveGNMax, "_pass_threshold", noted):
        ask([[5, 4], [3, 6]], lambda labels: np.array([[4.4, 1.6], [0.2, 8.7]]), threshold=0)
    assert [x.tolist() for x in seen] == [[2], [3]]
    assert all(x.dtype == np.int64 for x in seen)


def test_without_labels_it_asks_as_confident_does():
    votes = RNG.multinomial(50, [0.5, 0.3, 0.2], size=40)
    nothing = np.zeros((40, 3))
    common = {"threshold": 26.0, "max_answers": 12, "threshold_noise": 0.0, "noise": 0.0}
    plain = ConfidentGNMax(**common).release(votes, 1, SecureRandom(0))
    rounds = InteractiveGNMax(**common).release(votes, 1, SecureRandom(0), lambda labels: nothing)
    np.testing.assert_array_equal(plain, rounds)
    assert 0 < (plain >= 0).sum() <= 12


def test_the_student_is_shown_the_labels_of_earlier_rounds_and_nothing_else():
    votes = RNG.multinomial(50, [0.5, 0.3, 0.2], size=20)
    shown = []

    def student(labels):
        shown.append(labels.copy())
        labels[:] = 7  # what it is shown is its own
        return np.zeros((20, 3))

    found = ask(votes, student, threshold=20, n_rounds=4)
    for i, labels in enumerate(shown):
        assert labels.tolist() == [*found[: 5 * i], *[-1] * (20 - 5 * i)]
    with pytest.raises(ValueError, match="student=None"):
        InteractiveGNMax(3.0, 2, **SILENT).release(votes, 1, SecureRandom(0))


@pytest.mark.parametrize(("moved", "relation"), [(1, "add_remove"), (2, "replace_one")])
def test_the_noise_pays_for_the_votes_that_a_neighbour_moves(moved, relation):
    ready = GNMax()._calibrated(30, moved, 8.0, 1e-5, relation)
    assert 7.9 < epsilon_of(ready.event(30, moved), 1e-5, relation) <= 8.0


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: InteractiveGNMax(3.0, 2, reinforce=0.0), "reinforce=0.0"),
        (lambda: InteractiveGNMax(3.0, 2, reinforce=1.1), "reinforce=1.1"),
        (lambda: InteractiveGNMax(3.0, 2, n_rounds=0), "n_rounds=0"),
        (lambda: InteractiveGNMax(3.0, 2, n_rounds=1.5), "n_rounds=1.5"),
        (lambda: ConfidentGNMax(np.inf, 3), "threshold=inf"),
        (lambda: ConfidentGNMax(3.0, 0), "max_answers=0"),
        (lambda: ConfidentGNMax(3.0, 2, threshold_noise=-1.0), "threshold_noise=-1.0"),
        (lambda: GNMax(-1.0), "noise=-1.0"),
        (lambda: LNMax(np.nan), "noise=nan"),
    ],
)
def test_invalid_parameters_are_refused(make, named):
    with pytest.raises(ValueError, match=named):
        make()


# ------------------------------------------------------------------------------- in an estimator


def asking(aggregator, **params):
    return model(None, GaussianNB(), aggregator=aggregator, **{"n_queries": 40, **params})


def test_a_student_without_probabilities_is_refused_before_anything_is_charged():
    budget = PrivacyBudget(100.0, 1e-3)
    asked = asking(InteractiveGNMax(20.0, 15), budget=budget).set_params(student=LinearSVC())
    with pytest.raises(ValueError, match="no predict_proba"):
        asked.fit(X, Y, X_public=PUBLIC)
    assert budget.entries().empty


@pytest.mark.heavy
def test_probabilities_that_are_no_numbers_expect_nothing():
    class Lost(LogisticRegression):
        def predict_proba(self, X):
            return np.full((len(X), 2), np.nan)

    aggregator = InteractiveGNMax(20.0, 40, **SILENT)
    lost = asking(aggregator, epsilon=np.inf, store_labels=True).set_params(student=Lost())
    plain = asking(ConfidentGNMax(20.0, 40, **SILENT), epsilon=np.inf, store_labels=True)
    np.testing.assert_array_equal(
        lost.fit(X, Y, X_public=PUBLIC).labels_, plain.fit(X, Y, X_public=PUBLIC).labels_
    )


# ---------------------------------------------------------------------------------- planted bugs

# Some tests pass, some labels are kept, some queries are dropped.
MIXED = Case(
    cases._pate(
        aggregator=InteractiveGNMax(
            threshold=2.0, max_answers=8, n_rounds=3, reinforce=0.6, threshold_noise=1.5
        ),
        epsilon=60.0,
    ),
    three_classes,
    null_label=None,
    once=True,
)
REPLAY, ACCOUNTING = contracts.check_replay, contracts_once.check_accounting


@pytest.mark.heavy
def test_no_private_record_reaches_a_student_but_through_a_release():
    passed, own = [], []

    def noted(name, into):
        original = getattr(Owner, name)

        def call(self, *args):
            into.append(original(self, *args))
            return into[-1]

        return mock.patch.object(Owner, name, call)

    with noted("_pass_threshold", passed), noted("_own_labels", own):
        REPLAY(MIXED)
    tests, labels = np.concatenate(passed), np.concatenate(own)
    for outcome in (tests, ~tests & (labels >= 0), ~tests & (labels < 0)):
        assert outcome.any()  # about a fifth of 144 and more


def first_round_charged(original):
    return lambda self, n_queries, moved: original(self, -(-n_queries // 3), moved)


def student_of_true_labels(original):
    """Teach the student what the votes say, before any noise."""

    def release(self, votes, moved, random, student):
        return original(self, votes, moved, random, lambda labels: student(votes.argmax(axis=1)))

    return release


def expects_what_was_voted(original):
    """Take off a private number: the mean of the votes."""

    def release(self, votes, moved, random, student):
        mean = np.broadcast_to(votes.mean(axis=0), votes.shape)
        return original(self, votes, moved, random, lambda labels: student(labels) - 3 * mean)

    return release


def more_answers(original):
    """Forget that there were answers in earlier rounds."""

    def release(self, votes, moved, random, student):
        return original(replace(self, max_answers=99), votes, moved, random, student)

    return release


def sure_where_teachers_agree(original):
    """Keep a label where the true votes agree with it, which is not tested with noise."""

    def release(self, votes, moved, random, student):
        labels = original(self, votes, moved, random, student)
        return np.where(votes.argmax(axis=1) == labels, labels, -1)

    return release


def often(check, case):
    """One time in fifteen the noise hides that a student saw private records; hardly ever eight."""
    for _ in range(8):
        check(case)


MUTANTS = {
    "tests not charged": (Owner, "event", free_tests, ACCOUNTING, "case"),
    "tests of one round charged": (Owner, "event", first_round_charged, ACCOUNTING, "case"),
    "more answers than declared": (Owner, "release", more_answers, ACCOUNTING, "case"),
    "a student of labels without noise": (
        Owner, "release", student_of_true_labels, REPLAY, "mixed",
    ),
    "private expectations": (Owner, "release", expects_what_was_voted, REPLAY, "mixed"),
    "labels kept by true votes": (Owner, "release", sure_where_teachers_agree, REPLAY, "mixed"),
}  # fmt: skip


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name):
    owner, attribute, make, check, case = MUTANTS[name]
    case = CASES["PATEClassifier-interactive"] if case == "case" else MIXED
    with (
        mock.patch.object(owner, attribute, make(getattr(owner, attribute))),
        pytest.raises(AssertionError),
    ):
        often(check, case)


@pytest.mark.heavy
def test_a_student_of_private_records_is_caught():
    """One that is taught by the private records themselves."""
    original = pate.PATEClassifier._make_vote_predictor

    def expecting(self, public, queries, n_votes):
        labels = VOTED[-1].argmax(axis=1)
        told = original(self, public, queries, n_votes)
        return lambda answers: told(np.where(answers >= 0, labels, answers))

    def counted(*args):
        VOTED.append(count_votes(*args))
        return VOTED[-1]

    VOTED, count_votes = [], pate.count_votes
    with (
        mock.patch.object(pate, "count_votes", counted),
        mock.patch.object(pate.PATEClassifier, "_make_vote_predictor", expecting),
        pytest.raises(AssertionError),
    ):
        often(REPLAY, MIXED)
    assert len(VOTED[0]) == 12 < len(cases.PUBLIC)
