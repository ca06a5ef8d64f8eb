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

from ..conftest import attack_halves

METHODS = ["noise", "boundary"]


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


@pytest.mark.parametrize("n_queries", [9, 37, 100])
@pytest.mark.parametrize("method", METHODS)
def test_never_asks_more_than_its_budget(method, n_queries):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12))
    X[:, :6] = rng.integers(0, 2, (40, 6))
    y = rng.integers(0, 2, 40)
    model = Counting(DecisionTreeClassifier(random_state=0).fit(X, y))
    records = LabeledRecords(X, y)
    attack = LabelOnlyAttack(model, method=method, n_queries=n_queries).fit(records)
    model.asked = 0
    attack.decision_function(records)
    spent = n_queries if method == "noise" else (n_queries - 1) // 8 * 8 + 1
    assert model.asked == len(y) * spent
