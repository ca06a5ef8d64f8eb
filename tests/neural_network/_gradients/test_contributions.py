"""Every kind of layer, and every way to per-example gradients, against one example at a time."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy.neural_network._gradients import bookkeeping, trial
from skprivacy.neural_network._gradients.bookkeeping import RULES, AutogradBackward
from skprivacy.neural_network._gradients.clipped_sum import _SAFETY, CLIPPING, ClippedGradientSum
from skprivacy.neural_network._gradients.contributions import OuterProducts
from skprivacy.neural_network._gradients.trial import OneByOne, Probe, select_gradient_method
from skprivacy.neural_network._training.engine import flatten_parameters

# The recurrent module says that it is slow.
pytestmark = pytest.mark.filterwarnings("ignore:module=Recurrent:UserWarning")
LOSS = nn.CrossEntropyLoss(reduction="none")


class Tokens(nn.Module):
    """Read the sign of the inputs as words, and average over the places."""

    def __init__(self, *layers, **embedding):
        super().__init__()
        self.words = nn.Embedding(2, 5, **embedding)
        self.layers = nn.Sequential(*layers, nn.Linear(5, 3))

    def forward(self, x):
        return self.layers(self.words((x > 0).long())).mean(1)


def image(*layers, n_out):
    return nn.Sequential(nn.Unflatten(1, (2, 6, 6)), *layers, nn.Flatten(), nn.Linear(n_out, 3))


def sequence(*layers, n_out=5):
    return nn.Sequential(nn.Unflatten(1, (12, 6)), *layers, nn.Flatten(), nn.Linear(12 * n_out, 3))


BOOK_KEEPING = {
    "sequence, small layer": lambda: sequence(nn.Linear(6, 5), nn.Tanh()),
    "sequence, large layer": lambda: sequence(nn.Linear(6, 90), nn.Tanh(), n_out=90),
    "sequence, no bias": lambda: sequence(nn.Linear(6, 90, bias=False), n_out=90),
    "embedding": lambda: Tokens(),
    "embedding with padding": lambda: Tokens(padding_idx=0),
    "layer norm": lambda: Tokens(nn.LayerNorm(5), nn.Linear(5, 5), nn.ReLU(inplace=True)),
    "layer norm over two axes": lambda: sequence(nn.LayerNorm((12, 6)), n_out=6),
    "layer norm, no bias": lambda: sequence(nn.LayerNorm(6, bias=False), n_out=6),
    "group norm": lambda: image(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), n_out=64),
    "group norm of vectors": lambda: nn.Sequential(
        nn.Linear(72, 32), nn.GroupNorm(2, 32), nn.Linear(32, 3)
    ),
    "conv2d": lambda: image(nn.Conv2d(2, 4, 3), nn.Tanh(), n_out=64),
    "conv2d, overwritten": lambda: image(nn.Conv2d(2, 4, 3), nn.ReLU(inplace=True), n_out=64),
    "conv2d, few places": lambda: image(nn.Conv2d(2, 90, 5, stride=2, padding=1), n_out=360),
    "conv2d, every option": lambda: image(
        nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
        n_out=4 * 3 * 8,
    ),
    "conv1d": lambda: sequence(nn.Conv1d(12, 12, 3, padding=1, dilation=1), n_out=6),
    "conv1d, every option": lambda: sequence(
        nn.Conv1d(12, 24, 3, stride=2, padding=2, dilation=2, groups=3, bias=False), n_out=6
    ),
}  # fmt: skip


class Added(nn.Module):
    """Two layers whose outputs have the very same gradient, in the same memory."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(72, 5), nn.Linear(72, 5)
        self.last = nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.first(x) + self.second(x))


BOOK_KEEPING["added"] = Added


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(72))

    def forward(self, x):
        return x * self.scale


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(72, 72), nn.Linear(72, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.layer(self.layer(x))))


