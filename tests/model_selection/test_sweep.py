"""PrivacySweepCV: every model once, results as in GridSearchCV, and the stated cost."""

import os
import pickle
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import markupsafe
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, recall_score
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivacy.accounting import GaussianEvent, LaplaceEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.attacks import LabeledRecords, LiRA, LossThreshold, ShadowPool
from skprivacy.audit import About, claim_of
from skprivacy.exceptions import BudgetExceededError, PrivacyWarning
from skprivacy.label_privacy import RandomizedResponseClassifier
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection.sweep_plan import check_affordable, check_first_fits
from skprivacy.model_selection.sweep_records import Candidate, Records, _make_boosting
from skprivacy.neural_network import Distributed, DPSGDClassifier
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

from ..contracts.cases import CASES, LABELS

matplotlib.use("Agg")
# Baselines take longer than all else here; other tests cover them.
sweep_of = partial(PrivacySweepCV, baseline=None)
X, y = make_classification(400, n_features=8, flip_y=0.2, random_state=0)


class Noisy(ClassifierMixin, BaseEstimator):
    """A tree that is shallow for a small epsilon; it appends a line to a file for each fit."""

    def __init__(self, epsilon=1.0, log=None, relation="zero_out"):
        self.epsilon = epsilon
        self.log = log
        self.relation = relation

    def fit(self, X, y):
        return self._fit(X, y)

    def _fit(self, X, y, sample_weight=None):
        if self.log:
            with Path(self.log).open("a") as stream:
                stream.write(f"{self.epsilon} {len(y)} {os.getpid()}\n")
        depth = None if np.isinf(self.epsilon) else max(1, int(self.epsilon))
        tree = DecisionTreeClassifier(max_depth=depth, random_state=0)
        self.tree_ = tree.fit(X, y, sample_weight=sample_weight)
        self.classes_ = self.tree_.classes_
        event = NonPrivateEvent() if np.isinf(self.epsilon) else GaussianEvent(4 / self.epsilon)
        self.privacy_ = PrivacyGuarantee(
            event, at_delta=1e-6, relation=self.relation, assumptions=("a stub",)
        )
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True  # as the tree has it
        return tags

    def predict_proba(self, X):
        return self.tree_.predict_proba(X)

    def predict(self, X):
        return self.tree_.predict(X)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "fits"
    path.touch()
    return path


