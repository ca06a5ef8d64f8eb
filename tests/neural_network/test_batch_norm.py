"""Pre-trained networks with batch normalisation, frozen to be fine-tuned."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import nn

from skprivacy.neural_network import DPSGDClassifier, Optimizer, SimCLREncoder, freeze_batch_norm


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
