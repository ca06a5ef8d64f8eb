"""Cost of privacy by subgroup: scores and leakage, with few false alarms."""

import json
import math

import matplotlib
import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import KFold, RepeatedKFold
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
from skprivacy.attacks import AttackResult, LabeledRecords, LossThreshold
from skprivacy.audit import About
from skprivacy.metrics.rates import auc_p_value
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection.sweep_intervals import Splits, tabulate_groups
from skprivacy.model_selection.sweep_report import _draw_groups, sweep_facts, sweep_to_dict
from skprivacy.model_selection.sweep_report import page as page_of
from skprivacy.model_selection.sweep_results import _largest_loss

from .test_sweep import Noisy, sweep_of

matplotlib.use("Agg")
N = 1200
X = np.random.default_rng(0).normal(size=(N, 4))
WARD = np.array(["east", "north", "west"])[np.digitize(X[:, 2], [-0.5, 0.5])]
y = np.where(WARD == "west", X[:, 0] > 0, X[:, 1] > 0).astype(int)
CV = KFold(5, shuffle=True, random_state=0)


class Blind(ClassifierMixin, BaseEstimator):
    """At a small epsilon it knows nothing of the west, at infinity all of everybody by heart."""

    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon

    def fit(self, X, y):
        depth = None if np.isinf(self.epsilon) else 3
        columns = [0, 1, 2, 3] if self.epsilon > 5 else [1]
        self.columns_ = columns
        self.tree_ = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X[:, columns], y)
        self.classes_ = self.tree_.classes_
        self.privacy_ = PrivacyGuarantee(GaussianEvent(4.0), at_delta=1e-6)
        return self

    def predict_proba(self, X):
        return self.tree_.predict_proba(X[:, self.columns_])

    def predict(self, X):
        return self.tree_.predict(X[:, self.columns_])


@pytest.fixture(scope="module")
def sweep():
    found = PrivacySweepCV(Blind(), epsilons=[1.0, 3.0], cv=CV, baseline={"all": Blind(9.0)})
    return found.fit(X, y, subgroups=WARD)


@pytest.mark.heavy
def test_the_group_that_pays_is_named_and_no_other(sweep):
    table = sweep.by_group()
    assert table["group"].tolist() == ["east", "north", "west"] * 2
    assert (table["by"] == "subgroup").all()
    assert (table["compared_with"] == "all").all()
    assert table["pays"].tolist() == [False, False, True] * 2
    west = table[(table["group"] == "west") & (table["epsilon"] == 1)].iloc[0]
    assert west["loss"] > 0.2
    assert west["loss_low"] > 0.1
    assert west["loss_low"] < west["loss"] < west["loss_high"]
    assert not table["exposed"].any()  # shallow trees


def test_its_figures_are_what_one_would_compute_by_hand(sweep):
    row = sweep.by_group().set_index(["epsilon", "group"]).loc[1.0, "west"]
    scores, free, areas, p_values, sizes = [], [], [], [], []
    records = LabeledRecords(X, y)
    for train, test in CV.split(X):
        inside = WARD[test] == "west"
        model = Blind(1.0).fit(X[train], y[train])
        scores.append(model.score(X[test][inside], y[test][inside]))
        other = Blind(9.0).fit(X[train], y[train])
        free.append(other.score(X[test][inside], y[test][inside]))
        attack = LossThreshold(model).fit(records)
        result = attack.evaluate(records[train], records[test])
        pair = result.scores_in[WARD[train] == "west"], result.scores_out[inside]
        areas.append(AttackResult(*pair).auc)
        p_values.append(auc_p_value(*pair))
        sizes.append(inside.sum())
    assert row["test_score"] == pytest.approx(np.mean(scores))
    assert row["test_score_std"] == pytest.approx(np.std(scores))
    assert row["loss"] == pytest.approx(np.mean(free) - np.mean(scores))
    assert row["attack_auc"] == pytest.approx(np.mean(areas))
    assert row["n_test"] == pytest.approx(np.mean(sizes))
    smallest = min(1.0, 2 * np.mean(p_values))
    assert smallest <= row["exposed_p_value"] <= min(1.0, 6 * smallest)  # Holm, of six


@pytest.mark.heavy
def test_a_column_groups_and_who_is_exposed_shows():
    """Labels of the north are noise, which a deep tree learns by heart."""
    rng = np.random.default_rng(1)
    noisy = np.where(WARD == "north", rng.integers(0, 2, N), y)
    frame = pd.DataFrame(X).add_prefix("x").assign(ward=pd.factorize(WARD, sort=True)[0])
    deep = sweep_of(Noisy(), epsilons=[1.0, 30.0], cv=CV).fit(frame, noisy, subgroups="ward")
    table = deep.by_group()
    assert (table["by"] == "ward").all()
    assert (table["compared_with"] == "epsilon=30").all()
    exposed = table[table["exposed"]]
    assert set(exposed["group"]) == {"1"}  # the north
    assert set(exposed["epsilon"]) == {30.0}
    assert exposed["attack_auc"].iloc[0] > 0.6