@pytest.mark.everyday(12)
@pytest.mark.heavy
@parametrize_with_checks(
    [sweep_of(Noisy(), epsilons=[1, 2], cv=2), sweep_of(Noisy(), epsilons=[1, 2], cv=2, refit=2)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def fits(log):
    return [line.split()[:2] for line in log.read_text().splitlines()]


@pytest.mark.heavy
def test_scores_are_those_of_grid_search():
    cv = StratifiedKFold(4, shuffle=True, random_state=1)
    model = make_pipeline(StandardScaler(), Noisy())
    epsilons = [1, 3, 10]
    sweep = sweep_of(model, epsilons=epsilons, cv=cv).fit(X, y)
    search = GridSearchCV(model, {"noisy__epsilon": epsilons}, cv=cv, return_train_score=True)
    expected = search.fit(X, y).cv_results_
    for key, values in expected.items():
        if key.endswith(("_test_score", "_train_score")):
            np.testing.assert_allclose(sweep.cv_results_[key], values, err_msg=key)
        assert key in sweep.cv_results_
    assert sweep.cv_results_["params"] == expected["params"]
    assert sweep.cv_results_["param_noisy__epsilon"].tolist() == epsilons
    assert sweep.best_index_ == search.best_index_
    assert sweep.best_score_ == pytest.approx(search.best_score_)
    assert sweep.best_params_ == search.best_params_


def test_attack_is_what_one_would_do_by_hand():
    cv = KFold(3, shuffle=True, random_state=0)
    sweep = sweep_of(Noisy(), epsilons=[5], cv=cv).fit(X, y)
    records = LabeledRecords(X, y)
    for i, (train, test) in enumerate(cv.split(X)):
        attack = LossThreshold(Noisy(epsilon=5).fit(X[train], y[train])).fit(records)
        result = attack.evaluate(records[train], records[test])
        assert sweep.cv_results_[f"split{i}_attack_auc"][0] == pytest.approx(result.auc)
        tpr = result.tpr_at_fpr(0.01).tpr
        assert sweep.cv_results_[f"split{i}_attack_tpr_at_0.01"][0] == pytest.approx(tpr)
    values = [sweep.cv_results_[f"split{i}_attack_auc"][0] for i in range(3)]
    assert sweep.cv_results_["mean_attack_auc"][0] == pytest.approx(np.mean(values))
    assert sweep.cv_results_["std_attack_auc"][0] == pytest.approx(np.std(values))


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_nothing_is_trained_twice(log, n_jobs):
    model = Noisy(log=str(log))
    attack = LiRA(pool=4, random_state=0)
    sweep_of(model, epsilons=[1, 8], cv=5, attack=attack, n_jobs=n_jobs).fit(X, y)
    done = fits(log)
    for epsilon in ("1.0", "8.0"):
        assert done.count([epsilon, "320"]) == 5  # a target for each split
        assert done.count([epsilon, "200"]) == 4  # one pool for all of them, on halves of it all
    assert len(done) == 2 * (5 + 4)
    assert not hasattr(model, "tree_")


@pytest.mark.slow
def test_jobs_change_nothing():
    one, two = (
        sweep_of(Noisy(), epsilons=[2, 8], cv=3, attack=LiRA(pool=4, random_state=0), n_jobs=n_jobs)
        .fit(X, y)
        .cv_results_
        for n_jobs in (1, 2)
    )
    for key, values in one.items():
        if "time" not in key and key != "params":
            np.testing.assert_allclose(values.astype(float), two[key].astype(float), err_msg=key)


@pytest.mark.heavy
def test_the_ceiling_is_above_what_chance_gives_and_grows():
    sweep = sweep_of(Noisy(), epsilons=[0.1, 1, 10, np.inf], cv=2).fit(X, y)
    ceiling = sweep.cv_results_["mean_attack_auc_bound"]
    assert (np.diff(ceiling) > 0).all()
    assert 0.5 < ceiling[0] < 0.55
    assert ceiling[-1] == pytest.approx(1)


def test_the_cost_of_looking_composes():
    sweep = sweep_of(Noisy(), epsilons=[1, 2], cv=3, refit=1).fit(X, y)
    single = Noisy(epsilon=2).fit(X, y).privacy_
    assert sweep.charged_.relation == "zero_out"
    assert sweep.charged_.epsilon() > 1.7 * single.epsilon()
    # 4 fits at 4, 3 at 2: Gaussians compose exactly, in the sum of 1/z^2
    z = (4 * (1 / 4) ** 2 + 3 * (2 / 4) ** 2) ** -0.5
    # each fit brings its delta along
    assert sweep.charged_.at_delta == pytest.approx(7e-6)
    assert sweep.charged_.epsilon() == pytest.approx(
        PrivacyGuarantee(GaussianEvent(z), at_delta=7e-6, relation="zero_out").epsilon(), rel=1e-2
    )
    for epsilon, guarantee in zip((1, 2), sweep.guarantees_, strict=True):
        z = 4 / epsilon / 3**0.5
        assert guarantee.epsilon() == pytest.approx(
            PrivacyGuarantee(GaussianEvent(z), at_delta=3e-6, relation="zero_out").epsilon(),
            rel=1e-2,
        )
    assert any("not their scores" in text for text in sweep.charged_.assumptions)
    assert "a stub" in sweep.charged_.assumptions


@pytest.mark.heavy
def test_mixed_relations_are_never_summed():
    class Mixed(Noisy):
        def fit(self, X, y):
            self.relation = "zero_out" if self.epsilon == 1 else "add_remove"
            return super().fit(X, y)

    sweep = sweep_of(Mixed(), epsilons=[1, 2], cv=2).fit(X, y)
    assert np.isinf(sweep.charged_.epsilon())
    assert any(
        "add-remove and zero-out, which are never added up" in t for t in sweep.charged_.assumptions
    )
    assert [g.relation for g in sweep.guarantees_] == ["zero_out", "add_remove"]
    told = "would cost epsilon = infinity (the parts hold for the relations add-remove and zero-out"
    assert told in sweep.to_html()


def test_without_a_claim_the_cost_is_infinite():
    model = make_pipeline(LogisticRegression())
    sweep = sweep_of(model, epsilons=[0.5, 1.0], cv=2, param_name="logisticregression__C").fit(X, y)
    assert np.isinf(sweep.charged_.epsilon())
    assert np.isnan(sweep.cv_results_["mean_attack_auc_bound"]).all()
    assert np.isinf(sweep_of(Noisy(), epsilons=[1, np.inf], cv=2).fit(X, y).charged_.epsilon())


def test_refit_is_asked_for_and_never_chosen_by_the_scores(log):
    sweep = sweep_of(Noisy(log=str(log)), epsilons=[1, 8], cv=2, refit=1).fit(X, y)
    assert sweep.estimator_.epsilon == 1
    assert fits(log)[-1] == ["1.0", "400"]
    assert sweep.score(X, y) == np.mean(Noisy(epsilon=1).fit(X, y).predict(X) == y)
    assert list(sweep.classes_) == [0, 1]
    bare = sweep_of(Noisy(), epsilons=[1], cv=2).fit(X, y)
    with pytest.raises(AttributeError, match="predict") as caught:
        bare.predict(X)
    assert "refit=<epsilon>" in str(caught.value.__cause__)


def charged_to(budget):
    return OutputPerturbationClassifier(
        bounds=(-4, 4), classes=[0, 1], relation="zero_out", budget=budget
    )


@pytest.mark.heavy
@pytest.mark.parametrize("refit", [None, 5])
def test_a_budget_that_cannot_pay_for_all_models_is_told_before_the_first(refit):
    """It ended the sweep in the middle, and lost the models that it had paid for."""
    budget, enough = PrivacyBudget(21.5), PrivacyBudget(26.1)
    shown = make_pipeline(
        SchemaTransformer(Schema({"a": BoundedColumn(-4, 4)})), charged_to(budget)
    )
    table = pd.DataFrame({"a": X[:, 0]})
    several = {"bare": charged_to(budget), "shown": shown} if refit is None else charged_to(budget)
    sweep = sweep_of(several, epsilons=[2, 5], cv=3 if refit else 2, refit=refit)
    with pytest.raises(BudgetExceededError, match=r"cannot pay for all .*Nothing was trained"):
        sweep.fit(table, y)
    assert budget.spent() == 0
    last = sweep_of(charged_to(enough), epsilons=[2, 5], cv=3, refit=5).fit(table, y)
    assert enough.spent() == pytest.approx(26.0)
    assert last.charged_.epsilon() == pytest.approx(26.0)


@pytest.mark.parametrize("first", [(), (StandardScaler(),)], ids=["bare", "scaled"])
@pytest.mark.parametrize("delta", [0.01, 1.5])
def test_a_delta_that_no_fit_takes_is_refused_before_the_baselines(first, delta, log):
    """The baselines took the time, and the first private fit was refused after them."""
    model = make_pipeline(*first, charged_to(None).set_params(delta=delta))
    sweep = PrivacySweepCV(model, epsilons=[1], cv=2, baseline=Noisy(log=str(log)))
    with pytest.raises(ValueError, match=r"delta=0.01 must be below 1/n|'delta' parameter"):
        sweep.fit(X, y)
    assert not log.read_text()


def test_a_sweep_warns_before_its_first_fit_of_what_no_guarantee_covers(log):
    """A private estimator cannot see what stands before it, and makes its proved claim."""
    baseline = Noisy(log=str(log), relation="a relation that does not exist")
    for steps, told in (
        ((StandardScaler(), charged_to(None)), "'standardscaler': StandardScaler was fitted"),
        ((charged_to(None).set_params(relation="add_remove", delta=0.01),), "not below 1/n"),
    ):
        sweep = PrivacySweepCV(make_pipeline(*steps), epsilons=[1], cv=2, baseline=baseline)
        with pytest.warns(PrivacyWarning, match=told), pytest.raises(ValueError, match="baseline"):
            sweep.fit(X, y)


@pytest.mark.parametrize("name", [n for n in {**CASES, **LABELS} if "-" not in n])
def test_each_private_estimator_is_asked_before_its_first_fit(name):
    """Features are public where labels alone are protected: a scaler of them hides nothing."""
    rows, targets = (CASES | LABELS)[name].data(24)
    scaled = make_pipeline(StandardScaler(), (CASES | LABELS)[name].make())
    told = []
    for model in (scaled[-1], scaled):
        fit = Candidate("", model, Records(rows, targets), {"epsilon": 1.0}), np.arange(24)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PrivacyWarning)
            check_first_fits([fit])
        told.append([str(warning.message) for warning in caught])
        assert not hasattr(model, "privacy_")
    assert told[0] == []
    assert len(told[1]) == (name not in LABELS)


def test_models_without_rehearsal_are_neither_charged_nor_trained_before(log):
    """Fits in other processes would not know that they are rehearsed."""
    budget = PrivacyBudget(100.0)
    within = OneVsRestClassifier(charged_to(budget), n_jobs=2)
    learns = make_pipeline(StandardScaler(), charged_to(budget))
    fits = [
        (Candidate("", model, Records(X, y), {"epsilon": epsilon}), np.arange(400))
        for model, epsilon in [
            (within, 1.0),
            (learns, 1.0),
            (Noisy(log=str(log)), 1.0),
            (DPSGDClassifier(device=Distributed("replicated"), budget=budget, classes=[0, 1]), 1.0),
        ]
    ]
    fits.append((Candidate("", charged_to(budget), Records(X, y), {"epsilon": np.inf}), [0, 1]))
    check_affordable(fits)
    assert budget.spent() == 0
    assert not log.read_text()


@pytest.mark.parametrize(
    ("epsilon", "words", "spent"),
    [
        (7.0, "after at least 3 of its 6 models.*stays charg", 6.0),
        (1.0, "ended before any of its 6 models was done;", 0.0),  # baselines are no models
    ],
)
def test_a_refusal_in_the_middle_says_what_stays_charged(monkeypatch, epsilon, words, spent):
    """Others may charge a budget that could have paid for all."""
    monkeypatch.setattr("skprivacy.model_selection.sweep.check_affordable", lambda fits: None)
    budget = PrivacyBudget(epsilon)
    with pytest.raises(BudgetExceededError, match=words):
        sweep_of(charged_to(budget), epsilons=[2, 5], cv=3).fit(X, y)
    assert budget.spent() == pytest.approx(spent)


def test_a_split_may_be_given_by_masks():
    mask = np.arange(400) < 200
    by_mask = sweep_of(Noisy(), epsilons=[1], cv=[(mask, ~mask)]).fit(X, y)
    by_number = sweep_of(Noisy(), epsilons=[1], cv=[(np.arange(200), np.arange(200, 400))])
    for name in ("mean_test_score", "mean_attack_auc"):
        assert by_mask.cv_results_[name] == by_number.fit(X, y).cv_results_[name]


def test_a_refitted_sweep_does_what_its_model_does():
    sweep = sweep_of(charged_to(None), epsilons=[2, 5], cv=2, refit=5).fit(X, y)
    for method in ("predict", "predict_proba", "decision_function"):
        found, expected = getattr(sweep, method)(X), getattr(sweep.estimator_, method)(X)
        np.testing.assert_array_equal(found, expected)
    search = GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(X, y)
    theirs = {name for name in dir(search) if name.startswith(("predict", "decision", "score"))}
    assert {name for name in theirs if name[-1] != "_"} <= {*dir(PrivacySweepCV), "score_samples"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilons": []}, "epsilons is empty"),
        ({"epsilons": [1, 0]}, "positive numbers; got 0"),
        ({"epsilons": [1, float("nan")]}, "positive numbers; got nan"),
        ({"epsilons": [1, "2"]}, "positive numbers; got '2'"),
        ({"epsilons": [1, True]}, "positive numbers; got True"),
        ({"epsilons": [1, 1.0]}, "twice"),
        ({"epsilons": 1.0}, "list of positive numbers"),
        ({"epsilons": "1,2"}, "list of positive numbers"),
        ({"refit": 5}, "refit=5 must be None or one of"),
        ({"refit": True}, "refit=True must be None or one of"),
        ({"estimator": LogisticRegression()}, "has no parameter epsilon. Pass a private model"),
        ({"param_name": "eps"}, "param_name='eps' must be a parameter"),
        ({"estimator": make_pipeline(Noisy(), Noisy())}, "2 parameters called epsilon"),
        ({"estimator": Noisy}, "estimator=.* must be a scikit-learn estimator object"),
        ({"attack": LiRA}, "attack=.* must be a membership attack object"),
        ({"attack": "lira"}, "attack='lira' must be a membership attack object"),
        ({"attack": LiRA(pool=ShadowPool(Noisy()).fit(X, y))}, "fitted pool"),
        ({"cv": 1000}, "n_splits=1000"),
        ({"cv": [(np.arange(200), np.arange(150, 400))]}, "on the same 50 records"),
        ({"scoring": "no such"}, "no such"),
        ({"scoring": 3}, "scoring=3 must be the name"),
        ({"scoring": []}, "must name at least one scorer"),
        ({"scoring": ["f1", "f1"]}, "must be different names"),
        ({"scoring": ["f1", len]}, "must be different names"),
        ({"scoring": {"a": "no such"}}, "no such"),
        ({"scoring": {1: "f1"}}, "must name at least one scorer by a string"),
        ({"scoring": lambda y: 0.0}, "scoring=.* must take an estimator, X and y"),
        ({"y": np.zeros(400)}, "at least two classes; got one class"),
        ({"y": y[:-1]}, "inconsistent numbers of samples"),
        ({"y": np.linspace(0, 1, 400)}, "[Cc]ontinuous"),
        (
            {"y": np.array([None, *["a", "b"] * 199, "a"], dtype=object)},
            "y contains NaN or another",
        ),
    ],
)
def test_what_is_wrong_is_told_before_any_training(changes, words, log):
    arguments = {"estimator": Noisy(log=str(log)), "epsilons": [1, 2], **changes}
    labels = arguments.pop("y", y)
    with pytest.raises((TypeError, ValueError), match=words):
        sweep_of(**arguments).fit(X, labels)
    assert not fits(log)


