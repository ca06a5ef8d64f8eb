"""The gradient of a record is the mean over its random views, clipped after that."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from skprivacy.mechanisms import FloatGaussian
from skprivacy.neural_network import DPSGDClassifier, RandomShift
from skprivacy.neural_network._gradients.clipped_sum import _SAFETY
from skprivacy.neural_network.augmentation import Views

from ._gradients.test_contributions import ALL, FUNCTIONAL, batch, clipped, engine_of, gradient_rows

pytestmark = pytest.mark.filterwarnings("ignore:module=Recurrent:UserWarning")
VIEWS = 3
MODULES = {
    "perceptron": lambda: nn.Sequential(nn.Linear(72, 4), nn.Tanh(), nn.Linear(4, 3)),
    "wide perceptron": lambda: nn.Sequential(nn.Linear(72, 90), nn.ReLU(), nn.Linear(90, 3)),
    **ALL,
}


def views_of(n=5, scale=1.0):
    X, _ = batch(VIEWS * n, scale)
    return X, batch(n)[1]


@pytest.mark.everyday(12)
@pytest.mark.heavy
@pytest.mark.parametrize("clip", [0.05, 1e6])
@pytest.mark.parametrize("name", MODULES)
def test_equals_a_loop_over_examples_and_views(name, clip):
    torch.manual_seed(0)
    module = MODULES[name]()
    X, y = views_of()
    expected = clipped(gradient_rows(module, X, y, VIEWS), clip)
    engine, grad = engine_of(module, clip / _SAFETY, views=VIEWS)
    grad.zero_()
    engine(X, y)
    assert (grad - expected).norm() <= 1e-5 * expected.norm()
    if name != "recurrent":  # newer torch may vectorise it
        assert engine.gradients.name == ("torch.func" if name in FUNCTIONAL else "book-keeping")


@pytest.mark.heavy
@pytest.mark.parametrize("clipping", ["flat", "per-layer", "automatic"])
@pytest.mark.parametrize("name", ["wide perceptron", "conv2d", "group norm", "tied"])
def test_no_example_adds_more_than_the_clipping_norm(name, clipping):
    torch.manual_seed(0)
    engine, grad = engine_of(MODULES[name](), 0.5, clipping, VIEWS)
    longest = 0.0
    for scale in (1.0, 1e6, 1e15):
        X, y = views_of(3, scale)
        for i in range(len(y)):
            grad.zero_()
            engine(X[i * VIEWS : (i + 1) * VIEWS], y[i : i + 1])
            longest = max(longest, grad.double().norm())
    assert 0.1 < longest <= 0.5


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["wide perceptron", "conv2d", "tied"])
def test_one_bad_view_leaves_out_its_record_alone(name):
    torch.manual_seed(0)
    engine, grad = engine_of(MODULES[name](), 0.1, views=VIEWS)
    X, y = views_of()
    X[VIEWS + 1, 5] = float("nan")  # the second view of the second record
    grad.zero_()
    engine(X, y)
    found = grad.clone()
    kept = torch.ones(len(X), dtype=torch.bool)
    kept[VIEWS : 2 * VIEWS] = False
    grad.zero_()
    engine(X[kept], y[torch.arange(len(y)) != 1])
    torch.testing.assert_close(found, grad, rtol=1e-5, atol=1e-7)


def test_shifts_are_all_shifts_and_equally_likely():
    image = torch.zeros(1, 2, 5, 6)
    image[0, :, 2, 3] = torch.tensor([1.0, 2.0])
    shifted = RandomShift((2, 5, 6), pixels=1)(image.reshape(1, -1).repeat(9000, 1))
    shifted = shifted.view(-1, 2, 5, 6)
    assert torch.equal(shifted.sum((2, 3)), torch.tensor([[1.0, 2.0]]).expand(9000, 2))
    assert torch.equal(shifted[:, 1], 2 * shifted[:, 0])  # all channels go together
    counts = shifted[:, 0].sum(0)[1:4, 2:5]
    assert counts.sum() == 9000
    assert counts.min() > 1000 - 6 * 30


def test_pixels_shifted_in_are_zero():
    rows = RandomShift((1, 3, 3), pixels=3)(torch.ones(2000, 9))  # the rarest are 1 in 49
    assert set(rows.unique().tolist()) == {0.0, 1.0}
    assert set(rows.sum(1).tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0}


def test_flips_are_flips_of_half_of_the_rows():
    rows = torch.arange(12.0).repeat(4000, 1)
    flipped = RandomShift((2, 2, 3), pixels=0, flip=True)(rows)
    mirrored = torch.arange(12.0).view(2, 2, 3).flip(-1).flatten()
    changed = (flipped == mirrored).all(1)
    assert torch.equal(flipped[~changed], rows[~changed])
    assert abs(changed.sum() - 2000) < 6 * 32


def test_views_lie_one_after_another():
    views = Views.from_augment(([lambda rows: rows + 1.0, lambda rows: rows * 2.0], 2))
    found = views(torch.tensor([[0.0], [1.0]]))
    assert found.tolist() == [[2.0], [2.0], [4.0], [4.0]]


def noisy(rows):
    """Chance that is torch's, the same for every row."""
    return rows + torch.randn_like(rows)


