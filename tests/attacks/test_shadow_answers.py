"""A pool that keeps answers alone serves attacks on its records, as the models would."""

from __future__ import annotations

import pickle
import threading
import warnings

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import config_context, get_config
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import (
    BaggingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skprivacy import audit
from skprivacy._environment import default_n_jobs
from skprivacy.attacks import (
    RMIA,
    IndirectInference,
    LabeledRecords,
    LearnedRatio,
    LiRA,
    ShadowPool,
    ShokriAttack,
    StrongestAttack,
)
from skprivacy.attacks import shadow_training as _shadow_training
from skprivacy.attacks.shadow_training import trains_in_threads
from skprivacy.audit import runner

pytestmark = pytest.mark.heavy

X, Y = make_classification(160, flip_y=0.2, random_state=0)
MANY = make_multilabel_classification(160, random_state=0)
FOREST = RandomForestClassifier(3, max_depth=3, random_state=0)
TARGETS = {
    "probabilities": (FOREST, X, Y),
    "text": (make_pipeline(StandardScaler(), FOREST), X, np.array(["no", "yes"])[Y]),
    "label sets": (RandomForestClassifier(3, random_state=0), *MANY),
    "margins": (LinearSVC(random_state=0), X, Y),
    "residuals": (RandomForestRegressor(3, random_state=0), X, X[:, 0]),
    "log-densities": (GaussianMixture(2, random_state=0), X, None),
    "stacked": (MLPClassifier((4,), max_iter=5, random_state=0), X, Y),
}


def pools(model, records, y, **params):
    return [
        ShadowPool(model, n_shadows=4, random_state=0, keep_models=keep, **params).fit(records, y)
        for keep in (True, False)
    ]


@pytest.mark.everyday(3)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_answers_stand_in_for_models_of_every_kind(name):
    model, records, y = TARGETS[name]
    whole, answers = pools(model, records, y)
    answers = pickle.loads(pickle.dumps(answers))
    order = np.random.default_rng(0).permutation(len(records))[:90]
    labels = None if y is None else y[order]
    told, expected = (pool.logits(records[order], labels) for pool in (answers, whole))
    np.testing.assert_allclose(told, expected, rtol=1e-5, atol=1e-6)
    assert np.array_equal(answers.masks_, whole.masks_)
    assert answers._answers.vary(records) == whole._answers.vary(records)
    if whole.classes_ is not None:
        assert np.array_equal(answers.classes_, whole.classes_)
        for one, other in zip(
            answers.iter_proba(records, whole.classes_), whole.iter_proba(records), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.everyday(2)
@pytest.mark.parametrize(
    "attack",
    [LiRA(), LiRA(online=True), RMIA(online=True), LearnedRatio(), IndirectInference(n_queries=20),
     ShokriAttack()],
    ids=str,
)  # fmt: skip
def test_attacks_on_the_records_of_the_pool_find_the_same(attack):
    target = FOREST.fit(X[:80], Y[:80])
    records = LabeledRecords(X, Y)
    whole, answers = (
        attack.set_params(target=target, pool=pool).fit(records).decision_function(records)
        for pool in pools(FOREST, X, Y)
    )
    assert np.array_equal(whole, answers)


def test_it_says_so_when_others_are_asked_about():
    _, answers = pools(FOREST, X, Y)
    augmented = LiRA(FOREST.fit(X, Y), pool=answers)
    records = LabeledRecords(X, Y)
    augmented.fit(records).set_params(augment=lambda X: [X + 1])
    for ask in (
        lambda: answers.logits(X + 1, Y),
        lambda: next(answers.iter_proba(X + 1)),
        lambda: answers.estimators_[0].predict_proba(X + 1),
        lambda: augmented.predict(records),
    ):
        with pytest.raises(ValueError, match=r"X holds 160 records .* keep_models=True"):
            ask()
    assert not hasattr(answers.estimators_[0], "decision_function")


def test_a_record_that_was_changed_in_place_is_another_one():
    """Answers depend on a record's values, not on its place in memory."""
    records = X.copy()
    _, answers = pools(FOREST, records, Y)
    before = answers.logits(records, Y).copy()
    records[[0, 1]] = records[[1, 0]]
    swapped = answers.logits(records, Y[[1, 0, *range(2, len(Y))]])
    assert np.array_equal(swapped[:, [1, 0]], before[:, :2])
    records[0, 0] += 1.0
    with pytest.raises(ValueError, match="X holds 1 records"):
        answers.logits(records, Y)


def test_a_folder_serves_pools_of_both_kinds(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    whole, answers = (
        ShadowPool(FOREST, n_shadows=4, random_state=0, path=tmp_path / "a", keep_models=keep)
        for keep in (False, True)
    )
    first = whole.fit(X, Y).logits(X, Y)
    assert len([*(tmp_path / "a").glob("shadow_*.joblib")]) == 4
    monkeypatch.setattr(_shadow_training, "train_clone", None)  # nothing is trained again
    assert np.array_equal(answers.fit(X, Y).logits(X, Y), first)
    assert answers.estimators_[0].n_estimators == 3
    assert np.array_equal(whole.fit(X, Y).logits(X, Y), first)


def test_memory_is_that_of_the_answers():
    big = RandomForestClassifier(30, random_state=0)
    whole, answers = (len(pickle.dumps(pool)) for pool in pools(big, X, Y))
    assert answers < 160 * 4 * 16 + 8000 < whole / 5


class Own(LiRA):
    """Nobody knows what a subclass asks."""


@pytest.mark.everyday(2)
@pytest.mark.parametrize(
    ("attacks", "kept"),
    [
        (None, False),
        ([LiRA(), RMIA(), StrongestAttack(online=True)], False),
        ([LiRA(augment=lambda X: [X + 0.1])], True),
        ([LiRA(), Own()], True),
        ([RMIA(), IndirectInference()], True),
    ],
    ids=["default", "known", "augmented", "subclass", "queries"],
)
def test_an_audit_keeps_models_only_for_attacks_that_ask_more(attacks, kept, monkeypatch):
    pool = []

    class Kept(ShadowPool):
        def __init__(self, estimator, *, n_shadows, random_state, n_jobs, verbose, keep_models):
            super().__init__(estimator, n_shadows=4, random_state=0, keep_models=keep_models)
            pool.append(keep_models)

    monkeypatch.setattr(runner, "ShadowPool", Kept)
    audit(FOREST.fit(X[:80], Y[:80]), X[:80], Y[:80], X[80:], Y[80:], attacks=attacks, n_shadows=4)
    assert pool == [kept]


class Mine(RandomForestClassifier):
    pass


SAFE = [
    FOREST,
    LogisticRegression(),
    LinearRegression(),
    DecisionTreeClassifier(),
    make_pipeline(StandardScaler(), FOREST),
    VotingClassifier([("a", FOREST), ("b", LogisticRegression())]),
    BaggingClassifier(DecisionTreeClassifier()),
]
UNSAFE = [
    SVC(),
    LinearSVC(),
    LogisticRegression(solver="liblinear"),
    HistGradientBoostingClassifier(),
    RandomForestClassifier(n_jobs=2),
    Mine(),
    make_pipeline(FunctionTransformer(np.abs), FOREST),
    VotingClassifier([("a", FOREST), ("b", SVC())]),
    CalibratedClassifierCV(FOREST, cv=KFold(3)),
    BaggingClassifier(Mine()),
    object(),
]


def test_only_what_is_known_to_be_safe_trains_in_threads():
    assert [trains_in_threads(model) for model in SAFE] == [True] * len(SAFE)
    assert [trains_in_threads(model) for model in UNSAFE] == [False] * len(UNSAFE)


@pytest.mark.parametrize("keep", [True, False])
def test_threads_train_the_same_models(keep, monkeypatch):
    alone = ShadowPool(FOREST, n_shadows=4, random_state=0, keep_models=keep).fit(X, Y)
    monkeypatch.setattr(_shadow_training, "default_n_jobs", lambda n_jobs: 2)
    used = set()
    train = _shadow_training.train_clone

    def seen(*args):
        used.add(threading.get_ident())
        return train(*args)

    monkeypatch.setattr(_shadow_training, "train_clone", seen)
    together = ShadowPool(FOREST, n_shadows=4, random_state=0, keep_models=keep).fit(X, Y)
    assert threading.get_ident() not in used
    assert np.array_equal(alone.logits(X, Y), together.logits(X, Y))


def test_threads_are_configured_as_the_caller_is_and_leave_warnings_as_they_were(monkeypatch):
    monkeypatch.setattr(_shadow_training, "default_n_jobs", lambda n_jobs: 2)
    seen, before = [], warnings.filters[:]
    train = _shadow_training.train_clone

    def told(*args):
        seen.append(get_config()["assume_finite"])
        return train(*args)

    monkeypatch.setattr(_shadow_training, "train_clone", told)
    with config_context(assume_finite=True):  # a setting of a thread
        ShadowPool(FOREST, n_shadows=4, random_state=0).fit(X, Y)
    assert seen == [True] * 4
    assert warnings.filters == before


def test_joblib_and_n_jobs_settle_how_many(monkeypatch):
    monkeypatch.setattr("skprivacy._environment.blas_threads", lambda: 7)
    assert default_n_jobs(None) == 7
    assert default_n_jobs(3) == 3
    with parallel_config("threading", n_jobs=2):
        assert default_n_jobs(None) is None