@pytest.mark.slow
def test_the_page_the_picture_and_the_table_show_it(sweep):
    page = sweep.to_html()
    assert "Who pays for privacy" in page
    for _, row in sweep.by_group().iterrows():
        assert f"{row['loss']:.3f}" in page
    facts = sweep_facts(sweep, ["one < two"])
    cells = [cell for section in facts.sections for row in section.rows for cell in row]
    words = [fact.sentence for fact in facts] + [c if isinstance(c, str) else c[0] for c in cells]
    shown = page_of(sweep, About(), ["one < two"], sweep.plot().figure_)
    assert [text for text in words if str(escape(text)) not in shown] == []
    assert page.count('src="data:image/png') == 2
    display = _draw_groups(sweep, None)
    above, below = display.axes_
    drawn = {c.get_label().split(":")[0]: c.lines[0].get_ydata() for c in above.containers}
    table = sweep.by_group()
    for group in ("east", "north", "west"):
        expected = table.loc[table["group"] == group, "test_score"]
        np.testing.assert_allclose(drawn[f"subgroup {group}"], expected)
    level = {line.get_label(): line.get_ydata()[0] for line in above.lines}
    west = table[table["group"] == "west"].iloc[0]
    free = level["subgroup west without privacy"]
    assert free == pytest.approx(west["test_score"] + west["loss"])
    assert below.get_ylabel() == "Attack AUC"
    as_json = json.loads(json.dumps(sweep_to_dict(sweep, About(), [])))
    assert len(as_json["by_group"]) == 6
    assert as_json["by_group"][0]["group"] == "west"
    without = sweep_of(Noisy(), epsilons=[1.0], cv=2).fit(X, y)
    assert "Who pays" not in without.to_html()
    assert "by_group" not in sweep_to_dict(without, About(), [])
    with pytest.raises(ValueError, match="fit was given no subgroups"):
        without.by_group()


@pytest.mark.parametrize(
    ("subgroups", "words"),
    [
        (np.zeros(N - 1), "subgroups has shape"),
        (np.zeros((N, 2)), "subgroups has shape"),
        (np.ma.masked_less(np.arange(N), 5), "subgroups .*masked"),
        (np.arange(N), "1,200 different values"),
        ("ward", "must be a column of X, or the group of each record; there is no such column"),
        (17, "no such column"),
    ],
)
def test_subgroups_that_do_not_fit_are_refused_before_training(subgroups, words):
    class Fatal(Blind):
        def fit(self, X, y):
            raise AssertionError("trained")

    with pytest.raises(ValueError, match=words):
        sweep_of(Fatal(), epsilons=[1.0], cv=CV).fit(X, y, subgroups=subgroups)


def test_small_groups_are_left_out():
    few = WARD.copy()
    few[:6] = "tiny"
    found = sweep_of(Blind(), epsilons=[1.0], cv=CV).fit(X, y, subgroups=few).by_group()
    assert "tiny" not in set(found["group"])


def figures(rng, n_splits, loss, sizes):
    """Return what a candidate and a reference have on each split, by group: coins."""
    rows, reference, total = [], [], sum(sizes.values())
    for _ in range(n_splits):
        row, free = {}, {}
        for part, lost in ((row, loss), (free, dict.fromkeys(sizes, 0.0))):
            right = {g: rng.binomial(n, 0.8 - lost[g]) for g, n in sizes.items()}
            for group, n in sizes.items():
                others = (sum(right.values()) - right[group]) / (total - n)
                score = {"n": n, "score": right[group] / n, "others": others}
                part[group] = score | {"auc": 0.5, "p_value": rng.random()}
        rows.append(row)
        reference.append(free)
    return rows, reference


def tabulated(found, *splits):
    rows = [{"model": "", "epsilon": 1.0, "groups": found[0]}]
    return tabulate_groups(rows, found[1], ("it", "free"), *splits)


def test_the_intervals_hold_together_over_the_whole_table():
    rows, reference = figures(np.random.default_rng(0), 5, {"a": 0.1, "b": 0.1}, {"a": 60, "b": 90})
    candidates = [{"model": "", "epsilon": e, "groups": rows} for e in (1.0, 2.0)]
    few, many = (
        tabulate_groups(candidates[:n], reference, ("it", "free"), Splits(5, 0.25), 0.05)
        for n in (1, 2)
    )
    wider = [(table["loss_high"] - table["loss_low"]).iloc[0] for table in (many, few)]
    quantiles = stats.t.ppf([1 - 0.05 / 8, 1 - 0.05 / 4], 4)  # Bonferroni, two-sided
    assert wider[0] / wider[1] == pytest.approx(quantiles[0] / quantiles[1])


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_promised_over_the_whole_table():
    """Groups of 5 to 200 records, none of which pays more than others or is exposed."""
    rng, alarms, exposed, n = np.random.default_rng(0), 0, 0, 400
    sizes = {"a": 5, "b": 8, "c": 60, "d": 200}
    even = dict.fromkeys(sizes, 0.1)
    for _ in range(n):
        candidates = []
        for epsilon in (0.1, 1.0, 10.0):
            rows, reference = figures(rng, 5, even, sizes)
            candidates.append({"model": "", "epsilon": epsilon, "groups": rows})
        table = tabulate_groups(candidates, reference, ("it", "free"), Splits(5, 0.25), 0.9)
        alarms += table["pays"].any()
        exposed += table["exposed"].any()
    bound = 0.1 + 4 * math.sqrt(0.1 * 0.9 / n)
    assert alarms / n < bound
    assert exposed / n < bound


