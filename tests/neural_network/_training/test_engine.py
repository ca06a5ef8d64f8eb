"""The engine and its configuration by themselves, without an estimator around them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController
from torch import nn

from skprivacy._environment import blas_threads
from skprivacy.mechanisms import Mechanism
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training import engine
from skprivacy.neural_network._training.engine import SingleProcess, Training
from skprivacy.neural_network._training.training_config import TrainingConfig

LOSS = nn.CrossEntropyLoss(reduction="none")


def planned(noise="gaussian", **settings):
    config = TrainingConfig.planned(60, batch_size=25, epochs=4, noise=noise, **settings)
    return config.with_noise_for(2.0, 1e-3)


def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(60, 3, generator=generator), torch.arange(60) % 2


def network():
    return nn.Sequential(nn.Linear(3, 2))


@pytest.mark.parametrize("clipping", ["flat", "adaptive"])
@pytest.mark.parametrize(
    ("noise", "steps"), [("gaussian", 8), ("logistic", 8), ("banded", 12), ("tree", 12)]
)
def test_a_run_releases_what_its_configuration_says(noise, steps, clipping, monkeypatch):
    released, release = [], Mechanism.release
    monkeypatch.setattr(
        Mechanism, "release", lambda *args: (released.append(args[0]), release(*args))[1]
    )
    config = planned(noise, clipping=clipping)
    Training(config, network(), LOSS).run(*data())
    assert len(released) == config.n_steps == steps
    assert {mechanism.noise_multiplier for mechanism in released} == {config.noise_multiplier}
    assert {mechanism.sensitivity for mechanism in released} == {config.max_grad_norm}
    if noise in ("gaussian", "logistic"):
        assert config.event.count == steps
        assert config.event.event.event == released[0].event
        assert config.event.event.sampling_rate == config.sampling_rate == 25 / 60
    else:
        assert config.event == released[0].event


def test_who_watches_the_releases_of_a_run_sees_them_on_a_gpu_too(monkeypatch):
    """Noise that a device makes by itself would pass by whoever stands between."""

    class Watching(SingleProcess):
        seen = 0

        def release(self, mechanism, total, random):
            self.seen += 1
            return super().release(mechanism, total, random)

    monkeypatch.setattr(engine, "NOISE_ON", {"cpu"})
    config, peers = planned(), Watching()
    Training(config, network(), LOSS).run(*data(), peers)
    assert peers.seen == config.n_steps


def test_a_run_happens_once():
    training = Training(planned(), network(), LOSS)
    training.run(*data())
    with pytest.raises(RuntimeError, match="Create a new Training"):
        training.run(*data())


def test_what_is_returned_has_the_weights_and_nothing_else_of_the_module_under_training():
    module = network()
    module.kept = None
    module.register_forward_hook(lambda layer, args, output: setattr(layer, "kept", args[0]))
    training = Training(planned(), module, LOSS, Probe.for_shape((3,), 2))
    trained = training.run(*data())
    assert module.kept is not None
    assert trained is not module
    assert trained.kept is None
    assert torch.equal(trained[0].weight, module[0].weight)
    assert not trained.training


def test_a_configuration_cannot_be_changed():
    config = planned()
    with pytest.raises(FrozenInstanceError):
        config.noise_multiplier = 0.0
    assert replace(config, noise_multiplier=0.0).event != config.event


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_step_size_follows_the_schedule(schedule):
    config = planned(schedule=schedule)
    shares = [config.share_of_step_size(step) for step in range(config.n_steps)]
    assert shares[0] == 1.0
    assert np.all(np.diff(shares) <= 0)
    assert (shares[-1] < 0.2) == (schedule != "constant")


def test_the_noise_that_a_step_size_reckons_with_is_that_of_the_sum():
    """Adaptive clipping spends a part on the count: the sum has a little more noise."""
    flat, adaptive = (planned(clipping=clipping) for clipping in ("flat", "adaptive"))
    assert flat.noise_std == flat.noise_multiplier
    assert flat.noise_std < adaptive.noise_std < 1.1 * flat.noise_std
    assert adaptive.step_size(1000) < flat.step_size(1000)
    assert planned(learning_rate=0.3).step_size(1000) == 0.3
    assert planned(optimizer="adam").step_size(1000) == 0.01


@pytest.fixture
def two_threads():
    """As on a machine with two cores, whatever the environment says."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        yield
    torch.set_num_threads(before)


def convolution():
    return nn.Sequential(
        nn.Unflatten(1, (1, 32, 32)), nn.Conv2d(1, 64, 5), nn.Flatten(), nn.Linear(64 * 784, 2)
    )


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("module", "width", "threads"),
    [
        (nn.Sequential(nn.Linear(3, 2)), 3, 1),
        (nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)), 3, 1),
        (nn.Sequential(nn.Linear(3000, 600), nn.Tanh(), nn.Linear(600, 2)), 3000, 2),
        (convolution(), 1024, 2),
    ],
    ids=["linear", "small", "many weights", "many numbers"],
)
def test_short_steps_take_one_thread_and_long_ones_all(module, width, threads, two_threads):
    """Threads that wait for one another took many times the processor time on a busy machine."""
    seen = []

    class Watching(SingleProcess):
        def draw(self, *args):
            seen.append((torch.get_num_threads(), blas_threads()))
            if len(seen) == 3:
                raise KeyboardInterrupt
            return super().draw(*args)

    probe = Probe.for_shape((width,), 2)
    training = Training(planned(), module, LOSS, probe)
    with pytest.raises(KeyboardInterrupt):
        training.run(torch.zeros(60, width), torch.arange(60) % 2, Watching())
    assert seen == [(threads, 1)] * 3
    assert (torch.get_num_threads(), blas_threads()) == (2, 2)


@pytest.mark.heavy
@pytest.mark.parametrize(("n", "threads"), [(20, 1), (20_000, 2)], ids=["few", "many"])
def test_few_predictions_take_one_thread(n, threads, two_threads):
    X = np.eye(40, 100).repeat(n // 20, axis=0)
    model = DPSGDClassifier(hidden_layer_sizes=(200,), epochs=1, batch_size=20, classes=[0, 1])
    model.fit(X[:40], np.arange(40) % 2)
    seen = []
    model.module_.register_forward_hook(lambda *args: seen.append(torch.get_num_threads()))
    expected = model.predict_proba(X[:20])
    np.testing.assert_allclose(model.predict_proba(X[:n])[:20], expected, rtol=1e-6)
    assert seen == [1, threads]
    assert torch.get_num_threads() == 2
