"""PATE: votes that a neighbour moves, charges, stored state, and scikit-learn's conventions."""

from __future__ import annotations

import pickle
import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import skprivacy
import skprivacy.ensemble.pate as pate
from skprivacy.accounting import ComposedEvent, PrivacyBudget, VoteBlockEvent
from skprivacy.ensemble import (
    ConfidentGNMax,
    GNMax,
    LNMax,
    PATEClassifier,
    PrivateKNNClassifier,
    PropagationStudent,
    PublicRecords,
    aggregators,
    students,
    teachers,
)
from skprivacy.ensemble.student_classifier import choose_queries, draw_records
from skprivacy.ensemble.students import (
    build_neighbor_graph,
    fit_student,
    propagate_labels,
    select_student,
)
from skprivacy.ensemble.teachers import MOVED_VOTES, partition_by_hash, partition_by_index
from skprivacy.exceptions import PrivacyLeakWarning, PrivacyWarning
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.mechanisms import Gaussian
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

from ..contracts import records as contracts
from ..contracts import single_release as contracts_once
from ..contracts.cases import CASES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 3))
Y = np.where(X[:, 0] > 0, "well", "ill")
PUBLIC = RNG.normal(size=(600, 3))
OVERFITTED = DecisionTreeClassifier(random_state=0), GaussianNB()  # a teacher, and a quick student


def model(teacher=None, student=None, **params):
    defaults = {"n_teachers": 60, "n_queries": 30, "classes": ["ill", "well"], "epsilon": 8.0}
    params = {**defaults, "random_state": 0, **params}
    return PATEClassifier(teacher or GaussianNB(), student, **params)


def votes_given(estimator, records, labels, **fit_params):
    """Return the votes that a fit counts."""
    seen = []

    def counted(*args):
        seen.append(count_votes(*args))
        return seen[-1]

    count_votes = teachers.count_votes
    with mock.patch.object(pate, "count_votes", counted):
        clone(estimator).fit(records, labels, X_public=PUBLIC, **fit_params)
    return seen[0]


# ------------------------------------------------------------------------------ what a record moves


def moved_votes(estimator, data, neighbour):
    """Return how many votes differ in the worst query."""
    gap = votes_given(estimator, *data) - votes_given(estimator, *neighbour)
    return np.abs(gap).sum(axis=1).max() / 2


def neighbours(relation):
    """Yield pairs of data sets that differ in one record, by all that a record can do."""
    data = X[:120], Y[:120]
    for place in (0, 60, 119) if relation == "add_remove" else (0, 119):
        if relation == "add_remove":
            yield data, tuple(np.delete(part, place, axis=0) for part in data)
            continue
        for changed in (np.full(3, np.nan), np.full(3, 1e300), np.zeros(3), X[500]):
            rows, labels = data[0].copy(), data[1].copy()
            rows[place], labels[place] = changed, "ill" if labels[place] == "well" else "well"
            yield data, (rows, labels)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(("cut", "relation"), MOVED_VOTES)
def test_a_neighbour_moves_as_many_votes_as_are_paid_for(cut, relation):
    if (cut, relation) == ("hash", "zero_out"):
        pytest.skip("a record without contribution is one that is removed: see add_remove")
    estimator = model(*OVERFITTED, partition=cut, relation=relation, n_teachers=15)
    most = max(moved_votes(estimator, *pair) for pair in neighbours(relation))
    assert most == MOVED_VOTES[cut, relation]


@pytest.mark.heavy
def test_removing_a_record_from_a_cut_by_index_moves_more_than_one_vote():
    """Why ``partition="index"`` makes no claim under add/remove."""
    estimator = model(*OVERFITTED, partition="index", n_teachers=15)
    assert max(moved_votes(estimator, *pair) for pair in neighbours("add_remove")) > 1
    with pytest.raises(ValueError, match="relation='add_remove' does not hold"):
        estimator.set_params(relation="add_remove").fit(X, Y, X_public=PUBLIC)


