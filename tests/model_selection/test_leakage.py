"""Leakage as a score of scikit-learn's searches: of exactly the records that each model saw."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RandomizedSearchCV,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skprivacy import check_disclosure, make_leakage_scorer
from skprivacy.attacks import LabeledRecords, LossThreshold
from skprivacy.model_selection import leakage
from skprivacy.model_selection.leakage import loss_auc

X, y = make_classification(300, n_features=6, flip_y=0.4, random_state=0)
TREE = DecisionTreeClassifier(random_state=0)
GRID = {"max_depth": [1, None]}


class Saw(DecisionTreeClassifier):
    """Remembers what it was trained on."""

    def fit(self, X, y):
        self.saw_ = np.asarray(X)
        return super().fit(X, y)


def seen_share(model, X_train, y_train, X_test, y_test):
    """Return 1 if the measure got exactly what the model saw, and all else as new records."""
    seen = {row.tobytes() for row in model.saw_}
    own = {row.tobytes() for row in np.asarray(X_train)}
    new = {row.tobytes() for row in np.asarray(X_test)}
    return float(seen == own and not seen & new and len(X_train) == len(y_train))


@pytest.mark.parametrize(
    ("cv", "groups"),
    [
        (None, None),
        (4, None),
        (KFold(3), None),
        (StratifiedKFold(3, shuffle=True, random_state=1), None),
        (RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0), None),
        (ShuffleSplit(3, train_size=0.3, test_size=0.2, random_state=0), None),
        (GroupKFold(3), np.arange(300) % 7),
        (list(KFold(3).split(X)), None),
    ],
    ids=str,
)
def test_it_compares_what_the_model_saw_with_what_was_held_out(cv, groups):
    scorer = make_leakage_scorer(X, y, cv=cv, groups=groups, measure=seen_share)
    found = cross_validate(
        Saw(), X, y, cv=cv, groups=groups, scoring={"seen": scorer}, return_train_score=True
    )
    assert (found["test_seen"] == -1).all()
    assert (found["train_seen"] == -1).all()


def test_planted_confusion_of_folds_is_caught(monkeypatch):
    def exchanged(self, own, held_out):
        first, second = X[held_out], y[held_out]
        return iter([first, second, X[own], y[own]])

    monkeypatch.setattr(leakage.LeakageScorer, "_iter_parts", exchanged)
    with pytest.raises(AssertionError):
        test_it_compares_what_the_model_saw_with_what_was_held_out(4, None)


@pytest.mark.parametrize("routing", [False, True])
def test_a_grid_search_watches_it_beside_the_accuracy(routing):
    scoring = {"accuracy": "accuracy", "neg_leakage": make_leakage_scorer(X, y, cv=3)}
    with sklearn.config_context(enable_metadata_routing=routing):
        search = GridSearchCV(TREE, GRID, scoring=scoring, cv=3, refit="neg_leakage").fit(X, y)
    shallow, deep = search.cv_results_["mean_test_neg_leakage"]
    assert shallow > -0.55
    assert deep < -0.6
    assert search.best_params_ == {"max_depth": 1}
    assert search.cv_results_["mean_test_accuracy"].min() > 0.5


def test_its_value_is_that_of_the_attack():
    folds = list(StratifiedKFold(3).split(X, y))
    scorer = make_leakage_scorer(X, y, cv=3)
    found = cross_val_score(TREE, X, y, cv=3, scoring=scorer)
    records = LabeledRecords(X, y)
    for (own, new), score in zip(folds, found, strict=True):
        model = DecisionTreeClassifier(random_state=0).fit(X[own], y[own])
        result = LossThreshold(model).fit(records).evaluate(records[own], records[new])
        assert score == -result.auc


@pytest.mark.heavy
def test_any_measure_and_any_container():
    def signs(model, X_train, y_train, X_test, y_test):
        return len(check_disclosure(model, X_train, y_train, X_test, y_test).flagged)

    frame, labels = pd.DataFrame(X, columns=list("abcdef")), pd.Series(np.where(y, "yes", "no"))
    model = make_pipeline(StandardScaler(), TREE)
    scorer = make_leakage_scorer(frame, labels, cv=3, measure=signs)
    search = RandomizedSearchCV(
        model,
        {"decisiontreeclassifier__max_depth": [1, None]},
        n_iter=2,
        scoring={"neg_signs": scorer},
        refit=False,
        cv=3,
        random_state=0,
    ).fit(frame, labels)
    assert search.cv_results_["mean_test_neg_signs"].min() < -2
    assert "signs" in repr(scorer)


@pytest.mark.slow
def test_workers_score_alike():
    scorer = make_leakage_scorer(X, y, cv=3)
    alone, together = (
        cross_val_score(LogisticRegression(), X, y, cv=3, scoring=scorer, n_jobs=n) for n in (1, 2)
    )
    assert alone.tolist() == together.tolist()


def test_regressors_and_classifiers_without_probabilities():
    noise = np.random.default_rng(0).normal(size=300)
    parts = X[:150], noise[:150], X[150:], noise[150:]
    assert loss_auc(DecisionTreeRegressor().fit(*parts[:2]), *parts) == 1
    labels = X[:150], y[:150], X[150:], y[150:]
    machine = LinearSVC().fit(*labels[:2])
    gap = machine.score(*labels[:2]) - machine.score(*labels[2:])
    assert loss_auc(machine, *labels) == pytest.approx(0.5 + gap / 2)
    scorer = make_leakage_scorer(X, noise, cv=3)
    assert (cross_val_score(DecisionTreeRegressor(), X, noise, cv=3, scoring=scorer) == -1).all()


def test_other_splits_are_refused():
    scorer = make_leakage_scorer(X, y, cv=3)
    with pytest.raises(ValueError, match=r"not a fold .* the same X, y, groups and cv"):
        cross_val_score(TREE, X, y, cv=4, scoring=scorer, error_score="raise")
    with pytest.raises(ValueError, match="not a fold"):
        scorer(TREE.fit(X, y), X[:100], 1 - y[:100])
    with pytest.raises(ValueError, match="splits differently each time"):
        make_leakage_scorer(X, y, cv=KFold(3, shuffle=True))
    with pytest.raises(ValueError, match="at least three folds"):
        make_leakage_scorer(X, y, cv=2)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        make_leakage_scorer(X, y[:10])
    with pytest.raises(TypeError, match="measure='accuracy' must be a function"):
        make_leakage_scorer(X, y, measure="accuracy")
    with pytest.raises(ValueError, match="y is None"):
        scorer(TREE, X[:100])
