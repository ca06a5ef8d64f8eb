"""Settings of private training: Optimizer, Clipping and Distributed, and values for "auto"."""

from __future__ import annotations

import math
import re
from dataclasses import fields

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_friedman1
from sklearn.model_selection import train_test_split

from skprivacy import load_model, save_model
from skprivacy.exceptions import PrivacyWarning
from skprivacy.neural_network import (
    Clipping,
    Distributed,
    DPSGDClassifier,
    DPSGDRegressor,
    Optimizer,
)
from skprivacy.neural_network.settings import (
    PublicFacts,
    Recipe,
    held_out_share,
    resolve_auto_settings,
    starts_from_quantiles,
)

pytestmark = pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
X = np.random.default_rng(0).uniform(-1, 1, (90, 3))
y = (X[:, 0] > 0).astype(int)
SMALL = {
    "classes": [0, 1], "delta": 1e-3, "epochs": 2, "batch_size": 10, "hidden_layer_sizes": (4,),
    "random_state": 0, "noise_seed": 0,
}  # fmt: skip


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.module_.parameters()])


@pytest.mark.parametrize(
    ("named", "spelled"),
    [
        ({"optimizer": "sgd"}, {"optimizer": Optimizer("sgd")}),
        ({"optimizer": "adam"}, {"optimizer": Optimizer("adam")}),
        ({"optimizer": "auto"}, {"optimizer": Optimizer()}),
        ({"max_grad_norm": 0.3}, {"max_grad_norm": Clipping(norm=0.3)}),
        ({"device": "cpu"}, {}),
    ],
)
def test_a_name_or_a_number_means_the_defaults(named, spelled):
    one, other = (DPSGDClassifier(**{**SMALL, **p}).fit(X, y) for p in (named, spelled))
    assert (weights(one) == weights(other)).all()
    assert one.privacy_ == other.privacy_


@pytest.mark.parametrize(
    ("owner", "given", "change"),
    [
        ("optimizer", Optimizer(), {"method": "adam"}),
        ("optimizer", Optimizer(), {"momentum": 0.1}),
        ("optimizer", Optimizer(), {"schedule": "cosine"}),
        ("optimizer", Optimizer(), {"averaging": 1.0}),
        ("optimizer", Optimizer(), {"averaging": "ema"}),
        ("max_grad_norm", Clipping(), {"method": "automatic"}),
        ("max_grad_norm", Clipping(), {"norm": 0.3}),
        ("max_grad_norm", Clipping("adaptive"), {"target_quantile": 0.1}),
        ("max_grad_norm", Clipping(norm=9.0), {"group_contribution": "sum"}),
    ],
    ids=str,
)
def test_each_setting_changes_the_weights_and_none_the_guarantee(owner, given, change):
    whose = np.arange(len(X)) // 3
    model = DPSGDClassifier(**SMALL, **{owner: given})
    changed = clone(model).set_params(**{f"{owner}__{name}": v for name, v in change.items()})
    one, other = (m.fit(X, y, groups=whose) for m in (model, changed))
    assert (weights(one) != weights(other)).any()
    assert one.privacy_ == other.privacy_


def test_parts_are_set_in_a_network_that_has_only_a_name_or_a_number():
    model = DPSGDClassifier(optimizer="adam", max_grad_norm=0.3)
    model.set_params(optimizer__momentum=0.5, max_grad_norm__method="automatic")
    assert model.optimizer == Optimizer("adam", momentum=0.5)
    assert model.max_grad_norm == Clipping("automatic", 0.3)
    model.set_params(optimizer="sgd", optimizer__schedule="cosine")
    assert model.optimizer == Optimizer("sgd", schedule="cosine")
    with pytest.raises(ValueError, match="Invalid parameter 'nesterov'"):
        model.set_params(optimizer__nesterov=True)


def test_a_clone_shares_nothing():
    model = DPSGDClassifier(optimizer=Optimizer("sgd"), max_grad_norm=Clipping("flat", 0.5))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    copy.set_params(optimizer__momentum=0.2, max_grad_norm__norm=2.0)
    assert (model.optimizer, model.max_grad_norm) == (Optimizer("sgd"), Clipping("flat", 0.5))


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"optimizer": Optimizer("newton")}, "'method' parameter of Optimizer"),
        ({"optimizer": Optimizer(momentum=1.0)}, "'momentum' parameter of Optimizer"),
        ({"optimizer": Clipping()}, "'optimizer' parameter of DPSGDClassifier"),
        ({"max_grad_norm": Clipping(norm=0.0)}, "'norm' parameter of Clipping"),
        ({"max_grad_norm": Clipping(target_quantile=1.0)}, "'target_quantile' parameter"),
        ({"max_grad_norm": Optimizer()}, "'max_grad_norm' parameter of DPSGDClassifier"),
        ({"device": Distributed("sharded", device=3)}, "'device' parameter of Distributed"),
    ],
)
def test_wrong_settings_are_refused_by_name(option, named):
    with pytest.raises(ValueError, match=re.escape(named)):
        DPSGDClassifier(**SMALL, **option)._validate_params()


