"""Noise that is given instead of epsilon, and weights that are given instead of drawn."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn

from skprivacy import load_model, save_model
from skprivacy.accounting import PrivacyBudget
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.neural_network import DPNeuralNet, DPSGDClassifier


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


@pytest.mark.heavy
def test_a_given_noise_in_searches(blobs):
    model = private(epsilon=None, noise_multiplier=2.0, epochs=2)
    search = GridSearchCV(model, {"noise_multiplier": [5.0, 50.0]}, cv=2).fit(*blobs)
    best = search.best_estimator_
    assert best.noise_multiplier_ == search.best_params_["noise_multiplier"]
    with pytest.raises(ValueError, match=r"epsilon=1\.0 and noise_multiplier=2\.0"):
        PrivacySweepCV(model, epsilons=[1.0], cv=2).fit(*blobs)


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
