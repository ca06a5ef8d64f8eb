"""Matched pairs: bounds that a difference between the samples does not explain."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.attacks import LossThreshold, SupervisedAttack
from skprivacy.audit import audit, audit_predictions
from skprivacy.audit.comparability import matched_pairs
from skprivacy.audit.comparability.blind_baseline import SampleUnits
from skprivacy.audit.comparability.matched_pairs import bound_pairs, needed_factor
from skprivacy.metrics.evidence import Evidence, Rates, gather_evidence

from . import null_samples
from .test_blind_baseline import samples

pytestmark = pytest.mark.heavy

FOREST = RandomForestClassifier(50, min_samples_leaf=5, random_state=0)


def claim_of_epsilon(epsilon):
    return PrivacyGuarantee(ApproxDPEvent(epsilon, 0.0))


def test_pairs_are_alike():
    null_samples.check_pairs()


class Priors(ClassifierMixin, BaseEstimator):
    """A model that learns the shares of the classes and nothing else, of no record."""

    def fit(self, X, y):
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_ = counts / len(y)
        return self

    def predict_proba(self, X):
        return np.tile(self.shares_, (len(X), 1))

    def predict(self, X):
        return np.full(len(X), self.classes_[self.shares_.argmax()])


def tables_of(model, records):
    return model.predict_proba(records[0]), records[1], model.predict_proba(records[2]), records[3]


def bounds(model, records):
    """Return the bound over all records and the one on matched pairs."""
    tables = tables_of(model, records)
    report = audit_predictions(*tables, claim=0.1, records=(records[0], records[2]))
    return report.epsilon_lower_bound, report.pairs


def test_a_difference_of_labels_is_no_leak_among_pairs():
    records = samples("labels", 400)
    third = samples("labels", 400, seed=1)[:2]
    whole, pairs = bounds(Priors().fit(*third), records)
    assert whole > 0.1
    assert pairs.n_pairs > 100
    assert pairs.epsilon_lower_bound <= 0.1
    assert pairs.factor == 1
    assert "may show this" in pairs.describe(0.05, claims=True)


def test_a_leak_stays_visible_among_pairs():
    records = samples("columns", 400)
    fitted = FOREST.fit(*records[:2])
    report = audit(fitted, *records, claim=0.1, n_shadows=4, random_state=0)
    assert report.verdict == "doubtful"
    assert report.pairs.epsilon_lower_bound > 0.5
    assert report.pairs.factor > np.exp(0.4)
    for text in (repr(report), report.to_html()):
        assert "on matched pairs" in text.lower()
        assert f"at least {report.pairs.factor:.3g} times as frequent" in text


def test_samples_with_too_little_in_common_have_no_pairs():
    records = samples("age", 400)
    apart = (records[0] + 3, records[1], records[2], records[3])
    _, pairs = bounds(FOREST.fit(*apart[:2]), apart)
    assert pairs.n_pairs < 100
    assert pairs.epsilon_lower_bound is None
    assert "too little in common" in pairs.describe(0.05, claims=True)


def test_attacks_on_half_of_the_records_are_bounded_on_their_own_pairs():
    records = samples("columns", 600)
    tables = tables_of(FOREST.fit(*records[:2]), records)
    report = audit_predictions(*tables, claim=0.1, attacks=SupervisedAttack(),
                               records=(records[0], records[2]))  # fmt: skip
    (finding,) = report.findings
    assert len(finding.evaluated[0]) == len(finding.result.scores_in) < 600
    assert report.pairs.n_pairs <= len(finding.evaluated[0])
    # The scores are those of the evaluated records.
    loss = audit_predictions(*tables, attacks=LossThreshold()).findings[0].result.scores_in
    assert np.corrcoef(loss[finding.evaluated[0]], finding.result.scores_in)[0, 1] > 0.2


@pytest.mark.parametrize("factor", [1.0, 1.5, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_the_factor_is_what_a_claim_lacks(factor, epsilon):
    claim, curve = claim_of_epsilon(epsilon), claim_of_epsilon(epsilon).tpr_bound
    fpr = 0.05
    hit = Evidence((Rates(min(1.0, factor * float(curve(fpr))), fpr),), 0.0)
    assert needed_factor(hit, claim) >= factor * (1 - 1e-9)
    if factor == 1:
        assert needed_factor(hit, claim) == pytest.approx(1.0, abs=1e-9)
    area = float(np.minimum(1.0, factor * curve(np.linspace(0, 1, 2001))).mean())
    found = needed_factor(Evidence((), area), claim)
    # The upper sum of 400 steps exceeds the integral, by 3.1% at most in these cases.
    assert 0.95 * factor < found <= factor * (1 + 1e-6)


def test_without_a_claim_the_factor_is_that_of_a_model_that_leaks_nothing():
    evidence = Evidence((Rates(0.3, 0.1),), 0.0)
    assert needed_factor(evidence, None) == pytest.approx(3.0)
    assert needed_factor(evidence, claim_of_epsilon(0.0)) == pytest.approx(3.0)


def responses(rng, n, factor, epsilon):
    """Scores of randomised response, and of records that are more frequent among the members.

    Records of two kinds have different scores. Those of the first kind are ``factor`` times as
    frequent among members.
    """
    share = 0.2
    first = rng.random(n) < factor * share, rng.random(n) < share
    told = (
        expit(np.where(first[0], epsilon, -epsilon)),
        expit(np.where(first[1], 0.0, -2 * epsilon)),
    )
    return tuple((rng.random(n) < p).astype(float) for p in told)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_the_factor_of_the_pairs_explains_their_evidence(factor):
    """A model that keeps its claim needs no larger factor than that of its records, but by chance.

    Each record is answered by randomised response, with odds that membership changes by epsilon.
    """
    epsilon, wrong = 1.0, 0
    for seed in range(20):
        scores = responses(np.random.default_rng(seed), 2000, factor, epsilon)
        evidence = gather_evidence(*scores, delta=0.0, alpha=0.05)
        wrong += needed_factor(evidence, claim_of_epsilon(epsilon)) > factor * (1 + 1e-9)
    assert wrong <= 5  # of 20 at an error of 5%: six occur with probability 3e-4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["columns", "labels"])
def test_models_of_a_third_sample_are_not_refuted_on_pairs(kind):
    """Members and non-members differ; the model learned from other records of the members' kind."""
    whole, matched = [], []
    for seed in range(12):
        records, third = samples(kind, 400, seed), samples(kind, 400, 100 + seed)[:2]
        bound, pairs = bounds(FOREST.fit(*third), records)
        whole.append(bound > 0.1)
        matched.append((pairs.epsilon_lower_bound or 0.0) > 0.1)
    assert sum(matched) <= 2
    assert kind != "labels" or sum(whole) > 6


def test_every_attack_has_its_share_of_the_error(monkeypatch):
    shares = []
    whole = matched_pairs.evidence_against

    def noting(inside, outside, guarantee, alpha):
        shares.append(alpha)
        return whole(inside, outside, guarantee, alpha)

    monkeypatch.setattr(matched_pairs, "evidence_against", noting)
    records = samples("columns", 300)
    fitted = FOREST.fit(*records[:2])
    report = audit(fitted, *records, n_shadows=2, random_state=0)
    shares.clear()
    bound_pairs(SampleUnits.from_records(*records), report.findings, None, 0.1)
    assert shares == [0.05, 0.05]
