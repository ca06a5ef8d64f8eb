"""Odd scores, counts and probabilities for every metric, and for the figures drawn of them."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from skprivacy import metrics
from skprivacy.display import MembershipRocDisplay

from .oracle import attempt, few
from .values import arguments

pytestmark = pytest.mark.heavy

_RNG = np.random.RandomState(0)
SCORES = {"scores_in": _RNG.normal(1.0, size=20), "scores_out": _RNG.normal(size=20)}
GUESSES = {"right": 30, "guesses": 40, "n_coins": 100, "delta": 1e-6, "alpha": 0.05}
BOUNDS = {**SCORES, "delta": 0.0, "alpha": 0.05, "random_state": 0}
CALLS = {
    metrics.advantage: SCORES,
    metrics.auc: SCORES,
    metrics.auc_interval: {**SCORES, "alpha": 0.05},
    metrics.bootstrap_epsilon: {**BOUNDS, "n_draws": 20},
    metrics.bound_from_guesses: {**GUESSES, "bound": "approximate"},
    metrics.clopper_pearson: {"k": 3, "n": 10, "alpha": 0.05},
    metrics.epsilon_from_counts: {
        "true_positives": 8, "n_in": 10, "false_positives": 1, "n_out": 10, "delta": 0.0,
        "alpha": 0.05,
    },
    metrics.epsilon_from_guesses: GUESSES,
    metrics.epsilon_lower_bound: {**BOUNDS, "thresholds": None},
    metrics.multi_split_bound: {**BOUNDS, "n_splits": 3},
    metrics.roc: SCORES,
    metrics.tpr_at_fpr: {**SCORES, "fpr": 0.1, "alpha": 0.05},
    metrics.utility_loss: {
        "y_true": np.arange(10) % 2, "unprotected": np.arange(10) % 2, "protected": np.zeros(10),
        "metric": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("function", CALLS)
@given(data=st.data())
@few(10)
def test_metrics(function, data):
    given_ = data.draw(arguments(CALLS[function], least=1))
    attempt(lambda: function(**given_), {*given_, "scores", "seed"})


@given(data=st.data())
@few(5)
def test_displays(data):
    given_ = data.draw(arguments({**SCORES, "alpha": 0.05, "name": None, "bound": None}, least=1))
    assume(not callable(given_["bound"]))  # what a function of the caller's raises is passed on
    attempt(lambda: MembershipRocDisplay.from_predictions(**given_), given_)
    plt.close("all")
