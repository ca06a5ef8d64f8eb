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
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skprivacy import make_leakage_scorer
from skprivacy.attacks import LabeledRecords, LossThreshold
from skprivacy.model_selection import leakage

X, y = make_classification(300, n_features=6, flip_y=0.4, random_state=0)
TREE = DecisionTreeClassifier(random_state=0)
GRID = {"max_depth": [1, None]}


class Saw(DecisionTreeClassifier):
    """Remembers what it was trained on."""

    def fit(self, X, y):
        self.saw_ = np.asarray(X)
        return super().fit(X, y)


def seen_share(model, own, held_out):
    """Return 1 if the measure got exactly what the model saw, and all else as new records."""
    seen, members, others = (
        {row.tobytes() for row in rows} for rows in (model.saw_, own.X, held_out.X)
    )
    return float(seen == members and not seen & others)


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
def test_it_compares_what_the_model_saw_with_what_was_held_out(cv, groups, monkeypatch):
    monkeypatch.setattr(leakage, "_measure_leakage", seen_share)
    scorer = make_leakage_scorer(X, y, cv=cv, groups=groups)
    found = cross_validate(
        Saw(), X, y, cv=cv, groups=groups, scoring={"seen": scorer}, return_train_score=True
    )
    assert (found["test_seen"] == -1).all()
    assert (found["train_seen"] == -1).all()


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


def test_frames_and_pipelines():
    frame, labels = pd.DataFrame(X, columns=list("abcdef")), pd.Series(np.where(y, "yes", "no"))
    model = make_pipeline(StandardScaler(), TREE)
    named, plain = (
        cross_val_score(model, *data, cv=3, scoring=make_leakage_scorer(*data, cv=3))
        for data in ((frame, labels), (X, y))
    )
    assert named.tolist() == plain.tolist()


@pytest.mark.slow
def test_workers_score_alike():
    scorer = make_leakage_scorer(X, y, cv=3)
    alone, together = (
        cross_val_score(LogisticRegression(), X, y, cv=3, scoring=scorer, n_jobs=n) for n in (1, 2)
    )
    assert alone.tolist() == together.tolist()


def test_regressors():
    noise = np.random.default_rng(0).normal(size=300)
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
    with pytest.raises(ValueError, match="y is None"):
        scorer(TREE, X[:100])