@pytest.mark.heavy
def test_a_group_has_one_teacher_and_a_record_does_not_decide_on_others():
    groups = np.arange(len(X)) // 10
    parts = partition_by_hash(groups, None, 50, np.random.RandomState(0))
    assert all(len(set(parts[groups == g])) == 1 for g in range(20))
    rows = partition_by_hash(X, Y, 50, np.random.RandomState(0))
    np.testing.assert_array_equal(
        partition_by_hash(X[1:], Y[1:], 50, np.random.RandomState(0)), rows[1:]
    )
    counts = np.bincount(rows, minlength=50)
    assert 20 < counts.min() <= counts.max() < 110  # Binomial(3000, 1/50), 5 deviations and more
    assert votes_given(model(), X, Y, groups=groups).sum(axis=1).tolist() == [60] * 30
    with pytest.raises(ValueError, match="groups are given with partition='index'"):
        model(partition="index").fit(X, Y, X_public=PUBLIC, groups=groups)


def test_equal_records_of_any_type_have_one_teacher():
    frame = pd.DataFrame({"a": [1, 2, 0], "b": ["x", "y", None]})
    same = frame.astype({"a": float})
    same.loc[2, "a"] = -0.0
    parts = [partition_by_hash(f, None, 10**6, np.random.RandomState(0)) for f in (frame, same)]
    np.testing.assert_array_equal(*parts)
    assert len(set(parts[0])) == 3


@pytest.mark.parametrize("odd", [None, np.nan, "unknown", pd.NA, 1j])
@pytest.mark.parametrize("values", [[True, False, True], [1, 2, 3], [0.5, 2.0, np.nan]])
def test_a_record_that_changes_the_type_of_a_column_moves_no_other(values, odd):
    """Booleans with one that is missing are objects, as are numbers with a text among them."""
    others = pd.DataFrame({"a": values, "b": ["x", "y", "z"]})
    joined = pd.DataFrame({"a": [*values, odd], "b": ["x", "y", "z", "x"]})
    assert joined.dtypes["a"] != others.dtypes["a"] or odd is np.nan or pd.isna(odd)
    parts = [partition_by_hash(f, None, 10**9, np.random.RandomState(0)) for f in (others, joined)]
    np.testing.assert_array_equal(parts[0], parts[1][:3])


def test_parts_by_index_are_equal_and_shuffled():
    parts = partition_by_index(103, 10, np.random.RandomState(0))
    assert sorted(np.bincount(parts)) == [10] * 7 + [11] * 3
    assert (np.diff(parts) < 0).any()


# --------------------------------------------------------------------------------- what is charged


CHARGED = [
    (GNMax(40.0), VoteBlockEvent("gnmax", 40.0, 30, moved=2)),
    (LNMax(40.0), VoteBlockEvent("lnmax", 40.0, 30, moved=2)),
    (
        ConfidentGNMax(50.0, max_answers=9, threshold_noise=150.0, noise=40.0),
        ComposedEvent(
            (
                VoteBlockEvent("threshold", 150.0, 30, moved=2),
                VoteBlockEvent("gnmax", 40.0, 9, moved=2),
            )
        ),
    ),
]


@pytest.mark.parametrize(("aggregator", "event"), CHARGED)
def test_every_declared_query_is_in_the_event(aggregator, event):
    assert aggregator.event(n_queries=30, moved=2) == event


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(("aggregator", "event"), CHARGED)
def test_every_declared_query_is_charged(aggregator, event):
    fitted = model(aggregator=aggregator, relation="replace_one", epsilon=50.0)
    fitted.fit(X, Y, X_public=PUBLIC)
    assert fitted.privacy_event_ == event
    assert fitted.aggregator_ == aggregator


@pytest.mark.heavy
def test_an_aggregator_that_costs_more_than_epsilon_is_refused_before_anything_is_charged():
    budget = PrivacyBudget(100.0, 1e-3)
    with pytest.raises(ValueError, match=r"costs epsilon=.* above epsilon=1\.0"):
        model(aggregator=GNMax(1.0), epsilon=1.0, budget=budget).fit(X, Y, X_public=PUBLIC)
    assert budget.entries().empty


