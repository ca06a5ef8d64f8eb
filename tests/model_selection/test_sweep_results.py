"""The plot of a sweep hides none of its lines."""

import pytest
from matplotlib.figure import Figure

from skprivacy.display.privacy_utility import PrivacyUtilityDisplay


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
