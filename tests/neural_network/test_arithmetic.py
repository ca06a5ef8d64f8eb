"""The arithmetic of a perceptron's pass is the same whoever carries it out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.neural_network._gradients import arithmetic
from skprivacy.neural_network._gradients.arithmetic import squared_lengths
from skprivacy.neural_network._gradients.clipped_sum import ClippedGradientSum
from skprivacy.neural_network._gradients.trial import flatten_parameters
from skprivacy.neural_network._training.net import make_mlp

LOSS = nn.CrossEntropyLoss(reduction="none")


def sums(activation, X, y, dtype=torch.float32):
    module = make_mlp(X.shape[1], (7, 5), 3, activation, np.random.RandomState(0))
    torch.nn.init.normal_(module[-1].weight, generator=torch.Generator().manual_seed(0))
    _, grad = flatten_parameters(module, dtype)
    clipped = ClippedGradientSum(module, LOSS, 0.5)
    clipped(X, y)
    clipped(X[:4], y[:4])  # sums are added to
    return grad.double()


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, 1e30])
@pytest.mark.parametrize("activation", ["tanh", "relu", "logistic"])
def test_small_matrices_give_what_large_ones_do(activation, bad, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(30, 9, generator=generator)
    y = torch.arange(30) % 3
    if bad is not None:
        X[2] = bad
    ours = sums(activation, X, y)
    exact = sums(activation, X, y, torch.float64)
    monkeypatch.setattr(arithmetic, "_SMALL", -1)
    monkeypatch.setattr(arithmetic, "_FEW", -1)
    torchs = sums(activation, X, y)
    assert torch.isfinite(ours).all()
    assert ours.norm() > 0.5
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("few", [-1, 1 << 20])
@pytest.mark.parametrize("n", [1, 4096, 4097, 20_000])
def test_lengths_are_right_for_rows_of_any_length(n, few, monkeypatch):
    """Equal numbers round off in the same direction every time that they are added up."""
    monkeypatch.setattr(arithmetic, "_FEW", few)
    rows = torch.stack([torch.full((n,), value) for value in (0.1, 1e-12, 3e15)])
    exact = rows.double().square().sum(1)
    torch.testing.assert_close(squared_lengths(rows, 0.0).double(), exact, rtol=6e-5, atol=0.0)


def test_what_is_too_small_to_square_is_not_lost():
    found = squared_lengths(torch.full((1, 8), 1e-30), 1e-20)
    assert found.item() == pytest.approx(1e-20)


def test_what_is_too_long_to_square_is_infinite_and_nobody_is_warned():
    for size in (8, 5000):
        assert squared_lengths(torch.full((1, size), 1e30), 0.0).item() == np.inf