@pytest.mark.parametrize("kind", [DPSGDClassifier, DPSGDRegressor])
def test_a_file_keeps_them(kind, tmp_path):
    known = {k: v for k, v in SMALL.items() if k != "classes"}
    model = kind(
        **known,
        optimizer=Optimizer("adam", momentum=0.7, averaging="ema"),
        max_grad_norm=Clipping("adaptive", 0.4, group_contribution="sum"),
    ).fit(X, y)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (again.optimizer, again.max_grad_norm) == (model.optimizer, model.max_grad_norm)
    again.set_params(noise_seed=0, random_state=0)
    assert (weights(again.fit(X, y)) == weights(model)).all()


AUTO = {field.name: "auto" for field in fields(Recipe)}


def facts(**known):
    return PublicFacts(**{
        "n_records": 20_000, "n_features": 16, "n_outputs": 4, "epsilon": 1.0, "delta": 1e-5,
        "clipping": "flat", "classifies": True, "perceptron": True, "studied": True,
        "momentum": 0.9, **known,
    })  # fmt: skip


def run(recipe, n=20_000):
    steps = recipe.epochs * round(n / recipe.batch_size)
    return steps, steps * recipe.learning_rate


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    return rng.normal(size=(400, 3)) / 2 + y[:, None] - 0.5, y


def test_the_signal_is_records_times_the_gaussian_parameter():
    # Balle and Wang 2018: epsilon 1 and delta 1e-5 take noise of 3.730632 times the sensitivity
    assert facts().signal == pytest.approx(20_000 / 3.730632, rel=1e-6)


def test_training_lasts_as_long_as_the_signal_allows():
    for epsilon in (0.3, 1.0, 3.0):
        known = facts(epsilon=epsilon)
        time = 0.5 * known.signal / 4
        steps, took = run(resolve_auto_settings(AUTO, known))
        assert steps == pytest.approx(32 * math.sqrt(time), rel=0.03)  # in whole epochs
        assert took == pytest.approx(time)
        steps, took = run(resolve_auto_settings(AUTO | {"hidden_layer_sizes": ()}, known))
        assert took == pytest.approx(min(2 * time, 2.0 * steps))  # a rate of at most 2


def test_numbers_take_as_long_as_the_residuals_allow():
    for epsilon in (0.3, 1.0, 3.0):
        known = facts(epsilon=epsilon, classifies=False, n_outputs=1)
        linear = 0.5 * math.sqrt(1 - 3 * (150 / known.signal) ** 2) * known.signal / 4
        longer = known.signal / math.sqrt(64 * 18 + 1) / 25
        time = linear * min(3.0, max(1.0, longer))
        recipe = resolve_auto_settings(AUTO | {"hidden_layer_sizes": (64,)}, known)
        steps, took = run(recipe)
        assert steps == pytest.approx(min(64 * math.sqrt(time), 1536), rel=0.03)
        assert took / (1 - 0.9) * recipe.max_grad_norm == pytest.approx(time)
        assert (recipe.optimizer, recipe.averaging, recipe.max_grad_norm) == ("sgd", 0.0, 0.3)
        _, took = run(resolve_auto_settings(AUTO | {"hidden_layer_sizes": ()}, known))
        assert took / (1 - 0.9) * 0.3 == pytest.approx(math.sqrt(30 * linear))


def test_a_regressor_keeps_budget_for_its_mean_and_slope():
    few = facts(classifies=False, n_outputs=1, n_records=1000)
    assert few.target_noise == pytest.approx(3.730632 / math.sqrt(0.1), rel=1e-6)
    for without in ({"classifies": True}, {"studied": False}, {"epsilon": np.inf}):
        assert facts(**{"classifies": False, **without}).target_noise is None


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
def test_releases_of_a_regressor_cost_large_tables_little(epsilon):
    known = facts(classifies=False, n_outputs=1, epsilon=epsilon)
    # noise on a mean of 1 / 150, at any epsilon
    assert known.target_noise == pytest.approx(20_000 / 150)
    assert known.target_share == pytest.approx((150 / known.signal) ** 2)


