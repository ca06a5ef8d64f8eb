"""A guarantee of labels: audits and claims speak of labels, and never of membership."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import PrivacyBudget, PrivacyGuarantee
from skprivacy.accounting.events import RandomizedResponseEvent
from skprivacy.attacks import LabelInferenceAttack, LiRA, LossThreshold
from skprivacy.audit import AuditReport, audit, claim_of
from skprivacy.audit.label_audit import LabelAuditReport
from skprivacy.display.privacy_utility import PrivacyUtilityDisplay
from skprivacy.label_privacy import LabelPATEClassifier, RandomizedResponseClassifier
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.preprocessing import PrivateStandardScaler

X, y = make_classification(2400, n_features=6, flip_y=0.1, random_state=0)
PARTS = (X[:1200], y[:1200], X[1200:], y[1200:])
HONEST = RandomizedResponseClassifier(epsilon=1.0, n_rounds=1, classes=[0, 1])
CLAIM = PrivacyGuarantee(RandomizedResponseEvent(1.0), relation="label")


class Liar(ClassifierMixin, BaseEstimator):
    """A tree that memorises every label, and claims to protect them."""

    fits = 0

    def __init__(self, epsilon=1.0):
        self.epsilon = epsilon

    def fit(self, X, y):
        type(self).fits += 1
        self.classes_ = np.unique(y)
        self.privacy_ = PrivacyGuarantee(RandomizedResponseEvent(self.epsilon), relation="label")
        self.tree_ = DecisionTreeClassifier(random_state=0).fit(X, y)
        return self

    def predict_proba(self, X):
        return self.tree_.predict_proba(X)

    def predict(self, X):
        return self.tree_.predict(X)


def test_who_memorises_labels_is_caught():
    report = audit(Liar().fit(*PARTS[:2]), *PARTS, random_state=0)
    assert isinstance(report, LabelAuditReport)
    assert report.verdict == "violated"
    assert report.epsilon_lower_bound > 3
    assert report.epsilon_within_reach >= report.epsilon_lower_bound
    [finding] = report.findings
    # Of coins that were guessed, and not of scores that are taken for independent.
    assert finding.epsilon_lower_bound == finding.result.epsilon_lower_bound(0.0, 0.05)
    assert not finding.refutation
    assert not report.doubt
    assert report.n_canaries == 300
    assert [f.result.attack for f in report.findings] == ["LabelInferenceAttack"]


@pytest.mark.heavy
def test_who_protects_them_is_not_and_membership_stays_open():
    # Reports are fresh, so this alpha is how often the claim is refuted.
    report = audit(HONEST.fit(*PARTS[:2]), *PARTS, alpha=1e-8, random_state=0)
    assert report.verdict == "consistent"
    assert any("Membership was not tested" in caveat for caveat in report.caveats)
    assert "Membership was not tested" in repr(report)
    page = report.to_html()
    assert "which of two labels" in page
    assert "which records the model was trained on" not in page
    assert "share of members" not in page
    assert json.loads(json.dumps(report.to_dict()))["claim"]["relation"] == "label"
    assert report.to_frame()["violated"].tolist() == [False]


@pytest.mark.heavy
@pytest.mark.parametrize("attacks", [[LossThreshold()], [LiRA(pool=4)], []])
@pytest.mark.parametrize(
    "model", [HONEST, LabelPATEClassifier(n_teachers=5, classes=[0, 1]), Liar()]
)
def test_attacks_on_membership_are_refused_before_training(attacks, model):
    model.fit(*PARTS[:2])
    Liar.fits = 0
    with pytest.raises(ValueError, match="nothing about membership"):
        audit(model, *PARTS, attacks=attacks)
    assert Liar.fits == 0


def test_an_attack_on_labels_is_no_attack_on_membership():
    model = LogisticRegression().fit(*PARTS[:2])
    assert type(audit(model, *PARTS, attacks=[LossThreshold()])) is AuditReport
    with pytest.raises(TypeError, match="membership attacks"):
        audit(model, *PARTS, attacks=[LabelInferenceAttack()])


def test_few_records_have_no_canaries():
    parts = X[:60], y[:60], X[60:200], y[60:200]
    with pytest.raises(ValueError, match="at least 100"):
        audit(HONEST.fit(*parts[:2]), *parts)


def test_a_weak_audit_says_so():
    parts = X[:200], y[:200], X[200:400], y[200:400]
    report = audit(Liar(epsilon=20.0).fit(*parts[:2]), *parts, random_state=0)
    assert report.verdict == "consistent"
    assert any("With 50 canaries" in caveat for caveat in report.caveats)


def test_features_are_free_and_what_reads_labels_is_not():
    free = claim_of(make_pipeline(StandardScaler(), HONEST).fit(*PARTS[:2]))
    assert free.proved
    assert not free.uncovered
    assert "step 'standardscaler' learns from features alone" in free.guarantee.assumptions
    read = claim_of(make_pipeline(SelectKBest(k=3), HONEST).fit(*PARTS[:2]))
    assert not read.proved
    assert list(read.uncovered) == ["selectkbest"]
    # Where whole records are protected, a scaler that saw them is a gap as ever.
    records = OutputPerturbationClassifier(bounds=(-9, 9), classes=[0, 1], relation="replace_one")
    assert not claim_of(make_pipeline(StandardScaler(), records).fit(*PARTS[:2])).proved


def test_labels_and_records_are_never_added_up():
    model = make_pipeline(PrivateStandardScaler(bounds=(-9, 9)), HONEST).fit(*PARTS[:2])
    claim = claim_of(model)
    assert claim.guarantee is None
    assert "never added up" in claim.reason
    budget = PrivacyBudget(epsilon=5.0)
    OutputPerturbationClassifier(bounds=(-9, 9), classes=[0, 1], budget=budget).fit(*PARTS[:2])
    with pytest.raises(ValueError, match="relation='label'"):
        RandomizedResponseClassifier(classes=[0, 1], budget=budget).fit(*PARTS[:2])
    assert len(budget.entries()) == 1


@pytest.mark.heavy
def test_a_sweep_guesses_labels():
    sweep = PrivacySweepCV(HONEST, epsilons=[1.0, 8.0], cv=2).fit(X, y)
    assert sweep.attack_name_ == "LabelInferenceAttack"
    assert sweep.charged_.relation == "label"
    results = sweep.cv_results_
    np.testing.assert_allclose(results["mean_claimed_epsilon"], [1.0, 8.0])
    assert (results["mean_attack_auc"] <= results["mean_attack_auc_bound"] + 0.1).all()
    display = PrivacyUtilityDisplay.from_estimator(sweep)
    assert display.axes_[1].get_title(loc="left") == "What it buys: label attack"


@pytest.mark.parametrize("attack", [LossThreshold(), LiRA(pool=2)])
def test_a_sweep_refuses_attacks_on_membership_before_it_trains(attack):
    budget = PrivacyBudget(epsilon=5.0)
    model = make_pipeline(StandardScaler(), HONEST.set_params(budget=budget))
    try:
        with pytest.raises(ValueError, match="nothing about membership"):
            PrivacySweepCV(model, epsilons=[1.0], attack=attack, cv=2).fit(X, y)
    finally:
        HONEST.set_params(budget=None)
    assert budget.spent() == 0


@pytest.mark.slow
def test_a_sweep_refuses_them_for_foreign_models_too():
    with pytest.raises(ValueError, match="nothing about membership"):
        PrivacySweepCV(Liar(), epsilons=[1.0], cv=2).fit(X, y)
    sweep = PrivacySweepCV(Liar(), epsilons=[1.0], cv=2, attack=LabelInferenceAttack()).fit(X, y)
    assert sweep.cv_results_["mean_attack_auc"][0] > 0.9
    records = OutputPerturbationClassifier(bounds=(-9, 9), classes=[0, 1])
    with pytest.raises(ValueError, match="does not fit the claim"):
        PrivacySweepCV(records, epsilons=[1.0], cv=2, attack=LabelInferenceAttack()).fit(X, y)


@pytest.mark.slow
def test_a_search_over_models_of_labels_is_asked_about_labels():
    search = GridSearchCV(HONEST, {"epsilon": [0.5, 1.0]}, cv=2).fit(*PARTS[:2])
    report = audit(search, *PARTS, random_state=0)
    assert isinstance(report, LabelAuditReport)
    assert report.verdict == "no claim"
    with pytest.raises(ValueError, match="nothing about membership"):
        audit(search, *PARTS, attacks=[LossThreshold()])
