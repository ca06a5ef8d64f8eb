"""Networks trained side by side on a device are those that the processor trains, to rounding.

The processor stands in for the device; ``test_gpu.py`` asks the same of a GPU.
"""

from __future__ import annotations

import warnings
from unittest import mock

import numpy as np
import pytest
import torch
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy._stacked import device_networks, train_stacked
from skprivacy._stacked import scheduling as training
from skprivacy._stacked import stacked_dpsgd as host_dpsgd
from skprivacy.attacks import ShadowPool
from skprivacy.mechanisms import FloatGaussian
from skprivacy.neural_network import DPSGDClassifier, Optimizer

from .test_stacked_dpsgd import NETWORKS, EstimatorsDraws, problem

pytestmark = pytest.mark.heavy

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    """Let the processor be treated as a device is, where a device is asked for."""
    monkeypatch.setattr(training, "_PROCESSORS", {"the processor"})


ROWS = [np.arange(150), np.arange(100, 300), np.arange(0, 300, 2), np.arange(37)]


def both(model, device, n_classes=3, **spoiled):
    X, y = problem(n_classes=n_classes)
    for row, value in spoiled.items():
        X[int(row[1:])] = value
    return (
        train_stacked(model, X, y, ROWS, [7, 8, 9, 10], n_jobs=1, device=place)
        for place in ("the processor", device)
    )


def assert_same(ours, theirs, atol=1e-4):
    for one, other in zip(ours, theirs, strict=True):
        assert (one.classes_ == other.classes_).all()
        for (weights, biases), (its_weights, its_biases) in zip(
            one.layers, other.layers, strict=True
        ):
            np.testing.assert_allclose(weights, its_weights, atol=atol)
            np.testing.assert_allclose(biases, its_biases, atol=atol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"hidden_layer_sizes": (9, 5), "activation": "tanh"},
        {"activation": "logistic", "alpha": 0.0},
        {"activation": "identity", "hidden_layer_sizes": ()},
        {"batch_size": 20, "shuffle": False},
        {"n_iter_no_change": 3, "tol": 0.05, "max_iter": 30},
    ],
    ids=str,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_mlps(change, n_classes, device):
    net = MLPClassifier((9,), max_iter=8, n_iter_no_change=20).set_params(**change)
    assert_same(*both(net, device, n_classes))


@pytest.mark.parametrize("device", DEVICES)
def test_mlps_with_preprocessing_of_their_own(device):
    net = MLPClassifier((9,), max_iter=8, n_iter_no_change=20)
    ours, theirs = both(make_pipeline(StandardScaler(), net), device)
    assert_same(ours, theirs)
    assert len({model.preprocessing[0].mean_[0] for model in ours}) == len(ROWS)


class Ahead(EstimatorsDraws):
    """Of the device: the same noise, some steps of it at a time."""

    def draw_noise(self, steps, like):
        return torch.from_numpy(np.stack([next(self.noise) for _ in range(steps)]))


@pytest.mark.everyday(4)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "change",
    [
        *NETWORKS,
        {"optimizer": Optimizer(schedule="cosine", averaging=0.0)},
        {"class_weight": {1: 3.0}},
        {"batch_size": 1, "relation": "add_remove", "n_records": 40, "epochs": 1},  # empty batches
    ],
    ids=str,
)
def test_private_networks(change, device, monkeypatch):
    """Batches and noise are the same here; of the noise itself see below."""
    monkeypatch.setattr(host_dpsgd, "Draws", EstimatorsDraws)
    monkeypatch.setattr(device_networks, "DeviceDraws", Ahead)
    monkeypatch.setattr(device_networks, "_NORMALS", 1)  # a step's noise at a time, as it is drawn
    monkeypatch.setattr(device_networks, "_STEPS", 1)
    model = DPSGDClassifier(
        hidden_layer_sizes=(9,), epsilon=5.0, delta=1e-3, classes=range(3), epochs=4, noise_seed=0
    ).set_params(**change)
    ours, theirs = both(model, device, n3=np.nan, n4=1e30, n5=np.inf)
    assert_same(ours, theirs, atol=2e-3)
    assert any(np.abs(layers[-1][0]).max() > 0.02 for layers in (m.layers for m in ours))


