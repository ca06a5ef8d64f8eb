"""Synthetic records look as they should, and are good enough to attack with."""

from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from skprivacy.attacks import LabeledRecords
from skprivacy.attacks.membership import labeled_records


@pytest.fixture(scope="module")
def shopping():
    """Binary baskets of three kinds of customers, with labels wrong in 20%."""
    rng = np.random.default_rng(0)
    taste = rng.uniform(0.1, 0.9, size=(3, 20))
    kind = rng.integers(0, 3, 800)
    X = (rng.random((800, 20)) < taste[kind]).astype(float)
    y = np.where(rng.random(800) < 0.2, rng.integers(0, 3, 800), kind)
    target = RandomForestClassifier(30, random_state=0).fit(X[:300], y[:300])
    return X, y, target


@pytest.mark.heavy
def test_climbing_finds_records_of_each_class(shopping):
    found = LabeledRecords.from_model(shopping[2], [[0, 1]] * 20, 20, random_state=0)
    X, y = found.X, found.y
    assert set(np.unique(X)) <= {0.0, 1.0}
    assert (np.bincount(y) >= 10).all()
    proba = shopping[2].predict_proba(X)
    assert (proba.argmax(1) == y).all()
    start = shopping[2].predict_proba(np.random.default_rng(0).integers(0, 2, (500, 20)))
    assert proba.max(1).mean() > start.max(1).mean() + 0.05


def test_climbing_gives_up(shopping):
    found = LabeledRecords.from_model(
        shopping[2], [[0]] * 20, 3, confidence=0.999, max_queries=5, random_state=0
    )
    assert found.shape == (0, 20)


def test_half_as_many_features_are_redrawn_after_rejections_rounded_up():
    """Algorithm 1 of Shokri et al., line 20: k becomes max(k_min, ceil(k / 2))."""

    class LessAndLessSure:
        classes_ = np.array([0, 1])
        queries = 0

        def predict_proba(self, X):
            self.queries += 1
            return np.tile([0.1 / self.queries, 1 - 0.1 / self.queries], (len(X), 1))

    redraw, redrawn = labeled_records._redraw_features, []

    def recorded(best, changed, *others):
        redrawn.append(int(changed[0]))  # of a search for class 0, which gets less probable
        return redraw(best, changed, *others)

    with mock.patch.object(labeled_records, "_redraw_features", recorded):
        LabeledRecords.from_model(
            LessAndLessSure(), [[0, 1]] * 9, 1, max_queries=7, patience=0, least_changed=1
        )
    assert redrawn == [9, 5, 3, 2, 1, 1, 1]


def test_marginals_are_kept_and_correlations_are_not():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 2000)
    X = np.c_[first, first]
    found = LabeledRecords.from_marginals(X, first * 0, 2000, random_state=0)
    drawn, y = found.X, found.y
    assert drawn.mean(0) == pytest.approx(X.mean(0), abs=0.05)
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.1
    assert len(y) == 2000


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_noise_resets_the_share(share):
    X = np.random.default_rng(0).integers(0, 2, (50, 20))
    changed = LabeledRecords(X, X[:, 0]).noisy(share, random_state=0).X != X
    assert (changed.sum(1) == share * 20).all()
    text = np.array([["a", "x"], ["b", "y"], ["c", "z"]], dtype=object)
    replaced = LabeledRecords(text, [0, 1, 0]).noisy(1.0, random_state=0).X
    assert set(replaced[:, 1]) <= {"x", "y", "z"}


@pytest.mark.parametrize("make", ["marginals", "noisy"])
def test_frames_stay_frames(make):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 90, 40),
            "sex": pd.Categorical(rng.choice(["f", "m"], 40)),
            "ward": rng.choice(["A", "B", None], 40),
        },
        index=np.arange(40) * 7,
    )
    y = rng.integers(0, 2, 40)
    if make == "noisy":
        made = LabeledRecords(table, y).noisy(1.0, random_state=0).X
        assert (made["sex"].to_numpy() != table["sex"].to_numpy()).all()  # two values are flipped
        assert list(made.index) == list(range(40))
    else:
        drawn = LabeledRecords.from_marginals(table, y, 30, random_state=0)
        made = drawn.X
        assert len(made) == len(drawn.y) == 60
    assert list(made.columns) == list(table.columns)
    assert (made.dtypes == table.dtypes).all()
    for name in table:
        assert set(made[name].dropna()) <= set(table[name].dropna())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda target: LabeledRecords(np.eye(3), [0, 1, 0]).noisy(2), "share=2"),
        (lambda target: LabeledRecords(["a", "b"], [0, 1]).noisy(), "expected a dense table"),
        (lambda target: LabeledRecords.from_model(None, [[0]], 1), "target=None"),
        (lambda target: LabeledRecords.from_model(target, [[0, 1]] * 3, 1), "values lists 3"),
        (lambda target: LabeledRecords.from_model(target, [[]] * 20, 1), r"values\[0\] must"),
    ],
)
def test_bad_arguments_are_named(make, words, shopping):
    with pytest.raises((TypeError, ValueError), match=words):
        make(shopping[2])
