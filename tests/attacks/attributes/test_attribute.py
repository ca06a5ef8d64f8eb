"""Attribute inference distinguishes leakage from correlation."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skprivacy.attacks import AttributeInference
from skprivacy.attacks.attributes.attribute_result import Guesses, compare_guesses


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
    X, y = people(0, 1800)  # the advantage has the variance of imputation, too
    X[:, 1:] = np.round(X[:, 1:], 1)
    result = attack_on(DecisionTreeClassifier(max_features=1, random_state=0), X, y, prior=prior)
    assert result.advantage_interval[0] > 0
    assert result.others.accuracy == pytest.approx(0.5, abs=0.1)
    assert result.members.baseline == pytest.approx(0.5, abs=0.1)
    assert result.finding == "leak"


@pytest.mark.heavy
def test_correlation_is_not_called_leakage():
    X, y = people(0, correlated=True)
    result = attack_on(LogisticRegression(), X, y)
    assert result.members.accuracy > 0.85
    assert result.members.baseline > 0.85
    assert result.advantage_interval[0] < 0 < result.advantage_interval[1]
    assert result.finding != "leak"


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
        wrong["gain"] += result.members.gain_interval[0] > 0
    assert max(wrong.values()) <= binom.ppf(0.999, 20, 0.05)


@pytest.mark.heavy
def test_the_true_value_is_not_read():
    X, y = people(1)
    model = DecisionTreeClassifier(random_state=0).fit(X[:300], y[:300])
    attack = AttributeInference(model).fit(X[600:], y[600:])
    blinded = X.copy()
    blinded[:, 0] = 0
    assert (attack.predict(X[:300], y[:300]) == attack.predict(blinded[:300], y[:300])).all()


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
    y = rng.choice(["good", "poor"], 300)
    encode = make_column_transformer((OneHotEncoder(), ["city", "ill"]), remainder="passthrough")
    model = make_pipeline(encode, DecisionTreeClassifier(max_features=1, random_state=0))
    result = attack_on(model, frame, y, attribute="ill")
    assert result.members.accuracy > result.others.accuracy
    assert len(result.to_frame()) == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"attribute": 99}, "attribute=99"),
        ({"target": None}, "target=None"),
        ({"attribute": 4}, "at least two values"),
    ],
)
def test_mistakes_are_named(change, word):
    X, y = people(0, 90)
    X[:, 4] = 1
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=word):
        AttributeInference(model).set_params(**change).fit(X, y)


@pytest.mark.heavy
def test_records_without_the_attribute_are_refused_where_the_truth_is_needed():
    # counted as wrong, they would separate the side that has more of them
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


def incomes(seed=0, n=1200, noise=1.0):
    rng = np.random.default_rng(seed)
    income, age = np.exp(rng.normal(10, 0.7, n)), rng.integers(18, 80, n).astype(float)
    table = pd.DataFrame({"income": income, "age": age})
    return table, np.log(income) + 0.01 * age + noise * rng.normal(size=n)


@pytest.mark.heavy
def test_a_memorised_number_is_a_leak():
    result = attack_on(DecisionTreeRegressor(random_state=0), *incomes(), attribute="income")
    assert result.finding == "leak"
    assert result.within > 0
    assert result.members.error_gain_interval[0] > 0
    assert result.members.error < result.members.baseline_error
    assert result.others.gain_interval[0] < 0.03


@pytest.mark.heavy
def test_knowledge_of_the_population_is_not_a_leak():
    # a regression of little noise reveals any income; the attacker has few records
    table, y = incomes(0, 2400, noise=0.1)
    model = LinearRegression().fit(np.log(table[:800]), y[:800])

    class OnLogs(LinearRegression):
        def predict(self, X):
            return model.predict(np.log(X))

    target = OnLogs().fit(table[:800], y[:800])
    attack = AttributeInference(target, attribute="income", prior="marginal")
    attack.fit(table[1600:1660], y[1600:1660])
    result = attack.evaluate(table[:800], y[:800], table[800:1600], y[800:1600])
    assert result.members.gain_interval[0] > 0
    assert result.others.gain_interval[0] > 0
    assert result.finding == "population"
    assert "no leak" in repr(result)


@pytest.mark.slow
def test_null_of_numbers():
    # the "members" were never seen
    wrong = 0
    for seed in range(20):
        table, y = incomes(seed)
        model = RandomForestRegressor(10, random_state=0).fit(table[:300], y[:300])
        attack = AttributeInference(model, attribute="income")
        attack.fit(table[300:600], y[300:600])
        parts = slice(600, 900), slice(900, None)
        result = attack.evaluate(*(part for rows in parts for part in (table[rows], y[rows])))
        wrong += not result.advantage_interval[0] <= 0 <= result.advantage_interval[1]
        assert result.finding != "leak"
    assert wrong <= binom.ppf(0.999, 20, 0.05)


def test_the_baseline_is_the_better_imputation():
    # an imputer that is always wrong must not make an attack look good that ignores the model
    class Wrong(DecisionTreeClassifier):
        def predict_proba(self, X):
            return super().predict_proba(X)[:, ::-1]

    X, y = people(0)
    X[:, 0] = np.arange(len(X)) % 10 == 0
    result = attack_on(LogisticRegression(), X, y, prior="marginal", imputer=Wrong(max_depth=1))
    assert result.finding == "nothing"
    assert "without the model" in repr(result)
    assert result.members.baseline == pytest.approx(0.9)


def test_a_gain_is_paired_by_record():
    right = np.arange(100) < 60
    nothing = np.full(100, np.nan)
    same = compare_guesses(Guesses(right, nothing), Guesses(right, nothing), 0.05)
    other = compare_guesses(Guesses(right, nothing), Guesses(~right, nothing), 0.05)
    assert same.gain == 0
    assert max(np.abs(same.gain_interval)) < 0.06  # 0.1 if the two rates were independent
    assert other.gain_interval[0] == pytest.approx(0.0, abs=0.02)
    assert other.gain == pytest.approx(0.2)


def test_within_decides_what_is_a_number():
    X, y = people(0, 300)
    X[:, 1] = np.round(20 * X[:, 1])
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    codes = AttributeInference(model, attribute=1, within=0).fit(X, y)
    numbers = AttributeInference(model, attribute=1).fit(X, y)
    few = AttributeInference(model, attribute=0).fit(X, y)
    assert (codes.within_, few.within_) == (0, 0)
    assert set(codes.values_) == set(X[:, 1])
    assert numbers.within_ == pytest.approx(0.1 * X[:, 1].std())
    assert len(numbers.values_) <= 50
    assert AttributeInference(model, attribute=0, within=2).fit(X, y).within_ == 2
    named = pd.DataFrame(X).assign(text="a")
    with pytest.raises(ValueError, match="needs a number"):
        AttributeInference(model, attribute="text", within=1).fit(
            named.set_axis([*map(str, range(5)), "text"], axis=1), y
        )


@pytest.mark.heavy
def test_every_form_of_a_result_holds_the_comparison():
    result = attack_on(DecisionTreeRegressor(random_state=0), *incomes(n=600), attribute="income")
    state = json.loads(result.to_json())
    assert state["members"]["gain"] == result.members.gain
    assert state["advantage_interval"] == list(result.advantage_interval)
    row = result.to_frame().iloc[0]
    assert row["others_error_gain_low"] == result.others.error_gain_interval[0]
    for text in (repr(result), result._repr_html_()):
        assert "mean absolute error" in text
        assert "advantage" in text.lower()
        assert "0000000" not in text
