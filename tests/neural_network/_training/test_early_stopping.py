"""Without privacy, held-out records end the training, and quantiles start it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy import DPSGDClassifier, load_model, save_model
from skprivacy.neural_network._training import early_stopping
from skprivacy.neural_network._training.early_stopping import EarlyStoppedTraining, quantile_units
from skprivacy.neural_network._training.training_config import TrainingConfig


def free(**params):
    known = {"classes": [0, 1], "random_state": 0}
    return DPSGDClassifier(epsilon=math.inf, **known | params)


@pytest.fixture
def watched(monkeypatch):
    """Runs with early stopping, and the records that they draw."""
    runs = []

    class Watched(EarlyStoppedTraining):
        def __init__(self, *args):
            super().__init__(*args)
            self.drawn = set()
            runs.append(self)

        def _sum_of(self, X, y, drawn, groups):
            self.drawn.update(drawn.tolist())
            return self._own_sum(X, y, drawn, groups)

        def run(self, *args, **known):
            self._own_sum, self._sum = self._sum, self._sum_of
            return super().run(*args, **known)

    monkeypatch.setattr("skprivacy.neural_network.network.EarlyStoppedTraining", Watched)
    return runs


def test_labels_of_coins_are_not_learned():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (600, 5)), rng.integers(0, 2, 600)
    model = free(noise_seed=0).fit(X, y)
    assert model.n_steps_ < 1000  # of 3,800
    assert np.abs(model.predict_proba(X)[:, 1] - 0.5).mean() < 0.15  # to the end: 0.49


def test_narrow_intervals_of_wide_bounds_are_learned():
    rng = np.random.default_rng(0)
    x = rng.lognormal(0, 2, 3000)
    X, y = np.clip(x / 1000, 0, 1)[:, None] * 2 - 1, (np.abs(np.log(x)) < 1).astype(int)
    model = free(noise_seed=0).fit(X[:2000], y[:2000])
    assert model.settings_["hidden_layer_sizes"] == (32, 128)
    assert model.score(X[2000:], y[2000:]) > 0.95  # without quantiles: 0.71


@pytest.mark.parametrize("by", [None, 3], ids=["records", "groups"])
def test_held_out_records_take_part_in_no_step(watched, by):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (600, 2)), rng.integers(0, 2, 600)
    groups = None if by is None else np.arange(600) // by
    free(noise_seed=0).fit(X, y, groups=groups)
    (run,) = watched
    n = len(run._held_out)
    held = set(np.flatnonzero(run._held_out.numpy()).tolist())
    assert (n, len(run._checked[0])) == (600 // (by or 1), len(held) * (by or 1))
    assert 0.05 * n < len(held) < 0.15 * n
    assert run.drawn == set(range(n)) - held
    rows = X.astype(np.float32).reshape(n, -1, 2)[sorted(held)].reshape(-1, 2)
    assert np.array_equal(run._checked[0].numpy(), rows)


def test_the_weights_of_the_smallest_loss_are_released(monkeypatch):
    losses = iter([3.0, 1.0, 2.0, *[2.5] * 100])
    kept = []
    monkeypatch.setattr(EarlyStoppedTraining, "_held_out_loss", lambda self: next(losses))
    release = EarlyStoppedTraining._released_module
    monkeypatch.setattr(early_stopping, "_PATIENCE", 3)
    monkeypatch.setattr(
        EarlyStoppedTraining,
        "_released_module",
        lambda self: (kept.append(self._best.clone()), release(self))[1],
    )
    rng = np.random.default_rng(0)
    model = free().fit(rng.uniform(-1, 1, (600, 2)), rng.integers(0, 2, 600))
    assert model.n_steps_ == 5 * 40  # two checks to the smallest loss, and three more
    released = torch.cat([p.detach().flatten() for p in model.module_.parameters()])
    assert torch.equal(released, kept[0])


def test_a_run_with_noise_is_refused():
    config = TrainingConfig(
        n_records=100, batch_size=10, epochs=1, relation="zero_out", noise_multiplier=1.0,
        held_out_share=0.1,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"noise_multiplier=1.0 must be 0 .* Use Training"):
        EarlyStoppedTraining(config, nn.Linear(2, 2), nn.CrossEntropyLoss(reduction="none"))


def test_a_unit_stands_between_neighbouring_quantiles():
    x = np.r_[np.zeros(900), np.linspace(1, 2, 100)]
    X = torch.tensor(np.c_[x, np.arange(1000) % 2, np.full(1000, np.nan)], dtype=torch.float32)
    units = quantile_units(X)
    column = (units.weights != 0).argmax(1)
    assert (np.count_nonzero(units.weights, axis=1) == 1).all()
    assert np.bincount(column).tolist() == [25, 1, 1]  # zeros count thirty times, others once
    assert (units.weights[-2:].max(1).tolist(), units.biases[-2:].tolist()) == ([1, 1], [0, 0])
    centers = -units.biases[:25] / units.weights[:25, 0]
    assert centers[0] == pytest.approx(0.5, abs=0.05)
    assert units.weights[0, 0] == pytest.approx(2, rel=0.05)
    assert np.diff(centers[1:]) == pytest.approx(4 / 99, abs=0.011)


def test_very_many_numbers_have_no_units():
    X = torch.rand(50, 65)
    assert quantile_units(X) is None
    assert quantile_units(X[:, :64]).weights.shape == (64 * 16, 64)
    assert quantile_units((X > 0.5).float()) is None


def test_what_quantiles_start_is_saved_and_trained_further(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 2))
    y = (X[:, 0] > 0).astype(int)
    model = free().fit(X, y)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.settings_ == model.settings_
    again.partial_fit(X, y)
    assert again.settings_["hidden_layer_sizes"] == (64, 128)