@pytest.mark.parametrize("kind", [PATEClassifier, PrivateKNNClassifier, ALMFineTuner])
@pytest.mark.parametrize("passed", [lambda Z: Z, PublicRecords])
def test_private_records_are_not_taken_for_public_ones(kind, passed):
    budget = PrivacyBudget(100.0, 1e-3)
    with pytest.raises(ValueError, match="X_public must not be X"):
        kind(classes=["ill", "well"], budget=budget).fit(X, Y, X_public=passed(X))
    assert budget.entries().empty


def test_a_student_that_cannot_learn_from_the_public_records_is_found_before_the_charge():
    budget = PrivacyBudget(100.0, 1e-3)
    frame = pd.DataFrame({"a": X[:, 0], "b": Y})
    teacher = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["b"]), remainder="passthrough"), GaussianNB()
    )
    with pytest.raises(ValueError, match=r"student=GaussianNB\(\) cannot be fitted"):
        model(teacher, GaussianNB(), budget=budget).fit(frame, Y, X_public=frame[:100])
    assert budget.entries().empty


# ------------------------------------------------------------------------------ what is not told


class Brittle(ClassifierMixin, BaseEstimator):
    """A teacher that one kind of record breaks."""

    def fit(self, X, y):
        if (X > 50).any():
            raise RuntimeError("a private record: 4711")
        self.inner_ = GaussianNB().fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict(self, X):
        return self.inner_.predict(X)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_teachers_that_cannot_be_trained_vote_all_the_same_and_nobody_is_told(capfd, n_jobs):
    rows = X.copy()
    rows[::7] = 99.0
    fitted = model(Brittle(), n_jobs=n_jobs).fit(rows, Y, X_public=PUBLIC)
    assert capfd.readouterr() == ("", "")
    assert set(fitted.predict(PUBLIC)) <= {"ill", "well"}
    assert votes_given(model(Brittle()), rows, Y).sum(axis=1).tolist() == [60] * 30


@pytest.mark.heavy
def test_nothing_but_the_student_is_kept():
    fitted = model().fit(X, Y, X_public=PUBLIC)
    kept = {k for k in vars(fitted) if k.endswith("_")}
    assert kept == {
        "aggregator_", "classes_", "delta_", "epsilon_", "n_features_in_", "privacy_",
        "privacy_event_", "student_",
    }  # fmt: skip
    loaded = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(loaded.predict(PUBLIC), fitted.predict(PUBLIC))
    labels = model(store_labels=True).fit(X, Y, X_public=PUBLIC).labels_
    assert labels.shape == (600,)
    assert (labels >= 0).sum() == 30


# --------------------------------------------------------------------------------- planted bugs

REPLAY, NOISE = contracts.check_replay, contracts_once.check_noise
ACCOUNTING = contracts_once.check_accounting


def overlapping(original):
    """Give each record to a second teacher as well."""

    def count_votes(teacher, X, y, parts, n_teachers, *rest):
        double = np.concatenate([parts, (parts + 1) % n_teachers])
        return original(teacher, np.vstack([X, X]), np.append(y, y), double, n_teachers, *rest)

    return count_votes


def cut_by_the_data(original):
    """Deal records by the rank of their first feature: evenly, but each by all others."""
    return lambda X, y, n, random: np.argsort(np.argsort(X[:, 0])) % n


def cut_by_position(original):
    return lambda X, y, n, random: np.arange(len(X))[::-1] % n


def halved(original):
    return lambda self, std, size, random: original(self, std, size, random) // 2


def free_tests(original):
    return lambda self, n_queries, moved: original(self, n_queries, moved).events[1]


def one_query_less(original):
    return lambda kind, noise, n_queries, moved: original(kind, noise, n_queries - 1, moved)


def counts_without_noise(original):
    return lambda votes, noise, moved, random: votes.argmax(axis=1)


