"""Modules of users: weights from elsewhere, noise that is given, frozen batch normalisation."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from skprivacy import load_model, save_model
from skprivacy.accounting import PrivacyBudget
from skprivacy.neural_network import (
    DPNeuralNet,
    DPSGDClassifier,
    Optimizer,
    SimCLREncoder,
    freeze_batch_norm,
)


def private(**params):
    return DPSGDClassifier(**{"classes": [0, 1], "epsilon": 3.0, "epochs": 10, **params})


WEIGHTS_ARE_PUBLIC = "the weights that training starts from are public"


def from_a_file():
    """Make a module with weights that were learned elsewhere."""
    module = nn.Linear(3, 2)
    module.load_state_dict({"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(2)})
    return module


class Frozen(nn.Module):
    """A head of random weights on a layer that was learned elsewhere and stays as it is."""

    def __init__(self, scale=0.3, learned=True):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2)
        if learned:
            self.body.requires_grad_(False).weight.data.fill_(scale)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("module", "params", "public"),
    [
        (from_a_file, {}, True),
        (Frozen, {}, True),
        (Frozen, {"module__learned": False}, False),
        (lambda kept=nn.Linear(3, 2): kept, {}, True),  # noqa: B008 (the same module every time)
        (nn.Linear(3, 2), {}, True),
        (partial(nn.Linear, 3, 2), {}, False),
        (nn.Linear, {"module__in_features": 3, "module__out_features": 2}, False),
        (lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2)), {}, False),
        (None, {}, False),
    ],
)
@pytest.mark.parametrize("random_state", [None, 3])
def test_a_factory_of_learned_weights_is_found_out(blobs, module, params, public, random_state):
    model = private(module=module, **params, random_state=random_state, epochs=1).fit(*blobs)
    assert (WEIGHTS_ARE_PUBLIC in model.privacy_.assumptions) == public
    assert (WEIGHTS_ARE_PUBLIC in model.partial_fit(*blobs).privacy_.assumptions) == public


def test_a_second_look_at_a_factory_changes_no_result(blobs):
    """What is drawn to find out whether weights are random is drawn from elsewhere."""
    torch.manual_seed(0)
    before, state = torch.get_rng_state(), np.random.RandomState(0)
    private(module=partial(nn.Linear, 3, 2), epochs=1, random_state=state).fit(*blobs)
    assert torch.equal(torch.get_rng_state(), before)
    expected = np.random.RandomState(0)
    expected.randint(2**31)
    assert state.randint(2**31) == expected.randint(2**31)


@pytest.mark.heavy
@pytest.mark.parametrize("noise", ["gaussian", "logistic", "banded"])
def test_the_noise_can_be_given_instead_of_epsilon(blobs, noise):
    like = private(epsilon=2.0, noise=noise).fit(*blobs)
    model = private(epsilon=None, noise_multiplier=like.noise_multiplier_, noise=noise).fit(*blobs)
    assert model.privacy_ == like.privacy_
    assert model.epsilon_ == like.epsilon_ <= 2.0
    assert model.noise_multiplier_ == like.noise_multiplier_
    louder = model.set_params(noise_multiplier=2 * like.noise_multiplier_).fit(*blobs)
    assert louder.epsilon_ < 0.7 * like.epsilon_
    assert clone(louder).get_params() == louder.get_params()


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"noise_multiplier": 2.0}, r"epsilon=3\.0 and noise_multiplier=2\.0: give exactly one"),
        ({"epsilon": None}, "epsilon=None and noise_multiplier=None: give exactly one"),
        ({"epsilon": None, "noise_multiplier": 0.0}, "'noise_multiplier' parameter"),
        ({"epsilon": None, "noise_multiplier": 2.0, "delta": 0.5}, r"delta=0\.5 must be below"),
    ],
)
def test_noise_that_is_given_twice_or_never_is_refused(blobs, params, match):
    budget = PrivacyBudget(10.0, 1e-5)
    with pytest.raises(ValueError, match=match):
        private(**{"epsilon": 3.0, **params}, budget=budget).fit(*blobs)
    assert budget.spent() == 0


def test_a_given_noise_is_saved(blobs, tmp_path):
    model = private(epsilon=None, noise_multiplier=20.0, epochs=1).fit(*blobs)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (again.epsilon, again.noise_multiplier) == (None, 20.0)
    assert again.privacy_ == model.privacy_
    assert again.partial_fit(*blobs).epsilon_ > model.epsilon_


def net(module, **params):
    return DPNeuralNet(module, nn.CrossEntropyLoss, **{"epsilon": 3.0, "max_epochs": 1, **params})


@pytest.mark.parametrize(
    ("module", "public"),
    [
        (from_a_file, True),
        (Frozen, True),
        (nn.Linear(3, 2), True),
        (partial(nn.Linear, 3, 2), False),
    ],
)
def test_a_factory_of_learned_weights_is_found_out_in_a_net(blobs, module, public):
    X, y = blobs[0].astype(np.float32), blobs[1]
    model = net(module).fit(X, y)
    assert (WEIGHTS_ARE_PUBLIC in model.privacy_.assumptions) == public
    assert (WEIGHTS_ARE_PUBLIC in model.partial_fit(X, y).privacy_.assumptions) == public
    assert (WEIGHTS_ARE_PUBLIC in model.fit(X, y).privacy_.assumptions) == public


def test_weights_that_are_loaded_into_an_initialised_net_are_assumed_to_be_public(blobs):
    X, y = blobs[0].astype(np.float32), blobs[1]
    model = net(partial(nn.Linear, 3, 2)).initialize()
    model.module_.load_state_dict(from_a_file().state_dict())
    assert WEIGHTS_ARE_PUBLIC in model.partial_fit(X, y).privacy_.assumptions


def test_the_noise_of_a_net_can_be_given(blobs):
    X, y = blobs[0].astype(np.float32), blobs[1]
    like = net(nn.Linear(3, 2)).fit(X, y)
    model = net(nn.Linear(3, 2), epsilon=None, noise_multiplier=like.noise_multiplier_).fit(X, y)
    assert model.privacy_ == like.privacy_
    with pytest.raises(ValueError, match=r"epsilon=3\.0 and noise_multiplier=2\.0"):
        net(nn.Linear(3, 2), noise_multiplier=2.0).fit(X, y)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.cell(x[:, :, None])[0][:, -1])


def test_a_slow_layer_is_named_before_training():
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = DPSGDClassifier(module=Recurrent(), classes=[0, 1], epochs=1)
    with pytest.warns(UserWarning, match=r"module=Recurrent .* because of GRU 'cell': "):
        model.fit(X, (X[:, 0] > 0).astype(int))
    assert model.gradients_ == "one by one"


class Shared(nn.Module):
    """One normalisation under two names, one of them inside a list."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)
        self.layers = nn.ModuleList([nn.Linear(6, 6), self.norm])
        self.alias = self.norm

    def forward(self, x):
        return self.alias(self.layers[1](self.layers[0](self.norm(x))))


