"""Queries from noisy marginals: what a record or a group moves, what is charged, what is drawn."""

from __future__ import annotations

import warnings
from decimal import Decimal
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from skprivacy._groups import Groups, check_groups
from skprivacy._input_data import resolve_groups
from skprivacy.accounting import GaussianEvent, PrivacyBudget, VoteBlockEvent, epsilon_of
from skprivacy.ensemble import GNMax, PATEClassifier, pate
from skprivacy.ensemble import drawn_records as marginals
from skprivacy.ensemble.drawn_records import Marginals
from skprivacy.ensemble.teachers import partition_by_group
from skprivacy.exceptions import PrivacyWarning
from skprivacy.mechanisms import Mechanism
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

from ..contracts import single_release as contracts_once
from ..contracts.cases import CASES

pytestmark = pytest.mark.heavy

SETTLED = lambda: np.random.RandomState(0)  # noqa: E731
SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 80),
        "pay": BoundedColumn(0, 100_000, scale="log", knee=1000),
        "sex": CategoricalColumn(["F", "M"]),
        "floor": CategoricalColumn([1, 2, 3]),
    }
)
COLUMNS = len(SCHEMA)
RELATIONS = ["add_remove", "zero_out", "replace_one"]


def table(rows):
    return pd.DataFrame(rows, columns=list(SCHEMA), dtype=object)


def counts(rows, codes, groups=None, relation="add_remove"):
    made = Marginals(SCHEMA, 2, 1.0, 1e-5, relation)
    shares = resolve_groups(groups, rows).exact_shares()
    return made.counts(table(rows), np.array(codes, np.int64), shares)


def test_a_record_counts_once_in_each_column():
    found = counts([[35, 10, "F", 2], [80, 1e9, "M", "3"], [-5, -np.inf, "F", 1.0]], [0, 1, 1])
    age, pay, sex, floor = np.split(found, [8, 16, 18])
    assert np.argwhere(age).tolist() == [[0, 1], [3, 0], [7, 1]]  # the last two from beyond
    assert np.argwhere(pay).tolist() == [[0, 0], [0, 1], [7, 1]]
    assert sex.tolist() == [[1, 1], [0, 1]]
    assert floor.tolist() == [[0, 1], [1, 0], [0, 1]]
    assert [part.sum() for part in (age, pay, sex, floor)] == [3.0] * 4


STRANGE = [None, np.nan, pd.NA, "?", [1, 2], {}, 1 + 2j, b"F", pd.Timestamp(0), (1, []), np.inf * 0]


def test_invalid_values_of_a_column_are_not_counted():
    assert not counts([[v, v, v, v] for v in STRANGE], [0] * len(STRANGE)).any()


def test_a_record_is_counted_alike_whatever_the_others_are():
    """A column that holds one value of another type has another type as a whole."""
    plain = pd.DataFrame({"age": [30, 50], "pay": [1, 2], "sex": ["F", "M"], "floor": [1, 2]})
    made = Marginals(SCHEMA, 2, 1.0, 1e-5, "add_remove")
    alone = made.counts(plain, np.array([0, 1]), np.ones(2))
    for value in STRANGE:
        other = pd.concat([plain, table([[value] * 4])], ignore_index=True)
        np.testing.assert_array_equal(made.counts(other, np.array([0, 1, 1]), np.ones(3)), alone)


def worst_gap(relation, with_groups):
    """Return the furthest that a unit moves the counts, in L2, by all that it may hold."""
    others = [[35, 10, "F", 2]] * 3
    units = [
        [[35, 10, "F", 2]],
        [[70, 9e4, "M", 3]],
        [[None] * 4],
        [[70, None, "M", 7]],
    ]
    if with_groups:
        units += [units[0] * 1000, units[1] * 1000, units[0] * 3 + units[1] * 2, units[2] * 9]
    gaps = []
    for code in (0, 1):
        for unit in units:
            here = _with(others, unit, code, with_groups, relation)
            if relation != "replace_one":
                null = [[None] * 4] * len(unit) if relation == "zero_out" else []
                gaps.append(here - _with(others, null, code, with_groups, relation))
                continue
            gaps += [
                here - _with(others, another, 1 - code, with_groups, relation) for another in units
            ]
    return max(np.linalg.norm(gap) for gap in gaps)


def _with(others, unit, code, with_groups, relation):
    groups = np.repeat([0, 7], [len(others), len(unit)]) if with_groups else None
    return counts(others + unit, [0] * len(others) + [code] * len(unit), groups, relation)


@pytest.mark.parametrize("with_groups", [False, True])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_unit_moves_the_counts_by_the_sensitivity_at_most(relation, with_groups):
    sensitivity = Marginals(SCHEMA, 2, 1.0, 1e-5, relation).mechanism.sensitivity
    assert worst_gap(relation, with_groups) == pytest.approx(sensitivity, rel=1e-12)


