"""Training with noise="exact": what neighbours' releases may differ in, down to the last bit."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.mechanisms import FloatGaussian, Gaussian, Mechanism
from skprivacy.mechanisms.rounded_gaussian import RoundedGaussian
from skprivacy.neural_network import Clipping, DPNeuralNet, DPSGDClassifier, DPSGDRegressor
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training import engine
from skprivacy.neural_network._training import training_config as noise
from skprivacy.neural_network._training.engine import Training
from skprivacy.neural_network._training.training_config import TrainingConfig

pytestmark = pytest.mark.heavy

LOSS = nn.CrossEntropyLoss(reduction="none")
WITHOUT = "a record's gradient and output are the same, to the last bit, without another one"


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.RandomState(0)
    y = rng.permutation(np.arange(300) % 3)
    return rng.normal(size=(300, 2)) + 4.0 * np.column_stack([y == 1, y == 2]), y


class Indexed(nn.Module):
    """Embeddings of what is above zero, with positions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2, 4)
        self.linear = nn.Linear(4, 6)
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        outputs = self.out(self.linear(self.embed((x > 0).long())).tanh().mean(1))
        return outputs + 0.0 * x.sum(1, keepdim=True)  # NaN for a row of NaN


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 40, 2)
        self.norm = nn.GroupNorm(2, 40)
        self.out = nn.Linear(40, 3)

    def forward(self, x):
        return self.out(self.norm(self.conv(x[:, None])).relu().mean(2))


class Scaled(nn.Module):
    """A parameter without a rule: its gradients are rows."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x * self.scale)


def perceptron(activation):
    return lambda: nn.Sequential(nn.Linear(6, 8), activation(), nn.Linear(8, 3))


MODULES = {
    "perceptron": perceptron(nn.ReLU),
    "tanh": perceptron(nn.Tanh),
    "logistic": perceptron(nn.Sigmoid),
    "positions": Indexed,
    "convolution": Convolutional,
    "torch.func": Scaled,
}


def ready(kind, norm=1.0, **settings):
    torch.manual_seed(0)
    settings = {"n_records": 1000, "batch_size": 300, "epochs": 1, **settings}
    config = TrainingConfig(relation="zero_out", noise="exact", max_grad_norm=norm, **settings)
    return Training(config, MODULES[kind](), LOSS, Probe.for_shape((6,), 3))


def data(n=1000):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, 6, generator=generator)
    return X, torch.randint(3, (n,), generator=generator)


def contributions(training, X, y):
    """Each example's contribution to all parameters before it is clipped, one below another."""
    found = training._clipped.gradients(X, y)
    bad = ~torch.isfinite(torch.stack([c.squared_norms() for c in found]).sum(0))
    each = []
    for one in torch.eye(len(y)):
        training._sums.zero_()
        for c in found:
            c.without(bad).add_sum(one)
        each.append(training._sums.clone())
    return torch.stack(each)


@pytest.mark.parametrize("kind", MODULES)
def test_no_record_changes_a_bit_of_what_others_add(kind):
    """Under zero-out: its row of the batch holds something else, or nothing."""
    training = ready(kind)
    X, y = data(40)
    before = contributions(training, X, y)
    for row in (0, 17, 39):
        other = X.clone()
        for value in (1e6, -1e-30, torch.nan, torch.inf):  # of which vectors might take care
            other[row] = value
            after = contributions(training, other, y)
            rest = torch.arange(40) != row
            torch.testing.assert_close(after[rest], before[rest], rtol=0, atol=0)


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("rows", [300, 5000])
def test_neighbouring_sums_differ_by_no_more_than_one_contribution(kind, rows):
    """Whatever the record is: a short gradient, a clipped one, or none."""
    training = ready(kind, norm=0.5, n_records=rows, batch_size=rows)
    X, y = data(rows)
    X[::3] *= 1e3
    total = training._sum(X, y, torch.arange(rows)).clone()
    apart = []
    for row in (0, 1, 3, 6, rows - 1):
        other = X.clone()
        other[row] = torch.nan
        apart.append(float((total - training._sum(other, y, torch.arange(rows))).norm()))
    # Clipping leaves a thousandth for errors, of which norms take less than a third.
    assert max(apart) <= 0.5 * (1 - 6e-4)
    if kind == "perceptron":  # somebody is clipped, and no further than has to be
        assert max(apart) > 0.5 * (1 - 1.1e-3)


@pytest.mark.parametrize("kind", MODULES)
def test_a_sum_is_that_of_its_terms_to_double_precision(kind):
    training = ready(kind, norm=1e6)  # nobody is clipped
    X, y = data(100)
    total = training._sum(X, y, torch.arange(100)).clone()
    exact = contributions(training, X, y).sum(0)
    assert (total - exact).norm() < 1e-13 * exact.norm()