MUTANTS = {
    "teachers overlap": (pate, "count_votes", overlapping, REPLAY, "PATEClassifier"),
    "half the noise": (Gaussian, "_noise", halved, NOISE, "PATEClassifier"),
    "votes without noise": (
        aggregators, "_noisy_winners", counts_without_noise, ACCOUNTING, "PATEClassifier-confident",
    ),
    "one query more than declared": (
        aggregators, "_vote_block_event", one_query_less, ACCOUNTING, "PATEClassifier",
    ),
    "threshold tests not charged": (
        ConfidentGNMax, "event", free_tests, ACCOUNTING, "PATEClassifier-confident",
    ),
}  # fmt: skip


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name):
    owner, attribute, make, check, case = MUTANTS[name]
    with (
        mock.patch.object(owner, attribute, make(getattr(owner, attribute))),
        pytest.raises(AssertionError),
    ):
        check(CASES[case])


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("cut", [cut_by_the_data, cut_by_position])
def test_a_cut_by_which_a_record_decides_on_others_is_caught(cut):
    with mock.patch.object(pate, "partition_by_hash", cut(None)):
        estimator = model(*OVERFITTED, n_teachers=30)
        assert max(moved_votes(estimator, *pair) for pair in neighbours("add_remove")) > 1


# ------------------------------------------------------------------------------ scikit-learn's ways


