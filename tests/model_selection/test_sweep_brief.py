"""The page of a sweep opens with the cost of privacy, and with the success of the attack."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from skprivacy.model_selection.sweep_report import brief_of_sweep

SWEEP = SimpleNamespace(score_name_="accuracy", attack_name_="LiRA")
ROWS = [
    # model, baseline, epsilon, test score, AUC, ceiling
    ("", False, 0.1, 0.5, 0.51, 0.52),
    ("", False, 2.0, 0.7, 0.55, 0.63),
    ("", False, math.inf, 0.8, 0.9, 1.0),
    ("forest", True, math.inf, 0.85, math.nan, math.nan),
]


def table(rows):
    names = ["model", "baseline", "epsilon", "test_score", "attack_auc", "attack_auc_bound"]
    return pd.DataFrame(rows, columns=names).assign(test_score_std=0.01, attack_auc_std=0.02)


def test_the_level_next_to_one_is_compared_with_the_model_without_privacy():
    cost, gain, limit, _ = (answer for _, answer in brief_of_sweep(SWEEP, table(ROWS)))
    assert cost == (
        "The test accuracy is 0.700 (0.680 to 0.720) at epsilon 2, and 0.800 (0.780 to 0.820) "
        "without privacy."
    )
    assert "0.900 (0.860 to 0.940) without privacy, and 0.550 (0.510 to 0.590) at epsilon 2" in gain
    assert limit.endswith("limits the true AUC at epsilon 2 to 0.630.")


def test_a_baseline_stands_in_for_a_level_that_was_not_swept():
    cost, gain, *_ = (answer for _, answer in brief_of_sweep(SWEEP, table([*ROWS[:2], ROWS[3]])))
    assert "and 0.850 (0.830 to 0.870) without privacy" in cost
    assert "with an AUC of 0.550 (0.510 to 0.590) at epsilon 2. Guessing" in gain


@pytest.mark.parametrize("rows", [ROWS[2:], ROWS[3:]])
def test_without_a_private_level_nothing_is_answered(rows):
    assert brief_of_sweep(SWEEP, table(rows)) == []


def test_each_of_several_models_is_named():
    rows = [("net", *ROWS[1][1:]), ("votes", *ROWS[0][1:])]
    questions = [question for question, _ in brief_of_sweep(SWEEP, table(rows))]
    assert questions[0] == "What does the privacy of net cost?"
    assert questions[3] == "What does the privacy of votes cost?"
