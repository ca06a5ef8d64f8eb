"""Sensitivities of tables and scores by brute force, and the cost of a plan."""

import math
from itertools import product

import numpy as np
import pytest

from skprivacy.accounting import ComposedEvent, epsilon_of
from skprivacy.additive_model.gradient_plan import GradientPlan, RegressionPlan
from skprivacy.additive_model.losses import LogisticLoss, SoftmaxLoss, SquaredLoss
from skprivacy.additive_model.regression import LastStep
from skprivacy.additive_model.rounds import _measure_size, _score
from skprivacy.additive_model.row_plan import sum_rows, weighted_rows

SIZES = [2, 3]
RELATIONS = ["add_remove", "zero_out", "replace_one"]
LOSSES = {
    "logistic": (LogisticLoss(), [0, 1], [-30.0, 0.7, 30.0]),
    "softmax": (SoftmaxLoss(3), [0, 1, 2], [-30.0, 30.0]),
    "squared": (SquaredLoss(0.5**2 / 4), [-1.0, 0.0, 1.0], [-1.0, 0.2, 1.0]),
}
N = 6
REGRESSION = {relation: RegressionPlan(len(SIZES), 2, False, relation) for relation in RELATIONS}


def neighbors(relation, name):
    """Yield pairs of data sets as (records, scores, targets): one has another or no last record."""
    loss, targets, levels = LOSSES[name]
    rng = np.random.default_rng(0)
    scores = [np.eye(loss.n_outputs)[0] * level for level in levels]
    units = [
        (np.array(cell), score, target)
        for cell in product(*map(range, SIZES))
        for score in scores
        for target in targets
    ]
    kind = float if name == "squared" else int
    others = [units[i] for i in rng.integers(len(units), size=N)]

    def collect(rows):
        codes, score, target = (np.array(part) for part in zip(*rows, strict=True))
        return codes, score, target.astype(kind)

    for unit in units:
        if relation == "replace_one":
            for other in units:
                yield collect([*others, unit]), collect([*others, other])
        else:
            yield collect([*others, unit]), collect(others)


def start_tables(loss, codes, scores, target):
    rows = weighted_rows(loss.start_row(target), None)
    return sum_rows(rows, codes, [(0,), (1,)], [(size,) for size in SIZES])


def measured_table(loss, codes, scores, target):
    rows = weighted_rows(loss.derivative_row(scores, target), None)
    sums = sum_rows(rows, codes, [(0, 1)], [tuple(SIZES)])
    return np.moveaxis(sums.reshape(-1, *SIZES), 0, -1)


def score_of(loss, codes, scores, target):
    return _score(
        _measure_size(measured_table(loss, codes, scores, target)[..., : loss.n_outputs]), 0.4
    )


def plan_of(relation):
    return GradientPlan(len(SIZES), 2, False, relation)


def totals(loss, codes, scores, target):
    return sum_rows(weighted_rows(loss.total_row(target), None), codes, [()], [()])


def last_sums(loss, codes, scores, target):
    rows = LastStep(loss, np.full(1, 0.1), N, 0.4).rows(scores, target)
    return sum_rows(weighted_rows(rows, None), codes, [()], [()])


# What a release is given; its plan and mechanism; squares of the sensitivity if a record is added,
# and if it is replaced; the losses; and the share of the sensitivity that some neighbours reach.
MOVED = {
    "start tables": (start_tables, plan_of, "fine_mechanism", (2, 4), LOSSES, 0.98),
    "a measured table": (measured_table, plan_of, "marginal_mechanism", (1, 4), LOSSES, 0.85),
    # With other records in all cells, gradients can cancel: no replacement moves a sum by 2.
    "a score": (score_of, plan_of, "choice_mechanism", (1, 4), LOSSES, 0.4),
    # No two rows of totals are orthogonal.
    "totals": (totals, REGRESSION.get, "total_mechanism", (1, 2), ["squared"], 0.8),
    # Targets and clipped scores are within 1, so that few pairs of rows are opposite.
    "the last sums": (last_sums, REGRESSION.get, "last_mechanism", (1, 4), ["squared"], 0.6),
}
MOVES = [(what, name) for what, row in MOVED.items() for name in row[4]]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("what", "name"), MOVES)
def test_a_record_moves_a_release_by_the_sensitivity(what, name, relation):
    release, plan, mechanism, squares, _, reached = MOVED[what]
    moved = [
        np.linalg.norm(np.asarray(release(LOSSES[name][0], *a) - release(LOSSES[name][0], *b)))
        for a, b in neighbors(relation, name)
    ]
    sensitivity = getattr(plan(relation), mechanism).sensitivity
    most = math.sqrt(squares[relation == "replace_one"])
    assert most <= sensitivity <= most * (1 + 1e-4)  # that of scores covers their rounding
    assert reached * sensitivity < max(moved) <= sensitivity * (1 + 1e-12)


def test_the_slope_of_a_score_is_one_at_most():
    sums = np.linspace(0, 60, 60_001)
    for noise in (1e-6, 0.3, 1.0, 7.0):
        scores = np.array([_score(s, noise) for s in sums])
        slopes = np.diff(scores) / np.diff(sums)
        assert (slopes <= 1 + 1e-9).all()
        assert noise == 1e-6 or noise == 7.0 or slopes.max() > 0.99


@pytest.mark.parametrize("kind", [GradientPlan, RegressionPlan])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_a_plan_costs_its_epsilon(kind, relation, epsilon):
    plan = kind(5, 4, False, relation).calibrated(epsilon, 1e-5)
    released = [plan.fine_mechanism.event]
    released += [plan.choice_mechanism.event, plan.marginal_mechanism.event] * 4
    if kind is RegressionPlan:
        released += [plan.total_mechanism.event, plan.last_mechanism.event]
    spent = epsilon_of(ComposedEvent(tuple(released)), 1e-5, relation)
    assert 0.98 * epsilon < spent <= epsilon * (1 + 2e-3)