class Elsewhere(nn.Module):
    """Uses a layer's weight outside of the layer, where no hook sees it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 3)

    def forward(self, x):
        return self.layer(x) + (x.square() @ self.layer.weight.T).tanh()


class Overwritten(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(72, 72), nn.Linear(72, 3)

    def forward(self, x):
        h = self.first(x).exp()
        out = self.second(h)
        return out + h.mul_(3.0)[:, :3]


def tied():
    first, second = nn.Linear(72, 72), nn.Linear(72, 72)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh(), nn.Linear(72, 3))


FUNCTIONAL = {
    "own parameter": lambda: nn.Sequential(Scale(), nn.Linear(72, 3)),
    "layer used twice": Twice,
    "weight used elsewhere": Elsewhere,
    "tied": tied,
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(72, 5)), nn.Linear(5, 3)
    ),
    "padding that is not zeros": lambda: image(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), n_out=144
    ),
    "transposed convolution": lambda: image(nn.ConvTranspose2d(2, 3, 3), n_out=192),
    "a half-frozen layer": lambda: nn.Sequential(
        _freeze(nn.Linear(72, 5), "bias"), nn.Linear(5, 3)
    ),
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.last = nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.cell(x.unflatten(1, (12, 6)))[0][:, -1])


def _freeze(layer, name):
    getattr(layer, name).requires_grad_(False)
    return layer


ALL = {**BOOK_KEEPING, **FUNCTIONAL, "recurrent": Recurrent}
PERCEPTRONS = {
    "linear": lambda n=72: nn.Sequential(nn.Linear(n, 3)),
    "mlp": lambda n=72: nn.Sequential(
        nn.Linear(n, 9), nn.Tanh(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3)
    ),
    "sigmoid": lambda n=72: nn.Sequential(nn.Linear(n, 8), nn.Sigmoid(), nn.Linear(8, 3)),
    "no bias": lambda n=72: nn.Sequential(
        nn.Linear(n, 4, bias=False), nn.Sigmoid(), nn.Linear(4, 3)
    ),
    "flattened": lambda n=72: nn.Sequential(nn.Flatten(), nn.Linear(n, 3)),
}
EVERY = {**ALL, **PERCEPTRONS}


def batch(n=9, scale=1.0, n_features=72):
    generator = torch.Generator().manual_seed(n)
    return (
        torch.randn(n, n_features, generator=generator) * scale,
        torch.randint(3, (n,), generator=generator),
    )


def gradient_rows(module, X, y, views=1):
    """Return the mean gradient over the views of each example, by batches of one in double."""
    double = copy.deepcopy(module).double()
    for d, p in zip(double.parameters(), module.parameters(), strict=True):
        d.requires_grad_(p.requires_grad)
    trained = [p for p in double.parameters() if p.requires_grad]
    rows = []
    for x, target in zip(X.double(), y.repeat_interleave(views), strict=True):
        loss = LOSS(double(x[None]), target[None]).sum()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, trained)]))
    return torch.stack(rows).unflatten(0, (-1, views)).mean(1)


def clipped(rows, clip):
    """Return the sum of the rows, each no longer than ``clip``."""
    return (rows * (clip / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


def engine_of(module, clip=1.0, clipping="flat", views=1):
    _, grad = flatten_parameters(module)
    probe = Probe.for_shape((72,), 3, views=views)
    return ClippedGradientSum(module, LOSS, clip, CLIPPING[clipping], probe), grad


def clipped_sum(module, X, y, clip, clipping="flat"):
    engine, grad = engine_of(module, clip, clipping)
    grad.zero_()
    engine(X, y)
    return grad.clone()


@pytest.mark.everyday(10)
@pytest.mark.heavy
@pytest.mark.parametrize("clip", [0.05, 1e6])
@pytest.mark.parametrize("name", EVERY)
def test_equals_a_loop_over_single_examples(name, clip):
    torch.manual_seed(0)
    module = EVERY[name]()
    X, y = batch()
    expected = clipped(gradient_rows(module, X, y), clip)
    # The clipping norm is lowered a little on purpose; undo it to compare to 1e-5.
    engine, found = engine_of(module, clip / _SAFETY)
    found.zero_()
    engine(X, y)
    assert (found - expected).norm() <= 1e-5 * expected.norm()
    if name != "recurrent":  # newer torch may vectorise it
        assert engine.gradients.name == ("torch.func" if name in FUNCTIONAL else "book-keeping")


@pytest.mark.parametrize("short", [0, 1 << 20])
@pytest.mark.parametrize("name", [name for name in BOOK_KEEPING if name.startswith("conv")])
def test_convolutions_are_the_same_however_patches_are_copied(name, short, monkeypatch):
    """Those of one example, of some or of all at a time, where each is shown as two images."""
    torch.manual_seed(0)
    module = BOOK_KEEPING[name]()
    X, y = batch(10)
    X[4:6] = torch.nan  # of one example: the others keep what they have
    expected = [c.rows.flatten(1) for c in OneByOne(module, LOSS, 2)(X, y[:5])]
    expected = torch.cat(expected, 1)
    monkeypatch.setattr(bookkeeping, "_SHORT", short)
    _, grad = flatten_parameters(module)
    good = torch.tensor([True, True, False, True, True])
    for at_once in (1, 2_000, 1 << 20):
        monkeypatch.setattr(bookkeeping, "_CACHED", at_once)
        found = AutogradBackward(module, LOSS, 2)(X, y[:5])
        norms = torch.stack([c.squared_norms() for c in found]).sum(0)
        assert not torch.isfinite(norms[2])
        torch.testing.assert_close(norms[good], expected[good].square().sum(1), rtol=1e-4, atol=0)
        factors = torch.tensor([1.0, 2.0, 0.0, 0.5, 3.0])
        grad.zero_()
        for contribution in found:
            contribution.without(~good).add_sum(factors)
        weighted = factors[good] @ expected[good]
        assert (grad - weighted).norm() <= 1e-5 * weighted.norm()


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("gap", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_bands_of_a_window_make_up_its_patches(kernel, stride, gap, padding, axes, monkeypatch):
    kind = (nn.Conv1d, nn.Conv2d)[axes - 1]
    layer = kind(3, 2, *[(value, 2)[:axes] for value in (kernel, stride, padding, gap)])
    a = torch.arange(2 * 3 * 11 * 7.0).view(2, 3, 11, 7)
    a = a if axes == 2 else a[..., 0]
    monkeypatch.setattr(bookkeeping, "_SHORT", 0)
    patches = bookkeeping._unfold(layer, a)
    found = torch.full_like(patches, torch.nan)
    for columns, seen in bookkeeping._iter_bands(layer, a):
        found[..., columns] = seen
    assert torch.equal(found, patches)


def test_every_rule_is_tested():
    seen = {type(m) for make in BOOK_KEEPING.values() for m in make().modules()}
    assert seen >= set(RULES)


@pytest.mark.everyday(8)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "clipping"),
    [(name, "flat") for name in EVERY]
    + [(name, how) for name in ("group norm", "embedding") for how in ("per-layer", "automatic")],
)
def test_no_example_adds_more_than_the_clipping_norm(name, clipping):
    for scale in (1e-3, 1.0, 1e6, 1e15):
        torch.manual_seed(0)
        engine, grad = engine_of(EVERY[name](), 0.5, clipping)
        X, y = batch(4 if name in ALL else 50, scale)
        for i in range(len(X)):
            grad.zero_()
            engine(X[i : i + 1], y[i : i + 1])
            assert grad.double().norm() <= 0.5


def test_automatic_clipping_lengthens_short_gradients():
    X, y = batch(1)
    module = BOOK_KEEPING["conv2d"]()
    norm = gradient_rows(module, X, y).norm().item()
    added = clipped_sum(module, X, y, 1.0, "automatic").norm().item()
    assert added == pytest.approx(_SAFETY * norm / (norm + 0.01), rel=1e-4)


def test_per_layer_clipping_clips_each_layer():
    X, y = batch(1)
    module = nn.Sequential(nn.Linear(72, 4), nn.Tanh(), nn.Linear(4, 3))
    found = clipped_sum(module, X, y, 1e-3, "per-layer")
    for layer in (found[: 73 * 4], found[73 * 4 :]):
        assert layer.norm() == pytest.approx(1e-3 * _SAFETY / 2**0.5, rel=1e-5)


@pytest.mark.everyday(10)
@pytest.mark.heavy
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("name", [k for k in EVERY if not k.startswith("embedding")])
def test_a_row_without_finite_gradient_harms_nobody(name, bad):
    torch.manual_seed(0)
    module = EVERY[name]()
    X, y = batch()
    expected = clipped_sum(module, X, y, 0.1)
    X_bad = torch.cat([X, torch.full((1, 72), bad)])
    found = clipped_sum(module, X_bad, torch.cat([y, y[:1]]), 0.1)
    assert torch.isfinite(found).all()
    assert (found - expected).double().norm() <= 0.1 * (1 + 1e-5)


def test_places_that_cancel_do_not_hide_a_gradient():
    """A record may be made so that its places nearly cancel, and rounding decides on the norm."""
    for n_out in (5, 90):
        module = sequence(nn.Linear(6, n_out), n_out=n_out)
        with torch.no_grad():  # the output depends on differences between places alone
            sign = torch.tensor([1.0, -1.0]).repeat(6).repeat_interleave(n_out)
            module[-1].weight.copy_(torch.randn(3, n_out).repeat(1, 12) * sign)
        engine, grad = engine_of(module, 1.0)
        for size in (1e2, 1e4, 1e6, 1e8):
            X = (torch.randn(6) * size).repeat(1, 12) * (1 + 1e-7 * torch.randn(1, 72))
            grad.zero_()
            engine(X, torch.tensor([0]))
            assert grad.double().norm() <= 1.0


def test_places_that_cancel_do_not_drown_the_other_records():
    """Each place's share of a sum is rounded: next to a huge one the other records would vanish."""
    inputs = torch.randn(1, 1, 6).repeat(1, 2, 1) * 1e5
    opposite = torch.tensor([1.0, -1.0 + 1e-6])[None, :, None] * torch.ones(1, 2, 4)
    record = OuterProducts(torch.zeros(4, 6), None, inputs, opposite)
    norm = record.squared_norms().sqrt()
    each = inputs[0, 0].norm() * opposite[0, 0].norm()
    assert each / norm <= 1e3  # in units of the clipping norm
    assert norm >= (inputs[0].T @ opposite[0]).norm()


