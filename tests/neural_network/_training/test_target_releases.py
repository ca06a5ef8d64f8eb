"""Releases of a regressor beside its steps: bounds of their rows, and effect on outputs."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.mechanisms import SecureRandom
from skprivacy.neural_network._training.engine import SingleProcess
from skprivacy.neural_network._training.target_releases import (
    SlopeStep,
    _release_means,
    error_rows,
    fit_last_layer,
    target_rows,
)
from skprivacy.neural_network._training.training_config import TrainingConfig

VALUES = np.array(list(product([-1e300, -2.0, -0.3, 0.0, 1e-300, 0.3, 2.0, 1e300], repeat=2))).T


def config(noise=1.0, n=20_000, **settings):
    return TrainingConfig(
        n_records=n, batch_size=10, epochs=1, relation="zero_out", target_noise=noise, **settings
    )


@pytest.mark.parametrize("noise_variance", [1e-6, 1e-3, np.inf])
def test_no_row_is_longer_than_1(noise_variance):
    for rows in (SlopeStep(noise_variance).rows(*VALUES), error_rows(VALUES[0])):
        lengths = np.linalg.norm(rows, axis=1)
        assert 0.99 <= lengths.max() <= 1.0 + 1e-15


def noisy_slope(outputs, errors, plan, noise_variance, seed=0):
    """Return the slope as it is released, with noise."""
    step, rng = SlopeStep(noise_variance), np.random.default_rng(seed)
    sums = step.rows(outputs, errors).sum(axis=0) + rng.normal(0, plan.target_noise, 2)
    return step.solve(sums / plan.n_records, plan)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_slope_is_the_share_that_records_support(share):
    outputs, noise = 0.1 * np.random.default_rng(0).normal(size=(2, 20_000))
    slope = noisy_slope(outputs, share * outputs + noise, config(3.0), noise_variance=0.01)
    assert slope == pytest.approx(share, abs=0.05)


def test_outputs_far_above_their_noise_are_kept():
    """Clipped outputs are smaller than the errors that they explain."""
    outputs, noise = np.random.default_rng(0).normal(size=(2, 20_000)) * [[0.2], [0.4]]
    for strength in (30.0, 300.0):
        assert noisy_slope(outputs, outputs + noise, config(strength), noise_variance=1e-5) == 1.0


def test_outputs_above_their_noise_are_kept_where_noise_hides_the_errors():
    outputs = 0.1 * np.random.default_rng(0).normal(size=500)
    for noise_variance, least, most in ((0.01, 0.0, 0.25), (1e-4, 0.65, 1.0)):
        found = [
            noisy_slope(outputs, 0.0 * outputs, config(60.0, n=500), noise_variance, seed)
            for seed in range(200)
        ]
        assert least <= np.mean(found) <= most


@pytest.mark.parametrize("offset", [0.0, 0.05, 0.1])
def test_predictions_keep_the_slope_and_have_the_mean_of_the_targets(offset):
    X = torch.randn(5000, 1, generator=torch.Generator().manual_seed(0))
    network = nn.Sequential(nn.Linear(1, 1))
    with torch.no_grad():
        network[0].weight.fill_(0.1)
        network[0].bias.fill_(offset)
    targets = 0.3 + 0.1 * X[:, 0].double().numpy()
    plan = config(1e-3, n=5000, noise_multiplier=50.0, max_grad_norm=0.3)
    training = SimpleNamespace(config=plan, random=SecureRandom(0), rate=0.001)
    fit_last_layer(training, network, (X, targets, None), 0.25, SingleProcess())
    predictions = network(X).detach().flatten().numpy()
    assert predictions.mean() == pytest.approx(targets.mean(), abs=0.002)
    assert 0.7 <= np.ptp(predictions) / np.ptp(targets) <= 1.0001


def test_a_process_without_records_takes_part():
    nothing = np.zeros(0)
    given = config(), nothing, SingleProcess(), SecureRandom(0)
    assert _release_means(SlopeStep(1.0).rows, *given, nothing, nothing).shape == (2,)
    assert _release_means(target_rows, *given, nothing).shape == (1,)


def test_sums_of_grouped_records_are_on_a_grid_whose_sums_are_exact():
    """Multiples of 2**-20: with finer ones, sums of millions of groups would be rounded."""

    class Passing(SingleProcess):
        def release(self, mechanism, value, random):
            return value

    rng = np.random.default_rng(0)
    weights, values = rng.integers(0, 2**20, 500) / 2**20, rng.normal(size=(2, 500))
    for make_rows, given in ((SlopeStep(0.3).rows, values), (error_rows, values[:1])):
        plan = config(n=1)
        total = _release_means(make_rows, plan, weights, Passing(), SecureRandom(), *given)
        assert np.array_equal(total * 2**20, np.round(total * 2**20))
        assert total == pytest.approx(weights @ make_rows(*given), abs=500 / 2**20)
