"""Private statistics: sensitivities by brute force, claims, usefulness, edge cases."""

from __future__ import annotations

import itertools
import math
import pickle
from functools import partial
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from skprivacy import config_context
from skprivacy.accounting import PrivacyBudget
from skprivacy.defenses import SmoothedClassifier
from skprivacy.exceptions import BudgetExceededError, PrivacyLeakWarning, PrivacyWarning
from skprivacy.mechanisms import Laplace, Mechanism
from skprivacy.preprocessing import (
    BoundedColumn,
    PrivateStandardScaler,
    Schema,
    SchemaTransformer,
    private_count,
    private_group_size,
    private_histogram,
    private_mean,
    private_quantile,
    private_sum,
    private_summary,
    private_variance,
)
from skprivacy.preprocessing.statistics.moments import BoundedColumns
from skprivacy.preprocessing.statistics.release import open_columns

RELATIONS = ["add_remove", "zero_out", "replace_one"]
LOWER, UPPER = np.array([0.0, -5.0]), np.array([10.0, 1.0])


def caught(function, *args, **kwargs):
    """Return the mechanism and the value that a function passes to it."""
    seen = []

    def release(self, value, random):
        seen.append((self, np.array(value, float)))
        return passed(self, value, random)

    passed = Mechanism.release
    with mock.patch.object(Mechanism, "release", release):
        function(*args, **kwargs)
    [(mechanism, value)] = seen
    return mechanism, value


GRID = [
    *map(np.array, itertools.product([-99, 0.0, 5.0, 10.0], [-5.0, -2.0, 1, 99])),
    np.array([np.nan, np.inf]),
]
moments, sums = (
    partial(statistic, bounds=(LOWER, UPPER)) for statistic in (private_variance, private_sum)
)


def largest_move(function, records, rest, relation, delta):
    """Return the largest distance between neighbours' values over the sensitivity."""
    data = [np.append(rest, [r], axis=0) for r in records]
    params = {"epsilon": 1.0, "delta": delta, "relation": relation}
    pairs = [caught(function, d, **params) for d in data]
    mechanism, values = pairs[0][0], [v for _, v in pairs]
    if relation == "add_remove":
        gaps = [v - caught(function, rest, **params)[1] for v in values]
    else:
        gaps = [a - b for a, b in itertools.combinations(values, 2)]
    order = 1 if isinstance(mechanism, Laplace) else 2
    return max(np.linalg.norm(g, order) for g in gaps) / mechanism.sensitivity


@pytest.mark.parametrize(
    ("function", "records", "rest", "least"),
    [
        (moments, GRID, [[3.0, 0.5]], 0.6),
        (sums, GRID, [[3.0, 0.5]], 0.999),
        (
            partial(private_histogram, bins=[0, 1, 2, 5]),
            [0.5, 1.0, 4.0, 5.0, -1.0, 99.0, np.nan],
            [0.5],
            1.0,
        ),
        (private_count, [0, 1, np.nan], [1.0], 1.0),
    ],
    ids=["moments", "sums", "histogram", "count"],
)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_sensitivities(function, records, rest, least, relation, delta):
    moved = largest_move(function, records, np.array(rest), relation, delta)
    assert least - 1e-9 <= moved <= 1.0 + 1e-15