@pytest.mark.heavy
def test_plot_draws_the_measured_numbers():
    given = {"line": LogisticRegression(), "trees": DecisionTreeClassifier(random_state=0)}
    sweep = sweep_of(Noisy(), epsilons=[10, 1, np.inf], cv=2, baseline=given).fit(X, y)
    display = sweep.plot()
    above, below = display.axes_
    results = sweep.cv_results_
    for ax, key in ((above, "test_score"), (below, "attack_auc")):
        line = ax.containers[0].lines[0]
        np.testing.assert_allclose(line.get_xdata(), [1, 10])
        np.testing.assert_allclose(line.get_ydata(), results[f"mean_{key}"][[1, 0]])
    labels = [text.get_text() for text in below.get_legend().get_texts()]
    assert {"chance", "without privacy", "ceiling set by the guarantee"} <= set(labels)
    lines = {line.get_label(): line.get_ydata()[0] for line in above.lines}
    assert lines["without privacy"] == results["mean_test_score"][2]
    for name, level in zip(given, sweep.baseline_results_["mean_test_score"], strict=True):
        assert lines[name] == level
    plt.close(display.figure_)


@pytest.mark.slow
def test_the_default_baselines_are_what_one_would_do_by_hand():
    cv = KFold(3, shuffle=True, random_state=0)
    sweep = PrivacySweepCV(Noisy(), epsilons=[1], cv=cv).fit(X, y)
    results = sweep.baseline_results_
    boosting, sibling = HistGradientBoostingClassifier(random_state=0), Noisy(epsilon=np.inf)
    names = ["histogram gradient boosting", "same model without privacy"]
    assert list(results["param_baseline"]) == names
    records = LabeledRecords(X, y)
    for row, model in enumerate((boosting, sibling)):
        by_hand = cross_validate(model, X, y, cv=cv, return_train_score=True)
        for i, (train, test) in enumerate(cv.split(X)):
            assert results[f"split{i}_test_score"][row] == by_hand["test_score"][i]
            assert results[f"split{i}_train_score"][row] == by_hand["train_score"][i]
            attack = LossThreshold(clone(model).fit(X[train], y[train])).fit(records)
            auc = attack.evaluate(records[train], records[test]).auc
            assert results[f"split{i}_attack_auc"][row] == pytest.approx(auc)
    # the level without privacy is above what the shallow tree reaches, and it leaks
    assert results["mean_test_score"][0] > sweep.cv_results_["mean_test_score"][0]
    assert (results["mean_attack_auc"] > 0.6).all()


