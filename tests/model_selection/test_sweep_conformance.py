"""PrivacySweepCV as a search of scikit-learn: parameters, routing, scorers, pickles."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, get_scorer, make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skprivacy.accounting import PrivacyBudget
from skprivacy.attacks import LiRA
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.preprocessing import PrivateStandardScaler

from .test_sweep import Noisy, charged_to, sweep_of

X, y = make_classification(240, n_features=5, flip_y=0.2, random_state=0)
WEIGHTS = np.random.default_rng(0).uniform(0.1, 5.0, len(y))
CV = StratifiedKFold(3, shuffle=True, random_state=0)


class Weighted(Noisy):
    """A tree that takes weights."""

    def fit(self, X, y, sample_weight=None):
        return self._fit(X, y, sample_weight)


def same_scores(sweep, search):
    for i in range(3):
        for part in ("test", "train"):
            key = f"split{i}_{part}_score"
            np.testing.assert_allclose(sweep.cv_results_[key], search.cv_results_[key], err_msg=key)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("scoring", [None, "roc_auc", make_scorer(accuracy_score)])
def test_weights_of_records_reach_every_fit(scoring):
    if scoring is not None:
        scoring = get_scorer(scoring) if isinstance(scoring, str) else scoring
    grid = {"epsilon": [2.0, 4.0]}
    sweep = sweep_of(Weighted(), epsilons=[2.0, 4.0], cv=CV, scoring=scoring, refit=4.0)
    search = GridSearchCV(Weighted(), grid, cv=CV, scoring=scoring, return_train_score=True)
    sweep.fit(X, y, sample_weight=WEIGHTS)
    with config_context(enable_metadata_routing=True):
        asking = Weighted().set_fit_request(sample_weight=True)
        asking.set_score_request(sample_weight=True)
        judge = scoring and deepcopy(scoring).set_score_request(sample_weight=True)
        routed = sweep_of(asking, epsilons=[2.0, 4.0], cv=CV, scoring=judge, refit=4.0)
        routed.fit(X, y, sample_weight=WEIGHTS)
        theirs = GridSearchCV(asking, grid, cv=CV, scoring=judge, return_train_score=True)
        same_scores(routed, theirs.fit(X, y, sample_weight=WEIGHTS))
        assert routed.score(X, y, sample_weight=WEIGHTS) != routed.score(X, y)
    expected = Weighted(4.0).fit(X, y, sample_weight=WEIGHTS).predict_proba(X)
    np.testing.assert_array_equal(sweep.predict_proba(X), expected)
    if hasattr(get_scorer("accuracy"), "_accept_sample_weight"):  # scikit-learn 1.7
        same_scores(sweep, search.fit(X, y, sample_weight=WEIGHTS))
    with pytest.raises(ValueError, match="only with"):
        sweep.score(X, y, sample_weight=WEIGHTS)


def test_unrequested_metadata_is_refused_before_any_fit():
    class Fatal(Weighted):
        def fit(self, X, y, sample_weight=None):
            raise AssertionError("trained")

    with config_context(enable_metadata_routing=True):
        for model, given in ((Fatal(), "sample_weight"), (Fatal(), "other")):
            with pytest.raises((TypeError, ValueError), match=given):  # not the AssertionError
                sweep_of(model, epsilons=[1.0], cv=CV).fit(X, y, **{given: WEIGHTS})
        scored = Weighted().set_fit_request(sample_weight=False)
        scored.set_score_request(sample_weight=True)
        sweep = sweep_of(scored, epsilons=[2.0], cv=CV, refit=2.0)
        sweep.fit(X, y, sample_weight=WEIGHTS)
        plain = Weighted(2.0).fit(X, y).predict_proba(X)
        np.testing.assert_array_equal(sweep.predict_proba(X), plain)


@pytest.mark.filterwarnings("ignore:The estimator Weighted takes no groups")
def test_groups_reach_the_splitter_with_and_without_routing():
    groups = np.arange(len(y)) // 8
    plain = sweep_of(Weighted(), epsilons=[2.0], cv=GroupKFold(3)).fit(X, y, groups=groups)
    with config_context(enable_metadata_routing=True):
        routed = sweep_of(Weighted(), epsilons=[2.0], cv=GroupKFold(3)).fit(X, y, groups=groups)
    assert routed.best_score_ == plain.best_score_
    other = sweep_of(Weighted(), epsilons=[2.0], cv=3).fit(X, y)
    assert other.best_score_ != plain.best_score_


@pytest.mark.slow
def test_shadows_and_baselines_are_given_the_weights_too():
    seen = []

    class Watched(Weighted):
        def fit(self, X, y, sample_weight=None):
            seen.append(sample_weight is not None and len(sample_weight) == len(y))
            return super().fit(X, y, sample_weight)

    attack = LiRA(pool=4, random_state=0)
    given = {"line": LogisticRegression(), "pipeline": make_pipeline(Weighted(3.0))}
    models = make_pipeline(FunctionTransformer(np.tanh), Watched())
    sweep = PrivacySweepCV(models, epsilons=[3.0], cv=CV, attack=attack, baseline=given)
    sweep.fit(X, y, watched__sample_weight=WEIGHTS)
    assert seen == [True] * (4 + 3)
    by_hand = []
    for train, test in CV.split(X, y):
        line = LogisticRegression().fit(X[train], y[train], sample_weight=WEIGHTS[train])
        by_hand.append(line.score(X[test], y[test]))
    line = [sweep.baseline_results_[f"split{i}_test_score"][0] for i in range(3)]
    np.testing.assert_allclose(line, by_hand)
    with pytest.raises(ValueError, match=r"LiRA cannot train its own models"):
        sweep.fit(X, y, functiontransformer__sample_weight=WEIGHTS)
    auto = PrivacySweepCV(Weighted(), epsilons=[3.0], cv=CV).fit(X, y, sample_weight=WEIGHTS)
    assert auto.baseline_results_["mean_test_score"][0] > 0.6
    with config_context(enable_metadata_routing=True):
        asking = make_pipeline(Weighted().set_fit_request(sample_weight=True))
        judge = make_scorer(accuracy_score).set_score_request(sample_weight=True)
        routed = PrivacySweepCV(asking, epsilons=[3.0], cv=CV, attack=attack, scoring=judge)
        routed.fit(X, y, sample_weight=WEIGHTS)
        assert routed.cv_results_["mean_attack_auc"][0] > 0.5


@pytest.mark.parametrize(
    "scorer",
    [
        lambda model, X, y: {"a": 1.0},
        lambda model, X, y: None,
        lambda model, X, y: "good",
        lambda model, X, y: np.ones(len(y)),
    ],
)
def test_a_scorer_that_returns_no_number_is_refused_before_anything_is_charged(scorer):
    budget = PrivacyBudget(10.0)
    model = charged_to(budget)
    for scoring in (scorer, {"ok": "accuracy", "ill": scorer}):
        with pytest.raises(ValueError, match="expected a number"):
            sweep_of(model, epsilons=[1.0], cv=2, scoring=scoring).fit(X, y)
    assert budget.spent() == 0


def test_a_scorer_that_fails_costs_its_own_score_alone():
    """The models have been paid for; the other scores and the attack are still there."""

    def picky(model, X, y):
        return model.no_such_attribute

    scoring = {"fine": "accuracy", "picky": picky}
    with pytest.warns(UserWarning, match=r"scorer 'picky' failed.*AttributeError"):
        sweep = sweep_of(Noisy(), epsilons=[1.0], cv=2, scoring=scoring).fit(X, y)
    assert np.isnan(sweep.cv_results_["mean_test_picky"]).all()
    assert sweep.cv_results_["mean_test_fine"][0] > 0.6


def test_parameters_are_those_of_a_search():
    sweep = sweep_of(make_pipeline(Noisy()), epsilons=[1.0, 2.0], cv=2, refit=1.0)
    names = sweep.get_params()
    assert names["estimator__noisy__epsilon"] == 1.0
    assert sweep.set_params(estimator__noisy__epsilon=3.0).estimator[-1].epsilon == 3.0
    copy = clone(sweep)
    assert copy is not sweep
    assert copy.get_params(deep=False).keys() == sweep.get_params(deep=False).keys()
    fitted = copy.fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.charged_ == fitted.charged_
    assert list(fitted.scorer_) == ["score"]
    # without refit the earlier model must not answer in its place
    assert not hasattr(fitted.set_params(refit=None).fit(X, y), "predict")
    assert not hasattr(fitted, "estimator_")


@pytest.mark.heavy
def test_all_private_steps_of_a_pipeline_are_in_the_total():
    """A private scaler and a model, each with its epsilon, on every split and once more."""
    model = make_pipeline(
        PrivateStandardScaler(epsilon=0.5, bounds=(-6, 6), relation="zero_out"),
        OutputPerturbationClassifier(bounds=(-3, 3), classes=[0, 1], relation="zero_out"),
    )
    name = "outputperturbationclassifier__epsilon"
    sweep = sweep_of(model, epsilons=[1.0, 2.0], cv=3, param_name=name, refit=2.0).fit(X, y)
    claimed = sweep.cv_results_["mean_claimed_epsilon"]
    np.testing.assert_allclose(claimed, [1.5, 2.5], rtol=1e-3)
    each = [guarantee.epsilon() for guarantee in sweep.guarantees_]
    np.testing.assert_allclose(each, [4.5, 7.5], rtol=1e-3)
    assert sweep.charged_.epsilon() == pytest.approx(3 * 1.5 + 4 * 2.5, rel=1e-3)
    assert sweep.charged_.kind == "proved"
    with pytest.raises(ValueError, match="2 parameters called epsilon"):
        sweep_of(model, epsilons=[1.0], cv=3).fit(X, y)