def released(model, X, y):
    """Return what the mechanism was given, and gave, in every step."""
    seen = []
    release = Mechanism.release

    def watched(self, value, random):
        before = value.copy()
        after = release(self, value, random)
        seen.append((self, before, after.copy()))
        return after

    with mock.patch.object(Mechanism, "release", watched):
        model.fit(X, y)
    return seen


def check_releases(**params):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)
    network = DPSGDClassifier(
        **{"noise": "exact", "classes": [0, 1], "hidden_layer_sizes": (4,), "delta": 1e-4, **params}
    )
    seen = released(network, X, y)
    assert len(seen) == network.n_steps_
    for mechanism, before, after in seen:
        assert type(mechanism) is RoundedGaussian
        assert before.dtype == after.dtype == np.float64
        steps = after / mechanism.grid
        assert (steps == np.rint(steps)).all()
        assert mechanism.sensitivity == network.settings_["max_grad_norm"]
        assert mechanism.noise_multiplier == network.noise_multiplier_
    # Single precision would show: its numbers are multiples of far larger powers of two.
    sums = np.concatenate([before for _, before, _ in seen])
    assert (sums.astype(np.float32) != sums).mean() > 0.5
    return network


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"max_grad_norm": Clipping("adaptive", 0.7)},
        {"max_grad_norm": Clipping("per-layer"), "optimizer": "adam"},
        {"relation": "add_remove", "n_records": 200, "batch_size": 40},
    ],
    ids=["plain", "adaptive", "per-layer", "add/remove"],
)
def test_every_release_is_a_number_of_the_grid(params):
    check_releases(**params)


def test_a_sum_in_single_precision_is_caught():
    with (
        mock.patch.object(noise._Exact, "sums", "float32"),
        pytest.raises(AssertionError),
    ):
        check_releases()


def test_the_guarantee_is_that_of_gaussian_noise(blobs):
    exact, gaussian = (
        DPSGDClassifier(noise=kind, epochs=2, classes=[0, 1, 2]).fit(*blobs)
        for kind in ("exact", "gaussian")
    )
    assert exact.privacy_event_ == gaussian.privacy_event_
    assert replace(exact.privacy_, arithmetic="floating_point") == gaussian.privacy_
    assert exact.noise_multiplier_ == gaussian.noise_multiplier_


def test_the_assumption_about_other_numbers_of_rows(blobs):
    X, y = blobs
    params = {"noise": "exact", "epochs": 2, "classes": [0, 1, 2]}
    hidden = DPSGDClassifier(**params, relation="add_remove", n_records=len(X)).fit(X, y)
    assert WITHOUT in hidden.privacy_.assumptions
    grouped = DPSGDClassifier(**params).fit(X, y, groups=np.arange(len(X)) // 2)
    assert WITHOUT.replace("record", "group") in grouped.privacy_.assumptions
    assert WITHOUT not in DPSGDClassifier(**params).fit(X, y).privacy_.assumptions


@pytest.mark.filterwarnings("ignore:noise_seed")
def test_a_sum_on_a_device_gets_the_noise_of_the_processor(blobs, monkeypatch):
    X, y = blobs
    model = DPSGDClassifier(
        noise="exact", epochs=2, classes=[0, 1, 2], random_state=0, noise_seed=0, device="cpu"
    )
    expected = model.fit(X, y).predict_proba(X)
    monkeypatch.setattr(engine, "NOISE_ON", {"cpu"})  # as on a GPU: a tensor is released
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), expected)


def test_regression_and_skorch(blobs):
    X, y = blobs
    numbers = DPSGDRegressor(noise="exact", epochs=2, target_bounds=(0, 2))
    mean, *steps, levels, sums = released(numbers, X, y.astype(float))
    assert {type(m) for m, *_ in (mean, levels, sums)} == {Gaussian}  # which is exact, too
    assert {type(m) for m, *_ in steps} == {RoundedGaussian}
    module = nn.Sequential(nn.Linear(X.shape[1], 3))
    net = DPNeuralNet(module, nn.CrossEntropyLoss, noise="exact", max_epochs=2, batch_size=50)
    seen = released(net, X.astype(np.float32), y)
    assert {type(m) for m, *_ in seen} == {RoundedGaussian}


def test_floating_point_noise_is_what_it_was(blobs):
    X, y = blobs
    seen = released(DPSGDClassifier(epochs=2, classes=[0, 1, 2], batch_size=50), X, y)
    assert all(type(m) is FloatGaussian and b.dtype == np.float32 for m, b, _ in seen)
