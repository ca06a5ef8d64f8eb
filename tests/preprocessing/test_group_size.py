"""The private choice of a bound on the records of a group."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.exceptions import BudgetExceededError
from skprivacy.preprocessing import private_group_size

VISITS = pd.Series(np.repeat(np.arange(1000), np.arange(1000) // 50 + 1), name="patient")  # 1 to 20


@pytest.mark.parametrize(("q", "near"), [(0.1, 2), (0.5, 10), (0.9, 18), (1.0, 20)])
def test_about_a_share_of_the_groups_have_no_more(q, near):
    size, privacy = private_group_size(VISITS, max_group_size=50, epsilon=5.0, quantile=q)
    assert isinstance(size, int)
    # another size is wrong by 50 people at least: of odds below exp(-5 * 50 / 2) each
    assert size == near if q < 1 else size >= near
    assert (privacy.epsilon(), privacy.unit) == (pytest.approx(5.0), "patient")


@pytest.mark.slow
def test_the_law_is_that_of_one_number_for_each_group():
    """Against the exponential mechanism of sizes that are counted here; also a group more."""
    few = pd.Series([0, 0, 0, 1, 2, 2], name="patient")
    more = pd.Series([*few, *[3] * 6], name="patient")
    laws = []
    for groups in (few, more):
        sizes = np.minimum(np.bincount(groups), 4)
        scores = np.array([-abs((sizes <= k).sum() - 0.75 * len(sizes)) for k in range(5)])
        law = np.exp(1.2 * scores / (2 * 0.75))
        law[1] += law[0]  # none is as little as one
        laws.append(law[1:] / law.sum())
        n = 4000
        drawn = [
            private_group_size(groups, max_group_size=4, epsilon=1.2, quantile=0.75).value
            for _ in range(n)
        ]
        counts = np.bincount(drawn, minlength=5)[1:]
        # six standard deviations: less than one in 10^8
        assert (abs(counts - n * laws[-1]) < 6 * np.sqrt(n * laws[-1])).all()
    assert abs(np.log(laws[0] / laws[1])).max() <= 1.2


def test_a_group_beyond_the_most_counts_as_of_the_most():
    groups = np.repeat([0, 1], [1, 10_000])
    assert private_group_size(groups, max_group_size=3, epsilon=100.0, quantile=1.0).value == 3


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"max_group_size": 1}, "max_group_size=1"),
        ({"max_group_size": 2.5}, "max_group_size="),
        ({"quantile": 2}, "quantile=2"),
        ({"epsilon": math.inf}, "epsilon="),
        ({"groups": [1, None]}, "groups has missing values"),
        ({"groups": np.zeros((2, 2))}, "groups has shape"),
    ],
)
def test_mistakes_are_reported_before_a_charge(given, match):
    budget = PrivacyBudget(10.0)
    with pytest.raises((ValueError, TypeError), match=match):
        private_group_size(
            **{"groups": VISITS, "max_group_size": 9, "epsilon": 1.0} | given, budget=budget
        )
    assert not len(budget.entries())


def test_it_is_charged_as_of_the_group():
    budget = PrivacyBudget(1.0)
    private_group_size(VISITS, max_group_size=50, epsilon=0.7, budget=budget)
    assert set(budget.entries()["unit"]) == {"patient"}
    with pytest.raises(BudgetExceededError):
        private_group_size(VISITS, max_group_size=50, epsilon=0.7, budget=budget)