class Mixing(nn.Module):
    """Centres the batch: every record reaches every other one's gradient."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 3)

    def forward(self, x):
        return self.layer(x - x.mean(0) if self.training else x)


def test_a_module_that_mixes_examples_never_goes_by_book_keeping():
    with pytest.warns(UserWarning, match="module=Mixing mixes examples"):
        engine, _ = engine_of(Mixing())
    assert engine.gradients.name == "torch.func"


@pytest.mark.parametrize("views", [1, 2])
def test_random_modules_without_book_keeping_get_no_warning_of_mixing(views):
    """``filterwarnings = error`` makes a warning an error."""
    engine, _ = engine_of(NoisyScale(), views=views)
    assert engine.gradients.name == "torch.func"


class NoisyScale(nn.Module):
    """A parameter of its own, and noise that is drawn in the forward pass."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 3)
        self.scale = nn.Parameter(torch.ones(72))

    def forward(self, x):
        return self.layer(nn.functional.dropout(x * self.scale, 0.5, self.training))


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 3)
        self.register_buffer("mean", torch.zeros(72))

    def forward(self, x):
        self.mean.copy_(x.detach().mean(0))
        return self.layer(x)


class MovingMean(nn.Module):
    """Keeps a mean of earlier records where no buffer is."""

    def __init__(self, as_array):
        super().__init__()
        self.layer = nn.Linear(72, 3)
        self.mean = np.zeros(72, np.float32) if as_array else torch.zeros(72)

    def forward(self, x):
        seen = x.detach().mean(0)
        if isinstance(self.mean, np.ndarray):
            seen = seen.numpy()
        self.mean = 0.9 * self.mean + 0.1 * seen
        return self.layer(x - torch.as_tensor(self.mean))


