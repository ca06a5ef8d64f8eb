"""The page of a sweep: what it opens with, and a picture that covers none of its own lines."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest
from matplotlib.figure import Figure

from skprivacy.display.privacy_utility import PrivacyUtilityDisplay
from skprivacy.model_selection.sweep_report import brief_of_sweep


@pytest.mark.heavy
@pytest.mark.parametrize("models", [["a"] * 5, ["a"] * 2 + ["b"] * 3])
@pytest.mark.parametrize("width", [4.2, 7.0])
def test_the_legend_of_the_attack_covers_no_line(models, width):
    figure = Figure(figsize=(width, 6), layout="constrained")
    display = PrivacyUtilityDisplay(
        [1, 10, 0.1, 1, 10], [0.7, 0.8, 0.6, 0.65, 0.7], [0.01] * 5, [0.5] * 5, [0.01] * 5,
        attack_auc_bound=[0.6, 0.9, 0.51, 0.6, 0.9], models=models,
    ).plot(axes=figure.subplots(2, 1, sharex=True))  # fmt: skip
    figure.draw_without_rendering()
    below = display.axes_[1]
    legend, axes = below.get_legend().get_window_extent(), below.get_window_extent()
    label = below.xaxis.label.get_window_extent()
    assert legend.y1 < label.y0 < axes.y0
    assert legend.y0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert axes.width > 0.6 * figure.bbox.width


@pytest.mark.slow
@pytest.mark.parametrize("width", [4.2, 7.0])
def test_a_long_legend_of_the_scores_covers_no_line(width):
    figure = Figure(figsize=(width, 8), layout="constrained")
    display = PrivacyUtilityDisplay(
        [1, 10, 1, 10], [0.7, 0.8, 0.65, 0.7], [0.01] * 4, [0.5] * 4, [0.01] * 4,
        models=["a", "a", "b", "b"], baselines={"line": 0.8, "trees": 0.82},
    ).plot(axes=figure.subplots(2, 1, sharex=True))  # fmt: skip
    figure.draw_without_rendering()
    above, below = display.axes_
    legend = above.get_legend().get_window_extent()
    assert legend.y1 < above.get_window_extent().y0
    assert legend.y0 > below.get_window_extent().y1
    assert above.get_window_extent().height > 0.15 * figure.bbox.height


@pytest.mark.parametrize(("level", "entry"), [(0.65, "mean"), (-3.0, "mean: -3, below this range")])
def test_a_constant_far_below_does_not_flatten_the_curve(level, entry):
    display = PrivacyUtilityDisplay(
        [1, 10], [0.7, 0.8], [0.01] * 2, [0.5] * 2, [0.01] * 2, constant={"mean": level}
    ).plot(axes=Figure().subplots(2, 1))
    above = display.axes_[0]
    assert entry in above.get_legend_handles_labels()[1]
    assert 0.6 < above.get_ylim()[0] < 0.7


@pytest.mark.parametrize(
    ("bound", "words"), [(0.6, "guarantee"), (0.9, "guarantee: above this range")]
)
def test_the_legend_names_no_line_that_is_not_there(bound, words):
    display = PrivacyUtilityDisplay(
        [1, 10], [0.7, 0.8], [0.01] * 2, [0.5] * 2, [0.01] * 2, attack_auc_bound=[bound, 0.95],
        baselines={"failed": float("nan"), "line": 0.8},
    ).plot(axes=Figure().subplots(2, 1))  # fmt: skip
    above, below = (ax.get_legend_handles_labels()[1] for ax in display.axes_)
    assert f"ceiling set by the {words}" in below
    assert "line" in above
    assert "failed" not in above


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