def test_in_a_pipeline_public_records_of_another_width_are_refused_with_advice():
    schema = Schema({"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["F", "M", "X"])})
    frame = pd.DataFrame({"age": 50 + 20 * X[:, 0], "sex": np.where(X[:, 1] > 0, "F", "M")})
    steps = [("schema", SchemaTransformer(schema)), ("pate", model())]
    with pytest.raises(ValueError, match=r"transform_input=\['X_public'\]"):
        Pipeline(steps).fit(frame, Y, pate__X_public=frame[:100])


@pytest.mark.slow
def test_a_frame_with_text_goes_to_teachers_and_students_as_it_is():
    schema = Schema({"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["F", "M", "X"])})
    frame = pd.DataFrame({"age": 50 + 20 * X[:, 0], "sex": np.where(X[:, 1] > 0, "F", "M")})
    learner = make_pipeline(SchemaTransformer(schema), LogisticRegression())
    fitted = model(learner, student=learner, epsilon=np.inf)  # without chance
    fitted.fit(frame[:2500], Y[:2500], X_public=frame[2500:])
    assert fitted.score(frame, Y) > 0.8
    assert fitted.feature_names_in_.tolist() == ["age", "sex"]
    with pytest.warns(PrivacyWarning, match="drawn from the schema"):
        drawn = clone(fitted).set_params(schema=schema, n_queries=100).fit(frame, Y)
    assert drawn.score(frame, Y) > 0.7


@pytest.mark.slow
def test_without_public_records_and_schema_the_ranges_are_read_off_the_data():
    with (
        pytest.warns(PrivacyLeakWarning),
        pytest.warns(PrivacyWarning, match="drawn from the schema"),
    ):
        fitted = model().fit(X, Y)
    assert any("were read off the data" in text for text in fitted.privacy_.assumptions)


@pytest.mark.heavy
@pytest.mark.parametrize("who", ["teacher", "student"])
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyLeakWarning")
def test_a_schema_read_off_data_is_an_assumption_wherever_it_is(who):
    """Teachers given a range of all records do not learn from their partition only."""
    read = Schema({name: BoundedColumn(-4, 4, inferred=True) for name in ("x0", "x1", "x2")})
    told = {who: make_pipeline(SchemaTransformer(read), GaussianNB())}
    fitted = model(**told).fit(X, Y, X_public=PUBLIC)
    assert any("were read off the data" in text for text in fitted.privacy_.assumptions)
    with skprivacy.config_context(strict=True), pytest.raises(ValueError, match="read off"):
        model(**told).fit(X, Y, X_public=PUBLIC)


def test_drawn_records_keep_to_the_schema():
    schema = Schema({"age": BoundedColumn(10, 20), "sex": CategoricalColumn(["F", "M"])})
    drawn = draw_records(schema, 500, np.random.RandomState(0))
    assert drawn["age"].between(10, 20).all()
    assert set(drawn["sex"]) == {"F", "M"}


def test_queries_next_to_centres_cover_the_clusters():
    centres = np.repeat(np.arange(8)[:, None] * 10.0, 50, axis=0)
    chosen = choose_queries(centres + RNG.normal(size=(400, 1)), 8, np.random.RandomState(0))
    assert len(set(chosen)) == 8
    assert len(set(chosen // 50)) >= 7
    text = pd.DataFrame({"a": ["x", "y", "z"]})
    assert sorted(choose_queries(text, 3, np.random.RandomState(0))) == [0, 1, 2]


@pytest.mark.heavy
def test_a_student_without_labels_to_tell_apart_is_constant():
    with pytest.warns(PrivacyWarning, match="one class for all records"):
        sick = model().fit(X, np.full(len(X), "ill"), X_public=PUBLIC)
    assert set(sick.predict(PUBLIC)) == {"ill"}
    assert sick.predict_proba(PUBLIC).tolist()[0] == [1.0, 0.0]
    silent = model(aggregator=ConfidentGNMax(1e9, max_answers=5))
    with pytest.warns(PrivacyWarning, match="one class for all records"):
        silent.fit(X, Y, X_public=PUBLIC)
    assert len(set(silent.predict(PUBLIC))) == 1


def boosted_model(min_samples_leaf):
    """Return an ensemble whose teachers have 20 records each, and ask for 100 labels."""
    teacher = HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=min_samples_leaf)
    return model(teacher, n_teachers=30, n_queries=100, epsilon=4.0, noise_seed=0)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:noise_seed")  # it fixes the answers
def test_teachers_that_cannot_learn_from_their_records_are_noticed_from_the_answers():
    """Boosting with 20 records per leaf cannot split 20 records, and all teachers are constant."""
    with pytest.warns(PrivacyWarning, match=r"Use a teacher that learns from n_samples"):
        failed = boosted_model(20).fit(X[:600], Y[:600], X_public=PUBLIC)
    assert len(set(failed.predict(X[600:]))) == 1
    with warnings.catch_warnings(record=True) as said:
        learned = boosted_model(3).fit(X[:600], Y[:600], X_public=PUBLIC)
    assert not [w for w in said if "one class" in str(w.message)]
    assert learned.score(X[600:], Y[600:]) > 0.8


@pytest.mark.heavy
def test_the_warning_of_a_constant_student_depends_on_the_released_answers_alone():
    """Other records, equal answers: the student and the warning are the same."""
    queries = np.arange(100)
    answers = np.random.default_rng(1).integers(0, 2, size=100)
    students_of = []
    for records, labels in ((X, Y), (X[:900] + 1.0, Y[:900])):
        fixed = model(n_queries=100)
        with (
            mock.patch.object(PATEClassifier, "_answer_queries", return_value=answers),
            mock.patch.object(pate, "choose_queries", return_value=queries),
            pytest.warns(PrivacyWarning, match="one class for all records") as said,
        ):
            fixed.fit(records, labels, X_public=PUBLIC)
        students_of.append((fixed.student_.constant, str(said[0].message)))
    assert students_of[0] == students_of[1]


def test_a_student_of_random_labels_is_not_selected():
    """A guess passes by chance in one table of five or so; a rare class that is found passes."""
    rows = np.random.default_rng(0).normal(size=(200, 4))
    kept = [
        select_student(rows, np.random.default_rng(seed).integers(0, 2, size=200)) is not None
        for seed in range(8)
    ]
    assert sum(kept) <= 4
    rare = (rows[:, 0] > 1.3).astype(np.int64)
    assert 10 <= rare.sum() <= 30
    assert select_student(rows, rare) is not None
    three = (rows[:, 0] > 0).astype(np.int64)
    three[7] = 2  # no fold can rank a class of one label
    assert select_student(rows, three) is not None


def some_labels(truth, n_labels, n_wrong):
    """Return labels of some records, a few of them of the next class, and -1 for the others."""
    chosen = np.random.RandomState(0).permutation(len(truth))[:n_labels]
    known = np.full(len(truth), -1)
    known[chosen] = truth[chosen]
    known[chosen[:n_wrong]] = (truth[chosen[:n_wrong]] + 1) % (truth.max() + 1)
    return known


@pytest.mark.slow
def test_the_default_student_is_the_one_that_tells_the_labels_better():
    """Neighbours share a digit, but no class in a table of which most columns tell nothing."""
    digits, digit = load_digits(return_X_y=True)
    by_graph = select_student(digits, some_labels(digit, 90, 9))
    assert isinstance(by_graph, PropagationStudent)
    random = np.random.default_rng(0)
    table = np.column_stack(
        [random.normal(size=(1000, 8)), np.eye(12)[random.integers(12, size=1000)]]
    )
    truth = (table[:, :3].sum(axis=1) > 0).astype(np.int64)
    known = some_labels(truth, 100, 10)
    linear = select_student(table, known)
    assert isinstance(linear[-1], LogisticRegression)
    scores = [
        fit_student(s, table, known).score(table, truth) for s in (linear, PropagationStudent())
    ]
    assert scores[0] > scores[1] + 0.1


def test_two_labels_cannot_be_cross_validated_and_select_no_student():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    known = np.full(30, -1)
    known[:2] = 0, 1  # without one of them there is nothing to tell apart
    assert select_student(rows, known) is None


@pytest.mark.slow
def test_the_default_student_takes_a_table_of_any_columns():
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "income": random.lognormal(10, 1, 3000),
            "ward": random.choice(["A", "B", "C"], 3000),
            "smokes": random.random(3000) < 0.5,
        }
    )
    y = np.where((table.ward == "B") ^ (random.random(3000) < 0.05), "ill", "well")
    teacher = make_pipeline(
        make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["ward"])),
        LogisticRegression(),
    )
    fitted = model(teacher).fit(table, y, X_public=table[:500])
    assert fitted.score(table, y) > 0.9
    table.loc[0, "ward"] = "a ward that no public record has"
    assert fitted.predict_proba(table[:1]).shape == (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "student", [None, PropagationStudent(), make_pipeline(StandardScaler(), GaussianNB())]
)
def test_a_student_of_a_table_of_numbers_gets_its_names(student):
    """Warnings are errors here, and a student that lost the names would warn at each prediction."""
    table = pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
    fitted = model(student=student, epsilon=np.inf).fit(table, Y, X_public=table[:500])
    assert fitted.score(table, Y) > 0.8
    bare = model(student=student, epsilon=np.inf).fit(table, Y, X_public=X[:500])
    assert bare.score(table, Y) > 0.8


@pytest.mark.parametrize("seed", [32, 39, 47, 52, 54])
def test_no_class_dies_out_over_the_rounds(seed):
    """A small class lost ground from round to round, and then a larger one, up to a constant."""
    random = np.random.RandomState(seed)
    rows = random.uniform(-1, 1, (150, 3))
    classes = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0.5)
    known = np.full(150, -1)
    asked = random.permutation(150)[:60]
    known[asked] = classes[asked]
    found = PropagationStudent().fit(rows, known).predict(rows)
    assert len(np.unique(found)) > 1
    assert (found == classes).mean() > 0.6


