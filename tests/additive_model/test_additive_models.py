"""Predictions, effects and public facts of the additive models."""

import numpy as np
import pandas as pd
import pytest

from skprivacy.additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor, rounds
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
UNIT = {name: BoundedColumn(-1, 1) for name in "abc"}


def crossed(n=6000, seed=0):
    """The sign of a product of two columns, and a third column without meaning."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 3))
    return X, X[:, 0] * X[:, 1] > 0


def classifier(epsilon=np.inf, **params):
    schema = Schema(UNIT, classes=[False, True])
    return PrivateAdditiveClassifier(epsilon, 1e-6, **{"schema": schema, "noise_seed": 0, **params})


def test_a_pair_is_found_that_no_single_column_shows():
    X, y = crossed()
    X_test, y_test = crossed(seed=1)
    model = classifier(3.0).fit(X, y)
    assert ("a", "b") in [effect.columns for effect in model.effects_]
    assert model.score(X_test, y_test) > 0.9
    alone = classifier(3.0, max_pairs=0).fit(X, y)
    assert {len(effect.columns) for effect in alone.effects_} == {1}
    assert alone.score(X_test, y_test) < 0.6


def test_pairs_are_capped_at_those_of_the_strongest_columns():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 5))
    y = X[:, 1] + X[:, 3] > 0
    schema = Schema({name: BoundedColumn(-1, 1) for name in "abcde"}, classes=[False, True])
    model = classifier(schema=schema, max_pairs=1).fit(X, y)
    assert {e.columns for e in model.effects_ if len(e.columns) == 2} <= {("b", "d")}


def test_without_noise_nothing_is_random_and_nothing_is_promised():
    X, y = crossed(2000)
    one, other = (classifier().fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert one.epsilon_ == np.inf
    assert one.score(X, y) > 0.96
    assert one.n_records_ == 2000
    assert all((effect.noise_std == 0).all() for effect in one.effects_)


def test_without_noise_a_single_column_reaches_its_own_log_odds():
    """Rounds of Newton steps converge to the rates of the cells.

    They stop where deviations look like sampling error, which is up to 0.009 here.
    """
    kinds = np.repeat(["x", "y", "z"], [4000, 3000, 3000])
    rates = {"x": 0.9, "y": 0.5, "z": 0.2}
    y = np.random.default_rng(0).uniform(size=10_000) < [rates[k] for k in kinds]
    X = pd.DataFrame({"kind": kinds})
    schema = Schema({"kind": CategoricalColumn(["x", "y", "z"])}, classes=[False, True])
    model = classifier(schema=schema, n_rounds=60).fit(X, y)
    probability = model.predict_proba(pd.DataFrame({"kind": list(rates)}))[:, 1]
    np.testing.assert_allclose(probability, [y[kinds == k].mean() for k in rates], atol=0.01)


def test_scores_are_the_intercept_plus_the_effects():
    X, y = crossed()
    model = classifier(3.0).fit(X, y)
    total = np.full(len(X), model.intercept_[0])
    bins = {
        name: model.bins_[c][model.domain_.cell_codes([pd.Series(column) for column in X.T])[:, c]]
        for c, name in enumerate("abc")
    }
    for effect in model.effects_:
        total += effect.scores[tuple(bins[name] for name in effect.columns)][:, 0]
    np.testing.assert_allclose(model.decision_function(X), total)
    sizes = [effect.size for effect in model.effects_ if len(effect.columns) == 1]
    assert sizes == sorted(sizes, reverse=True)


def test_steps_of_scores_are_bounded_where_second_derivatives_vanish(monkeypatch):
    X, y = crossed(500)

    def far(sums, *_):
        signs = np.where(np.arange(len(sums.gradient)) % 2, 80.0, -80.0)
        return np.broadcast_to(signs[:, None], sums.gradient.shape), np.zeros_like(sums.gradient)

    monkeypatch.setattr(rounds, "shrink_step", far)
    model = classifier(3.0, n_rounds=1, max_pairs=0).fit(X, y)
    # half a step of 4 at the start and one in the round; centring at most doubles them
    assert 2.0 < max(np.abs(effect.scores).max() for effect in model.effects_) <= 12.0


def test_noise_std_is_the_spread_of_effects_over_fits():
    """Strong effects are hardly shrunk, so that the noise of a fit passes through linearly."""
    kinds = np.tile(["x", "y"], 2000)
    y = np.random.default_rng(0).uniform(size=4000) < np.where(kinds == "x", 0.85, 0.15)
    X = pd.DataFrame({"kind": kinds})
    schema = Schema({"kind": CategoricalColumn(["x", "y"])}, classes=[False, True])
    fits = [
        classifier(0.3, schema=schema, n_rounds=1, noise_seed=seed).fit(X, y) for seed in range(60)
    ]
    swing = [np.ptp(np.sort(m.effects_[0].scores[:, 0])) for m in fits]
    stated = np.mean([np.linalg.norm(m.effects_[0].noise_std) for m in fits])
    assert 0.7 < np.std(swing) / stated < 1.4


def test_missing_and_unknown_values_have_no_effect():
    X, y = crossed()
    frame = pd.DataFrame(X, columns=list("abc"))
    model = classifier(3.0).fit(frame, y)
    nothing = pd.DataFrame({"a": [np.nan], "b": ["?"], "c": [None]})
    np.testing.assert_allclose(model.decision_function(nothing), model.intercept_)
    np.testing.assert_array_equal(  # columns are matched by name
        model.decision_function(frame[["a", "b", "c"]]), model.decision_function(frame)
    )


def test_a_column_with_missing_values_has_an_effect_of_being_missing():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": np.where(rng.uniform(size=4000) < 0.5, np.nan, 0.5), "b": 0.0})
    y = X["a"].isna().to_numpy()
    schema = Schema({"a": BoundedColumn(0, 1, missing=True), "b": UNIT["b"]}, classes=[False, True])
    assert classifier(schema=schema).fit(X, y).score(X, y) == 1.0
    lost = classifier(schema=Schema({"a": BoundedColumn(0, 1), "b": UNIT["b"]}, classes=[0, 1]))
    assert lost.fit(X, y).n_records_ == (~y).sum()  # such records are left out


def test_many_categories_are_ordered_by_their_effect():
    rng = np.random.default_rng(0)
    names = [f"v{i:02d}" for i in range(60)]
    kinds = rng.integers(60, size=40_000)
    good = np.isin(kinds, rng.permutation(60)[:30])
    y = rng.uniform(size=len(kinds)) < np.where(good, 0.8, 0.2)
    schema = Schema({"kind": CategoricalColumn(names)}, classes=[False, True])
    X = pd.DataFrame({"kind": np.array(names)[kinds]})
    assert classifier(3.0, schema=schema).fit(X, y).score(X, y) > 0.78


def test_the_records_of_a_group_count_as_one():
    X, y = crossed(1000)
    repeated = np.repeat(np.arange(1000), 4)
    once = classifier().fit(X, y)
    grouped = classifier().fit(X[repeated], y[repeated], groups=repeated)
    assert grouped.n_records_ == once.n_records_ == 1000
    # shares of a quarter are rounded to the grid of sums
    np.testing.assert_allclose(
        grouped.decision_function(X), once.decision_function(X), rtol=0.02, atol=0.02
    )
    assert grouped.privacy_.unit == "group"


def test_three_classes_have_an_effect_each():
    X, _ = crossed()
    y = np.where(X[:, 0] * X[:, 1] > 0, np.where(X[:, 2] > 0, "u", "v"), "w")
    model = classifier(8.0, schema=Schema(UNIT, classes=["u", "v", "w"])).fit(X, y)
    assert model.intercept_.shape == (3,)
    assert model.effects_[0].scores.shape[-1] == 3
    assert model.score(X, y) > 0.85
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    # steps of all classes at once do not overshoot, however many there are
    many = classifier(schema=Schema(UNIT, classes=["u", "v", "w"]), n_rounds=24)
    assert many.fit(X, y).score(X, y) > 0.93


@pytest.mark.parametrize("epsilon", [3.0, np.inf])
def test_a_regressor_predicts_in_the_units_of_the_target(epsilon):
    X, _ = crossed()
    y = 500 + 300 * X[:, 0] * X[:, 1] + 50 * X[:, 2]
    schema = Schema(UNIT, target_bounds=(0, 1000))
    model = PrivateAdditiveRegressor(epsilon, 1e-6, schema=schema, noise_seed=0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert abs(model.intercept_[0] - 500) < 30
    assert (np.abs(model.predict(X) - 500) <= 500).all()
