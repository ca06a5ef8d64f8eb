"""Kinds of noise, streams and averages, as a user of the estimators meets them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from skprivacy.accounting import GaussianEvent, PrivacyBudget, PrivacyGuarantee, epsilon_of
from skprivacy.accounting.accountants import rdp_epsilon
from skprivacy.accounting.events import (
    BandedFactorizationEvent,
    LogisticEvent,
    TreeAggregationEvent,
)
from skprivacy.mechanisms import SecureRandom
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.neural_network._training.engine import WeightAverage
from skprivacy.neural_network._training.training_config import (
    NOISE,
    SequentialBatches,
    TrainingConfig,
)


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.RandomState(0)
    y = rng.permutation(np.arange(1000) % 2)
    return rng.normal(size=(1000, 3)) + 2.0 * y[:, None] - 1.0, y


def private(**params):
    return DPSGDClassifier(**{"classes": [0, 1], "epsilon": 3.0, "delta": 1e-4, **params})


def run(n, batch_size, epochs, noise="gaussian"):
    return TrainingConfig.planned(n, batch_size=batch_size, epochs=epochs, noise=noise)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("noise", ["logistic", "banded", "tree"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_learns(blobs, noise, optimizer):
    model = private(noise=noise, optimizer=optimizer).fit(*blobs)
    assert model.score(*blobs) > 0.9
    assert 0.99 * 3.0 < model.epsilon_ <= 3.0


@pytest.mark.parametrize("noise", NOISE)
def test_without_noise_there_is_no_guarantee(blobs, noise):
    model = private(noise=noise, epsilon=np.inf, epochs=1).fit(*blobs)
    assert model.epsilon_ == np.inf
    assert model.noise_multiplier_ == 0


def test_logistic_noise_is_accounted_for_as_logistic_noise(blobs):
    model = private(noise="logistic", epochs=5).fit(*blobs)
    step = model.privacy_event_.event.event
    assert step == LogisticEvent(model.noise_multiplier_, norm=2)
    assert model.epsilon_ == epsilon_of(model.privacy_event_, 1e-4, "zero_out")
    assert model.epsilon_ <= rdp_epsilon(model.privacy_event_, 1e-4, "zero_out")


@pytest.mark.parametrize("noise", ["banded", "tree"])
def test_one_epoch_costs_one_gaussian_release(blobs, noise):
    model = private(noise=noise, epochs=1, batch_size=30).fit(*blobs)
    event = model.privacy_event_
    assert isinstance(
        event, BandedFactorizationEvent if noise == "banded" else TreeAggregationEvent
    )
    assert (event.steps_per_epoch, event.epochs, model.n_steps_) == (34, 1, 34)
    exact = epsilon_of(GaussianEvent(model.noise_multiplier_ / event.sensitivity), 1e-4)
    assert model.epsilon_ == pytest.approx(exact, rel=1e-12)
    assert model.privacy_.relation == "zero_out"
    assert any("which batch" in assumption for assumption in model.privacy_.assumptions)
    replaced = PrivacyGuarantee(event, 1e-4, "replace_one")
    assert model.epsilon_ < replaced.epsilon() < 3 * model.epsilon_


def test_banded_noise_beats_the_tree_and_the_tree_beats_none(blobs):
    """The noise of running sums, which is what the weights are made of, at equal epsilon."""
    error = {}
    for kind in ("banded", "tree"):
        config = run(100_000, 250, 1, kind).with_noise_for(3.0, 1e-6)
        mechanism = config.noise_kind.mechanism(config.noise_multiplier, 1.0, config)
        random = SecureRandom(seed=0)
        steps = [mechanism.release(np.zeros(200), random) for _ in range(config.n_steps)]
        error[kind] = np.sqrt((np.cumsum(steps, 0) ** 2).mean())
    alone = run(1000, 1000, 1).with_noise_for(3.0, 1e-4).noise_multiplier  # of any n
    error["independent"] = alone * np.sqrt(config.n_steps / 2)
    assert error["banded"] < 0.9 * error["tree"]
    assert error["tree"] < 0.6 * error["independent"]


@pytest.mark.parametrize("kind", ["banded", "tree"])
@pytest.mark.parametrize(("n", "epochs"), [(64, 1), (9, 5)])
def test_spreads_are_those_of_the_noise(kind, n, epochs):
    plan = run(100 * n, 100, epochs, kind)
    mechanism, random = NOISE[kind].mechanism(2.0, 0.5, plan), SecureRandom()
    # Of independent streams so many that 0.03 is 8 standard deviations even if each had one number.
    steps = np.array([mechanism.release(np.zeros(40_000), random) for _ in range(plan.n_steps)])
    assert np.sqrt((steps**2).mean()) == pytest.approx(NOISE[kind].spread(plan), rel=0.03)
    independent = np.arange(1, plan.n_steps + 1).mean()
    in_sums = np.sqrt((steps.cumsum(0) ** 2).mean() / independent)
    assert in_sums == pytest.approx(NOISE[kind].spread_in_sums(plan), rel=0.03)


def test_a_public_figure_for_the_number_of_records_is_refused(blobs):
    budget = PrivacyBudget(5.0, 1e-3)
    with pytest.raises(ValueError, match=r"n_records=1000 hides .* noise='banded'"):
        private(noise="banded", relation="add_remove", n_records=1000, budget=budget).fit(*blobs)
    assert budget.spent() == 0


def test_turns_cover_every_record_once_an_epoch():
    turns, random = SequentialBatches(7, 4), SecureRandom()
    for _ in range(3):
        epoch = [turns.draw(24, random) for _ in range(4)]
        assert np.concatenate(epoch).tolist() == list(range(24))
        assert [len(batch) for batch in epoch] == [7, 7, 7, 3]


# ---------------------------------------------------------------- averages


def averaged(averaging, decay, steps):
    average = WeightAverage(
        replace(run(1, 1, len(steps)), averaging=averaging, averaging_decay=decay)
    )
    for step in steps:
        average.add(torch.tensor([step]))
    return float(average.result(torch.tensor([steps[-1]])))


def test_the_average_of_the_last_steps():
    assert averaged(0.5, 0.9, [100.0, 100.0, 1.0, 3.0]) == pytest.approx(2.0)
    assert averaged(1.0, 0.9, [1.0, 2.0, 3.0]) == pytest.approx(2.0)
    assert averaged(0.0, 0.9, [1.0, 2.0, 3.0]) == 3.0


def test_the_exponential_average_weighs_to_one():
    steps = [5.0, 1.0, 2.0, 4.0]
    weights = 0.7 ** np.arange(3, -1, -1)
    assert averaged("ema", 0.7, steps) == pytest.approx(np.average(steps, weights=weights))
    assert averaged("ema", 0.999, [3.0] * 50) == pytest.approx(3.0)