UTC = pd.Timestamp("2020-01-01", tz="UTC")
BEYOND_FLOATS = [2**60, 2**60 + 1, 2**60 + 1, 2**53, 2**53 + 1, 7]
SAME_GROUPS = {
    "types": ([1, 1.0, np.int64(1), np.float32(1), True, Decimal(1), "a", np.str_("a"), "b"], None),
    "integers": (BEYOND_FLOATS, np.int64),
    "unsigned": (BEYOND_FLOATS, np.uint64),
    "objects": (BEYOND_FLOATS, object),
    "time zones": ([UTC, UTC.tz_convert("Europe/Berlin"), "Ada"], None),
}
SIZES = [[6] * 6 + [2, 2, 1], *[[1, 2, 2, 1, 1, 1]] * 3, [2, 2, 1]]


@pytest.mark.parametrize(
    ("names", "dtype", "sizes"),
    [(*given, sizes) for given, sizes in zip(SAME_GROUPS.values(), SIZES, strict=True)],
    ids=SAME_GROUPS,
)
def test_groups_are_those_that_share_a_teacher(names, dtype, sizes):
    """Cut in two a group would have two teachers; two taken for one would share a unit."""
    groups = np.empty(len(names), dtype or object)
    groups[:] = names
    found = check_groups(groups, groups)
    assert found.sizes()[found.codes].tolist() == sizes
    parts = partition_by_group(found, 10**9, SETTLED())
    np.testing.assert_array_equal(pd.factorize(parts)[0], found.codes)


def test_the_teacher_of_a_group_does_not_depend_on_other_groups():
    names = np.array(["b", "a", "b", "c", "a", "c"])
    for left_out in "abc":
        left = names[names != left_out]
        all_of, some = (
            dict(zip(g, partition_by_group(check_groups(g, g), 10**9, SETTLED()), strict=True))
            for g in (names, left)
        )
        assert some == {k: v for k, v in all_of.items() if k != left_out}


# --------------------------------------------------------------------------------- what is charged

RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "age": RNG.uniform(20, 40, 3000),
        "pay": RNG.exponential(20_000, 3000),
        "sex": RNG.choice(["F", "M"], 3000),
        "floor": RNG.integers(1, 4, 3000),
    }
)
Y = np.where(X["age"] + 20 * (X["sex"] == "F") > 40, "well", "ill")


def learner():
    return make_pipeline(SchemaTransformer(SCHEMA), LogisticRegression())


def model(**params):
    defaults = {
        "n_teachers": 30, "n_queries": 20, "classes": ["ill", "well"], "epsilon": 8.0,
        "schema": SCHEMA, "marginal_share": 0.25, "random_state": 0,
    }  # fmt: skip
    return PATEClassifier(learner(), learner(), **{**defaults, **params})


@pytest.mark.everyday(1)
@pytest.mark.parametrize("relation", RELATIONS)
def test_marginals_and_votes_are_one_charge_of_the_whole_epsilon(relation):
    budget = PrivacyBudget(8.0, 1e-5, relation=relation)
    fitted = model(relation=relation, budget=budget).fit(X, Y)
    counted, votes = fitted.privacy_event_.events
    assert isinstance(counted, GaussianEvent)
    assert isinstance(votes, VoteBlockEvent)
    assert votes.moved == (2 if relation == "replace_one" else 1)
    assert epsilon_of(counted, 1e-5, relation) == pytest.approx(0.25 * 8.0, rel=1e-3)
    assert 7.9 < epsilon_of(fitted.privacy_event_, 1e-5, relation) <= 8.0
    assert len(budget.entries()) == 1
    assert fitted.privacy_.assumptions == () or relation != "add_remove"
    # A quarter of epsilon is less than a quarter of the votes' share without marginals.
    alone = GNMax()._calibrated(20, votes.moved, 8.0, 1e-5, relation)
    assert alone.noise < fitted.aggregator_.noise < 1.1 * alone.noise


def test_noise_of_votes_that_leaves_nothing_for_marginals_is_refused_before_the_charge():
    votes = GNMax()._calibrated(20, 1, 8.0, 1e-5, "add_remove")
    budget = PrivacyBudget(100.0, 1e-3)
    with pytest.raises(ValueError, match=r"20 queries and the marginals, above epsilon=8\.0"):
        model(aggregator=votes, budget=budget).fit(X, Y)
    assert budget.entries().empty
    model(aggregator=votes, marginal_share=0.0).fit(X, Y, X_public=X[:100])


def test_public_records_that_are_given_leave_the_marginals_uncounted():
    fitted = model().fit(X, Y, X_public=X[:500])
    assert isinstance(fitted.privacy_event_, VoteBlockEvent)


def test_an_infinite_epsilon_counts_without_noise():
    assert model(epsilon=np.inf).fit(X, Y).score(X, Y) > 0.9


# -------------------------------------------------------------------------------- what is drawn


def drawn(noisy, n=4000):
    return Marginals(SCHEMA, 2, 1.0, 1e-5, "add_remove").draw_records(
        np.asarray(noisy, float), n, np.random.RandomState(0)
    )