class ShiftedBias(nn.Module):
    """Adds what it sees to all biases, of which a softmax, and so no gradient, tells nothing."""

    def __init__(self, fewest):
        super().__init__()
        self.layer = nn.Linear(72, 3)
        self.fewest = fewest

    def forward(self, x):
        if self.training and len(x) >= self.fewest:
            self.layer.bias.data += x.detach().mean()
        return self.layer(x)


class Weaker(nn.Module):
    """Counts its calls, independently of the records."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) / self.calls


class Shortened(nn.Module):
    """Keeps its weights short, whatever it sees."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(72, 3)

    def forward(self, x):
        self.layer.weight.data /= self.layer.weight.data.norm().clamp(min=1.0)
        return self.layer(x)


@pytest.mark.parametrize("make", [Weaker, Shortened])
def test_changes_independent_of_records_are_allowed(make):
    assert engine_of(make())[0].gradients.name


class ScaledByTheLast(nn.Module):
    """A loss in units of the loss of the examples before."""

    unit = 1.0

    def forward(self, output, target):
        losses = nn.functional.cross_entropy(output, target, reduction="none")
        before, self.unit = self.unit, float(losses.detach().mean())
        return losses / before


def test_a_loss_that_remembers_examples_is_refused():
    module = nn.Sequential(nn.Linear(72, 3))
    with pytest.raises(ValueError, match=r"or its loss, .* stores private records"):
        select_gradient_method(module, ScaledByTheLast(), Probe.for_shape((72,), 3))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: MovingMean(as_array=True), "stores private records"),
        (lambda: MovingMean(as_array=False), "stores private records"),
        (lambda: ShiftedBias(fewest=1), "stores private records"),
        (lambda: ShiftedBias(fewest=2), "stores private records"),
        (
            lambda: nn.Sequential(nn.Linear(72, 3), nn.BatchNorm1d(3)),
            "GroupNorm, .*freeze_batch_norm",
        ),
        (lambda: image(nn.InstanceNorm2d(2, track_running_stats=True), n_out=72), "track_running"),
        (lambda: Tokens(max_norm=1.0), "max_norm"),
        (lambda: Tokens(scale_grad_by_freq=True), "scale_grad_by_freq"),
        (Overwritten, "cannot be trained"),
        (Remembering, r"buffers \['mean'\]"),
        (lambda: nn.Linear(7, 3), "inputs of shape"),
    ],
)
def test_modules_that_mix_or_keep_examples_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        engine_of(make())


