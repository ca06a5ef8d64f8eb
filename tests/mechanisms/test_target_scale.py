"""TargetScale: the map of targets to [-1, 1], its inverse, and the regressors that use it."""

import numpy as np
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.linear_model import AdaSSPRegressor, FunctionalMechanismRegressor
from skprivacy.mechanisms.base import TargetScale
from skprivacy.neural_network import DPSGDRegressor
from skprivacy.persistence import load_model, save_model

BOUNDS = [(0.0, 100.0), (0.0, 1.0), (1e4, 5e6), (-50.0, -3.0), (-1e150, 1e150), (0.0, 1e-150)]
KINDS = [AdaSSPRegressor, DPSGDRegressor, FunctionalMechanismRegressor]


@pytest.mark.parametrize("name", ["linear", "log"])
@pytest.mark.parametrize("bounds", BOUNDS, ids=repr)
def test_targets_map_into_the_unit_interval_and_back(bounds, name):
    scale, (lower, upper) = TargetScale(*bounds, name), bounds
    y = lower + (upper - lower) * np.linspace(0.0, 1.0, 1001)
    unit = scale.to_unit(np.clip(y, lower, upper))
    assert (unit[0], unit[-1]) == (-1.0, 1.0)
    assert (np.diff(unit) > 0).all()
    assert np.abs(scale.from_unit(unit) - y).max() <= 1e-13 * max(-lower, upper)


@pytest.mark.parametrize("name", ["linear", "log"])
def test_targets_and_values_beyond_the_bounds_are_clipped(name):
    scale = TargetScale(-1.0, 2.0, name)
    assert scale.to_unit(np.array([-1e300, 1e300])).tolist() == [-1.0, 1.0]
    assert scale.from_unit(np.array([-9.0, 9e300])).tolist() == [-1.0, 2.0]
    assert scale.from_scaled(np.array([-9.0, 9e300])).tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("name", ["linear", "log"])
def test_each_target_is_mapped_by_itself(name):
    """A neighbour's other targets are the same to the last bit, so one record moves one term."""
    scale = TargetScale(-1.0, 30.0, name)
    y = np.random.default_rng(0).normal(5.0, 20.0, size=200)
    alone = [scale.to_unit(y[i : i + 1])[0] for i in range(len(y))]
    assert scale.to_unit(y).tolist() == alone


def test_bounds_of_100_make_the_logarithm_of_counts():
    counts = np.arange(101)
    unit = TargetScale(0.0, 100.0, "log").to_unit(counts)
    assert np.allclose(unit, 2 * np.log(1 + counts) / np.log(101) - 1, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("factor", "start"), [(24.0, 0.0), (1e-3, 7.0)])
def test_units_and_origin_of_the_target_do_not_matter(factor, start):
    y = np.linspace(0.0, 30.0, 50)
    other = TargetScale(start, start + 30.0 * factor, "log").to_unit(start + y * factor)
    assert np.allclose(TargetScale(0.0, 30.0, "log").to_unit(y), other, rtol=0, atol=1e-13)


def skewed(n=4000):
    """Targets whose logarithm is linear in the features, from 0 to 100."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, np.clip(np.expm1(1.5 + 1.2 * X[:, 0] + 0.5 * rng.normal(size=n)), 0, 100)


def regressor(kind, **params):
    own = {"hidden_layer_sizes": ()} if kind is DPSGDRegressor else {"bounds": (-1, 1)}
    return kind(epsilon=8.0, target_bounds=(0, 100), **own, **params)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:noise_seed")
@pytest.mark.parametrize(
    "kind",
    [
        AdaSSPRegressor,
        FunctionalMechanismRegressor,
        pytest.param(DPSGDRegressor, marks=pytest.mark.slow),
    ],
)
def test_predictions_are_in_the_units_of_the_target(kind):
    X, y = skewed()
    model = regressor(kind, target_scale="log", noise_seed=0).fit(X, y)
    found = model.predict(X)
    assert found.min() >= 0.0
    assert found.max() <= 100.0
    # the mean of log(1 + y) is 1.5 + 1.2 * X[:, 0]
    assert np.median(np.abs(np.log1p(found) - 1.5 - 1.2 * X[:, 0])) < 0.12
    linear = regressor(kind, noise_seed=0).fit(X, y)
    assert np.abs(found - y).mean() < np.abs(linear.predict(X) - y).mean()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_does_not_change_the_guarantee(kind):
    X, y = skewed(400)
    log, linear = (regressor(kind, target_scale=s).fit(X, y) for s in ("log", "linear"))
    assert log.privacy_ == linear.privacy_


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_do_not_depend_on_a_scale_that_was_set_after_the_fit(kind, tmp_path):
    X, y = skewed(400)
    model = regressor(kind, target_scale="log").fit(X, y)
    expected = model.predict(X)
    model.set_params(target_scale="linear")
    assert np.array_equal(model.predict(X), expected)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert (again.target_scale, again.target_scale_) == ("linear", "log")
    assert np.array_equal(again.predict(X), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_scale_is_refused_before_the_charge(kind):
    budget = PrivacyBudget(10.0, 1e-4)
    with pytest.raises(ValueError, match="target_scale"):
        regressor(kind, target_scale="sqrt", budget=budget).fit(*skewed(50))
    assert len(budget.entries()) == 0