@pytest.mark.parametrize("device", DEVICES)
def test_private_noise_is_released_by_the_mechanism(device):
    """Of the size that is accounted for, new in every step and every network."""
    tape, release = [], FloatGaussian._release

    def seen(self, value, random):
        assert not value.any()
        noise = release(self, value, random)
        tape.append((self, noise.cpu().numpy().copy()))
        return noise

    X, y = problem()
    model = DPSGDClassifier(
        hidden_layer_sizes=(40,), epsilon=None, noise_multiplier=2.0, delta=1e-3, classes=range(3),
        max_grad_norm=0.5, batch_size=30, epochs=5,
    )  # fmt: skip
    with (
        mock.patch.object(FloatGaussian, "_release", seen),
        mock.patch.object(device_networks, "_NORMALS", 10_000),
    ):
        train_stacked(model, X, y, ROWS, range(4), device=device)
    assert {(m.noise_multiplier, m.sensitivity) for m, _ in tape} == {(2.0, 0.5)}
    noise = np.concatenate([drawn for _, drawn in tape])
    assert len(np.unique(noise)) > 0.99 * len(noise)
    assert noise.std() == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("device", DEVICES)
def test_seeds_decide(device):
    X, y = problem()
    model = DPSGDClassifier(epsilon=5.0, delta=1e-3, classes=range(3), epochs=2)
    one, again, other = (
        train_stacked(model, X, y, [ROWS[0]] * 2, seeds, device=device)
        for seeds in ([1, 2], [1, 2], [3, 4])
    )
    assert_same(one, again, atol=1e-6)
    assert not np.allclose(one[0].layers[0][0], one[1].layers[0][0], atol=1e-3)
    assert not np.allclose(one[0].layers[0][0], other[0].layers[0][0], atol=1e-3)


@pytest.mark.parametrize("room", [1, 20_000])
def test_groups_that_fit_are_trained_one_after_another(room):
    sizes = []
    original = device_networks.TensorStack.__init__

    def counted(self, start, *rest):
        sizes.append(len(start))
        original(self, start, *rest)

    X, y = problem()
    net = MLPClassifier((9,), max_iter=4, n_iter_no_change=20)
    rows = [np.arange(i, 300, 2) for i in (0, 1)] * 6  # of one size: the longest decides on steps
    whole = train_stacked(net, X, y, rows, range(12), device="cpu")
    sizes.clear()
    with (
        mock.patch.object(training, "_DEFAULT_FREE_NUMBERS", room),
        mock.patch.object(device_networks.TensorStack, "__init__", counted),
    ):
        parts = train_stacked(net, X, y, rows, range(12), device="cpu")
    assert sum(sizes) == 12
    assert (len(sizes) == 12) == (room == 1)
    assert 1 < len(sizes) <= 12
    assert_same(whole, parts, atol=1e-4)


def test_out_of_memory_is_said():
    def out_of_memory(*args):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    X, y = problem()
    with (
        mock.patch.object(device_networks.TensorStack, "forward", out_of_memory),
        pytest.raises(MemoryError, match=r"device='cpu' has too little memory"),
    ):
        train_stacked(MLPClassifier((9,)), X, y, ROWS, range(4), device="cpu")


def test_no_step_waits_for_the_device():
    """Rows, orders and noise come in advance; a loss is looked at after an epoch."""
    from ..neural_network._training.simulated_gpu import NoWaits

    X, y = problem()
    private = DPSGDClassifier(epsilon=5.0, delta=1e-3, classes=range(3), epochs=2, optimizer="adam")
    nets = MLPClassifier((9,), max_iter=3, n_iter_no_change=20), private
    with (
        mock.patch("skprivacy.mechanisms.float_noise._ASYNCHRONOUS", {"cpu"}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        for net in nets:
            with mock.patch.object(
                training, "train_on_device", no_waits(training.train_on_device, NoWaits)
            ):
                train_stacked(net, X, y, ROWS, range(4), device="cpu")


def no_waits(train_on_device, watch):
    def watched(prepared, device):
        ready = list(prepared)  # estimators are checked on the processor
        with watch():
            yield from train_on_device(iter(ready), device)

    return watched


def test_a_pool_on_a_device_scores_as_one_on_the_processor():
    X, y = problem()
    net = MLPClassifier((9,), max_iter=8, n_iter_no_change=20, random_state=0)
    scores = [
        ShadowPool(net, n_shadows=4, random_state=0, device=device).fit(X, y).logits(X, y)
        for device in ("the processor", "cpu", None)
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-3)
    with pytest.raises(ValueError, match="device='nowhere' is not usable"):
        ShadowPool(net, n_shadows=4, device="nowhere").fit(X, y)