@pytest.mark.heavy
def test_baselines_are_not_charged_and_the_sibling_is_not_trained_twice(log):
    model = Noisy(log=str(log))
    alone = sweep_of(Noisy(), epsilons=[1, 2], cv=2).fit(X, y)
    sweep = PrivacySweepCV(model, epsilons=[1, 2], cv=2).fit(X, y)
    assert sweep.charged_ == alone.charged_
    assert fits(log).count(["inf", "200"]) == 2
    with_infinity = PrivacySweepCV(model, epsilons=[1, np.inf], cv=2).fit(X, y)
    assert list(with_infinity.baseline_results_["param_baseline"]) == [
        "histogram gradient boosting"
    ]
    assert fits(log).count(["inf", "200"]) == 4
    budget = PrivacyBudget(10.0)
    sweep = PrivacySweepCV(charged_to(budget), epsilons=[1, 2], cv=2).fit(X, y)
    assert len(sweep.baseline_results_["params"]) == 2
    assert budget.spent() == pytest.approx(6.0)


@pytest.mark.heavy
def test_baselines_of_ones_own():
    given = {"trees": DecisionTreeClassifier(random_state=0), "line": LogisticRegression()}
    sweep = sweep_of(Noisy(), epsilons=[1], cv=2, baseline=given, scoring="roc_auc").fit(X, y)
    assert list(sweep.baseline_results_["param_baseline"]) == ["trees", "line"]
    one = sweep_of(Noisy(), epsilons=[1], cv=2, baseline=make_pipeline(LogisticRegression()))
    one.fit(X, y)
    assert list(one.baseline_results_["param_baseline"]) == ["LogisticRegression"]
    assert one.baseline_results_["mean_test_score"][0] > 0.7
    shadows = LiRA(pool=2, random_state=0)
    other = sweep_of(Noisy(), epsilons=[1], cv=2, baseline=given, attack=shadows).fit(X, y)
    assert np.isnan(other.baseline_results_["mean_attack_auc"]).all()
    assert sweep_of(Noisy(), epsilons=[1], cv=2).fit(X, y).baseline_results_ == {}
    for wrong in (LogisticRegression, "auto!", {"a": 3}):
        with pytest.raises(TypeError, match=r"baseline=.* must be an estimator object"):
            sweep_of(Noisy(), epsilons=[1], cv=2, baseline=wrong).fit(X, y)
    with pytest.raises(TypeError, match=r"baseline=.* must name each estimator by a text"):
        sweep_of(Noisy(), epsilons=[1], cv=2, baseline={5: LogisticRegression()}).fit(X, y)