@pytest.mark.parametrize("given", [{"epochs": 7}, {"batch_size": 250}, {"epochs": 100}])
def test_the_step_size_fits_itself_to_the_steps_that_are_given(given):
    recipe = resolve_auto_settings(AUTO | given, facts())
    assert all(getattr(recipe, name) == value for name, value in given.items())
    _, time = run(recipe)
    assert (
        time == pytest.approx(run(resolve_auto_settings(AUTO, facts()))[1])
        or recipe.learning_rate == 2.0
    )


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("n", [1, 3, 50, 10**4, 10**8])
@pytest.mark.parametrize("classifies", [True, False])
def test_no_size_of_a_table_is_too_small_or_too_large(n, epsilon, classifies):
    recipe = resolve_auto_settings(AUTO, facts(n_records=n, epsilon=epsilon, classifies=classifies))
    steps, _ = run(recipe, n)
    assert 1 <= recipe.batch_size <= n
    assert 0 < recipe.learning_rate <= 2.0 / recipe.max_grad_norm
    assert 1 <= steps <= 1700  # of whole epochs, hence not 1,536


def test_few_records_or_little_epsilon_train_no_hidden_layer():
    assert resolve_auto_settings(AUTO, facts(epsilon=0.01)).hidden_layer_sizes == ()
    assert resolve_auto_settings(AUTO, facts(n_records=300)).hidden_layer_sizes == ()
    assert resolve_auto_settings(AUTO, facts()).hidden_layer_sizes == (64,)


def test_records_of_the_rarest_class_decide_on_the_hidden_layer_and_its_time():
    enough = 5 * math.sqrt(64 * 21 + 4) / facts().signal
    assert resolve_auto_settings(AUTO, facts(rarity=1.01 * enough)).hidden_layer_sizes == (64,)
    assert resolve_auto_settings(AUTO, facts(rarity=0.99 * enough)).hidden_layer_sizes == ()
    rare = resolve_auto_settings(AUTO, facts(rarity=0.5))
    assert rare.max_grad_norm == pytest.approx(0.5**-0.25)
    assert run(rare)[1] * rare.max_grad_norm == pytest.approx(0.5 * facts().signal / 4 * 0.5**0.25)
    linear = AUTO | {"hidden_layer_sizes": ()}
    rare, even = (resolve_auto_settings(linear, facts(rarity=r)) for r in (0.01, 1.0))
    assert (rare.max_grad_norm, even.max_grad_norm) == (2.0, 1.0)
    assert run(rare)[1] * 2.0 == pytest.approx(run(even)[1])
    assert resolve_auto_settings(linear, facts(rarity=0.01, weighted=True)) == even


def test_all_that_is_given_is_obeyed():
    given = {
        "hidden_layer_sizes": (5,), "activation": "relu", "batch_size": 30, "epochs": 2,
        "optimizer": "adam", "learning_rate": 0.02, "schedule": "cosine", "averaging": 0.25,
        "max_grad_norm": 3.0,
    }  # fmt: skip
    assert set(given) == set(AUTO)
    for known in (
        facts(),
        facts(classifies=False),
        facts(epsilon=np.inf),
        facts(studied=False),
        facts(perceptron=False),
    ):
        recipe = resolve_auto_settings(given, known)
        assert {name: getattr(recipe, name) for name in given} == given
        for name, value in given.items():
            assert getattr(resolve_auto_settings(AUTO | {name: value}, known), name) == value


def test_a_rate_of_ones_own_is_of_clipped_gradient_descent_without_privacy_too():
    recipe = resolve_auto_settings(AUTO | {"learning_rate": 0.5}, facts(epsilon=np.inf))
    assert (recipe.optimizer, recipe.activation, recipe.max_grad_norm) == ("sgd", "tanh", 1.0)
    assert (
        resolve_auto_settings(AUTO | {"optimizer": "sgd"}, facts(epsilon=np.inf)).learning_rate
        == 0.1
    )
    assert resolve_auto_settings(AUTO | {"optimizer": "adam"}, facts()).learning_rate == "auto"
    # faster, a network learns the noise of its targets: R2 on a table falls from 0.21 to 0.07
    assert (
        resolve_auto_settings(AUTO, facts(epsilon=np.inf, classifies=False)).learning_rate == 0.001
    )
    assert (
        resolve_auto_settings(AUTO, facts(epsilon=np.inf, clipping="adaptive")).max_grad_norm == 1.0
    )


