"""Clipped sums: factors, adaptive norms, precision, and bounds for rows of any length."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy import load_model, save_model
from skprivacy.neural_network import Clipping, DPSGDClassifier
from skprivacy.neural_network._gradients import clipped_sum, contributions
from skprivacy.neural_network._gradients import perceptron as perceptron_sum
from skprivacy.neural_network._gradients.bookkeeping import AutogradBackward
from skprivacy.neural_network._gradients.clipped_sum import (
    _SAFETY,
    CLIPPING,
    AdaptiveClipping,
    BatchSum,
    ClippedGradientSum,
)
from skprivacy.neural_network._gradients.contributions import DenseGradients, OuterProduct
from skprivacy.neural_network._gradients.perceptron import PerceptronGradients, Workspace
from skprivacy.neural_network._gradients.trial import Probe, select_gradient_method
from skprivacy.neural_network._training import update_rules as optimizers
from skprivacy.neural_network._training.engine import Training, flatten_parameters
from skprivacy.neural_network._training.training_config import TrainingConfig
from skprivacy.neural_network._training.update_rules import MomentumSGD

from .test_contributions import LOSS, PERCEPTRONS, batch

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


def adaptive(**params):
    defaults = {"start": 2.0, "allowed": 0.7, "noise": 3.0, "quantile": 0.5, "divisor": 50.0}
    return AdaptiveClipping(**{**defaults, **params})


@pytest.mark.parametrize("norm", [0.0, 1e-6, 1.0, 2.0, 2.1, 1e9])
@pytest.mark.parametrize("divisor", [1.0, 50.0, 1e6])
def test_a_record_contributes_no_more_than_is_allowed(norm, divisor):
    clip = adaptive(divisor=divisor)
    squared = torch.tensor([[0.36 * norm**2], [0.64 * norm**2]], dtype=torch.float64)
    factors = clip(squared, squared.sum(0), 0.7)
    contribution = float((factors * squared.sqrt()).norm())
    joined = clip.append_count(np.array([contribution]))
    assert np.linalg.norm(joined) <= 0.7
    if norm >= 2.0:  # the bound is used up, but for the margin of the clipping
        assert np.linalg.norm(joined) >= 0.7 * _SAFETY


@pytest.mark.parametrize("divisor", [10.0, 100.0, 1000.0])
def test_the_split_is_that_of_andrew_et_al(divisor):
    """z = (z_sum^-2 + (2 sigma_count)^-2)^(-1/2), whatever the share."""
    z = 3.0
    clip = adaptive(noise=z, divisor=divisor)
    z_sum = z / clip._sum_weight
    sigma_count = z / clip._count_weight
    assert (z_sum**-2 + (2 * sigma_count) ** -2) ** -0.5 == pytest.approx(z, rel=1e-12)
    assert clip.noise_on_sum == pytest.approx(z_sum)
    assert sigma_count / divisor <= 0.05 * (1 + 1e-9) or clip.share == 0.1
    assert z_sum / z < 1.06


def test_records_that_are_not_finite_add_nothing():
    clip = adaptive()
    total = torch.tensor([1.0, float("nan"), float("inf"), 9.0])
    clip(total[None], total, 0.7)
    assert clip.append_count(np.zeros(2))[-1] == 0.0  # one short, one long
    clip(total[None, :3], total[:3], 0.7)
    assert clip.append_count(np.zeros(2))[-1] == pytest.approx(0.5 * 0.7 * clip._count_weight)
    assert clip.append_count(np.zeros(2))[-1] == 0.0  # begun anew


def test_the_sum_comes_back_in_the_size_it_went():
    clip = adaptive()
    squared = torch.full((1, 40), 100.0)
    factors = clip(squared, squared[0], 0.7)
    total = np.array([float((factors * 10.0).sum()), 0.0])
    noisy = clip.remove_count(clip.append_count(total))
    assert noisy == pytest.approx([40 * 0.7 * _SAFETY, 0.0], rel=1e-5)
    # 40 of 50 expected records, all long: counted as a fifth of a half above nobody short.
    assert clip.norm == pytest.approx(2.0 * np.exp(-0.2 * (0.5 - 0.4 - 0.5)), rel=1e-6)


def test_the_norm_stays_within_bounds():
    clip = adaptive(quantile=0.99)
    for _ in range(10_000):
        clip.remove_count(np.array([0.0, -1e6]))
    assert np.isfinite(clip.norm)
    assert clip.norm <= 2.0 * 1e6 * 1.01


@pytest.mark.parametrize("start", [0.01, 30.0])
@pytest.mark.parametrize("quantile", [0.2, 0.8])
def test_the_norm_finds_the_quantile(start, quantile):
    rng = np.random.default_rng(0)
    norms = torch.tensor(rng.lognormal(size=2000))
    clip = adaptive(start=start, quantile=quantile, divisor=2000.0, noise=2.0)
    for _ in range(200):
        clip(norms[None] ** 2, norms**2, 0.7)
        value = clip.append_count(np.zeros(1))
        clip.remove_count(value + rng.normal(size=2) * 2.0 * 0.7)
    assert float((norms <= clip.norm).double().mean()) == pytest.approx(quantile, abs=0.05)


@pytest.mark.heavy
def test_a_bad_norm_is_mended_and_told(tmp_path):
    rng = np.random.RandomState(0)
    y = np.arange(2000) % 2
    X = rng.normal(size=(2000, 3)) + y[:, None]
    params = {"classes": [0, 1], "max_grad_norm": Clipping("adaptive", 50.0), "epsilon": 2.0}
    model = DPSGDClassifier(**params, learning_rate=0.01).fit(X, y)
    assert model.max_grad_norm_ < 25.0
    assert model.noise_multiplier_ > 0
    assert model.epsilon_ <= 2.0
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").max_grad_norm_ == model.max_grad_norm_


PROBE = Probe.for_shape((6,), 3)


def sum_clipped(module, X, y, clip):
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
        expected = sum_clipped(module, X, y, 0.1)
        with torch.no_grad():
            assert torch.equal(sum_clipped(module, X, y, 0.1), expected)


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
