"""DPSGDRegressor and its optimizers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from skprivacy import config_context
from skprivacy._groups import Groups
from skprivacy.accounting import GaussianEvent, RepeatedEvent
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.mechanisms import SecureRandom
from skprivacy.neural_network import DPSGDRegressor, Optimizer
from skprivacy.neural_network._training import update_rules as optimizers
from skprivacy.neural_network._training.engine import SingleProcess
from skprivacy.neural_network._training.target_releases import release_mean
from skprivacy.neural_network._training.training_config import TrainingConfig
from skprivacy.neural_network._training.update_rules import PrivateAdam


@pytest.fixture
def line():
    X = np.random.RandomState(0).uniform(-1, 1, size=(600, 3))
    return X, 10.0 + 4.0 * X[:, 0]


def private(**params):
    return DPSGDRegressor(**{"target_bounds": (5.0, 15.0), "epsilon": 5.0, **params})


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize(
    "params",
    [{}, {"optimizer": "sgd", "learning_rate": 0.05}, {"optimizer": Optimizer(schedule="linear")}],
)
def test_learns(line, params):
    assert private(**params).fit(*line).score(*line) > 0.7


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_targets_and_predictions_stay_in_bounds(line):
    X, y = line
    clipped = private(target_bounds=(9.0, 11.0), epochs=5, noise_seed=0, random_state=0)
    found = clipped.fit(X, y).predict(100 * X)
    assert found.min() >= 9.0
    assert found.max() <= 11.0
    assert np.array_equal(found, clipped.fit(X, np.clip(y, 9.0, 11.0)).predict(100 * X))


def test_bounds_read_off_y_are_an_assumption(line):
    with pytest.warns(PrivacyLeakWarning, match="target_bounds="):
        model = DPSGDRegressor(epochs=1).fit(*line)
    assert any("bounds of the target are public" in a for a in model.privacy_.assumptions)
    with config_context(strict=True), pytest.raises(ValueError, match="target_bounds"):
        DPSGDRegressor(epochs=1).fit(*line)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0,), (0.0, np.inf), (np.nan, 1.0)])
def test_bad_bounds_are_named(line, bounds):
    with pytest.raises(ValueError, match="target_bounds"):
        private(target_bounds=bounds).fit(*line)


@pytest.mark.slow
def test_partial_fit_keeps_the_bounds(line):
    model = private().partial_fit(*line)
    first = model.epsilon_
    model.partial_fit(line[0], line[1] + 100.0)
    assert model.target_bounds_ == (5.0, 15.0)
    assert first < model.epsilon_


def skewed_counts(n=3000):
    """Targets from 0 to 20 with a mean near 1, which the features hardly explain."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 12))
    return X, np.clip(np.floor(rng.lognormal(-0.5 + 0.3 * X[:, 0], 1.0)), 0, 20)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_the_mean_is_predicted_where_noise_hides_the_features():
    X, y = skewed_counts()
    found = [
        DPSGDRegressor(epsilon=0.1, delta=1e-5, target_bounds=(0, 20), random_state=i, noise_seed=i)
        .fit(X, y)
        .score(X, y)
        for i in range(3)
    ]
    # without the released mean and slope: -0.27
    assert np.mean(found) > -0.02


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.0), (5.0, 600 / 150)])
def test_the_guarantee_counts_the_mean_and_the_slope(line, epsilon, least):
    model = private(epochs=2, epsilon=epsilon).fit(*line)
    mean, steps, *after = model.privacy_event_.events
    whole = analytic_noise_multiplier(epsilon, 1e-5)
    expected = [max(whole / 0.1**0.5, least)] * 3
    assert [event.noise_multiplier for event in (mean, *after)] == pytest.approx(expected)
    assert steps.count == model.n_steps_
    assert isinstance(private(epochs=2, epsilon=None, noise_multiplier=1.0).fit(*line)
                      .privacy_event_, RepeatedEvent)  # fmt: skip


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@pytest.mark.parametrize(
    ("loss", "center"), [("squared_error", 0.59), ("absolute_error", 0.0), ("huber", 0.0)]
)
def test_robust_losses_give_the_median(loss, center):
    X, y = skewed_counts()
    model = private(target_bounds=(0, 20), loss=loss, noise_seed=0, random_state=0).fit(X, y)
    assert np.median(model.predict(X)) == pytest.approx(center, abs=0.3)
    assert isinstance(model.privacy_event_, RepeatedEvent) == (loss != "squared_error")


def test_neither_mean_nor_slope_is_released_again_in_further_training(line):
    model = private(epochs=1).partial_fit(*line).partial_fit(*line)
    parts = model.privacy_event_.events
    assert sum(isinstance(part, GaussianEvent) for part in flattened(parts)) == 3


def flattened(parts):
    return [leaf for part in parts for leaf in flattened(getattr(part, "events", ())) or [part]]


def test_the_mean_of_groups_counts_each_group_once():
    config = TrainingConfig.planned(3, epochs=1).with_noise_for(None, 1e-5, 1e-12)
    config = replace(config, target_noise=1e-12)
    groups = Groups(np.array([0, 0, 0, 1, 2]), 3, "patient")
    targets = np.array([1.0, 0.0, 0.5, -1.0, 0.25])
    found = release_mean(config, targets, groups, SingleProcess(), SecureRandom(0))
    assert found == pytest.approx((0.5 - 1.0 + 0.25) / 3, abs=1e-5)


def _run(gradients, **params):
    p = torch.nn.Parameter(torch.zeros(gradients.shape[1]))
    optimizer = PrivateAdam([p], lr=0.01, **params)
    for g in gradients:
        p.grad = g
        optimizer.step()
    return p.detach()


def test_without_noise_it_is_adam():
    gradients = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    p = torch.nn.Parameter(torch.zeros(7))
    optimizer = torch.optim.Adam([p], lr=0.01)
    for g in gradients:
        p.grad = g
        optimizer.step()
    torch.testing.assert_close(_run(gradients), p.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("noise_std", [0.0, 0.5])
def test_few_numbers_are_updated_as_many(noise_std, monkeypatch):
    gradients = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    few = _run(gradients, noise_std=noise_std)
    monkeypatch.setattr(optimizers, "_NUMBERS_PER_SLICE", 0)
    torch.testing.assert_close(_run(gradients, noise_std=noise_std), few, rtol=1e-4, atol=1e-7)


@pytest.mark.heavy
def test_the_variance_of_the_noise_is_taken_off():
    """Coordinates of unequal gradient move alike under noise, as they do without it."""
    signal = torch.tensor([0.3, 1.0])
    noise = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    gradients = signal + noise
    corrected, plain = _run(gradients, noise_std=1.0), _run(gradients)
    assert abs(corrected[0] / corrected[1]) > 1.3 * abs(plain[0] / plain[1])