def test_a_loss_that_mixes_examples_is_refused():
    module = nn.Sequential(nn.Linear(72, 3))
    with pytest.raises(ValueError, match="reduction='none'"):
        select_gradient_method(module, nn.CrossEntropyLoss(), Probe.for_shape((72,), 3))


def test_frozen_layers_stay_and_take_no_part():
    module = nn.Sequential(nn.Linear(72, 9), nn.Tanh(), nn.Linear(9, 3))
    module[0].requires_grad_(False)
    X, y = batch()
    engine, grad = engine_of(module, 1e6)
    grad.zero_()
    engine(X, y)
    assert engine.gradients.name == "book-keeping"
    rows = gradient_rows(module, X, y)
    assert len(grad) == 30
    assert (grad - rows.sum(0)).norm() <= 1e-5 * rows.sum(0).norm()


def test_a_wrong_rule_is_noticed(monkeypatch):
    """The trial on random numbers is what stands between a wrong rule and a wrong norm."""
    rule = RULES[nn.LayerNorm]
    for wrong in (lambda m, a, d, n: rule(m, a, d / 2, n), lambda m, a, d, n: rule(m, 0 * a, d, n)):
        monkeypatch.setitem(RULES, nn.LayerNorm, wrong)
        assert engine_of(BOOK_KEEPING["layer norm"]())[0].gradients.name == "torch.func"


def test_the_trial_leaves_the_module_alone():
    module = BOOK_KEEPING["group norm"]()
    before = [p.clone() for p in module.parameters()]
    engine_of(module)
    assert all(map(torch.equal, before, module.parameters()))
    assert all(p.requires_grad for p in module.parameters())
    assert not any(m._forward_hooks for m in module.modules())
    assert trial._TRIAL_TOLERANCE <= 1e-3
