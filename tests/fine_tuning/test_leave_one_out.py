"""Declared sensitivities of heads: worst pairs are searched by optimisation, and none exceeds."""

from __future__ import annotations

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from scipy.optimize import minimize as optimise

from skprivacy._groups import check_groups
from skprivacy.fine_tuning import SoftmaxHead
from skprivacy.fine_tuning import heads as softmax
from skprivacy.fine_tuning.features import FEATURE_NORM, with_constant
from skprivacy.fine_tuning.head import HeadInput, Task
from skprivacy.fine_tuning.heads import GradientHead, LeastSquaresHead, PrototypeHead
from skprivacy.fine_tuning.sensitivity import Sensitivity
from skprivacy.mechanisms import Mechanism, SecureRandom

pytestmark = pytest.mark.heavy

RELATIONS = ["add_remove", "replace_one"]


def task(n_classes=3, size=2, relation="add_remove", **facts):
    given = {"epsilon": 1.0, "delta": 1e-5, "relation": relation, "n_records": 0, **facts}
    return Task(size, n_classes, **given)


def records(rows, labels, n_classes):
    """Rows cut to the unit ball; a label of -1 is that of a record that is not there."""
    rows, labels = np.array(rows, float), np.array(labels)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None] * (1 + 1e-12)
    counts = (labels >= 0).astype(float)
    return HeadInput(rows * counts[:, None], counts, np.maximum(labels, 0), n_classes)


# ---------------------------------------------------------------- softmax

LEANS, TURNS = [0.002, 0.005, 0.01], [0.3, np.pi / 4]


