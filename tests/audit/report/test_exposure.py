"""Exposed groups and records: found where they exist, hardly ever elsewhere."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

from skprivacy import audit
from skprivacy.attacks import AttackResult, LossThreshold
from skprivacy.attacks import attack_result as result_module
from skprivacy.audit.report import findings as _exposure
from skprivacy.audit.report.findings import exposed_records, group_exposures, group_partitions

pytestmark = pytest.mark.heavy

X, y = make_classification(1200, n_features=6, flip_y=0.0, class_sep=3.0, random_state=0)
WARD = np.array(["A", "B", "C"])[np.arange(1200) % 3]
# Labels of ward C are noise: a tree can only remember them.
y = np.where(WARD == "C", np.random.default_rng(0).integers(0, 2, 1200), y)
PARTS = X[:600], y[:600], X[600:], y[600:]
TREE = DecisionTreeClassifier(random_state=0).fit(*PARTS[:2])


@pytest.fixture(scope="module")
def report():
    return audit(TREE, *PARTS, attacks=LossThreshold(), subgroups=(WARD[:600], WARD[600:]))


def test_the_exposed_subgroup_is_found_and_no_other(report):
    table = report.by_group().set_index(["by", "group"])
    assert table.index.tolist()[0] == ("subgroup", "C")
    assert table.loc[("subgroup", "C"), "exposed"]
    assert table.loc[("subgroup", "C"), "auc"] > 0.65
    alone = report.findings[0].result
    of_c = WARD == "C"
    by_hand = AttackResult(alone.scores_in[of_c[:600]], alone.scores_out[of_c[600:]])
    assert table.loc[("subgroup", "C"), "auc"] == by_hand.auc
    assert table.loc[("subgroup", "C"), ["n_in", "n_out"]].tolist() == [200, 200]
    assert table.loc[("subgroup", "C"), "auc_low"] < by_hand.auc_interval[0]  # five comparisons
    assert sorted(table.loc["class"].index) == ["0", "1"]


def test_the_most_exposed_group_comes_first_in_every_form(report):
    assert report.to_dict()["groups"][0]["group"] == "C"
    said = "most exposed, corrected for all groups and attacks: subgroup C, AUC"
    assert said in repr(report)
    assert report.most_exposed[0].group == "C"
    assert all(group.exposed for group in report.most_exposed)
    assert len(report.strongest_on_groups) == 5
    assert "<td>subgroup C</td>" in report.to_html()


def test_a_group_that_leads_by_chance_is_not_listed_as_exposed():
    """Of forty groups without a leak one always came first, under "most exposed"."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40).astype(str), 20)
    chance = AttackResult(*rng.normal(size=(2, 800)))
    found = group_exposures([chance], {"g": (groups, groups)}, 0.05)
    first = max(found, key=lambda exposure: exposure.auc)
    assert first.auc > 0.6
    tree = audit(TREE, *PARTS, attacks=LossThreshold())
    quiet = replace(tree, exposures=found)
    assert quiet.most_exposed == []
    assert "most exposed" not in repr(quiet)
    page = quiet.to_html()
    assert "No group is exposed beyond chance." in page
    assert "(Bonferroni)" in page
    assert "(Holm)" in page
    assert len(quiet.to_dict()["groups"]) == 40


def test_columns_may_be_named():
    frames = [pd.DataFrame(part, columns=list("abcdef")) for part in PARTS[::2]]
    for frame, ward in zip(frames, (WARD[:600], WARD[600:]), strict=True):
        frame["ward"] = pd.Categorical(ward)
        frame.loc[3, "ward"] = None
    for column in ("ward", 6):
        parts = group_partitions(column, frames[0], PARTS[1], frames[1], PARTS[3])
        assert np.unique(parts[str(column)][0]).tolist() == ["A", "B", "C", "missing"]
    assert list(group_partitions(None, X, X[:, 0], X, X[:, 0])) == []  # residuals have no classes