@pytest.mark.parametrize(
    ("n", "batch", "epochs"),
    [(100, 100, 100), (5000, 128, 100), (10_240, 256, 100), (40_960, 512, 25)],
)
def test_without_privacy_large_tables_take_larger_batches_and_as_many_records(n, batch, epochs):
    recipe = resolve_auto_settings(AUTO, facts(epsilon=np.inf, n_records=n))
    assert (recipe.batch_size, recipe.epochs) == (batch, epochs)
    assert recipe.learning_rate == 0.003
    given = resolve_auto_settings(AUTO | {"epochs": 5}, facts(epsilon=np.inf, n_records=n))
    assert given.learning_rate == pytest.approx(0.003 * (max(batch, 128) / 128) ** 0.75)


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({}, {"classifies": False}),
        ({}, {"perceptron": False}),
        ({"batch_size": 128}, {}),
        ({"learning_rate": 0.5}, {}),
        ({"optimizer": "sgd"}, {}),
    ],
)
def test_batches_without_privacy_grow_only_as_they_were_studied(given, known):
    recipe = resolve_auto_settings(AUTO | given, facts(epsilon=np.inf, n_records=40_960, **known))
    assert (recipe.batch_size, recipe.epochs) == (128, 25)


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({}, {"epsilon": 1e6}),
        ({}, {"epsilon": None, "studied": False}),
        ({}, {"classifies": False}),
        ({}, {"perceptron": False}),
        ({}, {"plain": False}),
        ({}, {"n_records": 1999}),
        ({"epochs": 5}, {}),
        ({"learning_rate": 0.1}, {}),
        ({"optimizer": "sgd"}, {}),
    ],
)
def test_records_are_held_out_without_privacy_only(given, known):
    assert held_out_share(AUTO, facts(epsilon=np.inf)) == 0.1
    assert held_out_share(AUTO, facts(epsilon=np.inf, n_records=10**6)) == 0.005
    assert held_out_share(AUTO | given, facts(**{"epsilon": np.inf, **known})) == 0
    assert not starts_from_quantiles(AUTO | given, facts(**{"epsilon": np.inf, **known}))


def test_settings_outside_the_study_are_unchanged():
    for known in (
        facts(classifies=False, studied=False),
        facts(classifies=False, perceptron=False),
    ):
        recipe = resolve_auto_settings(AUTO, known)
        assert (recipe.optimizer, recipe.epochs, recipe.batch_size) == ("adam", 30, 5000)
        assert (recipe.schedule, recipe.averaging) == ("constant", 0.5)


def test_a_step_is_divided_by_the_norm_that_is_given():
    rate = resolve_auto_settings(AUTO, facts()).learning_rate
    assert resolve_auto_settings(
        AUTO | {"max_grad_norm": 0.1}, facts()
    ).learning_rate == pytest.approx(10 * rate)


def test_falling_step_sizes_are_not_averaged():
    assert resolve_auto_settings(AUTO, facts()).averaging == 0.0
    assert resolve_auto_settings(AUTO | {"schedule": "constant"}, facts()).averaging == 0.5


@pytest.mark.heavy
@pytest.mark.parametrize("known", [{"relation": "add_remove", "n_records": 300}, {}])
def test_settings_follow_from_public_facts_alone(rows, known):
    X, y = rows
    one = DPSGDClassifier(classes=[0, 1], delta=1e-4, **known).fit(X, y)
    other = DPSGDClassifier(classes=[0, 1], delta=1e-4, **known).fit(100 * X[::-1], 0 * y)
    assert one.settings_ == other.settings_
    fewer = DPSGDClassifier(classes=[0, 1], delta=1e-4, **known).fit(X[:200], y[:200])
    assert (fewer.settings_ == one.settings_) is bool(known)  # with a figure, n does not show


@pytest.mark.heavy
def test_settings_are_saved(rows, tmp_path):
    X, y = rows
    for model in (DPSGDClassifier(classes=[0, 1]), DPSGDRegressor(target_bounds=(0, 1))):
        save_model(model.fit(X, y), tmp_path / "m")
        again = load_model(tmp_path / "m")
        assert again.settings_ == model.settings_
        assert again.hidden_layer_sizes == "auto"
        assert np.array_equal(again.predict(X), model.predict(X))


@pytest.mark.slow
def test_further_training_keeps_the_network(rows):
    X, y = rows
    model = DPSGDClassifier(classes=[0, 1], epsilon=50.0).fit(X, y)
    assert model.settings_["hidden_layer_sizes"] == (64,)
    model.set_params(epsilon=0.01).partial_fit(X, y)
    assert model.settings_["hidden_layer_sizes"] == (64,)
    assert model.predict(X).shape == (400,)


@pytest.mark.slow
def test_numbers_are_learned_where_thirty_epochs_did_not():
    X, y = make_friedman1(1500, noise=1.0, random_state=0)
    X, X_test, y, y_test = train_test_split(2 * X - 1, y, test_size=500, random_state=0)
    model = DPSGDRegressor(epsilon=40.0, target_bounds=(0, 30), random_state=0, noise_seed=0)
    with pytest.warns(PrivacyWarning, match="noise_seed"):
        assert model.fit(X, y).score(X_test, y_test) > 0.87  # by 30 epochs of Adam: 0.75


@pytest.mark.slow
def test_without_privacy_it_learns_what_can_be_learned():
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 8 - 1, y, random_state=0)
    model = DPSGDClassifier(epsilon=np.inf, classes=range(10), random_state=0).fit(X, y)
    assert model.score(X_test, y_test) > 0.96  # scikit-learn's perceptron: 0.97
    assert model.settings_["optimizer"] == "adam"