def test_planted_sensitivity_without_the_count_is_caught(monkeypatch):
    """Under add/remove the number of records is private too."""
    grid = [np.array(p) for p in itertools.product([0.0, 10.0], [-5.0, 1.0])]
    honest = Laplace.calibrated.__func__
    monkeypatch.setattr(
        Laplace, "calibrated", classmethod(lambda cls, e, s: honest(cls, e, s - 1.0))
    )
    assert largest_move(moments, grid, np.array([[3.0, 0.5]]), "add_remove", 0.0) > 1.0


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_sums_and_counts_are_near_the_truth(relation, delta):
    X = np.random.default_rng(0).uniform([-3, -9], [12, 2], size=(4000, 2))
    X[7] = np.nan  # as the middle
    target = {"epsilon": 5.0, "delta": delta, "relation": relation, "noise_seed": 1}
    with pytest.warns(PrivacyWarning):
        value, privacy = private_sum(X, bounds=(LOWER, UPPER), **target)
    truth = np.clip(np.where(np.isnan(X), (LOWER + UPPER) / 2, X), LOWER, UPPER).sum(0)
    np.testing.assert_allclose(value, truth, atol=60)
    assert privacy.relation == relation
    with pytest.warns(PrivacyWarning):
        count, _ = private_count(pd.Series(X[:, 0] > 2).where(X[:, 0] < 11), **target)
    assert abs(count - np.sum((X[:, 0] > 2) & (X[:, 0] < 11))) < 8


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("q", [0.0, 0.2, 0.5, 1.0])
def test_sensitivity_of_quantile_scores(relation, q):
    """Each single score moves by at most the declared sensitivity, and some by all of it."""

    def scores(x):
        return caught(
            private_quantile, x, q, bounds=(0, 10), epsilon=1.0, relation=relation, n_candidates=21
        )

    rest = np.array([1.0, 4.0, 4.0, 9.0])
    mechanism, base = scores(rest)
    values = [scores(np.append(rest, r))[1] for r in (-5.0, 0.0, 3.3, 7.0, 10.0, np.inf, np.nan)]
    pairs = [(base, v) for v in values] if relation == "add_remove" else list(
        itertools.combinations(values, 2)
    )  # fmt: skip
    reached = max(np.abs(a - b).max() for a, b in pairs)
    assert reached == pytest.approx(mechanism.sensitivity)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_values_are_near_the_truth_and_noise_is_as_claimed(relation, delta):
    rng = np.random.default_rng(0)
    X = rng.uniform(LOWER, UPPER, size=(200_000, 2))  # the worst of the noise, then, is 0.0006
    params = {"bounds": (LOWER, UPPER), "epsilon": 0.5, "delta": delta, "relation": relation}
    mean, privacy = private_mean(X, **params)
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=0.02)
    assert privacy.relation == relation
    assert privacy.epsilon() == pytest.approx(0.5, rel=1e-6)
    assert privacy.kind == "proved"
    variance, _ = private_variance(X, **params)
    np.testing.assert_allclose(variance, X.var(axis=0), rtol=0.05)


@pytest.mark.slow
def test_noise_of_a_mean():
    x = np.full(100, 3.0)
    drawn = [
        private_mean(x, bounds=(0, 10), epsilon=1.0, relation="zero_out").value for _ in range(2000)
    ]
    noise = (np.array(drawn) - 3.0) * 100 / 5  # half the width is the scale at epsilon 1
    assert stats.kstest(noise, "laplace").pvalue > 1e-8


def test_quantiles():
    x = np.random.default_rng(0).normal(50, 10, 5000)
    for q in (0.0, 0.1, 0.5, 0.9):
        value, privacy = private_quantile(x, q, bounds=(0, 100), epsilon=1.0)
        assert abs((x < value).mean() - q) < 0.02
    assert privacy.epsilon() == pytest.approx(1.0)


def test_histograms():
    counts, _ = private_histogram(["a", "b", "a", "?"] * 100, categories=["a", "b"], epsilon=50.0)
    np.testing.assert_allclose(counts, [200, 100], atol=3)
    counts, _ = private_histogram([1, 2, np.nan, 9], bins=[0, 1.5, 3], epsilon=50.0)
    np.testing.assert_allclose(counts, [1, 1], atol=3)