@pytest.mark.parametrize(
    ("subgroups", "words"),
    [
        ("ward", "no such column"),
        (17, "no such column"),
        (WARD, "pair of arrays"),
        ((WARD, WARD), "1,200 and 1,200 values; expected one for each record, 600"),
        ((X[:600, 0], X[600:, 0]), "1,200 different values; expected at most 100"),
    ],
)
def test_subgroups_that_do_not_fit_are_refused_before_training(subgroups, words):
    with pytest.raises(ValueError, match=words):
        audit(TREE, *PARTS, subgroups=subgroups)


def test_groups_too_small_to_show_anything_are_left_out():
    scores = AttackResult(np.arange(100.0) + 50, np.arange(100.0))
    sizes = np.repeat(["large", "four"], [96, 4])
    assert [e.group for e in group_exposures([scores], {"g": (sizes, sizes)}, 0.05)] == ["large"]


def records_that_stand_out():
    scores = np.random.default_rng(0).normal(size=(2, 400))
    scores[0, ::8] += 6
    return AttackResult(*scores, "made up")


def test_exposed_records_are_those_that_stand_out():
    found = exposed_records([records_that_stand_out()], 0.05)
    planted = set(range(0, 400, 8))
    assert planted <= set(found["row"])
    assert len(set(found["row"]) - planted) <= 0.2 * len(found)
    assert found["q_value"].is_monotonic_increasing
    assert (found["attack"] == "made up").all()
    assert exposed_records([], 0.05).empty


DRAWS = [
    lambda rng, n: rng.normal(size=n),
    lambda rng, n: rng.integers(0, 3, n).astype(float),
    lambda rng, n: (rng.random(n) < 0.03).astype(float),
]


def null_alarms(draw, alpha, runs):
    """Count audits that accuse any of ten groups, of unequal sizes, by two attacks: all falsely."""
    rng, alarms, misses = np.random.default_rng(0), 0, 0
    groups = rng.choice(10, 300, p=np.arange(1, 11) / 55), rng.choice(10, 300)
    for _ in range(runs):
        first = [draw(rng, 300) for _ in range(2)]
        second = [scores + 0.5 * draw(rng, 300) for scores in first]
        results = [AttackResult(*first, "first"), AttackResult(*second, "second")]
        found = group_exposures(results, {"group": groups}, alpha)
        assert len(found) == 20
        alarms += any(e.exposed for e in found)
        misses += any(e.auc_low > 0.5 or e.auc_high < 0.5 for e in found)
    return alarms, misses


@pytest.mark.slow
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_any_group_is_accused_falsely_no_more_often_than_alpha(draw, alpha):
    for wrong in null_alarms(draw, alpha, 150):
        assert wrong <= binom.isf(1e-6, 150, alpha)


@pytest.mark.slow
def test_planted_silence_about_multiplicity_is_caught(monkeypatch):
    monkeypatch.setattr(_exposure, "holm", np.asarray)
    with pytest.raises(AssertionError):
        test_any_group_is_accused_falsely_no_more_often_than_alpha(DRAWS[0], 0.05)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_any_record_is_accused_falsely_no_more_often_than_alpha(draw, alpha):
    rng, runs = np.random.default_rng(0), 300
    accused = sum(
        not exposed_records([AttackResult(draw(rng, 200), draw(rng, 100))], alpha).empty
        for _ in range(runs)
    )
    assert accused <= binom.isf(1e-6, runs, alpha)


@pytest.mark.slow
def test_planted_risks_without_correction_are_caught(monkeypatch):
    monkeypatch.setattr(result_module, "benjamini_hochberg", np.asarray)
    with pytest.raises(AssertionError):
        test_any_record_is_accused_falsely_no_more_often_than_alpha(DRAWS[0], 0.3)


@pytest.mark.slow
def test_few_of_the_accused_records_are_accused_falsely():
    """Of those marked at .2, on average at most a share of .2 score like non-members."""
    rng, shares = np.random.default_rng(0), []
    for _ in range(200):
        scores = rng.normal(size=300)
        scores[:100] += 3
        found = exposed_records([AttackResult(scores, rng.normal(size=300))], 0.2)
        shares.append((found["row"] >= 100).mean() if len(found) else 0.0)
    # 200 shares between 0 and 1 with a spread of about .06: six standard errors
    assert np.mean(shares) <= 0.2 + 6 * np.std(shares) / np.sqrt(200)
