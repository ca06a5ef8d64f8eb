"""Constant predictor of a sweep, useless models, and the loss by the noise and by the model."""

import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.tree import DecisionTreeClassifier

from skprivacy.audit import About
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection.sweep_intervals import Splits, knee, smallest_epsilon
from skprivacy.model_selection.sweep_report import sweep_facts, sweep_to_dict, table

from .test_sweep import Noisy, X, sweep_of, y
from .test_sweep_conformance import Weighted
from .test_sweep_regressors import CV, NoisyNumbers
from .test_sweep_regressors import X as X_numbers
from .test_sweep_regressors import y as numbers

RARE = np.where(X[:, 0] > np.quantile(X[:, 0], 0.87), "yes", "no")
FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)
LINE = {"line": LogisticRegression()}


class Constant(ClassifierMixin, BaseEstimator):
    """Predict one class for each record below an epsilon, and well from there on."""

    def __init__(self, epsilon=1.0, useful_from=math.inf):
        self.epsilon = epsilon
        self.useful_from = useful_from

    def fit(self, X, y):
        useful = self.epsilon >= self.useful_from
        self.model_ = (LogisticRegression() if useful else DummyClassifier()).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)

    def predict(self, X):
        return self.model_.predict(X)


def test_a_constant_model_is_useless_and_no_epsilon_is_recommended():
    sweep = sweep_of(Constant(), epsilons=[1, 2, 3], cv=FOLDS, baseline=LINE).fit(X, RARE)
    assert table(sweep)["useless"].tolist() == [True, True, True, False, False]
    for found in (sweep.smallest_epsilon(1.0), sweep.knee()):
        assert math.isinf(found.epsilon)
        assert math.isinf(found.high)
    page = sweep.to_html()
    assert page.count("<small>useless</small>") == 3
    assert "no epsilon is recommended, as the model is useless at each" in page
    assert "knee:" not in page
    share = f"{np.mean(RARE == 'no'):.3f}"
    assert f"useless by accuracy, not better than the most frequent class ({share})" in page


def test_useless_levels_are_passed_over():
    """All levels lose less than 1; the first two are constants."""
    model = Constant(useful_from=3)
    sweep = sweep_of(model, epsilons=[1, 2, 3, 5], cv=FOLDS, baseline=LINE).fit(X, RARE)
    found = sweep.smallest_epsilon(1.0)
    assert (found.epsilon, found.low, found.high) == (3, 1, 3)
    assert sweep.knee().epsilon == 3
    assert table(sweep)["useless"].tolist() == [True, True, False, False, False, False]
    page = sweep.to_html()
    assert "epsilon 1, epsilon 2</li>" in page
    assert "no epsilon is recommended" not in page


def test_a_score_just_above_the_constant_is_not_shown_to_be_better():
    epsilons, constant = np.array([1.0, 2.0]), np.full(4, 0.87)
    scores = np.array([[0.88, 0.86, 0.88, 0.87], [0.92, 0.91, 0.92, 0.91]])
    found = smallest_epsilon(epsilons, scores, constant, 1.0, Splits(4, 0.25), 0.05, "it", constant)
    assert (found.epsilon, found.high) == (1.0, 2.0)
    curve = np.array([[0.8, 0.8, 0.8, 0.8], [0.86, 0.9, 0.9, 0.9]])
    assert knee(epsilons, curve, constant).epsilon == 2.0
    assert math.isinf(knee(epsilons, curve, constant).high)  # the first split is useless


def test_the_constant_predictor_is_what_one_would_do_by_hand():
    cases = [
        (Noisy(), DummyClassifier(), X, RARE, FOLDS, "most frequent class"),
        (NoisyNumbers(), DummyRegressor(), X_numbers, numbers, CV, "mean"),
    ]
    for model, dummy, records, targets, cv, name in cases:
        sweep = sweep_of(model, epsilons=[1], cv=cv).fit(records, targets)
        results = sweep.constant_results_
        assert results["param_baseline"].tolist() == [name]
        by_hand = cross_validate(dummy, records, targets, cv=cv)["test_score"]
        assert [results[f"split{i}_test_score"][0] for i in range(3)] == by_hand.tolist()
        assert f"{by_hand.mean():.3f}" in sweep.to_html()
        display = sweep.plot()
        levels = {line.get_label(): line.get_ydata()[0] for line in display.axes_[0].lines}
        (drawn,) = (level for label, level in levels.items() if label.startswith(name))
        assert drawn == pytest.approx(by_hand.mean())
        plt.close(display.figure_)


