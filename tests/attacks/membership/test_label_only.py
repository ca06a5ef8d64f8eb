"""Label-only attacks: any kind of feature, and nothing but labels."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, LabelOnlyAttack
from skprivacy.attacks.membership import label_only

from ..conftest import attack_halves

METHODS = ["noise", "boundary", "hopskipjump"]


def test_distance_to_a_known_boundary():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = (X[:, 0] > 0).astype(int)
    model = RidgeClassifier(alpha=1e-9).fit(X, y)  # no probabilities; boundary close to 0
    records = LabeledRecords(X, y)
    attack = LabelOnlyAttack(model, method="boundary", n_queries=64).fit(records)
    boundary = -np.ravel(model.intercept_)[0] / model.coef_.ravel()[0]
    true = np.abs(X[:, 0] - boundary) / X.std()
    right = model.predict(X) == y
    # halving a path of length L eight times leaves L / 256
    assert attack.decision_function(records)[right] == pytest.approx(true[right], abs=0.02)
    assert (attack.decision_function(records)[~right] == 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_binary_features_stay_binary(method):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (300, 15)).astype(float)
    y = rng.integers(0, 2, 300)
    asked = []
    model = DecisionTreeClassifier(random_state=0).fit(X[:150], y[:150])
    plain = model.predict
    model.predict = lambda X: asked.append(np.unique(X)) or plain(X)
    result = attack_halves(LabelOnlyAttack(model, method=method, n_queries=40), X, y)
    assert set(np.concatenate(asked)) == {0.0, 1.0}
    assert result.auc_interval[0] > 0.6


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("method", METHODS)
def test_mixed_frames_keep_their_types(method):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "city": rng.choice(["a", "b", "c"], 400),
            "ill": pd.Categorical(rng.choice(["no", "yes"], 400)),
            "age": rng.normal(50, 20, 400),
        },
        index=rng.permutation(400),
    )
    y = rng.choice(["good", "poor"], 400)
    encode = make_column_transformer((OneHotEncoder(), ["city", "ill"]), remainder="passthrough")
    model = make_pipeline(encode, DecisionTreeClassifier(random_state=0)).fit(frame[:200], y[:200])
    result = attack_halves(LabelOnlyAttack(model, method=method, n_queries=16), frame, y)
    assert result.auc_interval[0] > 0.55


def odd_records(kind):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60)
    if kind == "sparse":
        X = sparse.csr_matrix(rng.integers(0, 2, (60, 5)).astype(float))
        return X, y, LogisticRegression().fit(X, y)
    X = rng.normal(size=(60, 3))
    if kind == "missing":
        X[rng.random(X.shape) < 0.2] = np.nan
        return X, y, DecisionTreeClassifier(random_state=0).fit(X[:40], y[:40])
    y = np.r_[np.zeros(59), 1]
    return X, y, DecisionTreeClassifier(min_samples_leaf=30).fit(X, y)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["sparse", "missing", "one label alone is predicted"])
def test_odd_records_have_finite_scores(kind, method):
    X, y, model = odd_records(kind)
    records = LabeledRecords(X, y)
    attack = LabelOnlyAttack(model, method=method, n_queries=16).fit(records)
    scores = attack.decision_function(records)
    assert np.isfinite(scores).all()
    assert kind[:3] != "one" or scores[-1] == 0  # without a boundary, a wrong label is lowest


class Counting:
    """Answers with labels and counts them."""

    def __init__(self, model):
        self.model = model
        self.classes_ = model.classes_
        self.asked = 0

    def predict(self, X):
        self.asked += len(X)
        return self.model.predict(X)


@pytest.mark.heavy
@pytest.mark.parametrize("n_queries", [9, 37, 100, 500])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["continuous", "binary", "mixed"])
def test_never_asks_more_than_its_budget(kind, method, n_queries):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12))
    n_binary = {"continuous": 0, "mixed": 6, "binary": 12}[kind]
    X[:, :n_binary] = rng.integers(0, 2, (40, n_binary))
    y = rng.integers(0, 2, 40)
    model = Counting(DecisionTreeClassifier(random_state=0).fit(X, y))
    records = LabeledRecords(X, y)
    attack = LabelOnlyAttack(model, method=method, n_queries=n_queries).fit(records)
    model.asked = 0
    attack.decision_function(records)
    assert model.asked == attack.queries_.sum()
    assert attack.queries_.max() <= n_queries
    model.asked = 0
    attack.decision_function(records[:1])  # one record alone: its own budget holds
    assert model.asked <= n_queries
    assert attack.evaluate(records[:20], records[20:]).details["queries"] <= n_queries


@pytest.mark.slow
def test_hopskipjump_approaches_the_distance_of_a_linear_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8)) * np.arange(1, 9)
    y = (X @ rng.normal(size=8) > 0).astype(int)
    model = RidgeClassifier(alpha=1e-9).fit(X, y)
    records = LabeledRecords(X, y)
    attack = LabelOnlyAttack(model, method="hopskipjump", n_queries=1000).fit(records)
    rough = LabelOnlyAttack(model, method="boundary", n_queries=1000).fit(records)
    scaled = model.coef_.ravel() * X.std(axis=0)
    true = np.abs(model.decision_function(X)) / np.linalg.norm(scaled)
    right = model.predict(X) == y
    ratio = attack.decision_function(records)[right] / true[right]
    assert (ratio > 0.999).all()  # the point found has the other label
    assert np.median(ratio) < 1.02
    assert np.quantile(ratio, 0.95) < 1.05
    assert np.median(rough.decision_function(records)[right] / true[right]) > 1.1
    assert (attack.decision_function(records)[~right] == 0).all()


def test_hopskipjump_counts_the_flips_of_binary_features():
    # the label is the majority of 9: the distance is the number of flips to the other side
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (200, 9)).astype(float)

    class Majority:
        classes_ = np.array([0, 1])

        def predict(self, X):
            return (X.sum(axis=1) > 4).astype(int)

    y = Majority().predict(X)
    records = LabeledRecords(X, y)
    attack = LabelOnlyAttack(Majority(), method="hopskipjump", n_queries=40).fit(records)
    ones = X.sum(axis=1)
    flips = np.where(y == 1, ones - 4, 5 - ones)
    assert attack.decision_function(records) ** 2 == pytest.approx(flips)


@pytest.mark.heavy
def test_planted_steps_away_from_the_boundary_are_caught(monkeypatch):
    """With random directions instead of estimated ones, the distance stays far too large."""
    monkeypatch.setattr(label_only.BoundarySearch, "ask", _coin)
    with pytest.raises(AssertionError):
        test_hopskipjump_approaches_the_distance_of_a_linear_model()


def _coin(self, rows, points, *, reserve=0):
    return np.random.default_rng(len(rows)).random(len(rows)) < 0.5
