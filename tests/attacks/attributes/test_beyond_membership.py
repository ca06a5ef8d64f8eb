"""Model inversion and property inference, each with its null."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from skprivacy._clones import train_clone
from skprivacy.attacks import PropertyInference, invert_class


def blobs(seed, n=200):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 5)) + 2 * y[:, None], np.array(["low", "high"])[y]


def test_inversion_reaches_the_class_and_stays_in_bounds():
    X, y = blobs(0)
    model = LogisticRegression().fit(X, y)
    x = invert_class(model, "high", (-3, 4), random_state=0)
    assert ((x >= -3) & (x <= 4)).all()
    assert model.predict([x])[0] == "high"
    # the climb goes on where the probability is flat: a linear model's height is in the corner
    assert x[model.coef_[0] < -0.3] == pytest.approx(4, abs=0.2)


def test_inversion_of_a_plateau_is_silent():
    X, y = blobs(0)
    model = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    x = invert_class(model, "low", (-3, 4), max_iter=20, random_state=0)
    assert model.predict([x])[0] == "low"


def test_inversion_mistakes():
    X, y = blobs(0)
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="bounds"):
        invert_class(model, "low", (1, 0))
    with pytest.raises(ValueError, match="label"):
        invert_class(model, "none", (0, 1))
    with pytest.raises(ValueError, match="bounds"):
        invert_class(model, "low", ([0] * 3, [1] * 3))


def test_inversion_takes_a_model_of_named_columns():
    X, y = blobs(0)
    frame = pd.DataFrame(X, columns=list("abcde"))
    named, plain = LogisticRegression().fit(frame, y), LogisticRegression().fit(X, y)
    given = {"max_iter": 20, "random_state": 0}
    found = invert_class(named, "high", (-3, 4), **given)  # a warning would fail
    same = invert_class(plain, "high", ([-3] * 5, [4] * 5), **given)
    np.testing.assert_allclose(found, same)


def town(seed, n=1200):
    rng = np.random.default_rng(seed)
    group = rng.random(n) < 0.5
    X = rng.normal(size=(n, 4))
    y = np.where(group, X[:, 0] > 0, X[:, 1] > 0)  # the classes depend on the group
    return X, y.astype(int), group


def train_shadow(attack, X, y, group, share, rng):
    rows, seed = attack._draw_shadow_set(group, share, rng)
    return train_clone(attack.target, X, y, rows, seed)


@pytest.mark.heavy
@pytest.mark.parametrize(("shares", "found"), [((0.2, 0.8), True), ((0.5, 0.5), False)])
def test_property_inference_and_its_null(shares, found):
    X, y, group = town(0)
    attack = PropertyInference(GaussianNB(), n_train=150, random_state=0)
    attack.fit(X, y, group, shares=shares)
    rng = np.random.RandomState(1)
    fresh = town(1)
    without = [train_shadow(attack, *fresh, shares[0], rng) for _ in range(30)]
    having = [train_shadow(attack, *fresh, shares[1], rng) for _ in range(30)]
    result = attack.evaluate(having, without)
    if found:
        assert result.auc > 0.9
        prediction = attack.predict(having[0])
        assert prediction
        assert prediction.is_shown
        rate = np.mean([attack.predict(model).has_property for model in having])
        low, high = prediction.interval
        assert low < prediction.right <= high
        assert rate > low - 0.1
    else:
        assert not attack.predict(having[0]).is_shown
        assert result.auc_interval[0] <= 0.5 <= result.auc_interval[1]
        assert result.epsilon_lower_bound() == 0


def test_property_mistakes():
    X, y, group = town(0, 100)
    for strange in (group | True, group.astype(str), np.where(group, 1.0, np.nan), group[:, None]):
        with pytest.raises(ValueError, match="expected True for some"):
            PropertyInference(GaussianNB()).fit(X, y, strange)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        PropertyInference(GaussianNB()).fit(X, y, group[:-1])
    with pytest.raises(ValueError, match="n_shadows"):
        PropertyInference(GaussianNB(), n_shadows=1).fit(X, y, group)
    PropertyInference(GaussianNB(), n_shadows=2, n_train=20).fit(X, y, group.astype(int))
    with pytest.raises(ValueError, match="Lower n_train"):
        PropertyInference(GaussianNB(), n_train=90).fit(X, y, group)


@pytest.mark.slow
def test_property_inference_is_the_same_with_any_number_of_jobs():
    X, y, group = town(0, 300)
    attack = PropertyInference(GaussianNB(), n_shadows=6, random_state=0)
    alone = clone(attack).fit(X, y, group)
    several = clone(attack).set_params(n_jobs=2).fit(X, y, group)
    np.testing.assert_array_equal(
        alone.attack_models_[0][-1].coef_, several.attack_models_[0][-1].coef_
    )


def test_a_prediction_counts_held_out_sets_that_were_answered_alike():
    X, y, group = town(0, 400)
    attack = PropertyInference(GaussianNB(), n_shadows=11, n_train=60, random_state=0)
    attack.fit(X, y, group, shares=(0.3, 0.7))
    target = train_shadow(attack, X, y, group, 0.7, np.random.RandomState(0))
    has_property = np.arange(11) % 2 == 1
    prediction = attack.predict(target)
    alike = attack.answers_ == prediction.has_property
    assert prediction.n == alike.sum()
    assert prediction.right == np.mean(has_property[alike] == prediction.has_property)
    assert prediction.baseline == (5 if prediction else 6) / 11
    assert attack.predict(target, alpha=0.5).interval[0] > prediction.interval[0]
    assert "without a model" in repr(prediction)
    with pytest.raises(ValueError, match="alpha="):
        attack.predict(target, alpha=2)


def test_two_shadow_sets_show_nothing():
    X, y, group = town(0, 200)
    attack = PropertyInference(GaussianNB(), n_shadows=2, random_state=0).fit(X, y, group)
    prediction = attack.predict(train_shadow(attack, X, y, group, 0.5, np.random.RandomState(0)))
    assert prediction.interval == (0.0, 1.0)
    assert not prediction.is_shown
    assert np.isnan(prediction.right)


@pytest.mark.heavy
def test_attack_models_never_see_the_sets_that_they_answer_about():
    # features without information: answers about sets seen in training would be right
    X, y, group = town(0, 400)
    attack = PropertyInference(
        LinearRegression(), n_shadows=60, n_train=60, attack_model=KNeighborsClassifier(1),
        random_state=0,
    )  # fmt: skip
    attack.fit(X, y.astype(float), group, shares=(0.5, 0.5))
    assert np.mean(attack.answers_ == (np.arange(60) % 2 == 1)) < 0.75


@pytest.mark.heavy
def test_the_property_of_a_regression_is_inferred():
    X, _, group = town(0)
    y = np.where(group, X[:, 0], X[:, 1]) + 0.1 * np.random.default_rng(0).normal(size=len(X))
    attack = PropertyInference(LinearRegression(), n_shadows=20, n_train=150, random_state=0)
    attack.fit(X, y, group, shares=(0.2, 0.8))
    rng = np.random.RandomState(1)
    with_it, without = (train_shadow(attack, X, y, group, share, rng) for share in (0.8, 0.2))
    assert attack.predict(with_it).is_shown
    assert not attack.predict(without)
    with pytest.raises(TypeError, match="must be a fitted regressor"):
        attack.predict(GaussianNB())