def minima(angles, n_classes, relation="add_remove", n=4000, ridge=2.0):
    """Return the released contrasts with and without a record that all others oppose.

    The others are of class 1 and lean a little to one side: their minimiser is sure of that side,
    and the loss is flat there, since each has a margin of its own near 0.
    """
    lean, turn = angles
    along = np.array([np.cos(turn), np.sin(turn)])
    across = np.array([-along[1], along[0]])
    rows = [np.sin(lean) * along + s * np.cos(lean) * across for s in (1, -1)]
    rows = np.vstack([np.repeat(rows, n // 2, axis=0), along])
    head, facts = SoftmaxHead(ridge), task(n_classes, relation=relation)
    odd = (0, -1) if relation == "add_remove" else (0, 1)
    labels = [np.append(np.ones(n, int), label) for label in odd]
    return head, facts, [head.statistic(facts, records(rows, y, n_classes)) for y in labels]


def reached(angles, n_classes, order, relation="add_remove"):
    head, facts, (found, other) = minima(angles, n_classes, relation)
    moved = head.sensitivity(facts)
    bound = moved.l2 if order == 2 else moved.in_l1(head.length(facts))
    return np.linalg.norm(found - other, order) / bound


def worst(n_classes, order, relation="add_remove"):
    """Return the angles that move the weights most, and how much of the bound that is."""
    grid = np.array(list(itertools.product(LEANS, TURNS)))
    start = max(grid, key=lambda angles: reached(angles, n_classes, order, relation))
    simplex = start + np.array([[0, 0], [0.001, 0], [0, 0.1]])
    found = optimise(
        lambda angles: -reached(angles, n_classes, order, relation), start, method="Nelder-Mead",
        options={"maxfev": 40, "initial_simplex": simplex},
    )  # fmt: skip
    return found.x, -found.fun


@pytest.mark.everyday(1)
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_softmax_weights_near_their_bound(n_classes, order):
    assert (0.95 if order == 2 else 0.75) < worst(n_classes, order)[1] <= 1.0


def test_softmax_weights_of_a_replaced_record():
    """Its own opposite, whose gradient is as large, would be the record that all expect."""
    assert 0.45 < worst(3, 2, "replace_one")[1] <= 1.0


@pytest.mark.everyday(1)
@pytest.mark.parametrize("n_classes", [3, 5])
def test_a_norm_that_is_too_small_is_caught(n_classes, monkeypatch):
    """L2 where L1 is due, and the largest L1 norm of a column where that of the vector is."""
    columns = n_classes - 1
    for wrong in (
        lambda self, size: self.l2,
        lambda self, size: self.l2 * math.sqrt(size / columns),
    ):
        monkeypatch.setattr(Sensitivity, "in_l1", wrong)
        assert worst(n_classes, 1)[1] > 1.0


def test_the_correction_for_an_approximate_minimum_is_due(monkeypatch):
    """Minimisers that stop as far off as they may, on opposite sides, still keep to the bound."""
    angles, tolerance = worst(3, 2)[0], 0.05
    _, _, (found, other) = minima(angles, 3)
    apart = (found - other).reshape(2, 2) @ softmax._contrast_basis(3).T
    apart /= np.linalg.norm(apart)
    exact, sign = softmax.minimize, itertools.cycle([1.0, -1.0])

    def sloppy(loss, allowed):
        minimum = exact(loss, 1e-9) + next(sign) * 0.9 * allowed / loss.ridge * apart
        assert np.linalg.norm(loss.gradient(minimum, loss.probabilities(minimum))) <= allowed
        return minimum

    monkeypatch.setattr(softmax, "TOLERANCE", tolerance)
    monkeypatch.setattr(softmax, "minimize", sloppy)
    assert 0.98 < reached(angles, 3, 2) <= 1.0
    whole = SoftmaxHead.sensitivity
    monkeypatch.setattr(
        SoftmaxHead, "sensitivity",
        lambda self, facts: Sensitivity(whole(self, facts).l2 - 2 * tolerance / self.ridge),
    )  # fmt: skip
    assert reached(angles, 3, 2) > 1.0


# ---------------------------------------------------------------- sums


def moved_by(head, facts, rows, labels):
    """Return the distance of a statistic with one record and with the other, over its bound."""
    if isinstance(head, PrototypeHead):  # the constant that a row has takes no part
        rows = with_constant(np.array(rows, float)[:, :-1])[0]
    values = [
        head.statistic(facts, records([row], [label], facts.n_classes))
        for row, label in zip(rows, labels, strict=True)
    ]
    return np.linalg.norm(values[0] - values[1]) / head.sensitivity(facts).l2


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "head", [PrototypeHead(), LeastSquaresHead()], ids=lambda h: type(h).__name__
)
def test_sums_reach_their_bound(head, relation):
    facts = task(relation=relation, size=3)
    found = []
    for labels in [(0, -1)] if relation == "add_remove" else [(0, 0), (0, 1)]:
        for seed in range(3):
            start = np.random.default_rng(seed).normal(size=6)
            search = optimise(
                lambda x, labels=labels: -moved_by(head, facts, x.reshape(2, 3), labels),
                start, method="Nelder-Mead", options={"maxfev": 1500},
            )  # fmt: skip
            found.append(-search.fun)
    assert 0.999 < max(found) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("head", "wrong"),
    [(PrototypeHead(), FEATURE_NORM), (LeastSquaresHead(), math.sqrt(3.0))],
    ids=lambda v: type(v).__name__,
)
def test_the_bound_of_a_removal_is_too_small_for_a_replacement(head, wrong):
    facts = task(relation="replace_one", size=3)
    with mock.patch.object(type(head), "sensitivity", return_value=Sensitivity(wrong)):
        assert moved_by(head, facts, [[1, 0, 0], [-1, 0, 0]], (0, 0)) > 1.0


# ---------------------------------------------------------------- gradients


def gradients(head, facts, data, outputs):
    """Return what every step gives to its mechanism, when it is answered ``outputs``."""
    inputs = []

    def release(self, value, random):
        inputs.append((self.sensitivity, np.array(value)))
        return outputs[len(inputs) - 1].copy()

    with mock.patch.object(Mechanism, "release", release):
        head.release(facts, data, SecureRandom(0))
    return inputs


def largest_step(head, relation, seed):
    """Answer at random, so that weights are anywhere, and return the largest distance / bound."""
    rng, facts = np.random.default_rng(seed), task(4, 3, relation)
    outputs = rng.normal(size=(head.n_steps, 3, 4)) * 10.0 ** rng.uniform(-2, 3)
    rows, labels = rng.normal(size=(6, 3)) * 10.0 ** rng.uniform(-2, 1), rng.integers(4, size=6)
    other_rows, other_labels = rows.copy(), labels.copy()
    other_rows[-1], other_labels[-1] = -rows[-1], (-1 if relation == "add_remove" else labels[-1])
    steps = [
        gradients(head, facts, records(r, y, 4), outputs)
        for r, y in ((rows, labels), (other_rows, other_labels))
    ]
    return max(np.linalg.norm(a - b) / bound for (bound, a), (_, b) in zip(*steps, strict=True))


@pytest.mark.parametrize("clip", [0.1, 2.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_gradients_stay_within_their_bound(relation, clip):
    found = [
        largest_step(GradientHead(n_steps=4, max_grad_norm=clip), relation, seed)
        for seed in range(60)
    ]
    near = 0.99 if clip < 1 and relation == "add_remove" else 0.5
    assert near < max(found) <= 1.0


def test_gradients_that_are_not_clipped_are_caught(monkeypatch):
    monkeypatch.setattr(
        GradientHead, "_residuals",
        lambda self, data, targets, weights: (0.5 - targets) * data.counts[:, None],
    )  # fmt: skip
    assert max(largest_step(GradientHead(n_steps=2), "add_remove", seed) for seed in range(9)) > 1.0


# ---------------------------------------------------------------- people


@pytest.mark.parametrize("head", [PrototypeHead(), LeastSquaresHead()])
@pytest.mark.parametrize("relation", RELATIONS)
def test_people_move_sums_by_no_more_than_a_record(head, relation):
    """Any two people of 1 to 5 records; each record counts by its share."""
    rng = np.random.default_rng(0)
    this, moved = task(relation=relation, size=3), []
    for _ in range(400):
        statistics = []
        for size in rng.integers(1, 6, size=2):
            rows = rng.choice([-1.0, 0.0, 1.0], size=(size, 2)) + rng.normal(size=(size, 2)) / 9
            rows = with_constant(rows)[0]
            shares = check_groups(np.zeros(size), rows).exact_shares()
            of_person = HeadInput(rows, shares, rng.integers(3, size=size), 3)
            assert (of_person.roots**2).sum() <= 1
            assert (np.linalg.norm(of_person.weighted, axis=1) <= of_person.roots).all()
            statistics.append(head.statistic(this, of_person))
        other = statistics[1] if relation == "replace_one" else 0.0
        moved.append(np.linalg.norm(statistics[0] - other))
    sensitivity = head.sensitivity(this).l2
    assert 0.6 * sensitivity < max(moved) <= sensitivity


def test_people_move_a_minimiser_by_no_more_than_a_record():
    """Any person of 1 to 5 records, beside a few others."""
    rng = np.random.default_rng(1)
    head, this = SoftmaxHead(ridge=0.5), task(size=3)
    others = with_constant(rng.normal(size=(3, 2)))[0]
    moved = []
    for _ in range(60):
        size = rng.integers(1, 6)
        own = with_constant(np.repeat(rng.normal(size=(1, 2)), size, axis=0))[0]
        labels = np.append(rng.integers(3, size=3), np.repeat(rng.integers(3), size))
        rows, codes = np.vstack([others, own]), np.append([0, 1, 1], [2] * size)
        shares = check_groups(codes, rows).exact_shares()
        gone = np.where(codes == 2, 0.0, shares)
        pair = [
            head.statistic(this, HeadInput(rows * (count > 0)[:, None], count, labels, 3))
            for count in (shares, gone)
        ]
        moved.append(np.linalg.norm(pair[0] - pair[1]))
    sensitivity = head.sensitivity(this).l2
    assert 0.3 * sensitivity < max(moved) <= sensitivity
