"""Groups of records: membership, and the draw of a group's records."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from skprivacy._groups import check_groups
from skprivacy._input_data import resolve_groups
from skprivacy.mechanisms import SecureRandom

X = np.zeros((4, 2))


@pytest.mark.parametrize(
    "groups",
    [
        ["a", "b", "b", "a"],
        np.array([7, 3, 3, 7]),
        pd.Series(["a", "b", "b", "a"], dtype="category", index=[5, 6, 7, 8]),
        pd.array([1, 2, 2, 1], dtype="Int64"),
        pa.array([1, 2, 2, 1]),
        pd.to_datetime(["2020-01-01", "2021-01-01", "2021-01-01", "2020-01-01"]),
        [1, "a", "a", 1.0],
    ],
)
def test_equal_values_are_one_group(groups):
    found = check_groups(groups, X)
    assert (found.codes.tolist(), found.n, found.unit) == ([0, 1, 1, 0], 2, "group")


def test_the_name_of_a_series_is_the_unit():
    assert check_groups(pd.Series([1, 2, 2, 1], name="patient"), X).unit == "patient"


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        ([1, None, 2, 3], "groups has missing values, first at position 1"),
        ([1.0, 2.0, 3.0, np.nan], "missing values, first at position 3"),
        (pd.Series([1, pd.NA, 2, 3], dtype="Int64"), "missing values"),
        ([1, 2], "values for"),
        (np.zeros((4, 1)), r"groups has shape \(4, 1\)"),
        (np.ma.masked_array([1, 2, 3, 4], [0, 0, 0, 1]), "groups is a masked array"),
        (pd.Series([1, 2, 3, 4], name="record"), "groups is named 'record'"),
        ([1, "1", 2, 3], "a value both as a number and as text"),
        (pd.Series([1.0, "b", "1", "b"], dtype="category"), "a value both as a number and as text"),
        (5, "groups must have one value for each record; got one int"),
        ("abcd", "groups must have one value for each record; got one str"),
        ([["a"], ["b"], ["a"], 1], "groups holds values that have no hash"),
    ],
)
def test_groups_that_leave_a_record_unprotected_are_refused(groups, match):
    with pytest.raises(ValueError, match=match):
        check_groups(groups, X)


def test_rows_in_another_order_are_refused_and_other_rows_names_are_not():
    frame, groups = pd.DataFrame(X), pd.Series([1, 2, 2, 1])
    with pytest.raises(ValueError, match="index of X in another order"):
        check_groups(groups, frame.iloc[::-1])
    assert check_groups(groups.iloc[::-1], frame.iloc[::-1]).codes.tolist() == [0, 1, 1, 0]
    for other in (frame.set_axis([5, 6, 7, 8]), frame.set_axis(list("abcd")), X):
        assert check_groups(groups, other).n == 2


def test_at_most_k_records_of_a_group_are_drawn_and_each_as_often_as_another():
    groups = check_groups([0] * 5 + [1] * 2 + [2], np.zeros((8, 1)))
    counts = np.zeros(8)
    for _ in range(2000):
        rows = groups.at_most(2, SecureRandom())
        assert (np.diff(rows) > 0).all()
        assert np.bincount(groups.codes[rows]).tolist() == [2, 2, 1]
        counts[rows] += 1
    assert (counts[5:] == 2000).all()
    # of variance 2000 x .4 x .6: six standard deviations are less likely than one in 10^8
    assert (abs(counts[:5] - 800) < 6 * np.sqrt(480)).all()


def test_shares_of_a_group_add_up_to_one():
    groups = check_groups([0, 1, 0, 0, 1, 2], np.zeros((6, 1)))
    np.testing.assert_allclose(np.bincount(groups.codes, groups.shares()), 1.0)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 999, 2**20, 2**20 + 1])
def test_exact_shares_of_a_group_never_add_up_to_more_than_one(size):
    shares = check_groups(np.zeros(size), np.zeros(size)).exact_shares()
    assert len(set(shares)) == 1
    total = size * Fraction(shares[0])
    assert 1 - Fraction(size, 2**20) <= total <= 1 or size > 2**20
    assert (total == 1) == (2**20 % size == 0)
    assert shares.sum() == total  # whatever the order


def test_without_groups_each_record_is_protected_by_itself():
    found = resolve_groups(None, X)
    assert (found.codes.tolist(), found.n, found.unit) == ([0, 1, 2, 3], 4, "record")
    assert found.exact_shares().tolist() == [1.0] * 4
    assert found.at_most(1, SecureRandom()).tolist() == [0, 1, 2, 3]
