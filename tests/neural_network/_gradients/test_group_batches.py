"""Contribution of a group to a step: its gradients are joined, then clipped once, in any module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from skprivacy._groups import Groups
from skprivacy.neural_network._gradients import contributions
from skprivacy.neural_network._gradients.clipped_sum import _SAFETY, BatchSum, ClippedGradientSum
from skprivacy.neural_network._gradients.contributions import (
    DenseGradients,
    Lookups,
    OuterProduct,
    OuterProducts,
)
from skprivacy.neural_network._gradients.group_batches import GroupedExamples, GroupRows, PerGroup
from skprivacy.neural_network._gradients.trial import Probe
from skprivacy.neural_network._training.engine import flatten_parameters

from ..test_augmentation import MODULES, VIEWS
from .test_contributions import LOSS, batch, clipped, engine_of, gradient_rows

pytestmark = pytest.mark.filterwarnings("ignore:module=Recurrent:UserWarning")
CPU = torch.device("cpu")
SIZES = np.array([1, 1, 2, 2, 2, 3, 5, 6, 11])
MEAN = pytest.mark.parametrize("mean", [True, False], ids=["mean", "sum"])


def gradients_of_people(rows, sizes, mean):
    return torch.stack([r.mean(0) if mean else r.sum(0) for r in rows.split(sizes.tolist())])


@pytest.mark.everyday(10)
@pytest.mark.heavy
@MEAN
@pytest.mark.parametrize("clip", [0.05, 1e6])
@pytest.mark.parametrize("name", MODULES)
def test_equals_a_loop_over_people(name, clip, mean):
    torch.manual_seed(0)
    module = MODULES[name]()
    X, y = batch(int(SIZES.sum()))
    rows = gradients_of_people(gradient_rows(module, X, y), SIZES, mean)
    expected = clipped(rows, clip)
    engine, grad = engine_of(module, clip / _SAFETY)
    grad.zero_()
    engine(X, y, GroupedExamples(SIZES, mean, CPU))
    # Norms are bounds, as tight as single precision is: what comes to nothing may be clipped more.
    assert (grad - expected).norm() <= 3e-4 * expected.norm()


@pytest.mark.parametrize("name", ["wide perceptron", "conv2d", "embedding", "tied"])
def test_views_of_records_of_people(name):
    torch.manual_seed(0)
    module = MODULES[name]()
    sizes = np.array([1, 2, 5])
    X, y = batch(VIEWS * 8)[0], batch(8)[1]
    rows = gradients_of_people(gradient_rows(module, X, y, VIEWS), sizes, True)
    expected = clipped(rows, 0.05)
    engine, grad = engine_of(module, 0.05 / _SAFETY, views=VIEWS)
    grad.zero_()
    engine(X, y, GroupedExamples(sizes, True, CPU))
    assert (grad - expected).norm() <= 3e-4 * expected.norm()


@pytest.mark.heavy
@MEAN
@pytest.mark.parametrize("clipping", ["flat", "per-layer", "automatic"])
@pytest.mark.parametrize("name", ["wide perceptron", "conv2d", "group norm", "tied", "embedding"])
def test_no_person_adds_more_than_the_clipping_norm(name, clipping, mean):
    torch.manual_seed(0)
    engine, grad = engine_of(MODULES[name](), 0.5, clipping)
    longest = 0.0
    for scale in (1.0, 1e6, 1e15):
        for size in (2, 3, 7, 40):
            X, y = batch(size, scale)
            for alike in (False, True):
                rows = X[:1].expand_as(X) if alike else X
                grad.zero_()
                engine(
                    rows,
                    y[:1].expand_as(y) if alike else y,
                    GroupedExamples(np.array([size]), mean, CPU),
                )
                longest = max(longest, grad.double().norm())
    assert 0.1 < longest <= 0.5


@pytest.mark.parametrize("terms", [2, 3, 5, 7, 16, 40, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_norms_of_sums_that_nearly_cancel_are_never_too_small(terms, bias):
    """Rows of alternating sign, a little apart: single precision loses what remains of them."""
    generator = torch.Generator().manual_seed(terms)
    for apart in (1.0, 1e-2, 1e-4, 0.0):
        weight, shift = torch.zeros(30, 50), torch.zeros(30) if bias else None
        a = torch.randn(1, 50, generator=generator).expand(4 * terms, -1).contiguous()
        d = torch.randn(1, 30, generator=generator).expand(4 * terms, -1).contiguous()
        d = d * (-1.0) ** torch.arange(4 * terms)[:, None]
        a = a + apart * torch.randn(a.shape, generator=generator)
        d = d + apart * torch.randn(d.shape, generator=generator)
        rows = (d[:, :, None].double() * a[:, None, :].double()).flatten(1)
        if bias:
            rows = torch.cat([rows, d.double()], 1)
        true = rows.unflatten(0, (4, terms)).sum(1).norm(dim=1)
        lengths = rows.norm(dim=1).unflatten(0, (4, terms)).sum(1)
        shares = GroupedExamples(np.full(4, terms), False, CPU)
        forms = [OuterProduct(weight, shift, a, d)]
        if not bias:
            forms.append(DenseGradients(weight, (d[:, :, None] * a[:, None, :])))
        if terms % 2 == 0:  # two positions an example
            halves = GroupedExamples(np.full(4, terms // 2), False, CPU)
            pairs = [t.unflatten(0, (-1, 2)) for t in (a, d)]
            forms.append((OuterProducts(weight, shift, *pairs), halves))
        for form in forms:
            form, whose = form if isinstance(form, tuple) else (form, shares)
            found = whose.squared_norms(form.joint_norms(whose)).double().sqrt()
            assert (found >= true * (1 - 5e-5)).all()
            assert (found <= true * (1 + 1e-4) + 0.02 * lengths).all()


def test_lookups_of_people_with_many_rows_are_counted_by_row(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(9, (33, 4), generator=generator)
    table = torch.zeros(9, 5)
    lookups = Lookups(table, index, torch.randn(33, 4, 5, generator=generator))
    shares = GroupedExamples(SIZES, True, CPU)
    expected = shares.squared_norms(lookups.joint_norms(shares))
    monkeypatch.setattr(contributions, "_MAX_POSITIONS", 1)
    torch.testing.assert_close(
        shares.squared_norms(lookups.joint_norms(shares)), expected, rtol=1e-5, atol=1e-7
    )


def misleading(n, terms):
    """Return rows whose small squares vanish beside a large one, or count double, as they come."""
    small = 2.0**-12 * torch.tensor([0.98, 1.03]).sqrt()  # half of what 1 can be told from
    rows = torch.zeros(terms, n)
    rows[0], rows[1] = small[0], (small[0] if terms == 2 else small[1])
    rows[:2, :8] = 1.0
    return rows


@pytest.mark.parametrize("terms", [2, 3, 4])
@pytest.mark.parametrize("n", [256, 1500, 4096])
def test_norms_of_sums_are_never_too_small_whatever_the_rows(n, terms):
    """Rounding errors that all point one way, which random rows do not show."""
    a, d = misleading(n, terms), torch.zeros(terms, 1)
    for remains in (0.0, 1e-3, 3e-3, 1e-2):
        d[0], d[1] = 1.0, remains - 1.0
        true = (d.double().T @ a.double()).norm()
        shares = GroupedExamples(np.array([terms]), False, CPU)
        form = OuterProduct(torch.zeros(1, n), None, a, d)
        norms = shares.squared_norms(form.joint_norms(shares))
        assert norms > 0
        assert norms.double().sqrt() >= true * (1 - 5e-5)


def cancelling(size, shape, generator):
    """Return rows that come to a three-hundredth of their lengths."""
    positions, n = shape
    terms = size * positions
    a = torch.randn(1, n, generator=generator).expand(terms, -1).contiguous()
    d = torch.randn(1, n, generator=generator).expand(terms, -1).contiguous()
    d = d * (-1.0) ** torch.arange(terms)[:, None]
    if terms % 2:
        d[-1] = 0.0
    d[0] *= 1.0 + terms / 300
    return a.view(size, positions, n), d.view(size, positions, n)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-17])
@pytest.mark.parametrize(
    ("sizes", "positions"),
    [
        *((sizes, 1) for sizes in [(1, 2), (2, 3), (5, 6), (13, 16), (17, 24), (33, 48)]),
        *((sizes, 4) for sizes in [(1, 2), (2, 3), (5, 6), (13, 16)]),
    ],
)
def test_the_contribution_of_a_group_does_not_depend_on_other_groups(sizes, positions, scale, bias):
    """Neither on how many rows others have: all who have about as many are computed together."""
    generator, n = torch.Generator().manual_seed(0), 34
    both = [cancelling(size, (positions, n), generator) for size in sizes]
    weight, shift = torch.zeros(n, n), torch.zeros(n) if bias else None

    def norm_of_first(people):
        a, d = (torch.cat(parts) for parts in zip(*people, strict=True))
        a, d = a * scale, d / scale
        form = OuterProducts(weight, shift, a, d)
        if positions == 1:
            form = OuterProduct(weight, shift, a[:, 0], d[:, 0])
        own = np.array([len(rows) for rows, _ in people])
        if own[-1] == 1:
            return form.squared_norms()[0]
        shares = GroupedExamples(own, False, CPU)
        return shares.squared_norms(form.joint_norms(shares))[0]

    alone, together = norm_of_first(both[:1]), norm_of_first(both)
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=0.0)


@pytest.mark.parametrize("size", [2, 3])
def test_rows_that_are_made_to_mislead_spoil_no_sum(size):
    module = nn.Sequential(nn.Linear(4096, 2))
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    _, grad = flatten_parameters(module)
    engine = ClippedGradientSum(module, LOSS, 1.0, probe=Probe.for_shape((4096,), 2))
    X = misleading(4096, size)
    y = torch.arange(size) % 2
    engine(X, y, GroupedExamples(np.array([size]), True, CPU))
    assert grad.norm() <= 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["perceptron", "wide perceptron", "conv2d", "tied"])
def test_a_bad_row_is_left_out_and_nothing_else(name, value):
    """Its person's other rows count, and so do all other people."""
    torch.manual_seed(0)
    engine, grad = engine_of(MODULES[name](), 0.1)
    X, y = batch(int(SIZES.sum()))
    X[7, 5] = value  # of a person with two, who keeps the other
    shares = GroupedExamples(SIZES, False, CPU)
    grad.zero_()
    engine(X, y, shares)
    found = grad.clone()
    # The last person with two rows is now one with one, and takes her place among those.
    rows = torch.cat([torch.arange(2), torch.tensor([6]), torch.arange(2, 6), torch.arange(8, 33)])
    grad.zero_()
    engine(X[rows], y[rows], GroupedExamples(np.array([1, 1, 1, 2, 2, 3, 5, 6, 11]), False, CPU))
    assert torch.isfinite(found).all()
    assert (found - grad).norm() <= 1e-5 * grad.norm()