def test_two_splits_that_happen_to_agree_are_no_certainty():
    """Of five records, two splits often lose exactly as many: their variance is then zero."""
    rng = np.random.default_rng(0)
    sizes, even = {"a": 5, "b": 300, "c": 300}, dict.fromkeys("abc", 0.1)
    rows, reference = figures(rng, 2, even, sizes)
    for row, free in zip(rows, reference, strict=True):
        row["a"]["score"], free["a"]["score"] = 0.6, 0.8
        row["a"]["others"], free["a"]["others"] = 0.7, 0.8
    table = tabulated((rows, reference), Splits(2, 1.0), 0.05)
    assert not table["pays"].any()
    assert (table["loss_high"] > table["loss_low"]).all()


def coarse_intervals(largest_loss):
    """Two splits of five records: Student's quantile of one degree of freedom is enormous."""
    sizes = {"a": 5, "b": 300, "c": 300}
    found = figures(np.random.default_rng(0), 2, dict.fromkeys("abc", 0.1), sizes)
    return tabulated(found, Splits(2, 1.0), 0.05, largest_loss)


def test_a_loss_of_accuracy_lies_between_its_least_and_its_largest_value():
    """A page said: loss 0.023, 95 % interval -2.364 to 2.410."""
    cut, whole = coarse_intervals(1.0), coarse_intervals(np.inf)
    assert whole["loss_low"].min() < -1
    assert whole["loss_high"].max() > 1
    assert cut["loss_low"].min() == -1
    assert cut["loss_high"].max() == 1
    for end, cut_off in (("loss_low", -1), ("loss_high", 1)):
        inside = whole[end].abs() < 1
        assert (cut[end] == np.where(inside, whole[end], cut_off)).all()
    same = ["loss", "pays", "pays_p_value", "exposed"]
    pd.testing.assert_frame_equal(cut[same], whole[same])


@pytest.mark.parametrize(
    ("scoring", "largest"),
    [
        (None, 1.0),
        ("balanced_accuracy", 1.0),
        ("f1_macro", 1.0),
        ("roc_auc", 1.0),
        ("neg_log_loss", np.inf),
        ("r2", np.inf),
        (lambda model, X, y: 2.0, np.inf),
        ({"loss": "neg_log_loss", "accuracy": "accuracy"}, np.inf),
        ({"share": "accuracy"}, 1.0),
    ],
)
def test_only_scores_that_are_shares_have_a_largest_loss(scoring, largest):
    sweep = PrivacySweepCV(Blind(), epsilons=[1.0], scoring=scoring)
    sweep.scores_ = list(scoring) if isinstance(scoring, dict) else ["score"]
    assert _largest_loss(sweep) == largest


def test_planted_effects_are_found():
    rng = np.random.default_rng(0)
    sizes = {"a": 300, "b": 300, "c": 300}
    found = figures(rng, 5, {"a": 0.0, "b": 0.0, "c": 0.3}, sizes)
    table = tabulated(found, Splits(5, 0.25), 0.95)
    assert table["pays"].tolist() == [False, False, True]


def test_repeated_splits_tell_of_other_records_no_more_than_they_hold():
    """Means of two learners on data sets of 60: naive intervals of repeated splits miss often."""
    rng, n = np.random.default_rng(0), 300
    cv = list(RepeatedKFold(n_splits=5, n_repeats=10, random_state=0).split(np.zeros(60)))
    found = []
    for _ in range(n):
        data = rng.normal(0.3, 1.0, 60)
        lost = [
            np.mean(np.abs(data[test]) - np.abs(data[test] - data[train].mean()))
            for train, test in cv
        ]
        found.append(lost)
    lost = np.array(found)
    off = np.abs(lost.mean(axis=1) - lost.mean())
    splits = Splits(50, 0.25)
    width = splits.quantile(0.95) * splits.error(lost.var(axis=1, ddof=1))
    naive = splits.quantile(0.95) * lost.std(axis=1, ddof=1) / np.sqrt(50)
    bound = 0.1 + 4 * math.sqrt(0.1 * 0.9 / n)
    assert (off > width).mean() < bound
    assert (off > naive).mean() > 2 * bound