def centred(rows):
    return rows - rows.mean(0)


def by_numpy(rows):
    return rows + torch.from_numpy(np.random.default_rng().normal(size=rows.shape)).float()


def by_value(rows):
    """Draws as many numbers as there are positive values: the rest of the stream shifts."""
    torch.rand(int((rows > 0).sum()))
    return noisy(rows)


def with_the_next(rows):
    """The first row goes into no other one's view."""
    return 0.5 * (rows + torch.cat([rows[1:], rows[-1:]]))


def with_a_partner(rows):
    return 0.7 * rows + 0.3 * rows[torch.randperm(len(rows))]


class WithTheLastBatch:
    def __init__(self):
        self.before = torch.zeros(0)

    def __call__(self, rows):
        before, self.before = self.before, rows
        return 0.5 * (rows + before) if len(before) == len(rows) else rows


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"augment": (None, 2)}, "must be a function"),
        ({"augment": (noisy, 0)}, "number of views"),
        ({"augment": (noisy, 2.0)}, "number of views"),
        ({"augment": "flip"}, "augment"),
        ({"augment": []}, "must be a function"),
        ({"augment": [noisy, 3]}, "must be a function"),
        ({"augment": lambda rows: rows[:, :3]}, "must keep both"),
        ({"augment": lambda rows: rows.double()}, "must keep both"),
        ({"augment": (lambda rows: rows[::2], 2)}, "must keep both"),
        ({"augment": lambda rows: None}, "must return a tensor"),
        ({"augment": centred}, "mixes records"),
        ({"augment": (lambda rows: rows.flip(0), 2)}, "mixes records"),
        ({"augment": with_the_next}, "mixes records"),
        ({"augment": with_a_partner}, "mixes records"),
        ({"augment": WithTheLastBatch()}, "mixes records|stores private records"),
        ({"augment": by_numpy}, "not torch's"),
        ({"augment": by_value}, "depends on the values"),
        ({"augment": RandomShift((1, 2, 3))}, "shape=.* means 6"),
    ],
)
def test_bad_augmentations_are_refused_before_anything_is_released(params, match, monkeypatch):
    def released(*args):
        raise AssertionError("a release")

    monkeypatch.setattr(FloatGaussian, "release", released)
    X, y = np.ones((20, 4)), np.arange(20) % 2
    with pytest.raises(ValueError, match=match):
        DPSGDClassifier(classes=[0, 1], epochs=1, **params).fit(X, y)


class MovingMean:
    """Subtracts what it has learnt of earlier rows, whoever they belonged to."""

    def __init__(self):
        self.mean = torch.zeros(4)

    def __call__(self, rows):
        views = rows - self.mean
        self.mean = 0.9 * self.mean + 0.1 * rows[-1]
        return views