@pytest.mark.parametrize("relation", RELATIONS)
def test_nothing_to_average(relation):
    for x in ([3.0], [np.nan], [np.inf, -np.inf]):
        value, _ = private_mean(x, bounds=(0, 10), epsilon=1.0, relation=relation)
        assert 0 <= value <= 10
        value, _ = private_variance(x, bounds=(0, 10), epsilon=1.0, relation=relation)
        assert 0 <= value <= 25
    assert private_mean([1.0, 1.0], bounds=(1, 1), epsilon=1.0).value == 1.0
    total, _ = private_sum([3.0], bounds=(0, 0), epsilon=1.0)
    assert (type(total), total) == (float, 0.0)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"epsilon": 0}, "epsilon=0"),
        ({"epsilon": np.inf}, "epsilon=inf"),
        ({"delta": 1.0}, r"delta=1\.0"),
        ({"relation": "swap"}, "relation='swap'"),
        ({"bounds": (1, 0)}, "bounds="),
        ({"bounds": (0, np.nan)}, "bounds="),
        ({"bounds": 3}, "bounds="),
        ({"bounds": ([0, 0], [1, 1])}, "bounds="),
        ({"bounds": ([[0]], [[1]])}, "bounds="),
        ({"bounds": (-1e308, 1e308)}, "bounds="),
    ],
)
def test_bad_parameters(params, named):
    with pytest.raises(ValueError, match=named):
        private_variance([1.0, 2.0], **{"bounds": (0, 1), "epsilon": 1.0, **params})


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: private_quantile([1], 1.5, bounds=(0, 1), epsilon=1), "quantile="),
        (lambda: private_quantile([[1]], 0.5, bounds=(0, 1), epsilon=1), "x has shape"),
        (lambda: private_quantile([1], 0.5, bounds=(0, 1), epsilon=1, n_candidates=1), "n_cand"),
        (lambda: private_histogram([1], epsilon=1), "exactly one of them must be given"),
        (lambda: private_histogram([1], bins=[1, 0], epsilon=1), "bins="),
        (lambda: private_histogram([1], categories=[1, 1], epsilon=1), "categories="),
        (lambda: private_mean([], bounds=(0, 1), epsilon=1), "minimum of 1"),
    ],
)
def test_bad_calls(call, named):
    with pytest.raises(ValueError, match=named):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda **k: private_histogram(["no", "yes"], categories=["no", "yes"], **k),
        lambda **k: private_quantile([0.0, 1.0], 0.5, bounds=(0, 1), **k),
        lambda **k: private_group_size([1, 1, 2], max_group_size=3, **k),
        lambda **k: private_mean([0.0, 1.0], bounds=(0, 1), **k),
        lambda **k: private_variance([0.0, 1.0], bounds=(0, 1), **k),
        lambda **k: private_sum([0.0, 1.0], bounds=(0, 1), **k),
        lambda **k: private_count([0.0, 1.0], **k),
        lambda **k: private_summary("none.parquet", Schema({"y": BoundedColumn(0, 1)}), **k),
    ],
)
@pytest.mark.parametrize("relation", ["label", "add", None, np.zeros(2)])
def test_statistics_of_labels_alone_are_refused(call, relation):
    """A label that changes moves two counts of a histogram: noise for one is half of it."""
    with pytest.raises(ValueError, match=r"relation=.* must be one of \('add_remove', 'zero_out'"):
        call(epsilon=1.0, relation=relation)


@pytest.mark.parametrize("bounds", [([0], [1]), (0, [1]), ([0, 0, 0], [1, 1, 1])])
def test_one_bound_for_several_columns_is_a_number_not_a_sequence(bounds):
    X = np.full((3, 2), 0.5)
    with pytest.raises(ValueError, match="sequences of length 2"):
        private_mean(X, bounds=bounds, epsilon=1.0)
    with pytest.raises(ValueError, match="sequences of length 2"):
        PrivateStandardScaler(bounds=bounds).fit(X)
    assert private_mean(X[:, :1], bounds=([0], [1]), epsilon=1.0).value.shape == (1,)


def test_columns_of_one_name_are_refused():
    frame = pd.DataFrame(np.full((3, 2), 0.5), columns=["a", "a"])
    for model in (
        PrivateStandardScaler(bounds=(0, 1)),
        SchemaTransformer(Schema({"a": BoundedColumn(0, 1), "b": BoundedColumn(0, 1)})),
        SmoothedClassifier(LogisticRegression()),
    ):
        with pytest.raises(ValueError, match="more than one column named 'a'"):
            model.fit(frame, [0, 1, 0])


def test_seeds_void_the_guarantee():
    with pytest.warns(PrivacyWarning, match="noise_seed=1"):
        a = private_mean([1.0, 2.0], bounds=(0, 5), epsilon=1.0, noise_seed=1)
    with pytest.warns(PrivacyWarning):
        b = private_mean([1.0, 2.0], bounds=(0, 5), epsilon=1.0, noise_seed=1)
    assert a.value == b.value
    assert a.privacy.kind == "estimate"