def test_the_constant_predictor_is_weighted_like_the_model():
    """The weights make the rarer class the more frequent one, in fits and in scores."""
    weights = np.where(RARE == "yes", 20.0, 1.0)
    sweep = sweep_of(Weighted(3.0), epsilons=[3.0], cv=FOLDS)
    found = sweep.fit(X, RARE, sample_weight=weights).constant_results_
    for i, (_, test) in enumerate(FOLDS.split(X, RARE)):
        share = np.average(RARE[test] == "yes", weights=weights[test])
        assert share > 0.5
        assert found[f"split{i}_test_score"][0] == pytest.approx(share)


@pytest.mark.filterwarnings("error:The scorer")
def test_a_scorer_that_fails_on_the_constant_alone_is_silent():
    def depth(model, X, y):
        return model.tree_.get_depth()

    sweep = sweep_of(Noisy(), epsilons=[1, 3, 5], cv=2, scoring={"depth": depth}).fit(X, y)
    assert np.isnan(sweep.constant_results_["mean_test_depth"]).all()
    assert not table(sweep)["useless"].any()
    assert sweep.smallest_epsilon(2.0).epsilon == 3


@pytest.mark.parametrize("swept", [False, True])
def test_the_loss_is_split_into_noise_and_model(swept):
    """The tree at infinity is the model without noise, as a baseline or as a level.

    The loss is against the other baseline, even if that is worse.
    """
    free = {"same model without privacy": Noisy(epsilon=np.inf)}
    stump = {"stump": DecisionTreeClassifier(max_leaf_nodes=2, max_features=1, random_state=2)}
    given = stump if swept else stump | free
    epsilons = [1, 3, np.inf] if swept else [3, 1]
    sweep = sweep_of(Noisy(), epsilons=epsilons, cv=FOLDS, baseline=given).fit(X, y)
    found = sweep.split_loss()
    assert found["epsilon"].tolist() == [1, 3]
    assert set(found["compared_with"]) == {"stump"}
    one, other, without = (
        cross_validate(model, X, y, cv=FOLDS)["test_score"]
        for model in (Noisy(1), *stump.values(), *free.values())
    )
    assert other.mean() < without.mean()
    np.testing.assert_allclose(found["loss"], found["noise_loss"] + found["model_loss"])
    for name, lost in (("noise_loss", without - one), ("model_loss", other - without)):
        assert found[name][0] == pytest.approx(lost.mean())
        width = 4.302653 * math.sqrt((1 / 3 + 1 / 2) * lost.var(ddof=1))  # t with 2 degrees
        assert found[f"{name}_high"][0] == pytest.approx(lost.mean() + width, rel=1e-3)
        assert found[f"{name}_low"][0] == pytest.approx(lost.mean() - width, rel=1e-3)
    told = sweep_to_dict(sweep, About(), [])
    assert [row["epsilon"] for row in told["losses"]] == [1, 3]
    json.dumps(told, allow_nan=False)
    page = sweep.to_html()
    assert "The whole loss is against stump." in page
    assert f'<td>1</td>\n<td data-head="Whole loss (95 % intervals)">{found["loss"][0]:.3f}' in page


def test_a_loss_without_its_reference_is_not_split():
    sweep = sweep_of(Noisy(), epsilons=[1, 3], cv=FOLDS).fit(X, y)
    assert sweep.split_loss()[["loss", "noise_loss", "model_loss"]].isna().all(axis=None)
    sections = {section.title: section.facts for section in sweep_facts(sweep, []).sections}
    assert not sections["What the noise costs and what the model costs"]
    alone = sweep_of(Noisy(), epsilons=[1], cv=[next(FOLDS.split(X, y))]).fit(X, y)
    assert "no epsilon" not in alone.to_html()
    with pytest.raises(ValueError, match="One split gives no interval"):
        alone.split_loss()


def test_the_loss_by_default_is_against_boosting():
    two = {"tree": Noisy(), "other": Noisy(relation="add_remove")}
    sweep = PrivacySweepCV(two, epsilons=[1, 3], cv=FOLDS).fit(X, y)
    found = sweep.split_loss()
    assert found["model"].tolist() == ["tree", "tree", "other", "other"]
    assert set(found["compared_with"]) == {"histogram gradient boosting"}
    assert np.isfinite(found.drop(columns=["model", "compared_with"]).to_numpy(float)).all()
