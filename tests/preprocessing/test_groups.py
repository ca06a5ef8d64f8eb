"""Private statistics of people with several records: sensitivities by brute force, and meaning."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pandas as pd
import pytest

from skprivacy._groups import Groups
from skprivacy.accounting import PrivacyBudget
from skprivacy.exceptions import PrivacyWarning
from skprivacy.mechanisms import Exponential, Laplace, Mechanism
from skprivacy.preprocessing import (
    PrivateStandardScaler,
    private_count,
    private_histogram,
    private_mean,
    private_quantile,
    private_sum,
    private_variance,
)

RELATIONS = ["add_remove", "zero_out", "replace_one"]
VALUES = [-2.0, 5.0, 1.5, 0.3, 1e9, -np.inf, np.nan]
BOUNDS = {"bounds": (-2.0, 5.0)}


def scaler(X, *, groups=None, **params):
    return PrivateStandardScaler(**params).fit(pd.Series(X).to_frame("x"), groups=groups)


STATISTICS = {
    "count": lambda x, **given: private_count(pd.Series(x) > 0, **given),
    "histogram": lambda x, **given: private_histogram(x, bins=[-2, 0, 1, 5], **given),
    "categories": lambda x, **given: private_histogram(x, categories=[5.0, 0.3, -2.0], **given),
    "mean": lambda x, **given: private_mean(x, **BOUNDS, **given),
    "sum": lambda x, **given: private_sum(x, **BOUNDS, **given),
    "variance": lambda x, **given: private_variance(x, **BOUNDS, **given),
    "median": lambda x, **given: private_quantile(x, 0.5, **BOUNDS, n_candidates=9, **given),
    "quantile": lambda x, **given: private_quantile(x, 0.9, **BOUNDS, n_candidates=9, **given),
    "scaler": lambda x, **given: scaler(x, **BOUNDS, **given),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_groups_in_another_order_than_the_rows_are_refused(name):
    x = pd.Series([1.0, 0.0, 1.0]).iloc[::-1]
    with pytest.raises(ValueError, match="index of X in another order"):
        STATISTICS[name](x, epsilon=1.0, groups=pd.Series([3, 4, 4]))


def given_to(name, x, groups, **params):
    """Return the mechanism of a statistic, and its input."""
    caught = []

    def release(self, value, random):
        caught.append((self, np.array(value, float)))
        return 0 if isinstance(self, Exponential) else np.array(value, float)

    with mock.patch.object(Mechanism, "release", release):
        STATISTICS[name](x, epsilon=1.0, groups=groups, **params)
    [found] = caught
    return found


def people():
    """Yield the numbers of people of 1 to 7 records: alike, opposite, missing, any."""
    rng = np.random.default_rng(0)
    for value in VALUES:
        for m in (1, 2, 7):
            yield [value] * m
    for m in (2, 3, 5):
        for _ in range(10):
            yield list(rng.choice(VALUES, m))


def furthest(name, relation, **params):
    """Return how far somebody moves a statistic, in units of its sensitivity."""
    rest, found = [0.2, -1.0, 0.4], []
    for own in people():
        x = [*rest[:2], *own, rest[2]]
        groups = ["a", "b", *["own"] * len(own), "a"]
        if relation == "zero_out":  # all are there, and hold nothing
            null = [*rest[:2], *[np.nan] * len(own), rest[2]]
            found.append((given_to(name, x, groups, relation=relation, **params),
                          given_to(name, null, groups, relation=relation, **params)))  # fmt: skip
        else:
            found.append((given_to(name, x, groups, relation=relation, **params), None))
    mechanism, values = found[0][0][0], [a[1] for a, _ in found]
    if relation == "zero_out":
        gaps = [a[1] - b[1] for a, b in found]
    elif relation == "replace_one":
        gaps = [a - b for a in values for b in values]
    else:
        without = given_to(name, rest, ["a", "b", "a"], relation=relation, **params)[1]
        gaps = [a - without for a in values]
    order = np.inf if isinstance(mechanism, Exponential) else 1
    order = order if isinstance(mechanism, (Laplace, Exponential)) else 2
    return max(np.linalg.norm(np.atleast_1d(g), order) for g in gaps) / mechanism.sensitivity


NOISY = [
    (n, d) for n in STATISTICS for d in (0.0, 1e-3) if d == 0 or n not in ("median", "quantile")
]


@pytest.mark.heavy
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("name", "delta"), NOISY)
def test_nobody_moves_a_statistic_by_more_than_its_sensitivity(name, delta, relation):
    params = {"delta": delta} if delta else {}
    if relation == "zero_out" and name in ("sum", "variance", "scaler"):
        pytest.skip("a missing number counts as the middle of the bounds, not as nothing")
    reached = furthest(name, relation, **params)
    assert 0.6 < reached <= 1.0 + 1e-12


@pytest.mark.parametrize("name", STATISTICS)
def test_people_of_whom_every_record_counts_are_caught(name):
    every = mock.patch.object(Groups, "exact_shares_of", staticmethod(np.ones_like))
    with every:
        assert furthest(name, "add_remove") > 1.5


@pytest.mark.parametrize("name", STATISTICS)
def test_everybody_with_one_record_is_a_record(name):
    x = np.random.default_rng(1).uniform(-3, 6, 50)
    one, other = given_to(name, x, None), given_to(name, x, np.arange(50)[::-1])
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1], other[1])
    with pytest.warns(PrivacyWarning):
        seeded = [
            STATISTICS[name](x, epsilon=1.0, noise_seed=3, groups=g) for g in (None, np.arange(50))
        ]
    values = [s.mean_ if name == "scaler" else s.value for s in seeded]
    np.testing.assert_array_equal(values[0], values[1])


def test_everybody_counts_as_much_as_anybody_else():
    """Ada with eight visits and Bea with one: the mean of their means, and their number."""
    x, groups = [4.0] * 8 + [0.0], ["Ada"] * 8 + ["Bea"]
    for relation in ("zero_out", "replace_one", "add_remove"):
        mean = private_mean(x, **BOUNDS, epsilon=1e6, relation=relation, groups=groups)
        assert mean.value == pytest.approx(2.0, abs=1e-3)
        total = private_sum(x, **BOUNDS, epsilon=1e6, relation=relation, groups=groups)
        assert total.value == pytest.approx(4.0, abs=1e-3)
        variance = private_variance(x, **BOUNDS, epsilon=1e6, relation=relation, groups=groups)
        assert variance.value == pytest.approx(4.0, abs=1e-2)
        fitted = PrivateStandardScaler(epsilon=1e6, **BOUNDS, relation=relation)
        fitted.fit(np.reshape(x, (-1, 1)), groups=groups)
        assert fitted.mean_[0] == pytest.approx(2.0, abs=1e-3)
    many = private_histogram(x, bins=[-2, 2, 5], epsilon=1e6, groups=groups).value
    np.testing.assert_allclose(many, [1, 1], atol=1e-3)
    assert private_count(np.array(x) > 2, epsilon=1e6, groups=groups).value == pytest.approx(
        1, abs=1e-3
    )
    low = private_quantile(
        [*x, 0.1, 0.2], 0.5, **BOUNDS, epsilon=1e6, groups=[*groups, "Cy", "Dan"]
    )
    assert 0.1 < low.value <= 0.21  # of all eleven records it is 4


def test_the_unit_is_said_and_charged():
    budget = PrivacyBudget(100.0, 0.1)
    groups = pd.Series(["Ada", "Ada", "Bea"], name="patient")
    for name, statistic in STATISTICS.items():
        found = statistic([1.0, 2.0, 3.0], epsilon=1.0, groups=groups, budget=budget)
        privacy = found.privacy_ if name == "scaler" else found.privacy
        assert privacy.unit == "patient"
    assert set(budget.entries()["unit"]) == {"patient"}
    with pytest.raises(ValueError, match="patient"):
        private_mean([1.0], **BOUNDS, epsilon=1.0, budget=budget)


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("groups", [[1, None, 2], [1, 2], pd.Series([1, 1, 2], name="record")])
def test_bad_groups_are_refused_before_a_charge(name, groups):
    budget = PrivacyBudget(100.0, 0.1)
    with pytest.raises(ValueError, match=r"groups|inconsistent"):
        STATISTICS[name]([1.0, 2.0, 3.0], epsilon=1.0, groups=groups, budget=budget)
    assert not len(budget.entries())