def test_sums_are_exact():
    """Sums of scaled values do not depend on the order of records, to the last bit."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, 10_001)
    order = rng.permutation(x.size)
    values = [caught(private_variance, v, bounds=(0, 0.7), epsilon=1.0)[1] for v in (x, x[order])]
    assert (values[0] == values[1]).all()
    columns = BoundedColumns(*open_columns(x, None), (0, 0.7))
    plan = columns.variance("add_remove").plan
    assert np.abs(plan._unit(x[:, None])).max() <= 1


def test_budget():
    budget = PrivacyBudget(epsilon=1.0)
    private_mean([1.0], bounds=(0, 1), epsilon=0.4, budget=budget)
    private_quantile([1.0], 0.5, bounds=(0, 1), epsilon=0.3, budget=budget)
    private_histogram([1.0], bins=[0, 1], epsilon=0.2, budget=budget)
    with pytest.raises(BudgetExceededError), mock.patch.object(Mechanism, "release") as release:
        private_variance([1.0], bounds=(0, 1), epsilon=0.4, budget=budget)
    release.assert_not_called()
    with pytest.raises(BudgetExceededError):
        PrivateStandardScaler(bounds=(0, 1), epsilon=0.4, budget=budget).fit([[1.0]])


def test_a_record_counts_once_in_a_histogram():
    with pytest.raises(ValueError, match="one column"):
        private_histogram(np.ones((5, 3)), bins=[0, 2], epsilon=1.0)
    with pytest.raises(ValueError, match="one column"):
        private_histogram([["a", "b"]], categories=["a", "b"], epsilon=1.0)
    both = np.array([2**53, 2**53 + 1])  # a float equals both
    _, counts = caught(private_histogram, [2.0**53] * 3, categories=both, epsilon=1.0)
    assert counts.tolist() == [3, 0]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_whatever_stands_for_a_missing_value_is_not_counted(missing):
    column = pd.Series(["a", missing, "b", "a"], dtype=object)
    _, counts = caught(private_histogram, column, categories=["a", "b"], epsilon=1.0)
    assert counts.tolist() == [2, 1]
    numbers = pd.Series([1.0, missing, 3.0], dtype=object)
    _, counts = caught(private_histogram, numbers, bins=[0, 2, 4], epsilon=1.0)
    assert counts.tolist() == [1, 1]


# ---------------------------------------------------------------- the scaler


def test_scaler():
    rng = np.random.default_rng(0)
    X = np.clip(rng.normal([4, -2], [2, 0.8], size=(20_000, 2)), LOWER, UPPER)
    scaler = PrivateStandardScaler(bounds=(LOWER, UPPER), epsilon=1.0).fit(X)
    Z = scaler.transform(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(Z.std(axis=0), 1, atol=0.1)
    assert scaler.epsilon_ == pytest.approx(1.0)
    assert scaler.privacy_.assumptions == ()
    assert np.isnan(scaler.transform([[np.nan, 0.0]])[0, 0])
    assert scaler.transform([[1e9, 0]])[0, 0] == scaler.transform([[10, 0]])[0, 0]
    assert X[5, 0].tobytes() not in pickle.dumps(scaler)


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
def test_the_seed_is_not_pickled_with_a_fitted_scaler():
    scaler = PrivateStandardScaler(bounds=(0, 1), noise_seed=123456)
    assert pickle.loads(pickle.dumps(scaler)).noise_seed == 123456
    assert pickle.loads(pickle.dumps(scaler.fit([[0.5], [1.0]]))).noise_seed is None


def test_scaler_without_bounds_confesses():
    with pytest.warns(PrivacyLeakWarning, match="bounds=None"):
        scaler = PrivateStandardScaler().fit([[1.0], [2.0]])
    assert "read off X" in scaler.privacy_.assumptions[0]
    with config_context(strict=True), pytest.raises(ValueError, match="bounds=None"):
        PrivateStandardScaler().fit([[1.0], [2.0]])


def test_scaler_of_noise_does_not_blow_up():
    scaler = PrivateStandardScaler(bounds=(0, 1), epsilon=1e-4).fit(np.full((5, 3), 0.5))
    assert (scaler.scale_ >= 0.01).all()
    flat = PrivateStandardScaler(bounds=(2, 2)).fit(np.full((5, 1), 2.0))
    assert flat.transform([[2.0]])[0, 0] == 0.0


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
