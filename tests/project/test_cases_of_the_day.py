"""Combinations of parameters that run every day; the night runs all others."""

from collections import Counter
from itertools import product
from types import SimpleNamespace
from unittest import mock

import pytest

from ..conftest import covering, pytest_collection_modifyitems


class Case:
    """As much of a collected test as the choice looks at."""

    parent, originalname = "file", "test"

    def __init__(self, *ids, marks=()):
        self.callspec = SimpleNamespace(_idlist=ids)
        self.marks = list(marks)

    def iter_markers(self, name=None):
        return (mark.mark for mark in self.marks if name in (None, mark.mark.name))

    def add_marker(self, mark):
        self.marks.append(mark)


def every_day(cases, marks="not slow"):
    pytest_collection_modifyitems(mock.Mock(**{"option.markexpr": marks}), cases)
    return [c.callspec._idlist for c in cases if pytest.mark.slow not in c.marks]


def test_every_value_occurs_and_about_equally_often():
    cases = [Case(*ids) for ids in product("abcdef", "12", "xyz")]
    chosen = [case.callspec._idlist for case in covering(cases)]
    assert len(chosen) == 6
    counts = Counter(value for ids in chosen for value in ids)
    assert counts == dict.fromkeys("abcdef", 1) | dict.fromkeys("12", 3) | dict.fromkeys("xyz", 2)


def test_a_single_list_is_run_as_a_whole():
    assert every_day([Case(x) for x in "abc"]) == [("a",), ("b",), ("c",)]


def test_a_number_spreads_the_cases_and_a_case_can_be_kept():
    few = pytest.mark.everyday(2)
    assert every_day([Case(x, marks=[few]) for x in "abcd"]) == [("a",), ("c",)]
    kept = [few, pytest.mark.everyday]
    cases = [Case(x, marks=kept if x == "b" else [few]) for x in "abcd"]
    assert every_day(cases) == [("a",), ("b",), ("c",)]


def test_the_inner_loop_runs_two_cases_that_are_not_heavy():
    cases = [Case(x, marks=[pytest.mark.heavy] if x == "a" else []) for x in "abcde"]
    assert every_day(cases, "not slow and not heavy") == [("a",), ("b",), ("d",)]  # a is left out


def test_slow_cases_represent_no_others():
    cases = [Case("a", "1", marks=[pytest.mark.slow]), Case("a", "2"), Case("b", "2")]
    assert every_day(cases) == [("a", "2"), ("b", "2")]