def test_a_person_whose_rows_are_finite_and_whose_sum_is_not_is_left_out():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(72, 3))
    engine, grad = engine_of(module, 0.1)
    X, y = batch(5)
    X[1:3] = 2e18  # each squared norm is just finite
    y[1:3] = 0
    grad.zero_()
    engine(X, y, GroupedExamples(np.array([1, 2, 2]), False, CPU))
    found = grad.clone()
    grad.zero_()
    others = torch.tensor([0, 3, 4])
    engine(X[others], y[others], GroupedExamples(np.array([1, 2]), False, CPU))
    assert (found - grad).norm() <= 1e-6 * grad.norm()


def people(sizes, most=None, contribution="mean"):
    codes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    codes = np.unique(codes, return_inverse=True)[1]
    groups = Groups(codes, len(sizes), "person")
    return codes, GroupRows(groups, np.arange(len(codes)), PerGroup("person", most, contribution))


@pytest.mark.parametrize("n_rows", [1, 4, 10, 1000])
def test_all_rows_of_a_person_are_in_one_part(n_rows):
    codes, found = people(SIZES)
    drawn = np.array([0, 3, 4, 7, 8])
    met = []
    for rows, shares in found.iterate_parts(drawn, n_rows, CPU):
        whose = codes[rows.numpy()]
        of_people = np.unique(whose)
        met += of_people.tolist()
        assert len(rows) <= n_rows or len(of_people) == 1
        assert all((whose == person).sum() == (codes == person).sum() for person in of_people)
        changes = np.flatnonzero(np.diff(whose)) + 1  # each person's rows stand together
        assert len(changes) == len(of_people) - 1
        if shares is not None:
            owners = shares.by_example(torch.arange(len(of_people))).numpy()
            assert np.array_equal(np.flatnonzero(np.diff(owners)) + 1, changes)
        else:
            assert len(of_people) == len(rows)
    assert sorted(met) == drawn.tolist()  # each once


@pytest.mark.parametrize("most", [None, 11])
@pytest.mark.parametrize("expected", [4.0, 1500.0])
def test_it_does_not_matter_how_a_batch_of_people_is_cut(monkeypatch, expected, most):
    torch.manual_seed(0)
    codes, found = people(SIZES, most)
    X, y = batch(len(codes))
    module = MODULES["wide perceptron"]()
    engine, grad = engine_of(module, 0.1)
    whole = BatchSum(engine, grad, expected)
    sums = []
    for rows in (1, 5, 1000):
        monkeypatch.setattr(whole, "_rows_at_once", lambda _, rows=rows: rows)
        sums.append(whole(X, y, torch.arange(len(SIZES)), found).double().clone())
        assert whole(X, y, torch.arange(0), found).norm() == 0
    for other in sums[1:]:
        assert (other - sums[0]).norm() <= 1e-5 * sums[0].norm()
