"""The sum over a step's records: its precision, its parts and its arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.neural_network._gradients import (
    clipped_sum,
    contributions,
)
from skprivacy.neural_network._gradients import (
    perceptron as perceptron_sum,
)
from skprivacy.neural_network._gradients.clipped_sum import CLIPPING, BatchSum, ClippedGradientSum
from skprivacy.neural_network._gradients.perceptron import Workspace
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training import update_rules as optimizers
from skprivacy.neural_network._training.engine import flatten_parameters
from skprivacy.neural_network._training.update_rules import MomentumSGD

N = 5000


def summed(expected, rows, layer=nn.Tanh, before=0.0, dtype=None):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 4), layer(), nn.Linear(4, 3))
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(N, 6, generator=generator)
    y = torch.randint(3, (N,), generator=generator)
    _, grad = flatten_parameters(module, dtype)
    grad.fill_(before)
    probe = None if layer is nn.Tanh else Probe.for_shape((6,), 3)
    clipped = ClippedGradientSum(
        module, nn.CrossEntropyLoss(reduction="none"), 0.1, CLIPPING["flat"], probe
    )
    total = BatchSum(clipped, grad, expected)(X, y, torch.arange(rows))
    return total.clone()


@pytest.mark.parametrize("rows", [0, 1, 1000, 2048])
@pytest.mark.parametrize(("expected", "dtype"), [(1024, torch.float32), (1025, torch.float64)])
def test_precision_depends_on_what_is_public(expected, dtype, rows):
    assert summed(expected, rows).dtype == dtype


def test_a_batch_of_twice_the_expected_size_is_summed_with_care():
    assert summed(10, 2048).dtype == torch.float32
    assert summed(10, 2049).dtype == torch.float64


@pytest.mark.parametrize("most", [7, 300])
@pytest.mark.parametrize("expected", [100, 4000])
def test_parts_do_not_change_the_sum(expected, most, monkeypatch):
    whole = summed(expected, 900)
    monkeypatch.setattr(clipped_sum, "_SINGLE_ROWS", most)
    parts = summed(expected, 900)
    torch.testing.assert_close(parts.double(), whole.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.heavy
@pytest.mark.parametrize("before", [1e3, float("nan")])
@pytest.mark.parametrize("rows", [0, 1, 900])
@pytest.mark.parametrize("expected", [100, 4000])
@pytest.mark.parametrize("layer", [nn.Tanh, nn.Softplus])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_step_before_leaves_nothing(before, rows, expected, layer, dtype, monkeypatch):
    """What is released of a step has its noise in the memory of the next one's sum."""
    for small, work in ((1 << 22, 1 << 24), (1 << 22, -1), (-1, -1)):
        for most in (2048, 300):
            monkeypatch.setattr(contributions, "_SMALL_PRODUCT", small)
            monkeypatch.setattr(perceptron_sum, "_MUCH_WORK", work)
            monkeypatch.setattr(clipped_sum, "_SINGLE_ROWS", most)
            found = summed(expected, rows, layer, before, dtype)
            wanted = summed(expected, rows, layer, 0.0, dtype)
            assert bool(wanted.any()) is bool(rows)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_many_parts_of_a_short_batch_are_summed_with_care(monkeypatch):
    monkeypatch.setattr(clipped_sum, "_CACHED_NUMBERS", 1)
    assert summed(1000, 1000).dtype == torch.float64


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_momentum_equals_that_of_torch(momentum):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(50, generator=generator)
    ends = []
    for kind in (MomentumSGD, torch.optim.SGD):
        weights = nn.Parameter(start.clone())
        optimizer = kind([weights], lr=0.1, momentum=momentum)
        drawn = torch.Generator().manual_seed(1)
        weights.grad = torch.zeros(50)
        for rate in (0.1, 0.05, 0.2):
            weights.grad.copy_(torch.randn(50, generator=drawn))  # the same memory every time
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        ends.append(weights.detach().numpy())
    # Numbers of about 1, some of which nearly cancel; torch rounds a product and a sum at once.
    np.testing.assert_allclose(*ends, rtol=1e-6, atol=2e-7)


def test_a_long_vector_moves_part_by_part_like_a_short_one(monkeypatch):
    ends = []
    for cached in (7, 1 << 15):
        monkeypatch.setattr(optimizers, "_NUMBERS_PER_SLICE", cached)
        weights = nn.Parameter(torch.arange(50.0))
        optimizer = MomentumSGD([weights], lr=0.1, momentum=0.9, divisor=4.0)
        for step in range(3):
            weights.grad = torch.linspace(-1.0, step, 50)
            optimizer.step()
        ends.append(weights.detach().numpy())
    np.testing.assert_array_equal(*ends)
    velocity = np.linspace(-1.0, 0.0, 50) / 4
    by_hand = np.arange(50.0) - 0.1 * velocity
    for step in (1, 2):
        velocity = 0.9 * velocity + np.linspace(-1.0, step, 50) / 4
        by_hand -= 0.1 * velocity
    np.testing.assert_allclose(ends[0], by_hand, rtol=1e-5, atol=1e-6)


def test_weights_that_overflow_warn_of_nothing():
    weights = nn.Parameter(torch.full((3,), 3e38))
    weights.grad = torch.full((3,), -3e38)
    optimizer = MomentumSGD([weights], lr=10.0, momentum=0.9)
    with np.errstate(all="raise"):
        optimizer.step()
    assert torch.isinf(weights).all()


def test_memory_is_used_again_and_grows():
    room = Workspace()
    first = room("a", (8, 2), torch.zeros(1))
    assert room("a", (5, 2), torch.zeros(1)).data_ptr() == first.data_ptr()
    assert room("a", (9, 2), torch.zeros(1)).data_ptr() == first.data_ptr()  # an eighth to spare
    assert room("a", (100, 2), torch.zeros(1)).shape == (100, 2)
    assert room("b", (8, 2), torch.zeros(1)).data_ptr() != first.data_ptr()
