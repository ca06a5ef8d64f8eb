"""The oracle of odd input: what it lets pass, and records in every container under it."""

import os
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skprivacy.accounting import PrivacyBudget

from ..contracts.cases import CASES, LABELS
from ..contracts.refusals import _state as state_of
from . import containers
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


N = 24
# One of each way in; the others are met by chance in test_entries.
NAMES = [
    "OutputPerturbationClassifier",
    "MarginalSynthesizer-independent",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in [
            "AdaSSPRegressor", "ALMFineTuner", "DPFederatedClassifier", "DPSGDRegressor",
            "PATEClassifier", "PrivateStandardScaler", "RandomizedResponseClassifier",
            "SyntheticDataClassifier",
        ]
    ),
]  # fmt: skip
KINDS = [
    *(("X", how) for how in (*containers.TABLES, *containers.COLUMNS)),
    *(("y", how) for how in containers.LABELS),
]


def kept(which, how, X, y):
    if which == "y":
        return X, containers.LABELS[how](y)
    if how in containers.TABLES:
        return containers.TABLES[how](X), y
    return containers.with_column(X, containers.COLUMNS[how](len(X))), y


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_records_kept_otherwise(name):
    case, wrong = {**CASES, **LABELS}[name], []
    for which, how in KINDS:
        X, y = case.data(N)
        X, y = kept(which, how, X, y)
        budget = PrivacyBudget(100.0, 1e-2)
        model = case.make(budget=budget)
        names = {*model.get_params(), "X", "y", "budget", "parties"}
        try:
            fitted = attempt(
                lambda model=model, X=X, y=y: model.fit(X, y),
                names,
                unchanged=lambda model=model, budget=budget: (
                    len(budget.entries()), state_of(model)
                ),
            )  # fmt: skip
            if not isinstance(fitted, Refused):
                assert len(budget.entries())
                assert np.isfinite(model.epsilon_) or hasattr(model, "synthesizer_")
        except BaseException as error:
            wrong.append(f"{which} kept as {how}: {error!r:.200}")
    assert not wrong, "\n".join(wrong)
