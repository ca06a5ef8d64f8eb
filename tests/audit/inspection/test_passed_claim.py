"""A passed claim means the same in every audit, for models of any library."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import ApproxDPEvent, GaussianEvent, LaplaceEvent, PrivacyGuarantee
from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.attacks import LossThreshold
from skprivacy.audit import (
    audit,
    audit_one_run,
    audit_predictions,
    audit_synthetic,
    runner,
    verify_privacy,
    verify_release,
)
from skprivacy.audit.inspection.guarantees import PASSED, read_claim
from skprivacy.audit.label_audit import LabelAuditReport
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.preprocessing import PrivateStandardScaler

from ..test_runner import CLAIM, PARTS, Claiming

X, y = PARTS[:2]
TREE = DecisionTreeClassifier(random_state=0).fit(X, y)
QUICK = {"attacks": [LossThreshold()]}
STATED = PrivacyGuarantee(GaussianEvent(2.0), 1e-6, relation="zero_out", assumptions=("q",))


@pytest.mark.parametrize(
    ("claim", "epsilon", "delta"),
    [
        (1, 1.0, 0.0),
        (0, 0.0, 0.0),
        (np.float32(0.5), 0.5, 0.0),
        ((2.0, 1e-5), 2.0, 1e-5),
        ([2, 0], 2.0, 0.0),
        (LaplaceEvent(2.0), 0.5, 0.0),
        (GaussianEvent(2.0), PrivacyGuarantee(GaussianEvent(2.0), 1e-5).epsilon(), 1e-5),
        (STATED, STATED.epsilon(), 1e-6),
    ],
)
def test_each_form_is_read_as_the_claim_that_it_states(claim, epsilon, delta):
    report = audit(TREE, *PARTS, claim=claim, **QUICK)
    assert report.claimed_epsilon == pytest.approx(epsilon, rel=1e-9)
    assert report.claimed_delta == delta
    assert report.guarantee.kind == "estimate"
    assert PASSED in report.guarantee.assumptions
    assert report.guarantee.relation == ("zero_out" if claim is STATED else "add_remove")
    # A weaker model would have to be believed, not this one: it remembers every record.
    assert report.verdict == "violated"


@pytest.mark.parametrize(
    ("claim", "error", "words"),
    [
        ("1", TypeError, "must be a number"),
        (True, TypeError, "must be a number"),
        ((1.0,), TypeError, "a pair"),
        ((1.0, 1e-6, 3), TypeError, "a pair"),
        ((1.0, None), TypeError, "a pair"),
        (np.array([1.0, 1e-6]), TypeError, "a pair"),
        (-1, ValueError, "at least 0"),
        (float("nan"), ValueError, "at least 0"),
        (float("inf"), ValueError, "finite epsilon"),
        ((1.0, 1.0), ValueError, "below 1"),
        (NonPrivateEvent(), ValueError, "no finite epsilon at delta 1e-05"),
        (PrivacyGuarantee(GaussianEvent(1.0)), ValueError, "no finite epsilon at delta 0"),
    ],
)
def test_invalid_claims_are_refused_with_a_reason(claim, error, words):
    with pytest.raises(error, match=rf"(?s)claim=.*{words}"):
        read_claim(claim)


def test_every_audit_reads_it_by_the_same_function():
    proba = TREE.predict_proba(X)
    calls = [
        lambda claim: audit(TREE, *PARTS, claim=claim, **QUICK),
        lambda claim: audit_predictions(proba, y, proba, y, claim=claim),
        lambda claim: audit_synthetic(X[:50], X, PARTS[2], claim=claim),
        lambda claim: audit_one_run(TREE, X, y, n_canaries=20, claim=claim),
        lambda claim: verify_privacy(PrivateStandardScaler(bounds=(0, 1)), claim=claim),
        lambda claim: verify_release(lambda v: v, [(0.0, 1.0)], claim),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"claim='1' must be a number \(epsilon\)"):
            call("1")


def test_a_strangers_model_is_audited_like_one_of_ours():
    """Same tree, same claim: once passed, once stated by the model itself."""
    passed = audit(Claiming().fit(X, y).tree_, *PARTS, claim=CLAIM, **QUICK)
    stated = audit(Claiming().fit(X, y), *PARTS, **QUICK)
    assert passed.verdict == stated.verdict == "violated"
    assert passed.findings[0].to_dict() == stated.findings[0].to_dict()
    assert passed.epsilon_lower_bound == stated.epsilon_lower_bound
    coarse = DecisionTreeClassifier(max_depth=1).fit(X, y)
    assert audit(coarse, *PARTS, claim=1.0, **QUICK).verdict == "consistent"


def test_a_claim_below_an_attack_that_is_ignored_is_noticed(monkeypatch):
    monkeypatch.setattr(runner, "claim_to_test", lambda own, claim, unit: own)
    with pytest.raises(AssertionError):
        test_a_strangers_model_is_audited_like_one_of_ours()


def test_both_claims_of_a_model_of_ours_are_stated_and_the_passed_one_is_tested():
    modest = PrivacyGuarantee(ApproxDPEvent(50.0))
    model = Claiming(claim=modest).fit(X, y)
    assert audit(model, *PARTS, **QUICK).verdict == "consistent"
    report = audit(model, *PARTS, claim=0.1, **QUICK)
    assert report.verdict == "violated"
    assert report.own_claim.guarantee == modest
    own = "50.00-DP, add-remove, unspecified noise, proved; not tested"
    assert f"claimed by the model itself: {own}" in repr(report)
    page = report.to_html()
    assert own in page
    assert "This claim was passed to the audit." in page
    assert "the model&#39;s own" not in page
    stated = report.to_dict()
    assert stated["own_claim"] == modest.to_dict()
    assert stated["claim"]["event"]["epsilon"] == 0.1


def test_a_passed_claim_is_never_called_proved():
    """A guarantee is proved by default: a page said so of any number that a user typed."""
    coarse = DecisionTreeClassifier(max_depth=1).fit(X, y)
    report = audit(coarse, *PARTS, claim=PrivacyGuarantee(LaplaceEvent(0.5)), **QUICK)
    assert report.verdict == "consistent"
    page = report.to_html()
    assert "Passed to the audit: the audit has not seen how anybody obtained the limit." in page
    assert "The limit is proved" not in page
    assert ", proved" not in repr(report)


def test_a_passed_claim_for_records_says_nothing_about_groups():
    groups = np.arange(1000) // 2, 500 + np.arange(1000) // 2
    audited = {**QUICK, "groups": groups}
    assert audit(TREE, *PARTS, claim=STATED, **audited).verdict == "no claim"
    report = audit(TREE, *PARTS, claim=0.1, **audited)
    assert (report.guarantee.unit, report.verdict) == ("group", "violated")


@pytest.mark.heavy
def test_a_passed_claim_for_labels_is_tested_by_labels():
    claim = PrivacyGuarantee(ApproxDPEvent(0.1), relation="label")
    report = audit(TREE, *PARTS, claim=claim, random_state=0)
    assert isinstance(report, LabelAuditReport)
    assert report.verdict == "violated"
    assert report.own_claim.reason.startswith("no claim")


def test_one_run_tests_the_passed_claim_by_the_coins_of_its_relation():
    forest = RandomForestClassifier(10, random_state=0)
    given = {"n_canaries": 200, "random_state": 0}
    for relation, coin in (("add_remove", "add_remove"), ("replace_one", "replace_one")):
        claim = PrivacyGuarantee(ApproxDPEvent(0.1), relation=relation)
        report = audit_one_run(forest, X, y, claim=claim, **given)
        assert (report.verdict, report.coin) == ("violated", coin)
        assert PASSED in report.assumptions
    assert audit_one_run(forest, X, y, **given).verdict == "no claim"
    ours = OutputPerturbationClassifier(epsilon=8.0, bounds=(-3, 3), classes=[0, 1])
    report = audit_one_run(ours, X, y, claim=(4.0, 1e-6), **given)
    assert report.claim.own.guarantee.epsilon() == pytest.approx(8.0)
    assert "claimed by the model itself: 8.00-DP" in repr(report)
    assert report.claim.guarantee.epsilon() == 4.0


@pytest.mark.heavy
def test_verification_takes_a_number():
    scaler = PrivateStandardScaler(epsilon=50.0, bounds=(0, 1))  # hardly any noise
    found = verify_privacy(scaler, n_runs=60, claim=0.5)
    assert found.broken
    assert found.guarantee.epsilon() == 0.5
