"""The oracle of odd input itself: what it accepts and rejects."""

import os
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from .oracle import Refused, attempt


def raising(error):
    def call():
        raise error

    return call


@pytest.mark.parametrize(
    "error",
    [
        ValueError("alpha=3 must be a number below 1."),
        TypeError("X must be a table."),
        ValueError("Found array with dim 3. None expected <= 2."),  # of X, says scikit-learn
        NotFittedError("not fitted"),
        FileNotFoundError(2, "No such file", "somewhere"),
    ],
    ids=str,
)
def test_a_refusal_by_name_passes(error):
    assert isinstance(attempt(raising(error), ["X", "alpha"]), Refused)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("math domain error"), AssertionError),
        (OSError("something went wrong"), AssertionError),
        (KeyError("alpha"), KeyError),
        (ZeroDivisionError("alpha"), ZeroDivisionError),
        (UnicodeDecodeError("utf-8", b"alpha", 0, 1, "alpha"), UnicodeDecodeError),
    ],
    ids=str,
)
def test_any_other_error_fails(error, expected):
    with pytest.raises(expected):
        attempt(raising(error), ["X", "alpha"])


def leaves_a_file():
    Path("left").touch()


def takes_filters_away():
    warnings.filters.clear()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (leaves_a_file, "what the whole process shares"),
        (lambda: np.seterr(all="raise"), "what the whole process shares"),
        (takes_filters_away, "taken filters of warnings away"),
    ],
    ids=["file", "floating point", "filters"],
)
def test_a_change_of_what_all_share_fails_even_if_the_call_answers(call, words):
    warnings.simplefilter("ignore", ResourceWarning)
    with np.errstate(), pytest.raises(AssertionError, match=words):
        attempt(call, ["X"])
    if os.path.exists("left"):
        os.remove("left")


def test_filters_may_be_added():
    """Imports do."""
    assert attempt(lambda: warnings.simplefilter("ignore", ImportWarning), ["X"]) is None


@pytest.mark.parametrize("draw", [random.random, np.random.random], ids=["random", "numpy"])
def test_a_refusal_that_has_drawn_or_spent_fails(draw):
    spent = []

    def refused(work):
        work()
        raise ValueError("X is odd.")

    with pytest.raises(AssertionError, match="left a trace"):
        attempt(lambda: refused(draw), ["X"])
    with pytest.raises(AssertionError, match="left a trace"):
        attempt(lambda: refused(lambda: spent.append(1)), ["X"], unchanged=lambda: len(spent))
