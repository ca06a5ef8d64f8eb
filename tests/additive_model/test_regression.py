"""The last step of an additive regression: bounds of its rows, exact solutions, and its gate."""

import numpy as np
import pytest

from skprivacy.additive_model import PrivateAdditiveRegressor
from skprivacy.additive_model.losses import SquaredLoss
from skprivacy.additive_model.regression import LastStep
from skprivacy.preprocessing import BoundedColumn, Schema


def last_step(variance=0.25, n=5000, spread=0.3, constant=0.0):
    return LastStep(SquaredLoss(variance, 0.1, mean_variance=1e-3), np.array([constant]), n, spread)


def test_rows_have_norm_one_at_most():
    scores = np.repeat(np.linspace(-3, 3, 601), 81)[:, None]
    target = np.tile(np.linspace(-1, 1, 81), 601)
    norms = np.linalg.norm(last_step(constant=0.2).rows(scores, target), axis=1)
    assert 1 - 1e-9 < norms.max() <= 1 + 1e-15


def test_a_slope_and_a_mean_are_found_together():
    """Effects that are three times too large, about a constant that is 0.1 too low."""
    score = np.random.default_rng(0).uniform(-0.3, 0.4, 5000)
    target = 0.15 + score / 3
    step = LastStep(SquaredLoss(0.25, 0.01, mean_variance=1e6), np.array([0.05]), 5000, 0.3)
    sums = step.rows(0.05 + score[:, None], target).sum(axis=0)
    constant, slope, noise = step.solve(sums, 1e-9)
    assert slope == pytest.approx(1 / 3, abs=0.02)
    assert constant[0] == pytest.approx(0.15, abs=2e-3)
    assert noise < 1e-6


def test_a_mean_that_is_known_well_stays():
    score = np.random.default_rng(0).uniform(-0.3, 0.4, 5000)
    step = LastStep(SquaredLoss(0.25, 0.01, mean_variance=1e-9), np.array([0.05]), 5000, 0.3)
    sums = step.rows(0.05 + score[:, None], 0.15 + score / 3).sum(axis=0)
    constant, slope, _ = step.solve(sums, 1e-9)
    assert constant[0] + slope * score.mean() == pytest.approx(0.05, abs=2e-3)


@pytest.mark.parametrize("std", [5.0, 20.0])
def test_effects_that_are_noise_get_no_slope(std):
    rng = np.random.default_rng(0)
    step, slopes = last_step(n=2000, spread=0.5), []
    for _ in range(300):
        rows = step.rows(rng.normal(size=(2000, 1)) * 0.5, rng.uniform(-0.5, 0.5, 2000))
        slopes.append(step.solve(rows.sum(axis=0) + rng.normal(size=4) * std, std)[1])
    assert np.mean(np.array(slopes) > 0) < 0.15  # 0.5 without a gate
    assert np.max(slopes) < 0.35


def test_the_noise_of_the_slope_is_its_spread():
    rng = np.random.default_rng(0)
    score = rng.uniform(-0.4, 0.4, 5000)
    step = last_step(spread=0.25)
    sums = step.rows(score[:, None], score * 0.5).sum(axis=0)
    found = [step.solve(sums + rng.normal(size=4) * 10, 10.0)[1:] for _ in range(400)]
    slopes, noises = np.transpose(found)
    assert np.std(slopes) == pytest.approx(noises.mean(), rel=0.15)


@pytest.mark.filterwarnings("ignore:noise_seed")
def test_a_wide_table_of_noise_is_not_worse_than_the_mean():
    """Thirty columns without meaning and 1,500 records; some other seeds are .09 below the mean."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (3000, 30)), rng.uniform(-0.6, 0.6, 3000) - 0.3
    schema = Schema({f"c{i}": BoundedColumn(-1, 1) for i in range(30)}, target_bounds=(-1, 1))
    scores = [
        PrivateAdditiveRegressor(1.0, 1e-6, schema=schema, max_pairs=0, noise_seed=seed)
        .fit(X[:1500], y[:1500])
        .score(X[1500:], y[1500:])
        for seed in range(3)
    ]
    assert np.median(scores) > -0.02