class Weaker:
    """Stores a number, but nothing about its input."""

    calls = 0

    def __call__(self, rows):
        self.calls += 1
        return rows + torch.rand_like(rows) / self.calls


def test_augmentations_that_store_records_are_refused_and_counters_are_not():
    X = torch.randn(5, 4)
    with pytest.raises(ValueError, match=r"mixes records|stores private records"):
        Views.from_augment((MovingMean(), 2)).check(X)
    Views.from_augment((Weaker(), 2))._views_after(X, X)
    assert torch.equal(
        *[Views.from_augment((Weaker(), 2))._views_after(first, X) for first in (X, -X)]
    )


class Keeping:
    """Shows the rows as they are, and keeps them."""

    kept = None

    def __call__(self, rows):
        self.kept = rows
        return rows


def test_an_augmentation_of_the_callers_keeps_no_record():
    X, y = np.full((20, 4), 0.123456), np.arange(20) % 2
    model = DPSGDClassifier(classes=[0, 1], epochs=1, augment=Keeping()).fit(X, y)
    assert model.augment.kept is None
    assert np.full(4, 0.123456, np.float32).tobytes() not in pickle.dumps(model)


@pytest.mark.heavy
def test_a_batch_of_nobody_has_no_views():
    augment = RandomShift((1, 2, 2), pixels=1, flip=True)
    # 200 steps of one expected record: some 70 are of none.
    X, y = np.ones((100, 4)), np.arange(100) % 2
    model = DPSGDClassifier(classes=[0, 1], epochs=2, batch_size=1, augment=augment).fit(X, y)
    assert model.n_steps_ == 200


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"shape": (28, 28)}, "shape="),
        ({"shape": [1, 28, 28]}, "shape="),
        ({"shape": (1, 0, 28)}, "shape="),
        ({"shape": (1.0, 28, 28)}, "shape="),
        ({"pixels": -1}, "pixels="),
        ({"pixels": 1.5}, "pixels="),
    ],
)
def test_shifts_are_checked(params, named):
    with pytest.raises(ValueError, match=named):
        RandomShift(**{"shape": (1, 2, 2), **params})


@pytest.mark.heavy
def test_views_cost_no_privacy_and_reach_the_module():
    X, y = np.ones((40, 16)), np.arange(40) % 2
    seen = []

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Unflatten(1, (1, 4, 4)), nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)
            )

        def forward(self, x):
            seen.append(len(x))
            return self.layers(x)

    plain = DPSGDClassifier(
        module=Watching, classes=[0, 1], epochs=1, batch_size=40, delta=0.01, random_state=0
    )
    many = clone(plain).set_params(augment=([RandomShift((1, 4, 4), 1)], 4))
    plain.fit(X, y)
    assert seen[-1] == 40
    many.fit(X, y)
    assert seen[-1] == 160
    assert many.privacy_ == plain.privacy_
    assert many.gradients_ == "book-keeping"


@pytest.mark.heavy
def test_parts_of_a_batch_do_not_change_the_sum(monkeypatch):
    from skprivacy.neural_network._gradients import clipped_sum

    X = np.random.default_rng(0).normal(size=(30, 16))
    y = np.arange(30) % 2
    sums = []
    release = FloatGaussian.release

    def watched(self, value, random):
        sums.append(np.array(value))
        return release(self, value, random)

    monkeypatch.setattr(FloatGaussian, "release", watched)
    model = DPSGDClassifier(
        classes=[0, 1], batch_size=30, epochs=1, delta=0.01, random_state=0,
        augment=(lambda rows: rows.abs(), 3),
    )  # fmt: skip
    model.fit(X, y)
    monkeypatch.setattr(clipped_sum, "_SINGLE_ROWS", 7)
    clone(model).fit(X, y)
    np.testing.assert_allclose(sums[0], sums[1], rtol=1e-5, atol=1e-7)