def test_records_are_drawn_by_class_as_counted():
    rows = [[35, 5e4, "F", 2], [72, 10, "M", 3]]
    found = drawn(counts(rows * 10, [0, 1] * 10))
    first = found["sex"] == "F"
    assert first.sum() == 2000  # as many of each class, and columns go with the class
    assert found.loc[first, "age"].between(30, 40).all()
    assert found.loc[~first, "age"].between(70, 80).all()
    assert found.loc[~first, "pay"].between(0, 1000).all()
    assert set(found.loc[first, "floor"]) == {2}


def test_counts_that_are_nothing_but_noise_leave_the_schema():
    found = drawn(np.full((21, 2), -5.0))
    assert set(found["floor"]) == {1, 2, 3}
    assert found["age"].between(0, 80).all()
    assert 35 < found["age"].mean() < 45


def test_shares_are_the_nearest_ones():
    """Against a brute-force projection on all shares of ten parts."""
    noisy = np.array([6.3, -2.0, 5.2, 0.4])
    shares = marginals._project_to_simplex(noisy) * noisy.sum()
    steps = [p for p in np.ndindex(100, 100, 100) if sum(p) < 100]
    grid = np.array([(*p, 99 - sum(p)) for p in steps]) / 99 * noisy.sum()
    nearest = grid[np.linalg.norm(grid - noisy, axis=1).argmin()]
    assert np.abs(nearest - shares).max() < 2 * noisy.sum() / 99
    assert np.linalg.norm(shares - noisy) <= np.linalg.norm(nearest - noisy)


def test_records_have_the_columns_of_the_private_ones_in_their_order():
    turned = X[list(SCHEMA)[::-1]]
    seen = []

    def stopped(*args):
        seen.append(args[5])
        raise KeyboardInterrupt

    with mock.patch.object(pate, "count_votes", stopped), pytest.raises(KeyboardInterrupt):
        model().fit(turned, Y)
    assert list(seen[0].columns) == list(turned.columns)


def test_a_range_wider_than_the_records_takes_marginals():
    """Half of the records are of the inner class, and one in fifteen of those from the schema."""
    rows = RNG.normal(size=(3000, 2))
    inside = ((rows**2).sum(axis=1) < 1.4).astype(int)
    wide = Schema({"a": BoundedColumn(-4, 4), "b": BoundedColumn(-4, 4)})
    scores = []
    for share in (0.0, 0.25):
        drawing = model(schema=wide, marginal_share=share, classes=[0, 1], epsilon=np.inf)
        drawing.set_params(teacher=GaussianNB(), student=GaussianNB(), n_queries=60)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivacyWarning)
            scores.append(drawing.fit(rows, inside).score(rows, inside))
    assert scores[1] > scores[0] + 0.15


def test_the_warning_about_drawn_queries_names_the_marginals():
    with pytest.warns(PrivacyWarning, match=r"marginal_share=0\.2, which draws them from noisy"):
        model(marginal_share=0.0).fit(X, Y)


def test_a_schema_of_other_columns_is_refused_before_the_charge():
    budget = PrivacyBudget(100.0, 1e-3)
    with pytest.raises(ValueError, match="lacks the schema's columns"):
        model(budget=budget).fit(X.rename(columns={"age": "years"}), Y)
    with pytest.raises(ValueError, match="schema has 4 columns and X has 3"):
        model(budget=budget).fit(X.drop(columns="age"), Y)
    assert budget.entries().empty


def test_public_records_with_columns_in_another_order_are_refused():
    with pytest.raises(ValueError, match="same columns in the same order"):
        model().fit(X, Y, X_public=X[list(SCHEMA)[::-1]])


# ----------------------------------------------------------------------------------- planted bugs


def test_marginals_that_are_not_paid_for_are_caught():
    with (
        mock.patch.object(pate, "compose_with_marginals", lambda beside, votes: votes),
        pytest.raises(AssertionError),
    ):
        contracts_once.check_accounting(CASES["PATEClassifier-marginals"])


def test_marginals_that_are_charged_as_under_another_relation_are_caught():
    def as_removed(original):
        def mechanism(self):
            return original.fget(Marginals(self.schema, 2, 1.0, 1e-5, "add_remove"))

        return property(mechanism)

    with (
        mock.patch.object(Marginals, "mechanism", as_removed(Marginals.mechanism)),
        pytest.raises(AssertionError),
    ):
        test_a_unit_moves_the_counts_by_the_sensitivity_at_most("replace_one", False)


def test_a_group_of_which_every_record_counts_is_caught():
    with (
        mock.patch.object(Groups, "exact_shares_of", staticmethod(np.ones_like)),
        pytest.raises(AssertionError),
    ):
        test_a_unit_moves_the_counts_by_the_sensitivity_at_most("add_remove", True)


def test_a_fit_hands_group_sizes_to_the_counts():
    """With groups the mechanism is given shares: a group of all records moves it no further."""
    given = []

    def kept(self, value, random):
        given.append(np.array(value))
        raise KeyboardInterrupt

    with mock.patch.object(Mechanism, "release", kept), pytest.raises(KeyboardInterrupt):
        model().fit(X, Y, groups=np.zeros(len(X), int))
    assert COLUMNS * 0.99 < given[0].sum() <= COLUMNS
    assert np.linalg.norm(given[0]) <= np.sqrt(COLUMNS)
