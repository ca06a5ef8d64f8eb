"""The built-in perceptron's clipped sums, and the rounding of sums and norms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from skprivacy.neural_network._gradients.bookkeeping import AutogradBackward
from skprivacy.neural_network._gradients.clipped_sum import _SAFETY, ClippedGradientSum
from skprivacy.neural_network._gradients.contributions import DenseGradients, OuterProduct
from skprivacy.neural_network._gradients.perceptron import PerceptronGradients
from skprivacy.neural_network._gradients.trial import Probe, select_gradient_method
from skprivacy.neural_network._training.engine import Training, flatten_parameters
from skprivacy.neural_network._training.training_config import TrainingConfig

from .test_contributions import LOSS, PERCEPTRONS, batch

PROBE = Probe.for_shape((6,), 3)


def clipped_sum(module, X, y, clip):
    _, grad = flatten_parameters(module)
    grad.zero_()
    ClippedGradientSum(module, LOSS, clip, probe=PROBE)(X, y)
    return grad.clone()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.append(nn.LogSoftmax(1)),
        lambda m: nn.Sequential(m),
        lambda m: nn.Sequential(m[0], nn.GELU(), *m[2:]),
        lambda m: (m[0].register_forward_hook(lambda *a: None), m)[1],
    ],
)
def test_anything_else_goes_through_autograd(change):
    module = change(PERCEPTRONS["mlp"](6))
    assert type(select_gradient_method(module, LOSS, PROBE)[0]) is AutogradBackward
    with pytest.raises(ValueError, match="A probe is needed"):
        ClippedGradientSum(module, LOSS, 1.0)


@pytest.mark.parametrize("name", ["linear", "mlp", "sigmoid"])
def test_the_perceptron_needs_no_trial(name):
    """It is the method that a trial finds, and it holds as many numbers."""
    module = PERCEPTRONS[name](6)
    flatten_parameters(module)
    tried, untried = (ClippedGradientSum(module, LOSS, 1.0, probe=probe) for probe in (PROBE, None))
    assert type(tried.gradients) is type(untried.gradients) is PerceptronGradients
    assert tried.numbers_an_example == untried.numbers_an_example


def test_a_module_that_ends_in_softmax_is_told():
    with pytest.warns(UserWarning, match="Leave the final Softmax out"):
        select_gradient_method(PERCEPTRONS["mlp"](6).append(nn.Softmax(1)), LOSS, PROBE)


def test_a_caller_without_gradients_changes_nothing():
    torch.manual_seed(0)
    X, y = batch(17, n_features=6)
    for name in ("mlp", "no bias"):
        module = PERCEPTRONS[name](6)
        expected = clipped_sum(module, X, y, 0.1)
        with torch.no_grad():
            assert torch.equal(clipped_sum(module, X, y, 0.1), expected)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("features", [5_000, 1 << 20, 1 << 22])
def test_no_example_of_millions_of_features_adds_more_than_the_clipping_norm(features):
    """Equal features are the worst case: the rounding errors of a sum of squares all add up."""
    module = nn.Sequential(nn.Linear(features, 2))
    _, grad = flatten_parameters(module)
    clipped = ClippedGradientSum(module, LOSS, 0.5)
    for value in (0.3, 0.7, 1.1, 2.3):
        grad.zero_()
        clipped(torch.full((1, features), value), torch.tensor([0]))
        assert 0.4999 * _SAFETY < grad.double().norm() <= 0.5 * (1 - 0.9 * (1 - _SAFETY))


@pytest.mark.parametrize("value", [0.3, 0.7, 1.1, 2.3])
def test_the_norm_of_millions_of_numbers_is_right(value):
    rows = torch.full((2, 1 << 22), value)
    exact = rows[0].double().norm()
    product = OuterProduct(torch.zeros(1, 1 << 22), None, rows, torch.ones(2, 1))
    for contribution in (product, DenseGradients(torch.zeros(1 << 22), rows)):
        assert torch.allclose(contribution.squared_norms().double().sqrt(), exact, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "features"), [(2_048, 1), (2_048, 64), (100_000, 1), (100_000, 8), (8_192, 64)]
)
def test_the_rounding_of_large_sums_stays_within_the_sensitivity(rows, features):
    """Gradients of one sign are the worst case: the sum is as large as it can be."""
    generator = torch.Generator().manual_seed(0)
    X = 0.5 + torch.rand(rows, features, generator=generator)
    y = torch.zeros(rows, dtype=torch.long)
    config = TrainingConfig(
        n_records=1, batch_size=1, epochs=1, relation="zero_out", max_grad_norm=0.5
    )
    module = nn.Sequential(nn.Linear(features, 2))
    training = Training(config, module, nn.CrossEntropyLoss(reduction="none"))
    for p in module.parameters():
        p.data.zero_()

    def total(present):
        return training._sum(X, y, torch.arange(rows)[present]).double()

    everybody = total(torch.ones(rows, dtype=torch.bool))
    for absent in (0, rows // 3, rows - 1):
        present = torch.arange(rows) != absent
        assert (everybody - total(present)).norm() <= 0.5


@pytest.mark.parametrize("bias", [False, True])
def test_a_huge_input_does_not_hide_behind_a_vanishing_gradient(bias):
    # The squares of the output gradients vanish in single precision; the contribution does not.
    weight = torch.zeros(3, 4)
    contribution = OuterProduct(
        weight,
        torch.zeros(3) if bias else None,
        torch.full((1, 4), 4e18),
        torch.full((1, 3), 2e-23),
    )
    exact = contribution.input.double().norm() * contribution.output_grad.double().norm()
    assert contribution.squared_norms().double().sqrt() >= exact > 1e-4
