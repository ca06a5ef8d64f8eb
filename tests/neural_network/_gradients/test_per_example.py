"""Clipped sums against the slow way: one example at a time."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from skprivacy.neural_network._gradients.bookkeeping import AutogradBackward
from skprivacy.neural_network._gradients.clipped_sum import ClippedGradientSum
from skprivacy.neural_network._gradients.clipping import _SAFETY
from skprivacy.neural_network._gradients.contributions import DenseGradients, OuterProduct
from skprivacy.neural_network._gradients.perceptron import PerceptronGradients
from skprivacy.neural_network._gradients.trial import Probe, select_gradient_method
from skprivacy.neural_network._training.engine import Training, flatten_parameters
from skprivacy.neural_network._training.training_config import TrainingConfig

LOSS = nn.CrossEntropyLoss(reduction="none")
PROBE = Probe.for_shape((6,), 3)
NETWORKS = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 3)),
    "mlp": lambda: nn.Sequential(
        nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3)
    ),
    "sigmoid": lambda: nn.Sequential(nn.Linear(6, 8), nn.Sigmoid(), nn.Linear(8, 3)),
    "no bias": lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.Sigmoid(), nn.Linear(4, 3)),
    "with a layer without parameters": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)),
}  # fmt: skip


def batch(n=17, scale=1.0):
    generator = torch.Generator().manual_seed(n)
    return (
        torch.randn(n, 6, generator=generator) * scale,
        torch.randint(3, (n,), generator=generator),
    )


def one_at_a_time(module, X, y, clip):
    """Return the clipped sum of gradients, by batches of one in double precision."""
    double = copy.deepcopy(module).double()
    rows = []
    for x, target in zip(X.double(), y, strict=True):
        double.zero_grad()
        LOSS(double(x[None]), target[None]).sum().backward()
        rows.append(torch.cat([p.grad.reshape(-1) for p in double.parameters()]))
    rows = torch.stack(rows)
    return (rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


def clipped_sum(module, X, y, clip, parts=1):
    _, grad = flatten_parameters(module)
    engine = ClippedGradientSum(module, LOSS, clip, probe=PROBE)
    grad.zero_()
    for part in torch.arange(len(X)).chunk(parts):
        engine(X[part], y[part])
    return grad.clone()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("clip", [0.05, 1.0, 1e6])
def test_equals_a_loop_over_single_examples(name, clip):
    torch.manual_seed(0)
    module = NETWORKS[name]()
    X, y = batch()
    expected = one_at_a_time(module, X, y, clip)
    # The clipping norm is lowered a little on purpose; undo it to compare to 1e-5.
    exact = clipped_sum(module, X, y, clip / _SAFETY)
    assert (exact - expected).norm() <= 1e-5 * expected.norm()


# Opacus: torch warns that its backward hooks start at a module whose input needs no gradient.
@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", ["linear", "mlp", "no bias"])
def test_equals_opacus_and_functorch(name):
    # Imported here: it takes 0.8 s, which other tests need not wait for.
    peer = pytest.importorskip("opacus.grad_sample", reason="compares with opacus")

    torch.manual_seed(0)
    module = NETWORKS[name]()
    X, y = batch()
    parameters = {k: p.detach().clone() for k, p in module.named_parameters()}

    def loss(params, x, target):
        return LOSS(functional_call(module, params, (x[None],)), target[None]).sum()

    per_example = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, X, y)
    rows = torch.cat([g.flatten(1) for g in per_example.values()], 1)
    expected = (rows * (0.3 / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
    wrapped = peer.GradSampleModule(module, loss_reduction="sum")
    LOSS(wrapped(X), y).sum().backward()
    theirs = torch.cat([p.grad_sample.flatten(1) for p in wrapped.parameters()], 1)
    torch.testing.assert_close(theirs, rows, rtol=1e-4, atol=1e-6)
    wrapped.remove_hooks()
    for p in module.parameters():
        del p.grad_sample
    ours = clipped_sum(module, X, y, 0.3 / _SAFETY)
    assert (ours - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("name", ["linear", "mlp", "sigmoid"])
def test_the_perceptron_by_hand_equals_autograd(name):
    torch.manual_seed(0)
    module = NETWORKS[name]()
    X, y = batch()
    by_hand, by_autograd = PerceptronGradients(module, LOSS), AutogradBackward(module, LOSS)
    found = {id(r.weight): r for r in by_hand(X, y)}
    for expected in by_autograd(X, y):
        record = found.pop(id(expected.weight))
        torch.testing.assert_close(record.input, expected.input)
        torch.testing.assert_close(record.output_grad, expected.output_grad)
    assert not found


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
    module = change(NETWORKS["mlp"]())
    assert type(select_gradient_method(module, LOSS, PROBE)[0]) is AutogradBackward
    with pytest.raises(ValueError, match="A probe is needed"):
        ClippedGradientSum(module, LOSS, 1.0)


@pytest.mark.parametrize("name", ["linear", "mlp", "sigmoid"])
def test_the_perceptron_needs_no_trial(name):
    """It is the method that a trial finds, and it holds as many numbers."""
    module = NETWORKS[name]()
    flatten_parameters(module)
    tried, untried = (ClippedGradientSum(module, LOSS, 1.0, probe=probe) for probe in (PROBE, None))
    assert type(tried.gradients) is type(untried.gradients) is PerceptronGradients
    assert tried.numbers_an_example == untried.numbers_an_example


def test_a_module_that_ends_in_softmax_is_told():
    with pytest.warns(UserWarning, match="Leave the final Softmax out"):
        select_gradient_method(NETWORKS["mlp"]().append(nn.Softmax(1)), LOSS, PROBE)


def test_a_caller_without_gradients_changes_nothing():
    torch.manual_seed(0)
    X, y = batch()
    for name in ("mlp", "no bias"):
        module = NETWORKS[name]()
        expected = clipped_sum(module, X, y, 0.1)
        with torch.no_grad():
            assert torch.equal(clipped_sum(module, X, y, 0.1), expected)


@pytest.mark.parametrize("parts", [2, 5, 17])
def test_micro_batches_change_nothing(parts):
    torch.manual_seed(0)
    module = NETWORKS["mlp"]()
    X, y = batch()
    whole = clipped_sum(module, X, y, 0.1)
    assert torch.allclose(clipped_sum(module, X, y, 0.1, parts), whole, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38, -3e38])
def test_a_row_without_finite_gradient_adds_nothing_and_harms_nobody(bad):
    torch.manual_seed(0)
    module = NETWORKS["mlp"]()
    X, y = batch()
    expected = clipped_sum(module, X, y, 0.1)
    X_bad = torch.cat([X, torch.full((1, 6), bad)])
    assert torch.equal(clipped_sum(module, X_bad, torch.cat([y, y[:1]]), 0.1), expected) or (
        # The blocking of a matrix product may change with its length.
        torch.allclose(clipped_sum(module, X_bad, torch.cat([y, y[:1]]), 0.1), expected, atol=1e-6)
    )


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6, 1e15])
def test_no_example_adds_more_than_the_clipping_norm(scale):
    torch.manual_seed(0)
    for name in NETWORKS:
        module = NETWORKS[name]()
        X, y = batch(200, scale)
        _, grad = flatten_parameters(module)
        engine = ClippedGradientSum(module, LOSS, 0.5, probe=PROBE)
        for i in range(len(X)):
            grad.zero_()
            engine(X[i : i + 1], y[i : i + 1])
            assert grad.double().norm() <= 0.5


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


def test_empty_batch_adds_nothing():
    module = NETWORKS["mlp"]()
    X, y = batch()
    assert not clipped_sum(module, X[:0], y[:0], 1.0).any()


def test_flat_parameters_are_the_module():
    module = NETWORKS["mlp"]()
    weights, _ = flatten_parameters(module)
    weights.data.fill_(2.0)
    assert all((p == 2).all() for p in module.parameters())


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
