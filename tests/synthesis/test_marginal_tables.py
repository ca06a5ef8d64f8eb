"""Sensitivities: how far one unit moves what mechanisms are given, by brute force."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from skprivacy._groups import check_groups
from skprivacy.accounting import ComposedEvent, PrivacyGuarantee
from skprivacy.mechanisms import Exponential, Gaussian
from skprivacy.synthesis.marginal_tables import MeasurementPlan, l1_distance, noise_std
from skprivacy.synthesis.scanned_tables import count_cells

SIZES = [2, 3, 2]
CELLS = list(product(*map(range, SIZES)))  # every record there is
PAIRS = [(0, 1), (1, 2), (0, 2)]
RELATIONS = ["add_remove", "zero_out", "replace_one"]


def vector(codes, cliques, shares=None):
    """All tables of some columns, one after the other."""
    return np.concatenate([count_cells(codes, c, [SIZES[i] for i in c], shares) for c in cliques])


def neighbours(relation, rng):
    """Yield every neighbour of a random table."""
    others = np.array([CELLS[i] for i in rng.integers(len(CELLS), size=6)])
    for cell in CELLS:
        with_one = np.vstack([others, cell])
        if relation != "replace_one":
            yield with_one, others
            continue
        for other in CELLS:
            yield with_one, np.vstack([others, other])


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_moves_tables_of_overlapping_columns_by_the_sensitivity(relation, at_once):
    plan = MeasurementPlan(len(PAIRS), len(PAIRS), at_once, relation)
    together = PAIRS if at_once else PAIRS[:1]
    moved = [
        np.linalg.norm(vector(a, columns) - vector(b, columns))
        for columns, _ in ((PAIRS, 0), (together, 1))
        for a, b in neighbours(relation, np.random.default_rng(0))
    ]
    half = len(moved) // 2
    assert math.isclose(max(moved[:half]), plan.fine_mechanism.sensitivity)
    assert math.isclose(max(moved[half:]), plan.marginal_mechanism.sensitivity)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_record_moves_a_score_by_the_sensitivity(relation):
    rng = np.random.default_rng(1)
    moved = []
    for _ in range(20):
        expected = rng.uniform(0, 3, size=6)
        for pair in neighbours(relation, rng):
            one, other = (l1_distance(vector(codes, PAIRS[:1]), expected) for codes in pair)
            moved.append(abs(one - other))
    sensitivity = MeasurementPlan(3, 3, True, relation).choice_mechanism.sensitivity
    assert 0.99 * sensitivity < max(moved) <= sensitivity


def test_scores_of_huge_tables_are_exact():
    """Rounding must not move a score by more than the record: not even with 2**31 records."""
    rng = np.random.default_rng(2)
    table = np.floor(rng.uniform(0, 2**31 / 5000, size=5000))
    expected = rng.uniform(0, 2**31 / 5000, size=5000)
    for cell in range(0, 5000, 500):
        more = table.copy()
        more[cell] += 1
        assert abs(l1_distance(more, expected) - l1_distance(table, expected)) <= 1.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_records_of_a_group_move_as_much_as_one_record(relation):
    """Any two groups of up to four records; each counts by its share of the group."""
    rng = np.random.default_rng(3)
    plan = MeasurementPlan(len(PAIRS), len(PAIRS), True, relation)
    most = np.zeros(2)
    for _ in range(500):
        parts = []
        for size in rng.integers(1, 5, size=2):
            codes = np.array([CELLS[i] for i in rng.integers(len(CELLS), size=size)])
            parts.append(vector(codes, PAIRS, check_groups(np.zeros(size), codes).exact_shares()))
        change = parts[0] - (parts[1] if relation == "replace_one" else 0.0)
        most = np.maximum(most, [np.linalg.norm(change), np.abs(change[:6]).sum()])
    assert (
        0.9 * plan.fine_mechanism.sensitivity
        < most[0]
        <= plan.fine_mechanism.sensitivity * (1 + 1e-12)
    )
    assert 0.9 * plan.choice_mechanism.sensitivity < most[1] <= plan.choice_mechanism.sensitivity


@pytest.mark.parametrize(("n_choices", "at_once"), [(0, True), (3, True), (7, False)])
def test_a_plan_states_what_its_mechanisms_release(n_choices, at_once):
    plan = MeasurementPlan(4, n_choices, at_once, "add_remove").calibrated(2.0, 1e-5)
    releases = 1 if at_once else n_choices
    events = [plan.fine_mechanism.event]
    if n_choices:
        events += [plan.choice_mechanism.event] * n_choices + [
            plan.marginal_mechanism.event
        ] * releases
    spent = PrivacyGuarantee(ComposedEvent(tuple(events)), at_delta=1e-5)
    assert 1.99 < spent.epsilon() <= 2.0 * (1 + 1e-6)
    stated = PrivacyGuarantee(plan.event, at_delta=1e-5)
    assert math.isclose(stated.epsilon(), spent.epsilon(), rel_tol=1e-6)


def test_choices_cost_a_twentieth_and_fine_tables_a_third():
    plan = MeasurementPlan(5, 4, False, "add_remove", noise=3.0)
    rho = {
        "fine": 1 / (2 * plan.fine_mechanism.noise_multiplier**2),
        "choices": plan.n_choices * plan.choice_mechanism.epsilon**2 / 8,
        "chosen": plan.n_choices / (2 * plan.marginal_mechanism.noise_multiplier**2),
    }
    total = 1 / (2 * plan.noise**2)
    shares = SimpleNamespace(**{name: cost / total for name, cost in rho.items()})
    assert math.isclose(shares.fine, 0.35)
    assert math.isclose(shares.choices, 0.05)
    assert math.isclose(shares.chosen, 0.60)
    assert isinstance(plan.fine_mechanism, Gaussian)
    assert isinstance(plan.choice_mechanism, Exponential)
    assert noise_std(plan.fine_mechanism) == plan.fine_mechanism.noise_multiplier * math.sqrt(5)
