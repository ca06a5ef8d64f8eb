"""Without privacy, held-out records end the training, and features of quantiles are learned."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy import DPSGDClassifier, load_model, save_model
from skprivacy.neural_network._gradients.perceptron import make_mlp
from skprivacy.neural_network._training import early_stopping
from skprivacy.neural_network._training.early_stopping import (
    EarlyStoppedTraining,
    find_quantile_units,
)
from skprivacy.neural_network._training.training_config import TrainingConfig


def free(**params):
    known = {"classes": [0, 1], "random_state": 0}
    return DPSGDClassifier(epsilon=math.inf, **known | params)


def coins(n=2100, width=2):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (n, width)), rng.integers(0, 2, n)


@pytest.fixture
def watched(monkeypatch):
    """Runs with early stopping, and the records or groups that their steps draw."""
    runs = []

    class Watched(EarlyStoppedTraining):
        def run(self, *args, **known):
            own, self.drawn = self._sum, set()
            self._sum = lambda X, y, drawn, groups: (
                self.drawn.update(drawn.tolist()),
                own(X, y, drawn, groups),
            )[1]
            runs.append(self)
            return super().run(*args, **known)

    monkeypatch.setattr("skprivacy.neural_network.network.EarlyStoppedTraining", Watched)
    return runs


def test_labels_of_coins_are_not_learned():
    X, y = coins(width=5)
    model = free().fit(X, y)
    assert model.n_steps_ < 1500  # of 4,700
    assert np.abs(model.predict_proba(X)[:, 1] - 0.5).mean() < 0.3  # to the end: 0.49


def test_narrow_intervals_of_wide_bounds_are_learned():
    x = np.random.default_rng(0).lognormal(0, 2, 3000)
    X, y = np.clip(x / 1000, 0, 1)[:, None] * 2 - 1, (np.abs(np.log(x)) < 1).astype(int)
    model = free().fit(X[:2000], y[:2000])
    assert model.settings_["hidden_layer_sizes"] == (10, 128)
    assert model.score(X[2000:], y[2000:]) > 0.9  # without quantiles: 0.7


def test_effects_of_single_days_are_learned():
    rng = np.random.default_rng(0)
    month, day = rng.integers(0, 12, 9000), rng.integers(0, 31, 9000)
    y = rng.integers(0, 2, (12, 31))[month, day]
    X = np.c_[month / 5.5 - 1, day / 15 - 1]
    assert free().fit(X[:6000], y[:6000]).score(X[6000:], y[6000:]) > 0.8  # steps alone: 0.6


def test_columns_without_effect_drop_out():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (5000, 25))
    answers = (X[:, 0] > 0.2) ^ (X[:, 1] > 0)
    y = (answers ^ (rng.random(5000) < 0.2)).astype(int)
    model = free().fit(X[:2500], y[:2500])
    assert model.score(X[2500:], answers[2500:]) > 0.85  # without the penalty: 0.5 to 0.8


@pytest.mark.parametrize(("width", "penalty"), [(5, 0.15), (20, 0.3)])
def test_few_columns_are_penalised_less(watched, width, penalty):
    free().fit(*coins(width=width))
    assert watched[0]._penalty == pytest.approx(penalty)


@pytest.mark.parametrize("by", [None, 3], ids=["records", "groups"])
def test_held_out_records_take_part_in_no_step(watched, by):
    X, y = coins(2100 * (by or 1))
    groups = None if by is None else np.arange(len(X)) // by
    free(hidden_layer_sizes=(4,)).fit(X, y, groups=groups)
    (run,) = watched
    n, held = 2100, set(np.flatnonzero(run._held_out.numpy()).tolist())
    assert len(run._held_out) == n
    assert 0 < len(held) < n / 4
    assert run.drawn == set(range(n)) - held
    rows = X.astype(np.float32).reshape(n, -1, 2)[sorted(held)].reshape(-1, 2)
    assert np.array_equal(run._checked[0].numpy(), rows)


def test_the_weights_of_the_smallest_loss_are_released(monkeypatch):
    losses, kept = iter([3.0, 1.0, 2.0, *[2.5] * 100]), []
    monkeypatch.setattr(early_stopping, "_PATIENCE", 3)

    def next_loss(run):
        kept.append(run._weights.detach().clone())
        return next(losses)

    monkeypatch.setattr(EarlyStoppedTraining, "_held_out_loss", next_loss)
    model = free(hidden_layer_sizes=(4,)).fit(*coins())
    assert model.n_steps_ == 5 * 40  # two checks to the smallest loss, and three more
    released = torch.cat([p.detach().flatten() for p in model.module_.parameters()])
    assert torch.equal(released, kept[1])


def test_a_run_with_noise_is_refused():
    config = TrainingConfig(
        n_records=100, batch_size=10, epochs=1, relation="zero_out", noise_multiplier=1.0,
        held_out_share=0.1,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"noise_multiplier=1.0 must be 0 .* Use Training"):
        EarlyStoppedTraining(config, nn.Linear(2, 2), nn.CrossEntropyLoss(reduction="none"))


def test_a_step_is_between_neighbouring_quantiles():
    x = np.repeat(np.r_[np.zeros(900), np.linspace(1, 2, 100)], 7)
    X = torch.tensor(np.c_[x, np.arange(7000) % 2, np.full(7000, np.nan)], dtype=torch.float32)
    units = find_quantile_units(X)
    centers, slopes = -units.bias / units.slope, units.slope
    n = (units.column == 0).sum()
    assert n == 25  # zeros count thirty times, others once
    assert units.column.tolist() == [0] * 25 + [1, 2]
    assert (centers[0], slopes[0]) == (pytest.approx(0.5, abs=0.05), pytest.approx(4, rel=0.05))
    assert np.diff(centers[1:25]) == pytest.approx(4 / 99, abs=0.011)
    assert (units.left.tolist(), units.right.tolist()) == ([27, *range(25)], [*range(25), 28])


def test_a_bump_is_high_at_its_own_value_only():
    X = torch.arange(6.0)[:, None]
    bumps = find_quantile_units(X).encode(X)[:, 5:]
    assert torch.allclose(bumps, 3 * torch.eye(6), atol=0.15)


@pytest.mark.parametrize(("n", "expected"), [(100, 10), (2399, 11), (2400, 12), (9000, 32)])
def test_few_records_have_few_quantiles(n, expected):
    assert len(find_quantile_units(torch.rand(n, 1)).column) == expected


def test_very_many_numbers_have_no_units():
    X = torch.rand(3200, 65)
    assert find_quantile_units(X) is None
    assert len(find_quantile_units(X[:, :64]).column) == 64 * 16
    assert find_quantile_units((X > 0.5).float()) is None


def test_a_network_of_features_equals_one_of_records():
    X = torch.rand(200, 3)
    X[:, 2] = (X[:, 2] > 0.5).float()
    units = find_quantile_units(X)
    made = make_mlp(3, (len(units.column), 7), 4, "tanh", np.random.RandomState(0))
    stripped = units.strip(made)
    for p in stripped.parameters():
        p.data.uniform_(-1, 1)
    restored = units.restore(stripped, 3)
    assert [p.shape for p in restored.parameters()] == [p.shape for p in made.parameters()]
    assert torch.allclose(restored(X), stripped(units.encode(X)), atol=1e-4)


def test_a_network_of_quantiles_is_saved_and_trained_further(tmp_path):
    X, _ = coins()
    y = (X[:, 0] > 0).astype(int)
    model = free().fit(X, y)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.settings_ == model.settings_
    again.partial_fit(X, y)
    assert again.settings_["hidden_layer_sizes"] == (20, 128)
