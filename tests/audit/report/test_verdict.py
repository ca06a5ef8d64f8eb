"""Verdicts over the whole claimed curve, and over groups that are not what they should be."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import ApproxDPEvent, GaussianEvent, PrivacyGuarantee
from skprivacy.attacks import AttackResult, LossThreshold
from skprivacy.audit import audit
from skprivacy.audit.report import audit_report as report_module
from skprivacy.audit.report import findings as finding_module
from skprivacy.audit.report.findings import AttackFinding, curve_of_chords
from skprivacy.metrics import evidence as _evidence

from ..test_runner import CLAIM, PARTS, Claiming

pytestmark = pytest.mark.heavy

GAUSSIAN = PrivacyGuarantee(GaussianEvent(1.0), at_delta=1e-5)
EXCHANGED = (*PARTS[2:], *PARTS[:2])
LOOSE = PrivacyGuarantee(ApproxDPEvent(8.0, 1e-6), at_delta=1e-6)


class Shifted(LossThreshold):
    """Normal scores, higher by 2 for the model's own records: the best attack on 2-Gaussian DP."""

    def _score(self, X, y):
        rng = np.random.default_rng(0)
        return rng.normal(size=len(X)) + 2 * np.isin(X[:, 0], PARTS[0][:, 0])


def test_a_claim_is_refuted_where_its_delta_is_not():
    """At 1e-5 the claim is 4.38, beyond what 1,000 records show; at other deltas it is refuted."""
    report = audit(Claiming(1, GAUSSIAN).fit(*PARTS[:2]), *PARTS, attacks=Shifted())
    assert report.epsilon_lower_bound < report.claimed_epsilon
    assert report.verdict == "violated"
    assert report.to_frame()["violated"].all()
    said = report.refutations[0]
    assert "where the claim allows" in said
    assert said in repr(report)
    assert said in report.to_html()
    assert json.loads(json.dumps(report.to_dict()))["attacks"][0]["refutation"] in said


@pytest.mark.slow
def test_planted_verdict_of_one_point_is_caught(monkeypatch):
    monkeypatch.setattr(finding_module, "refutation", lambda evidence, guarantee: "")
    with pytest.raises(AssertionError):
        test_a_claim_is_refuted_where_its_delta_is_not()


def test_a_delta_that_allows_the_publication_of_a_record_is_a_caveat():
    for delta, told in ((0.05, True), (1e-6, False)):
        claim = replace(GAUSSIAN, at_delta=delta)
        report = audit(Claiming(1, claim).fit(*PARTS[:2]), *PARTS, attacks=LossThreshold())
        assert any("far smaller delta" in caveat for caveat in report.caveats) == told


def gaussian(rng, n):
    return rng.normal(1, 1, n), rng.normal(size=n)


def response(rng, n):
    return (rng.random(n) < expit(1.0)).astype(float), (rng.random(n) >= expit(1.0)).astype(float)


def laplace(rng, n):
    return 1 + rng.laplace(size=n), rng.laplace(size=n)


def few_exposed(rng, n):
    """With probability delta a record is revealed; otherwise scores are uninformative."""
    return (rng.random(n) < 0.03).astype(float) + rng.normal(size=n) * 1e-3, 1e-3 * rng.normal(
        size=n
    )


TRUE_CLAIMS = [
    (gaussian, GAUSSIAN),
    (response, PrivacyGuarantee(ApproxDPEvent(1.0, 0.0), at_delta=1e-9)),
    (laplace, PrivacyGuarantee(ApproxDPEvent(1.0, 0.0), at_delta=1e-9)),
    (few_exposed, PrivacyGuarantee(ApproxDPEvent(0.0, 0.03), at_delta=0.03)),
]


def refuted(draw, claim, alpha, n, runs):
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(runs):
        found = AttackFinding.from_result(AttackResult(*draw(rng, n)), claim, 0.05, alpha)
        wrong += bool(found.refutation) or found.epsilon_lower_bound > claim.epsilon()
    return wrong


