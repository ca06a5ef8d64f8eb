"""Empirical Bayes of noisy steps: exact posterior means, no effects in noise, smooth neighbours."""

import numpy as np
import pytest

from skprivacy.additive_model.losses import NewtonSums
from skprivacy.additive_model.shrinkage import shrink_step


def table(effect, hessian, std, seed=0):
    """Noisy sums of derivatives for true effects, with sampling noise and the mechanism's."""
    rng = np.random.default_rng(seed)
    spread = np.sqrt(hessian + std**2)
    gradient = -hessian * effect + rng.normal(size=effect.shape) * spread
    return NewtonSums(gradient[..., None], hessian[..., None], np.array([std]))


def error(sums, effect, n_ordered):
    step, _ = shrink_step(sums, 1.0, n_ordered)
    return np.sqrt(np.mean((step[..., 0] - effect) ** 2))


@pytest.mark.parametrize("shape", [(32,), (16, 16), (32, 32)])
def test_noise_alone_makes_no_effect(shape):
    steps = [
        shrink_step(table(np.zeros(shape), np.full(shape, 50.0), 20.0, seed), 1.0, shape)[0]
        for seed in range(20)
    ]
    size = [np.sqrt(np.mean(step**2)) for step in steps]
    assert np.mean(size) < 0.1  # steps that are not shrunk: 0.42; the mean over 200 tables is 0.052
    assert min(size) == 0


def test_the_step_is_the_posterior_mean_of_independent_effects():
    rng = np.random.default_rng(0)
    effect, hessian = rng.normal(size=200) * 0.5, rng.uniform(20, 200, 200)
    sums = table(effect, hessian, 10.0)
    step, noise = shrink_step(sums, 1.0, (0,))
    other = hessian + 100.0
    gains = [s**2 * hessian / (s**2 * hessian**2 + other) for s in (0.25, 0.5, 1.0)]
    expected = [-gain * sums.gradient[:, 0] for gain in gains]
    near = [np.allclose(step[:, 0], each) for each in expected]
    assert sum(near) == 1  # the spread is one of these
    np.testing.assert_allclose(noise[:, 0], gains[near.index(True)] * 10.0)


def test_neighbours_help_where_effects_are_smooth():
    effect = np.sin(np.linspace(0, 6, 32))
    sums = table(effect, np.full(32, 40.0), 30.0)
    assert error(sums, effect, (32,)) < 0.7 * error(sums, effect, (0,))
    rough = np.where(np.arange(32) % 2, 1.0, -1.0)
    sums = table(rough, np.full(32, 400.0), 30.0)
    assert error(sums, rough, (32,)) < 1.1 * error(sums, rough, (0,))


def test_a_bin_that_is_not_ordered_stays_apart():
    """The last bin, of missing values, has an effect that its neighbour does not share."""
    effect = np.append(np.full(31, 0.7), -1.5)
    sums = table(effect, np.full(32, 100.0), 30.0)
    step, _ = shrink_step(sums, 1.0, (31,))
    assert step[-1, 0] < -0.7
    assert step[-2, 0] > 0.4


def test_the_noise_is_the_spread_of_the_step_under_the_mechanisms_noise():
    """With the same prior, which a tiny change of the gradients does not move."""
    effect, hessian = np.sin(np.linspace(0, 6, 24)), np.full(24, 60.0)
    sums = table(effect, hessian, 25.0)
    step, noise = shrink_step(sums, 1.0, (24,))
    slopes = np.empty((24, 24))
    for i in range(24):
        moved = sums.gradient.copy()
        moved[i] += 1e-4
        slopes[:, i] = (
            shrink_step(NewtonSums(moved, sums.hessian, sums.std), 1.0, (24,))[0] - step
        )[:, 0] / 1e-4
    np.testing.assert_allclose(noise[:, 0], 25.0 * np.linalg.norm(slopes, axis=1), rtol=1e-4)


def test_empty_cells_without_noise_have_no_effect():
    sums = NewtonSums(np.array([[-30.0], [0.0], [20.0]]), np.array([[40.0], [0.0], [30.0]]),
                      np.zeros(1))  # fmt: skip
    step, noise = shrink_step(sums, 1.0, (0,))
    assert step[1, 0] == 0
    assert step[0, 0] > 0.5
    assert (noise == 0).all()
