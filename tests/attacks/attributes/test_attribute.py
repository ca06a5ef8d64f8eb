"""Attribute inference tells leakage from correlation."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import AttributeInference


def people(seed, n=900, correlated=False):
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 2, n)
    age = rng.normal(size=n) + (2.0 * ill if correlated else 0)
    X = np.c_[ill, age, rng.normal(size=(n, 3))]
    return X, rng.integers(0, 2, n) if not correlated else (ill ^ (rng.random(n) < 0.1))


def attack_on(model, X, y, **kwargs):
    third = len(X) // 3
    model.fit(X[:third], y[:third])
    attack = AttributeInference(model, **kwargs).fit(X[2 * third :], y[2 * third :])
    return attack.evaluate(X[:third], y[:third], X[third : 2 * third], y[third : 2 * third])


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("prior", ["imputation", "marginal", "uniform"])
def test_finds_what_a_model_memorised(prior):
    X, y = people(0)
    X[:, 1:] = np.round(X[:, 1:], 1)
    result = attack_on(DecisionTreeClassifier(max_features=1, random_state=0), X, y, prior=prior)
    assert result.advantage_interval[0] > 0
    assert result.accuracy_out == pytest.approx(0.5, abs=0.1)
    assert result.baseline_in == pytest.approx(0.5, abs=0.1)
    assert result.gain_p_value < 0.01


@pytest.mark.heavy
def test_correlation_is_not_called_leakage():
    X, y = people(0, correlated=True)
    result = attack_on(LogisticRegression(), X, y)
    assert result.accuracy_in > 0.85
    assert result.baseline_in > 0.85
    assert result.advantage_interval[0] < 0 < result.advantage_interval[1]
    assert result.gain_p_value > 0.05


@pytest.mark.slow
def test_null():
    # the "members" were never seen: at most 5% of runs may claim an advantage, or a gain
    wrong = {"advantage": 0, "gain": 0}
    for seed in range(20):
        X, y = people(seed, 800)
        model = DecisionTreeClassifier(random_state=0).fit(X[:200], y[:200])
        attack = AttributeInference(model, imputer=DecisionTreeClassifier(max_depth=3))
        attack.fit(X[200:400], y[200:400])
        result = attack.evaluate(X[400:600], y[400:600], X[600:], y[600:])
        low, high = result.advantage_interval
        wrong["advantage"] += not low <= 0 <= high
        wrong["gain"] += result.gain_p_value < 0.05
    assert max(wrong.values()) <= binom.ppf(0.999, 20, 0.05)


@pytest.mark.heavy
def test_the_true_value_is_not_read():
    X, y = people(1)
    model = DecisionTreeClassifier(random_state=0).fit(X[:300], y[:300])
    attack = AttributeInference(model).fit(X[600:], y[600:])
    blinded = X.copy()
    blinded[:, 0] = 0
    assert (attack.predict(X[:300], y[:300]) == attack.predict(blinded[:300], y[:300])).all()
    assert (attack.impute(X[:300], y[:300]) == attack.impute(blinded[:300], y[:300])).all()


@pytest.mark.heavy
def test_frames_with_text():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "city": rng.choice(["a", "b", "c"], 300),
            "ill": pd.Categorical(rng.choice(["no", "yes"], 300)),
            "age": rng.normal(size=300),
        }
    )
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    y = rng.choice(["good", "poor"], 300)
    encode = make_column_transformer((OneHotEncoder(), ["city", "ill"]), remainder="passthrough")
    model = make_pipeline(encode, DecisionTreeClassifier(max_features=1, random_state=0))
    result = attack_on(model, frame, y, attribute="ill")
    assert result.accuracy_in > result.accuracy_out
    assert len(result.to_frame()) == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"attribute": 99}, "attribute=99"),
        ({"prior": "none"}, "prior='none'"),
        ({"target": None}, "target=None"),
    ],
)
def test_mistakes_are_named(change, word):
    X, y = people(0, 90)
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=word):
        AttributeInference(model).set_params(**change).fit(X, y)


def test_one_value_is_refused():
    X, y = people(0, 90)
    X[:, 0] = 1
    with pytest.raises(ValueError, match="at least two values"):
        AttributeInference(LogisticRegression().fit(X, y)).fit(X, y)


@pytest.mark.heavy
def test_records_without_the_attribute_are_refused_where_the_truth_is_needed():
    # counted as wrong they would tell the side that has more of them from the other
    X, y = people(0)
    frame = pd.DataFrame(X, columns=list("abcde"))
    target = DecisionTreeClassifier(random_state=0).fit(frame, y)
    gaps = frame.copy()
    gaps.loc[3:5, "a"] = None
    attack = AttributeInference(target, attribute="a")
    with pytest.raises(ValueError, match="'a' is missing in 3 of 900"):
        attack.fit(gaps, y)
    attack.fit(frame[600:], y[600:])
    with pytest.raises(ValueError, match="missing in 3 of 300"):
        attack.evaluate(gaps[:300], y[:300], frame[300:600], y[300:600])
    assert len(attack.predict(gaps[:300], y[:300])) == 300


@pytest.mark.heavy
def test_a_result_reads_like_one():
    X, y = people(0)
    text = repr(attack_on(DecisionTreeClassifier(random_state=0), X, y))
    assert "without the model" in text
    assert "0000000" not in text
