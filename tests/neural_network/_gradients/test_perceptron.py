"""The arithmetic of a perceptron's pass is the same whoever carries it out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.neural_network import DPSGDClassifier
from skprivacy.neural_network._gradients import contributions
from skprivacy.neural_network._gradients import perceptron as arithmetic
from skprivacy.neural_network._gradients.clipped_sum import (
    CLIPPING,
    AdaptiveClipping,
    ClippedGradientSum,
)
from skprivacy.neural_network._gradients.contributions import OuterProduct, squared_lengths
from skprivacy.neural_network._gradients.perceptron import PerceptronGradients, make_mlp
from skprivacy.neural_network._training.engine import flatten_parameters
from skprivacy.neural_network._training.torch_modes import flush_denormals

LOSS = nn.CrossEntropyLoss(reduction="none")


def sums(activation, X, y, dtype=torch.float32, clip=CLIPPING["flat"], hidden=(7, 5)):
    module = make_mlp(X.shape[1], hidden, 3, activation, np.random.RandomState(0))
    torch.nn.init.normal_(module[-1].weight, generator=torch.Generator().manual_seed(0))
    _, grad = flatten_parameters(module, dtype)
    grad.fill_(np.nan)
    clipped = ClippedGradientSum(module, LOSS, 0.5, clip)
    clipped(X, y, first=True)
    clipped(X[:4], y[:4])  # sums are added to
    return grad.double()


def batch(n, bad=None):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 9, generator=generator)
    if bad is not None:
        X[2] = bad
    return X, torch.arange(n) % 3


@pytest.fixture
def by_layer(monkeypatch):
    """Let tensors stand between the operations, as on large batches."""
    monkeypatch.setattr(PerceptronGradients, "takes", lambda self, inputs: False)


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, 1e30])
@pytest.mark.parametrize("activation", ["tanh", "relu", "logistic"])
def test_small_matrices_give_what_large_ones_do(activation, bad, monkeypatch, by_layer):
    X, y = batch(30, bad)
    ours = sums(activation, X, y)
    exact = sums(activation, X, y, torch.float64)
    monkeypatch.setattr(contributions, "_SMALL_PRODUCT", -1)
    monkeypatch.setattr(arithmetic, "_SMALL_ARRAY", -1)
    torchs = sums(activation, X, y)
    assert torch.isfinite(ours).all()
    assert ours.norm() > 0.5
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-6)


CLIPS = {
    **{name: lambda name=name: CLIPPING[name] for name in CLIPPING},
    "adaptive": lambda: AdaptiveClipping(0.5, 0.5, 1.0, 0.5, 30.0),
}


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, 1e30])
@pytest.mark.parametrize("activation", ["tanh", "relu", "logistic"])
@pytest.mark.parametrize("clip", CLIPS)
def test_a_sum_without_tensors_is_the_sum(clip, activation, bad, request):
    X, y = batch(30, bad)
    given = X.clone()
    ours = sums(activation, X, y, clip=CLIPS[clip]())
    torch.testing.assert_close(X, given, rtol=0.0, atol=0.0, equal_nan=True)
    request.getfixturevalue("by_layer")
    theirs = sums(activation, X, y, clip=CLIPS[clip]())
    assert torch.isfinite(ours).all()
    assert ours.norm() > 0.2
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 511, 512, 513, 1100])
@pytest.mark.parametrize("hidden", [(), (7,)])
def test_a_sum_without_tensors_is_one_of_any_length(hidden, n, request):
    X, y = batch(n)
    ours = sums("tanh", X, y, hidden=hidden)
    request.getfixturevalue("by_layer")
    exact = sums("tanh", X, y, torch.float64, hidden=hidden)
    torch.testing.assert_close(ours, exact, rtol=1e-5, atol=3e-5)  # up to a thousand are added


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_and_precise_sums_have_tensors(dtype):
    """Several threads add up the one; the other is in double precision."""
    module = make_mlp(600, (256,), 100, "tanh", np.random.RandomState(0))
    flatten_parameters(module, dtype)
    found = PerceptronGradients(module, LOSS)
    assert found.takes(torch.zeros(64, 600)) is (dtype == torch.float32)
    assert not found.takes(torch.zeros(64, 600, dtype=torch.float64))
    assert not found.takes(torch.zeros(256, 600))


@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_a_fit_is_the_same_with_tensors_and_without(epsilon, request):
    X, y = batch(400)
    model = DPSGDClassifier(
        epsilon=epsilon, classes=range(3), epochs=5, random_state=0, noise_seed=0
    )
    with pytest.warns(UserWarning, match="noise_seed"):
        ours = model.fit(X.numpy(), y.numpy()).predict_proba(X.numpy())
    request.getfixturevalue("by_layer")
    with pytest.warns(UserWarning, match="noise_seed"):
        theirs = model.fit(X.numpy(), y.numpy()).predict_proba(X.numpy())
    assert np.ptp(ours[:, 0]) > 0.05
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("few", [-1, 1 << 20])
@pytest.mark.parametrize("n", [1, 4096, 4097, 20_000])
def test_lengths_are_right_for_rows_of_any_length(n, few, monkeypatch):
    """Equal numbers round off in the same direction every time that they are added up."""
    monkeypatch.setattr(arithmetic, "_SMALL_ARRAY", few)
    rows = torch.stack([torch.full((n,), value) for value in (0.1, 1e-12, 3e15)])
    exact = rows.double().square().sum(1)
    torch.testing.assert_close(squared_lengths(rows, 0.0).double(), exact, rtol=6e-5, atol=0.0)


def test_numbers_too_small_to_square_are_not_lost():
    found = squared_lengths(torch.full((1, 8), 1e-30), 1e-20)
    assert found.item() == pytest.approx(1e-20)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_numpy_error_settings_do_not_reach_a_step(activation):
    X = torch.full((6, 9), 1e30)
    X[1:] = 1e-30
    with np.errstate(all="raise"):
        assert torch.isfinite(sums(activation, X, torch.arange(6) % 3)).all()


def has_tiny_numbers():
    return bool(np.float32(2e-38) * np.float32(0.5) != 0)


@pytest.mark.parametrize("before", [False, True])
def test_tiny_numbers_are_zero_inside_and_as_before_outside(before):
    torch.set_flush_denormal(before)
    try:
        with flush_denormals():
            assert not has_tiny_numbers()
            with flush_denormals():
                pass
            assert not has_tiny_numbers()
        assert has_tiny_numbers() is not before
        with pytest.raises(KeyError), flush_denormals():
            raise KeyError
        assert has_tiny_numbers() is not before
    finally:
        torch.set_flush_denormal(False)


def test_numbers_whose_squares_vanish_are_clipped_all_the_same():
    """A thousand of them may add up to more than the norm allows."""
    a, d = torch.full((1, 1000), 1e-20), torch.full((1, 1), 1e10)
    product = OuterProduct(torch.zeros(1, 1000), None, a, d)
    with flush_denormals():
        assert not (a * a).any()
        assert product.squared_norms().double().sqrt() >= 1e-20 * 1e10 * 1000**0.5


def test_gradients_too_long_to_square_are_infinite_without_a_warning():
    for size in (8, 5000):
        assert squared_lengths(torch.full((1, size), 1e30), 0.0).item() == np.inf


@pytest.mark.parametrize("target", [3, 100])
def test_a_target_that_is_no_output_reaches_no_other_record(target):
    X, y = batch(30)
    with pytest.raises(IndexError):
        sums("tanh", X, torch.where(torch.arange(30) == 7, target, y))


@pytest.mark.parametrize("way", ["without tensors", "small", "large"])
def test_a_target_that_the_loss_ignores_adds_nothing(way, request, monkeypatch):
    X, y = batch(30)
    y[7:9] = LOSS.ignore_index
    X[8] = np.nan
    if way != "without tensors":
        request.getfixturevalue("by_layer")
    if way == "large":
        monkeypatch.setattr(arithmetic, "_SMALL_ARRAY", -1)
    kept = y >= 0
    torch.testing.assert_close(sums("relu", X, y), sums("relu", X[kept], y[kept]))
