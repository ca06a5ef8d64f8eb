"""Sweeps of regressors: scored, attacked and compared like sweeps of classifiers."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import make_regression
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeRegressor

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.attacks import (
    LabeledRecords,
    LiRA,
    LossThreshold,
    ShadowPool,
    SignalThreshold,
    SupervisedAttack,
)
from skprivacy.linear_model import AdaSSPRegressor
from skprivacy.model_selection import PrivacySweepCV

from .test_sweep import Noisy, sweep_of
from .test_sweep import y as labels

X, y = make_regression(300, n_features=6, noise=40.0, random_state=0)
CV = KFold(3, shuffle=True, random_state=0)


class NoisyNumbers(RegressorMixin, BaseEstimator):
    """A tree that is shallow for a small epsilon."""

    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon

    def fit(self, X, y):
        depth = None if np.isinf(self.epsilon) else max(1, int(self.epsilon))
        self.tree_ = DecisionTreeRegressor(max_depth=depth, random_state=0).fit(X, y)
        event = NonPrivateEvent() if np.isinf(self.epsilon) else GaussianEvent(4 / self.epsilon)
        self.privacy_ = PrivacyGuarantee(event, at_delta=1e-6, relation="zero_out")
        return self

    def predict(self, X):
        return self.tree_.predict(X)


def test_scores_are_those_of_grid_search_and_residuals_are_attacked():
    sweep = sweep_of(NoisyNumbers(), epsilons=[1, 5, np.inf], cv=CV).fit(X, y)
    search = GridSearchCV(NoisyNumbers(), {"epsilon": [1, 5, np.inf]}, cv=CV).fit(X, y)
    expected, results = search.cv_results_["mean_test_score"], sweep.cv_results_
    np.testing.assert_allclose(results["mean_test_score"], expected)
    train, test = next(iter(CV.split(X)))
    records = LabeledRecords(X, y)
    attack = LossThreshold(NoisyNumbers(5).fit(X[train], y[train])).fit(records)
    by_hand = attack.evaluate(records[train], records[test]).auc
    assert results["split0_attack_auc"][1] == pytest.approx(by_hand)
    assert results["mean_attack_auc"][0] < 0.6  # a stump
    assert results["mean_attack_auc"][2] > 0.9  # a tree that has learned its records by heart
    assert sweep.plot().axes_[0].get_ylabel() == "Test R²"


@pytest.mark.heavy
def test_shadow_models_of_regressors_find_more():
    attack = LiRA(pool=8, random_state=0)
    sweep = sweep_of(NoisyNumbers(), epsilons=[6.0], cv=CV, attack=attack).fit(X, y)
    train, test = next(iter(CV.split(X)))
    pool = ShadowPool(NoisyNumbers(6.0), n_shadows=8, random_state=0).fit(X, y)
    fitted = LiRA(NoisyNumbers(6.0).fit(X[train], y[train]), pool=pool, random_state=0)
    order = np.r_[train, test]
    records = LabeledRecords(X, y)
    result = fitted.fit(records[order]).evaluate(records[train], records[test])
    assert sweep.cv_results_["split0_attack_auc"][0] == pytest.approx(result.auc)
    assert sweep.cv_results_["mean_attack_auc"][0] > 0.6


@pytest.mark.slow
def test_baselines_of_regressors():
    sweep = PrivacySweepCV(NoisyNumbers(), epsilons=[1], cv=CV).fit(X, y)
    results = sweep.baseline_results_
    names = ["histogram gradient boosting", "same model without privacy"]
    assert list(results["param_baseline"]) == names
    boosting = HistGradientBoostingRegressor(random_state=0)
    expected = cross_validate(boosting, X, y, cv=CV)["test_score"]
    assert [results[f"split{i}_test_score"][0] for i in range(3)] == list(expected)
    assert (results["mean_attack_auc"] > 0.6).all()


@pytest.mark.heavy
def test_a_private_regressor_of_ours():
    model = make_pipeline(
        FunctionTransformer(np.tanh),
        AdaSSPRegressor(delta=1e-5, bounds=(-1, 1), target_bounds=(-500, 500)),
    )
    sweep = PrivacySweepCV(model, epsilons=[1, 10], cv=CV, refit=10.0).fit(X, y)
    assert np.isfinite(sweep.cv_results_["mean_attack_auc"]).all()
    assert (sweep.cv_results_["mean_attack_auc_bound"] > 0.5).all()
    assert sweep.predict(X).shape == y.shape
    assert sweep.score(X, y) == sweep.estimator_.score(X, y)
    assert not hasattr(sweep, "classes_")


def test_options_of_classifiers_are_refused_for_regressors_before_any_training():
    class Fatal(NoisyNumbers):
        def fit(self, X, y):
            raise AssertionError("trained")

    for arguments, targets, words in [
        ({"attack": SignalThreshold()}, y, "needs classes, and the estimator is a regressor"),
        ({"attack": SupervisedAttack()}, y, "learns from known members"),
        ({"estimator": {"a": Fatal(), "b": Noisy()}}, y, "classifiers and regressors"),
        ({}, np.where(labels[:300], "yes", "no"), "could not convert|dtype"),
        ({}, np.r_[y[:-1], np.nan], "NaN"),
    ]:
        given = {"estimator": Fatal(), "epsilons": [1.0], "cv": CV} | arguments
        with pytest.raises(ValueError, match=words):
            sweep_of(**given).fit(X, targets)