def test_propagation_takes_records_of_any_shape():
    """Wide ones by the kernel of the ridge, equal ones, constant features, records out of reach."""
    random = np.random.default_rng(1)
    far = random.normal(size=(6, 300)) - 50.0
    rows = np.concatenate([random.normal(size=(12, 300)) + 50.0, far, far])
    known = np.full(len(rows), -1)
    known[[0, 12]] = 3, 7
    student = PropagationStudent(n_neighbors=5).fit(rows, known)
    assert student.predict(rows).tolist() == [3] * 12 + [7] * 12
    narrow = PropagationStudent(n_neighbors=5).fit(rows[:, :4], known)
    assert narrow.predict(rows[:, :4]).tolist() == [3] * 12 + [7] * 12
    with_constants = np.column_stack([rows, np.zeros(24), np.full(24, 1e3)])
    alike = PropagationStudent(n_neighbors=5).fit(with_constants, known)
    np.testing.assert_allclose(
        alike.decision_function(with_constants), student.decision_function(rows), atol=1e-6
    )
    known[12] = -1
    assert set(PropagationStudent(n_neighbors=5).fit(rows, known).predict(rows)) == {3}
    assert PropagationStudent().fit(rows[:1], [4]).predict(rows[:2]).tolist() == [4, 4]
    with pytest.raises(ValueError, match="without a label"):
        PropagationStudent().fit(rows, np.full(24, -1))