MODULES = {
    "rows": (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU()), (6,)),
    "sequences": (lambda: nn.BatchNorm1d(3), (3, 5)),
    "images": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Tanh()), (2, 5, 5)),
    "volumes": (lambda: nn.BatchNorm3d(2, affine=False), (2, 3, 3, 3)),
    "nested": (lambda: nn.Sequential(nn.Sequential(nn.Sequential(nn.BatchNorm1d(6)))), (6,)),
    "shared": (Shared, (6,)),
    "dropout": (lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Dropout(0.9)), (6,)),
}


def trained(make, shape):
    """Return a module in training mode whose statistics, scales and shifts are not trivial."""
    generator = torch.Generator().manual_seed(0)
    module = make()
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=generator)
    for _ in range(5):
        module(3 * torch.randn(20, *shape, generator=generator) + 1)
    return module


@pytest.mark.parametrize(("make", "shape"), MODULES.values(), ids=MODULES)
def test_a_frozen_module_is_the_module_in_evaluation(make, shape):
    module = trained(make, shape)
    X = 5 * torch.randn(7, *shape, generator=torch.Generator().manual_seed(1))
    expected = copy.deepcopy(module).eval()(X)
    frozen = freeze_batch_norm(module).train()
    for layer in frozen.modules():
        if isinstance(layer, nn.Dropout):
            layer.eval()
    torch.testing.assert_close(frozen(X), expected)
    torch.testing.assert_close(frozen(X[:1]), expected[:1])  # whatever else is in the batch
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in frozen.modules())


def test_the_given_module_is_left_as_it_is():
    module = trained(*MODULES["rows"])
    before = {k: v.clone() for k, v in module.state_dict().items()}
    freeze_batch_norm(module)[0].weight.data.zero_()
    assert isinstance(module[1], nn.BatchNorm1d)
    assert module.training
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_a_normalisation_without_statistics_is_refused():
    norm = nn.BatchNorm1d(6, track_running_stats=False)
    with pytest.raises(ValueError, match=r"layer '1\.0' is a BatchNorm1d without running stat"):
        freeze_batch_norm(nn.Sequential(nn.Linear(6, 6), nn.Sequential(norm)))


@pytest.fixture(scope="module")
def pre_trained():
    X, y = load_digits(return_X_y=True)
    return (
        SimCLREncoder(16, epochs=1, batch_size=64, random_state=0).fit(X[:256]),
        X[300:700],
        y[300:700],
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:noise_seed")
def test_a_public_encoder_with_a_new_head_is_fine_tuned(pre_trained):
    encoder, X, y = pre_trained
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # some heads are far worse to start from than others
        head = nn.Linear(16, 10)
    module = nn.Sequential(freeze_batch_norm(encoder.module_), nn.ReLU(), head)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    params = {
        "module": module, "classes": range(10), "epsilon": np.inf, "epochs": 4, "batch_size": 100,
        "learning_rate": 1.0, "optimizer": Optimizer(schedule="constant"),
    }  # fmt: skip
    model = clone(DPSGDClassifier(**params, noise_seed=0)).fit(X, y)
    assert "the weights that training starts from are public" in model.privacy_.assumptions
    assert model.gradients_ == "book-keeping"
    assert model.score(X, y) > 0.3  # guessing: 0.1
    learned = {**dict(model.module_.named_parameters()), **dict(model.module_.named_buffers())}
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
        assert torch.equal(value, learned[name]) == name.endswith(("scale", "shift"))


def test_unfrozen_it_is_refused_with_that_advice(pre_trained):
    encoder, X, y = pre_trained
    module = nn.Sequential(encoder.module_, nn.Linear(16, 10))
    with pytest.raises(ValueError, match=r"freeze_batch_norm\(module\)"):
        DPSGDClassifier(module=module, classes=range(10)).fit(X, y)