@pytest.mark.everyday(1)
@pytest.mark.parametrize("n", [40, 1726])
@pytest.mark.parametrize("alpha", [0.05, 0.5])
@pytest.mark.parametrize(("draw", "claim"), TRUE_CLAIMS)
def test_a_true_claim_is_refuted_no_more_often_than_alpha(draw, claim, alpha, n):
    assert refuted(draw, claim, alpha, n, 40) <= binom.isf(1e-6, 40, alpha)


@pytest.mark.slow
def test_planted_rates_without_intervals_are_caught(monkeypatch):
    def shares(members, others, test, alpha):
        sides = (others, members) if test.reverse else (members, others)
        return _evidence.Rates(*(float(np.mean(side >= test.cut)) for side in sides))

    monkeypatch.setattr(_evidence, "_bound_test", shares)
    assert refuted(gaussian, GAUSSIAN, 0.05, 1000, 60) > binom.isf(1e-6, 60, 0.05)


def test_chords_lie_below_the_claimed_curve():
    fpr, chords = np.random.default_rng(0).random(200), curve_of_chords(GAUSSIAN, 1e-6, 200)
    assert (chords(fpr) <= GAUSSIAN.tpr_bound(fpr) + 1e-12).all()


def test_exchanged_groups_are_told_loudly():
    """A green "consistent" at an AUC of .2 is worse than no audit."""
    report = audit(Claiming(claim=LOOSE).fit(*PARTS[:2]), *EXCHANGED, n_shadows=4, random_state=0)
    assert all(finding.result.is_reversed for finding in report.findings)
    assert report.verdict == "doubtful"
    assert "exchanged" in report.caveats[0]
    assert "ranks members below" in report.doubt
    assert "of its own" in report.doubt
    for text in (repr(report), report.to_html(), report._repr_html_(), str(report.to_dict())):
        assert report.doubt[5:40] in text
    assert "exchanged?" in repr(report.findings[0].result)
    right = audit(Claiming(claim=LOOSE).fit(*PARTS[:2]), *PARTS, n_shadows=4, random_state=0)
    assert (right.verdict, right.doubt) == ("consistent", "")


@pytest.mark.slow
def test_planted_silence_about_exchanged_groups_is_caught(monkeypatch):
    monkeypatch.setattr(report_module, "explain_exchange", lambda *signs: "")
    with pytest.raises(AssertionError):
        test_exchanged_groups_are_told_loudly()


def test_exchanged_groups_refute_a_claim_as_well():
    report = audit(Claiming(claim=CLAIM).fit(*PARTS[:2]), *EXCHANGED, attacks=LossThreshold())
    assert report.verdict == "violated"
    assert "exchanged" in report.to_html()


def test_exchanged_groups_are_told_first_where_nothing_is_claimed():
    tree = DecisionTreeClassifier(random_state=0).fit(*PARTS[:2])
    report = audit(tree, *EXCHANGED, attacks=LossThreshold())
    assert "exchanged" in repr(report).splitlines()[1]
    assert repr(report).count("exchanged") == 1
    page = report.to_html()
    assert "Nothing yet. Have the samples of records checked and the audit repeated." in page
    assert "the samples of records are not what an audit assumes" in page
    assert "The attacks therefore say nothing about it." in page
    assert "The attacks showed that it leaks" not in page
    assert report.epsilon_lower_bound > 0
    assert "scores reversed" in page
    assert "highest rate that the claim allows" not in page


@pytest.mark.slow
def test_groups_in_order_are_doubted_no_more_often_than_alpha():
    model, rng, doubted = Claiming(1, LOOSE).fit(*PARTS[:2]), np.random.default_rng(0), 0
    report = audit(model, *PARTS, attacks=LossThreshold())
    for _ in range(100):
        accuracies = rng.binomial(200, 0.8, 2) / 200
        result = AttackResult(*rng.normal(size=(2, 200)))
        found = AttackFinding.from_result(result, LOOSE, 0.5, 0.5)
        shown = {"findings": (found,), "alpha": 0.5, "n_train": 200, "n_test": 200}
        scores = dict(zip(("train_accuracy", "test_accuracy"), accuracies, strict=True))
        doubted += bool(replace(report, **shown, **scores).doubt)
    assert doubted <= binom.isf(1e-6, 100, 0.25)  # one-sided