def test_labels_spread_as_far_as_the_formula_says():
    """Zhou et al. 2003: (1 - a) (1 - a S)^-1 Y, which 60 steps come within a^60 of."""
    rows = RNG.normal(size=(80, 5))
    rows[:3] = rows[3]  # equal records
    graph = build_neighbor_graph(rows, 4)
    weights = graph.toarray()
    np.testing.assert_allclose(weights, weights.T, rtol=1e-15)
    assert not weights.diagonal().any()
    assert ((weights > 0).sum(axis=1) >= 4).all()
    assert np.abs(np.linalg.eigvalsh(weights)).max() <= 1 + 1e-12
    targets = np.zeros((80, 2))
    targets[0, 0] = targets[40, 1] = 1.0
    expected = 0.2 * np.linalg.solve(np.eye(80) - 0.8 * weights, targets)
    with mock.patch.object(students, "_SPREAD", 0.8):
        np.testing.assert_allclose(propagate_labels(graph, targets), expected, atol=2e-6)
    assert not build_neighbor_graph(rows[:1], 4).toarray().any()


def test_neither_loud_directions_nor_noise_decide_who_is_alike():
    """Raw, the five loud features make .61 to .68 of this; whitened, the noise .67 to .75."""
    random = np.random.default_rng(0)
    classes = np.arange(300) % 2
    telling = random.normal(2 * classes[:, None] - 1, 1.0, (300, 20))
    rows = np.column_stack([telling, random.normal(0, 10.0, (300, 5))])
    known = np.where(np.arange(300) < 20, classes, -1)
    targets = (known[:, None] == [0, 1]).astype(float)
    spread = propagate_labels(build_neighbor_graph(rows, 5), targets).argmax(axis=1)
    assert (spread == classes).mean() > 0.79


def test_the_ridge_is_that_of_scikit_learn():
    """Through either form, the dual one for more features than records."""
    targets = np.eye(3)[RNG.integers(3, size=20)]
    for n_features in (5, 60):
        rows = RNG.normal(size=(20, n_features)) + 2.0
        coefficients, intercepts = students._Ridge(rows, 0.7).solve(targets)
        expected = Ridge(alpha=0.7).fit(rows, targets)
        np.testing.assert_allclose(coefficients, expected.coef_.T, atol=1e-9)
        np.testing.assert_allclose(intercepts, expected.intercept_, atol=1e-9)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"n_teachers": 1}, "n_teachers"),
        ({"partition": np.zeros(3000)}, "partition"),
        ({"delta": 0.5}, "delta=0.5 must be far below"),
        ({"delta": 1e-2, "partition": "index"}, "delta"),
        ({"aggregator": "gnmax"}, "aggregator"),
        ({"classes": ["ill", "dead"]}, "not in classes"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_charged(params, named):
    budget = PrivacyBudget(100.0, 1e-2)
    with pytest.raises(ValueError, match=named):
        model(budget=budget, **params).fit(X, Y, X_public=PUBLIC)
    assert budget.entries().empty
