"""AttackResult: its figures, its refusals, and its storage."""

import json
from dataclasses import replace

import numpy as np
import pytest

from skprivacy.attacks import AttackResult
from skprivacy.display import MembershipRocDisplay
from skprivacy.metrics.rates import auc_p_value


@pytest.fixture
def result():
    rng = np.random.default_rng(0)
    return AttackResult(rng.normal(1, 1, 200), rng.normal(0, 1, 150), "made up")


def test_round_trip_through_json(result):
    again = AttackResult.from_dict(json.loads(result.to_json()))
    assert again.to_dict() == result.to_dict()
    assert repr(again) == repr(result)


def test_json_says_null_where_refused_or_infinite(result):
    points = json.loads(result.to_json())["operating_points"]
    assert [point["refused"] is None for point in points] == [True, True, False]
    assert points[2]["tpr"] is None
    told = AttackResult([1.0], [0.0], details={"threshold": np.inf, "of": (1.0, np.nan)})
    assert json.loads(told.to_json())["details"] == {"threshold": None, "of": [1.0, None]}


def test_frame_has_one_row_of_figures(result):
    row = result.to_frame().iloc[0]
    assert row["attack"] == "made up"
    assert row["auc_low"] < row["auc"] < row["auc_high"]
    assert np.isnan(row["tpr_at_0.001"])
    assert row["tpr_at_0.01_realised_fpr"] <= 0.01


def test_records_risk_is_a_p_value(result):
    table = result.records()
    assert len(table) == 350
    assert table["member"].sum() == 200
    # among non-members a risk is uniform: at most a share r of them has risk <= r
    risk = table.loc[~table["member"], "risk"]
    for level in (0.01, 0.1, 0.5):
        assert (risk <= level).mean() <= level
    best = table["score"].idxmax()
    assert table["risk"][best] == table["risk"].min()


def test_groups_share_the_error(result):
    groups = result.by_group(np.arange(200) % 4, np.arange(150) % 4)
    alone = AttackResult(result.scores_in[::4], result.scores_out[::4])
    assert groups.loc[0, "auc"] == alone.auc
    assert groups.loc[0, "auc_low"] < alone.auc_interval[0]  # Bonferroni: wider than alone
    assert groups["n_in"].sum() == 200
    each = [auc_p_value(result.scores_in[k::4], result.scores_out[k::4]) for k in range(4)]
    assert groups["p_value"].min() == pytest.approx(min(1.0, 4 * min(each)))  # Holm


def test_groups_refuse_rates_that_they_are_too_small_for(result):
    groups = result.by_group(np.arange(200) % 2, np.arange(150) < 120)
    assert np.isnan(groups.loc[0, "tpr_at_0.01"])  # 30 non-members
    part = AttackResult(result.scores_in[1::2], result.scores_out[:120], alpha=0.025)
    assert groups.loc[1, "tpr_at_0.01"] == part.tpr_at_fpr(0.01).tpr
    assert groups.loc[1, "tpr_at_0.01_high"] == part.tpr_at_fpr(0.01).interval[1]


def test_group_without_members_is_told(result):
    groups = result.by_group(np.zeros(200), np.arange(150) % 2)
    assert np.isnan(groups.loc[1.0, "auc"])
    assert groups.loc[1.0, "n_in"] == 0


def test_the_group_that_is_exposed_is_marked():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 900))
    scores[0, ::3] += 1
    groups = AttackResult(*scores).by_group(*[np.arange(900) % 3] * 2)
    assert groups["exposed"].tolist() == [True, False, False]
    assert (groups["p_value"] <= 1).all()
    lonely = AttackResult(*scores).by_group(np.arange(900) % 3, np.arange(900) % 2)
    assert np.isnan(lonely.loc[2, "p_value"])
    assert not lonely.loc[2, "exposed"]
    few = AttackResult([9.0] * 4 + [1.0] * 9, np.zeros(20)).by_group([0] * 4 + [1] * 9, [0, 1] * 10)
    assert few["exposed"].tolist() == [False, True]


@pytest.mark.slow
def test_null_groups_are_rarely_singled_out():
    # 20 groups of noise, 40 runs: any group excluding 0.5 is a false alarm of the whole run
    missed = marked = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        groups = AttackResult(*rng.normal(size=(2, 800))).by_group(*[np.arange(800) % 20] * 2)
        missed += bool(((groups["auc_low"] > 0.5) | (groups["auc_high"] < 0.5)).any())
        marked += bool(groups["exposed"].any())
    assert max(missed, marked) <= 6  # P[Bin(40, 0.05) > 6] < 0.004


def test_precision_recall(result):
    assert result.precision_recall(np.inf)[1] == 0
    assert np.isnan(result.precision_recall(np.inf)[0])
    assert result.precision_recall(-np.inf) == (0.5, 1.0)
    # unequal sample sizes do not move precision
    twice = AttackResult(np.tile(result.scores_in, 2), result.scores_out)
    assert twice.precision_recall(0.5) == result.precision_recall(0.5)


@pytest.mark.parametrize(("scores_in", "scores_out"), [([1.0], [0.0]), ([0.0] * 9, [0.0] * 9)])
def test_smallest_and_constant_samples(scores_in, scores_out):
    result = AttackResult(scores_in, scores_out)
    assert result.epsilon_lower_bound() == 0
    assert result.auc_interval[0] < 0.5 < result.auc_interval[1] or result.auc == 1
    json.loads(result.to_json())
    result.to_frame()
    result.records()
    assert "AUC" in repr(result)


def test_chance_is_called_chance():
    rng = np.random.default_rng(0)
    noise = AttackResult(*rng.normal(size=(2, 500)))
    assert noise.is_chance
    assert "no better than chance" in repr(noise)
    leak = AttackResult(rng.normal(1, 1, 500), rng.normal(0, 1, 500))
    assert not leak.is_chance
    assert "chance" not in repr(leak)
    sure = AttackResult(range(60, 160), range(100), alpha=0.01)
    assert repr(sure).endswith("at delta 0 (confidence 99%)")
    assert "BELOW CHANCE" in repr(AttackResult(range(100), range(60, 160)))


def test_display(result):
    display = MembershipRocDisplay.from_result(result, bound=lambda fpr: min(1.0, 3 * fpr))
    assert display.ax_.get_xscale() == display.ax_.get_yscale() == "log"
    assert display.bound_.get_label() == "guarantee"
    assert display.plot(display.ax_, name="again", color="red").line_.get_label() == "again"
    guarantee = type("Guarantee", (), {"tpr_bound": staticmethod(lambda fpr: fpr)})()
    MembershipRocDisplay.from_result(result, ax=display.ax_, bound=guarantee)


@pytest.mark.heavy
def test_names_with_dollars_are_drawn_as_they_are(result):
    """matplotlib takes what is between two of them for a formula, and \\x for an error in it."""
    odd = replace(result, attack="A$\\x$")
    display = MembershipRocDisplay.from_result(odd)
    display.ax_.legend()
    display.figure_.canvas.draw()
    assert r"\$" in display.line_.get_label()


def test_the_name_of_an_attack_steers_no_terminal(result):
    assert repr(replace(result, attack="\x1b[2J")).startswith("\\x1b[2J: AUC")
