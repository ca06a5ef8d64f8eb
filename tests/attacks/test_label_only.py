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

from skprivacy.attacks import LabelOnlyAttack

METHODS = ["noise", "boundary"]


def test_distance_to_a_known_boundary():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = (X[:, 0] > 0).astype(int)
    model = RidgeClassifier(alpha=1e-9).fit(X, y)  # no probabilities; boundary close to 0
    attack = LabelOnlyAttack(model, method="boundary", n_queries=64).fit(X, y)
    boundary = -np.ravel(model.intercept_)[0] / model.coef_.ravel()[0]
    true = np.abs(X[:, 0] - boundary) / X.std()
    right = model.predict(X) == y
    # halving a path of length L eight times leaves L / 256
    assert attack.score_samples(X, y)[right] == pytest.approx(true[right], abs=0.02)
    assert (attack.score_samples(X, y)[~right] == 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_binary_features_stay_binary(method):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (300, 15)).astype(float)
    y = rng.integers(0, 2, 300)
    asked = []
    model = DecisionTreeClassifier(random_state=0).fit(X[:150], y[:150])
    plain = model.predict
    model.predict = lambda X: asked.append(np.unique(X)) or plain(X)
    attack = LabelOnlyAttack(model, method=method, n_queries=40).fit(X, y)
    result = attack.evaluate(X[:150], y[:150], X[150:], y[150:])
    assert set(np.concatenate(asked)) == {0.0, 1.0}
    assert result.auc_interval[0] > 0.6


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
    attack = LabelOnlyAttack(model, method=method, n_queries=16).fit(frame, y)
    result = attack.evaluate(frame[:200], y[:200], frame[200:], y[200:])
    assert result.auc_interval[0] > 0.55


@pytest.mark.parametrize("method", METHODS)
def test_sparse_records(method):
    rng = np.random.default_rng(0)
    X = sparse.csr_matrix(rng.integers(0, 2, (60, 5)).astype(float))
    y = rng.integers(0, 2, 60)
    model = LogisticRegression().fit(X, y)
    scores = LabelOnlyAttack(model, method=method, n_queries=8).fit(X, y).score_samples(X, y)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_model_with_one_label_has_no_boundary(method):
    X = np.random.default_rng(0).normal(size=(50, 2))
    y = np.r_[np.zeros(49), 1]
    model = DecisionTreeClassifier(min_samples_leaf=25).fit(X, y)
    scores = LabelOnlyAttack(model, method=method, n_queries=8).fit(X, y).score_samples(X, y)
    assert np.isfinite(scores).all()
    assert scores[-1] == 0


@pytest.mark.parametrize("method", METHODS)
def test_missing_values_stay_missing(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    y = rng.integers(0, 2, 80)
    model = DecisionTreeClassifier(random_state=0).fit(X[:40], y[:40])
    scores = LabelOnlyAttack(model, method=method, n_queries=16).fit(X, y).score_samples(X, y)
    assert np.isfinite(scores).all()
