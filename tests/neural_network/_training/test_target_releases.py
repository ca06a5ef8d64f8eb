"""The slope of a regressor: bounds of its rows, and what it makes of outputs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from skprivacy.mechanisms import SecureRandom
from skprivacy.neural_network._training.engine import SingleProcess
from skprivacy.neural_network._training.target_releases import SlopeStep, _release_sums, level_rows
from skprivacy.neural_network._training.training_config import TargetNoise, TrainingConfig

VALUES = np.array(list(product([-1e300, -2.0, -0.3, 0.0, 1e-300, 0.3, 2.0, 1e300], repeat=2))).T


def config(noise, n=20_000):
    return TrainingConfig(
        n_records=n, batch_size=10, epochs=1, relation="zero_out",
        target_noise=TargetNoise(noise, noise, noise),
    )  # fmt: skip


@pytest.mark.parametrize(
    "make_rows", [level_rows, SlopeStep(0.3, 0.3).rows, SlopeStep(2.0, 2.0).rows]
)
def test_no_row_is_longer_than_1(make_rows):
    lengths = np.linalg.norm(make_rows(*VALUES), axis=1)
    assert 0.99 <= lengths.max() <= 1.0 + 1e-15


def step_and_sums(outputs, residuals, plan, seed=0):
    """Return the step and the sums as they are released, with noise."""
    rng, noise = np.random.default_rng(seed), plan.target_noise
    levels = level_rows(outputs, residuals).sum(axis=0)
    step = SlopeStep.from_levels(levels + rng.normal(0, noise.levels, levels.shape), plan)
    return step, step.rows(outputs, residuals).sum(axis=0) + rng.normal(0, noise.sums, 4)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_slope_is_the_share_that_records_support(share):
    rng = np.random.default_rng(0)
    outputs = 0.05 + 0.1 * rng.normal(size=20_000)
    residuals = 0.01 + share * (outputs - 0.05) + 0.1 * rng.normal(size=20_000)
    plan = config(3.0)
    step, sums = step_and_sums(outputs, residuals, plan)
    slope, offset, shift = step.solve(sums, plan, noise_variance=0.0)
    # clipped outputs vary less than outputs, which makes slopes somewhat too large
    assert share - 0.1 < slope < 1.2 * share + 0.1
    assert offset == pytest.approx(0.05, abs=0.01)
    assert shift == pytest.approx(0.0, abs=0.001)  # the released mean is precise


def test_residuals_move_an_imprecise_mean():
    outputs, residuals = 0.1 * np.random.default_rng(0).normal(size=(2, 20_000))
    plan = config(3.0)
    step, sums = step_and_sums(outputs, residuals + 0.01, plan)
    plan = replace(plan, target_noise=replace(plan.target_noise, mean=3000.0))
    assert step.solve(sums, plan, noise_variance=0.0)[2] == pytest.approx(0.01, abs=0.003)


def test_the_mean_is_predicted_where_noise_hides_the_slope():
    outputs = 0.05 * np.random.default_rng(0).normal(size=500)
    plan = config(1000.0, n=500)
    for seed in range(5):
        step, sums = step_and_sums(outputs, outputs, plan, seed)
        assert step.solve(sums, plan, noise_variance=1.0)[0] < 0.05


def test_a_process_without_records_takes_part():
    nothing = np.zeros(0)
    given = nothing, SingleProcess(), SecureRandom(0), nothing, nothing
    assert _release_sums(level_rows, 1.0, *given).shape == level_rows(*VALUES)[0].shape
    assert _release_sums(SlopeStep(1.0, 1.0).rows, 1.0, *given).shape == (4,)


def test_rare_large_numbers_raise_no_bound():
    rng = np.random.default_rng(0)
    outputs, residuals = 0.02 * rng.normal(size=(2, 20_000))
    residuals[:200] = 1.9
    step, _ = step_and_sums(outputs, residuals, config(100.0))
    assert 0.02 < step.most < 0.06
    assert 0.08 < step.clip < 0.2
    wider, _ = step_and_sums(outputs, residuals, config(1.0))
    assert wider.most > 3 * step.most
    assert wider.clip > 3 * step.clip


def test_sums_of_grouped_records_are_on_a_grid_whose_sums_are_exact():
    """Multiples of 2**-20: with finer ones, sums of millions of groups would be rounded."""

    class Passing(SingleProcess):
        def release(self, mechanism, value, random):
            return value

    rng = np.random.default_rng(0)
    weights, values = rng.integers(0, 2**20, 500) / 2**20, rng.normal(size=(2, 500))
    for make_rows in (level_rows, SlopeStep(0.3, 0.3).rows):
        total = _release_sums(make_rows, 1.0, weights, Passing(), SecureRandom(), *values)
        assert np.array_equal(total * 2**20, np.round(total * 2**20))
        assert total == pytest.approx(weights @ make_rows(*values), abs=500 / 2**20)