@pytest.mark.slow
def test_boosting_takes_what_a_schema_takes():
    rng = np.random.default_rng(0)
    town = rng.choice(["a", "b", "c"], len(y))
    frame = pd.DataFrame({"x": X[:, 0], "town": np.where(y == 1, town, "c")})
    schema = Schema({"x": BoundedColumn(-4, 4), "town": CategoricalColumn(["a", "b", "c"])})
    model = make_pipeline(
        SchemaTransformer(schema),
        OutputPerturbationClassifier(bounds=(-1, 1), classes=[0, 1], relation="zero_out"),
    )
    for records in (frame, frame.astype({"town": "category"})):
        results = PrivacySweepCV(model, epsilons=[1], cv=2).fit(records, y).baseline_results_
        assert results["mean_test_score"][0] > 0.6  # the town alone predicts two thirds
    text = frame[["town"]].to_numpy(object)
    assert _make_boosting(text).fit(text, y).score(text, y) > 0.6
    counts = sparse.csr_matrix((town == "c").astype(float)[:, None])
    assert _make_boosting(counts).fit(counts, y).predict(counts).shape == y.shape
    gaps = frame.assign(x=np.where(rng.random(len(y)) < 0.2, np.nan, frame["x"]))
    with pytest.warns(UserWarning, match="'x' have missing values"):
        assert PrivacySweepCV(model, epsilons=[1], cv=2).fit(gaps, y).baseline_results_


