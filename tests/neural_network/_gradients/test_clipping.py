"""Adaptive clipping: what a record contributes, what the count is worth, where the norm goes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from skprivacy import load_model, save_model
from skprivacy.neural_network import Clipping, DPSGDClassifier
from skprivacy.neural_network._gradients.clipped_sum import _SAFETY, AdaptiveClipping


def adaptive(**params):
    defaults = {"start": 2.0, "allowed": 0.7, "noise": 3.0, "quantile": 0.5, "divisor": 50.0}
    return AdaptiveClipping(**{**defaults, **params})


@pytest.mark.parametrize("norm", [0.0, 1e-6, 1.0, 2.0, 2.1, 1e9])
@pytest.mark.parametrize("divisor", [1.0, 50.0, 1e6])
def test_a_record_contributes_no_more_than_is_allowed(norm, divisor):
    clip = adaptive(divisor=divisor)
    squared = torch.tensor([[0.36 * norm**2], [0.64 * norm**2]], dtype=torch.float64)
    factors = clip(squared, squared.sum(0), 0.7)
    contribution = float((factors * squared.sqrt()).norm())
    joined = clip.append_count(np.array([contribution]))
    assert np.linalg.norm(joined) <= 0.7
    if norm >= 2.0:  # the bound is used up, but for the margin of the clipping
        assert np.linalg.norm(joined) >= 0.7 * _SAFETY


@pytest.mark.parametrize("divisor", [10.0, 100.0, 1000.0])
def test_the_split_is_that_of_andrew_et_al(divisor):
    """z = (z_sum^-2 + (2 sigma_count)^-2)^(-1/2), whatever the share."""
    z = 3.0
    clip = adaptive(noise=z, divisor=divisor)
    z_sum = z / clip._sum_weight
    sigma_count = z / clip._count_weight
    assert (z_sum**-2 + (2 * sigma_count) ** -2) ** -0.5 == pytest.approx(z, rel=1e-12)
    assert clip.noise_on_sum == pytest.approx(z_sum)
    assert sigma_count / divisor <= 0.05 * (1 + 1e-9) or clip.share == 0.1
    assert z_sum / z < 1.06


def test_records_that_are_not_finite_add_nothing():
    clip = adaptive()
    total = torch.tensor([1.0, float("nan"), float("inf"), 9.0])
    clip(total[None], total, 0.7)
    assert clip.append_count(np.zeros(2))[-1] == 0.0  # one short, one long
    clip(total[None, :3], total[:3], 0.7)
    assert clip.append_count(np.zeros(2))[-1] == pytest.approx(0.5 * 0.7 * clip._count_weight)
    assert clip.append_count(np.zeros(2))[-1] == 0.0  # begun anew


def test_the_sum_comes_back_in_the_size_it_went():
    clip = adaptive()
    squared = torch.full((1, 40), 100.0)
    factors = clip(squared, squared[0], 0.7)
    total = np.array([float((factors * 10.0).sum()), 0.0])
    noisy = clip.remove_count(clip.append_count(total))
    assert noisy == pytest.approx([40 * 0.7 * _SAFETY, 0.0], rel=1e-5)
    # 40 of 50 expected records, all long: counted as a fifth of a half above nobody short.
    assert clip.norm == pytest.approx(2.0 * np.exp(-0.2 * (0.5 - 0.4 - 0.5)), rel=1e-6)


def test_the_norm_stays_within_bounds():
    clip = adaptive(quantile=0.99)
    for _ in range(10_000):
        clip.remove_count(np.array([0.0, -1e6]))
    assert np.isfinite(clip.norm)
    assert clip.norm <= 2.0 * 1e6 * 1.01


@pytest.mark.parametrize("start", [0.01, 30.0])
@pytest.mark.parametrize("quantile", [0.2, 0.8])
def test_the_norm_finds_the_quantile(start, quantile):
    rng = np.random.default_rng(0)
    norms = torch.tensor(rng.lognormal(size=2000))
    clip = adaptive(start=start, quantile=quantile, divisor=2000.0, noise=2.0)
    for _ in range(200):
        clip(norms[None] ** 2, norms**2, 0.7)
        value = clip.append_count(np.zeros(1))
        clip.remove_count(value + rng.normal(size=2) * 2.0 * 0.7)
    assert float((norms <= clip.norm).double().mean()) == pytest.approx(quantile, abs=0.05)


@pytest.mark.heavy
def test_a_bad_norm_is_mended_and_told(tmp_path):
    rng = np.random.RandomState(0)
    y = np.arange(2000) % 2
    X = rng.normal(size=(2000, 3)) + y[:, None]
    params = {"classes": [0, 1], "max_grad_norm": Clipping("adaptive", 50.0), "epsilon": 2.0}
    model = DPSGDClassifier(**params, learning_rate=0.01).fit(X, y)
    assert model.max_grad_norm_ < 25.0
    assert model.noise_multiplier_ > 0
    assert model.epsilon_ <= 2.0
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").max_grad_norm_ == model.max_grad_norm_