def test_a_baseline_that_cannot_be_fitted_is_left_out_or_told():
    class Picky(Noisy):
        def fit(self, X, y):
            if np.isinf(self.epsilon):
                raise ValueError("epsilon must be finite")
            return super().fit(X, y)

    sweep = PrivacySweepCV(Picky(), epsilons=[1], cv=2).fit(X, y)
    assert list(sweep.baseline_results_["param_baseline"]) == ["histogram gradient boosting"]
    with pytest.raises(ValueError, match=r"baseline .Picky. cannot be .*: ValueError in test_sw"):
        sweep_of(Noisy(), epsilons=[1], cv=2, baseline=Picky(epsilon=np.inf)).fit(X, y)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:The scorer")
def test_a_model_that_was_paid_for_keeps_its_scores_when_the_attack_fails():
    """A network fits records with NaN, because an error would reveal them, and predicts none."""
    gaps, budget = X.copy(), PrivacyBudget(100.0, delta=1e-3)
    gaps[7, 1] = np.nan
    network = DPSGDClassifier(classes=[0, 1], delta=1e-5, epochs=1, budget=budget)
    sweep = sweep_of(network, epsilons=[1.0], cv=2)
    with pytest.warns(UserWarning, match=r"attack=LossThreshold\(\) failed, .* are NaN"):
        sweep.fit(gaps, y)
    assert len(budget.entries()) == 2
    found = sweep.cv_results_
    assert np.isnan([found["split0_attack_auc"], found["split1_attack_auc"]]).all()
    assert np.isfinite(found["mean_claimed_epsilon"]).all()
    assert np.isfinite([found["split0_test_score"], found["split1_test_score"]]).any()


@pytest.mark.heavy
def test_the_page_shows_every_result_and_is_complete_by_itself(tmp_path):
    given = {"<b>trees</b>": DecisionTreeClassifier(random_state=0)}
    sweep = sweep_of(Noisy(), epsilons=[1, 2, 5, np.inf], cv=3, baseline=given).fit(X, y)
    page = sweep.to_html(tmp_path / "sweep.html", about=About(data="<i>people</i>"))
    assert page == (tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert "<b>trees" not in page
    assert "<i>people" not in page
    assert "&lt;b&gt;trees&lt;/b&gt;" in page
    results = (sweep.cv_results_, sweep.baseline_results_)
    for score in np.concatenate([r["mean_test_score"] for r in results]):
        assert f"{score:.3f}" in page
    for told in (sweep.smallest_epsilon(0.01), sweep.knee()):
        assert str(markupsafe.escape(repr(told))) in page
    assert "400 records" in page
    assert "at delta = 1e-06, zero-out" in page
    assert "a stub" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert 'src="data:image/png' in page


@pytest.mark.heavy
def test_the_page_tells_every_score_and_what_each_guarantee_is_of(tmp_path):
    noisy = {"here": Noisy(), "there": Noisy(relation="replace_one")}
    tested = {"epsilons": [np.inf, 1], "cv": 2, "baseline": None}
    sweep = PrivacySweepCV(noisy, scoring=["accuracy", "balanced_accuracy"], **tested).fit(X, y)
    page = sweep.to_html()
    assert "Further scores" in page
    for score in sweep.cv_results_["mean_test_balanced_accuracy"]:
        assert f"{score:.3f} ±" in page.split("Further scores")[1]
    units = "here at delta = 1e-06, zero-out; there at delta = 1e-06, replace-one"
    assert f"requested, {units}" in page
    assert f"<b>Epsilon</b> ({units})" in page  # narrow screens have no heads of columns
    page = PrivacySweepCV(LogisticRegression(), param_name="C", **tested).fit(X, y).to_html()
    assert "requested, without a guarantee" in page
    assert "Further scores" not in page


@pytest.mark.slow
def test_the_page_says_what_it_is_about_and_overwrites_no_ledger(tmp_path):
    sweep = sweep_of(Noisy(), epsilons=[1, 2], cv=2).fit(X, y)
    about = About(author="<i>me</i>", command="make <b>", record="person")
    page = sweep.to_html(about=replace(about, data="people.csv"))
    assert "&lt;i&gt;me&lt;/i&gt;" in page
    assert "make &lt;b&gt;" in page
    assert "<dd>people.csv</dd>" in page
    assert "one person&#39;s record can change" in page
    assert "one record can change" in sweep.to_html()
    ledger = tmp_path / "ledger.html"
    ledger.write_bytes(b"SQLite format 3\0 and lines")
    with pytest.raises(ValueError, match="perhaps a privacy ledger"):
        sweep.to_html(ledger)
    assert ledger.read_bytes().endswith(b"lines")
    with pytest.raises(ValueError, match=r"must end in \.html"):
        sweep.to_html(tmp_path / "sweep.pdf")


@pytest.mark.slow
def test_several_scores_are_those_of_grid_search():
    cv = StratifiedKFold(3, shuffle=True, random_state=1)
    scoring = {"auc": "roc_auc", "recall": make_scorer(recall_score)}
    given = {"line": LogisticRegression()}
    sweep = sweep_of(Noisy(), epsilons=[1, 3, 10], cv=cv, scoring=scoring, baseline=given, refit=3)
    sweep.fit(X, y)
    search = GridSearchCV(
        Noisy(), {"epsilon": [1, 3, 10]}, cv=cv, scoring=scoring, refit=False,
        return_train_score=True,
    ).fit(X, y)  # fmt: skip
    for key, values in search.cv_results_.items():
        if "test_" in key or "train_" in key:
            np.testing.assert_allclose(sweep.cv_results_[key], values, err_msg=key)
        assert key in sweep.cv_results_
    assert sweep.scores_ == ["auc", "recall"]
    assert sweep.best_index_ == np.argmax(search.cv_results_["mean_test_auc"])
    assert sweep.score(X, y) == search.scorer_["auc"](sweep.estimator_, X, y)
    assert sweep.smallest_epsilon(0.1) == sweep.smallest_epsilon(0.1, score="auc")
    assert sweep.knee(score="recall").epsilon in (1, 3, 10)
    above = sweep.plot().axes_[0]
    assert above.get_ylabel() == "Test auc"
    line = above.containers[0].lines[0]
    np.testing.assert_allclose(line.get_ydata(), search.cv_results_["mean_test_auc"])
    plt.close(above.figure)
    assert f"{sweep.baseline_results_['mean_test_auc'][0]:.3f}" in sweep.to_html()
    names = sweep_of(Noisy(), epsilons=[1], cv=2, scoring=["accuracy", "f1"]).fit(X, y)
    assert {"mean_test_accuracy", "rank_test_f1"} <= set(names.cv_results_)
    with pytest.raises(ValueError, match="score='nothing' must be one of"):
        sweep.knee(score="nothing")


@pytest.mark.slow
def test_several_estimators_in_one_sweep_and_one_picture():
    two = {"tree": make_pipeline(FunctionTransformer(np.tanh), Noisy()), "linear": charged_to(None)}
    cv = KFold(2, shuffle=True, random_state=0)
    sweep = PrivacySweepCV(two, epsilons=[1, 3, 9], cv=cv, refit=("tree", 3)).fit(X, y)
    results = sweep.cv_results_
    assert results["params"][0] == {"noisy__epsilon": 1.0, "estimator": "tree"}
    assert results["params"][3] == {"epsilon": 1.0, "estimator": "linear"}
    assert results["param_estimator"].tolist() == ["tree"] * 3 + ["linear"] * 3
    assert results["param_noisy__epsilon"].mask.tolist() == [False] * 3 + [True] * 3
    alone = sweep_of(two["tree"], epsilons=[1, 3, 9], cv=cv).fit(X, y)
    for key in ("mean_test_score", "mean_attack_auc", "mean_claimed_epsilon"):
        np.testing.assert_array_equal(results[key][:3], alone.cv_results_[key])
    assert list(sweep.baseline_results_["param_baseline"]) == [
        "histogram gradient boosting", "tree without privacy", "linear without privacy"
    ]  # fmt: skip
    assert sweep.estimator_[-1].epsilon == 3
    assert len(sweep.guarantees_) == 6
    # six models of each, and the refitted one: those of the line are pure, so they add up
    assert sweep.charged_.epsilon() > 2 * (1 + 3 + 9)
    assert sweep.knee() == sweep.knee(estimator="tree")
    assert sweep.smallest_epsilon(1.0, estimator="linear").epsilon == 1
    with pytest.raises(ValueError, match="estimator='forest' must be one of"):
        sweep.knee(estimator="forest")
    above, below = sweep.plot().axes_
    for ax, key in ((above, "mean_test_score"), (below, "mean_attack_auc")):
        drawn = {c.get_label().split(":")[0]: c.lines[0].get_ydata() for c in ax.containers}
        np.testing.assert_allclose(drawn["tree"], results[key][:3])
        np.testing.assert_allclose(drawn["linear"], results[key][3:])
    plt.close(above.figure)
    page = sweep.to_html()
    assert "linear: smallest epsilon" in page
    label = RandomizedResponseClassifier(GaussianNB(), classes=[0, 1])
    for estimator, refit, words in [
        ({}, None, "must name at least one estimator"),
        ({"tree": Noisy(), "labels": label}, None, "Sweep them separately"),
        (two, 3, r"refit=3 must be None or \(name, epsilon\)"),
        (two, ("bush", 3), "refit="),
    ]:
        with pytest.raises(ValueError, match=words):
            sweep_of(estimator, epsilons=[1, 3], cv=2, refit=refit).fit(X, y)


def test_progress_is_shown_on_request(capsys):
    sweep_of(Noisy(), epsilons=[1], cv=2).fit(X, y)
    assert capsys.readouterr().err == ""
    sweep_of(Noisy(), epsilons=[1], cv=2, verbose=1).fit(X, y)
    assert "2/2" in capsys.readouterr().err


def test_no_record_is_kept():
    """A canary in the data is nowhere in the pickle of a fitted sweep."""
    canary = 0.1234567890123456
    data = X.copy()
    data[17] = canary
    sweep = sweep_of(Noisy(), epsilons=[1, 2], cv=2, attack=LiRA(pool=2, random_state=0)).fit(
        data, np.where(y == 1, "label-canary-yes", "no")
    )
    kept = pickle.dumps(sweep)
    assert np.float64(canary).tobytes() not in kept
    assert b"label-canary" not in kept


def test_a_step_that_learns_or_mixes_records_takes_the_proof_away():
    """A function needs no fit; each split tries it on its own records."""
    apart, mixed = FunctionTransformer(np.tanh), FunctionTransformer(lambda Z: Z - Z.mean(axis=0))
    learns = "'standardscaler' reveals nothing"
    tried = "step 'functiontransformer' treats each record by itself (tried on 20 records)"
    for step, kind, told in (
        ("passthrough", "proved", ""),
        (StandardScaler(), "estimate", learns),
        (apart, "proved", tried),
        (mixed, "estimate", ""),
    ):
        sweep = sweep_of(make_pipeline(step, Noisy()), epsilons=[1], cv=2).fit(X, y)
        assert sweep.charged_.kind == kind
        for key in ("claimed_epsilon", "attack_auc_bound"):
            assert np.isnan(sweep.cv_results_[f"mean_{key}"]).all() == (kind == "estimate")
        assumed = " ".join(sweep.charged_.assumptions)
        assert told in assumed
        assert (learns in assumed) == (told == learns)


@pytest.mark.heavy
def test_the_claimed_epsilon_is_that_of_the_whole_model():
    """Not the parameter alone: the scaler before the model has cost 20 as well."""

    class Scaling(BaseEstimator):
        def fit(self, X, y=None):
            self.privacy_ = PrivacyGuarantee(LaplaceEvent(1 / 20), relation="zero_out")
            return self

        def transform(self, X):
            return X

    model = make_pipeline(Scaling(), Noisy())
    sweep = sweep_of(model, epsilons=[1, np.inf], cv=2, refit=1).fit(X, y)
    claimed = sweep.cv_results_["mean_claimed_epsilon"]
    assert claimed[0] > 20
    assert np.isinf(claimed[1])
    assert sweep.guarantees_[0].epsilon() > 40
    bounded = sweep_of(model, epsilons=[1], cv=2, refit=1).fit(X, y)
    assert bounded.charged_.epsilon() > 60


def test_a_sweep_holds_unprotected_scores_and_so_claims_nothing_itself():
    sweep = sweep_of(Noisy(), epsilons=[1, 2], cv=2, refit=1).fit(X, y)
    assert not hasattr(sweep, "privacy_")
    claim = claim_of(sweep, X)
    assert claim.reason == "no claim: chosen by unprotected scores"
    assert claim.charged == sweep.charged_
    # the model that was trained at an epsilon named beforehand claims its own
    assert claim_of(sweep.estimator_).guarantee == sweep.estimator_.privacy_
