"""Records that are copies of one another are not independent, and an audit does not act as if."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.attacks import LossThreshold
from skprivacy.attacks.record_tables import fingerprints
from skprivacy.audit import audit
from skprivacy.audit.report.findings import explain_copies

pytestmark = pytest.mark.heavy


class Public(ClassifierMixin, BaseEstimator):
    """It learns nothing, so that its claim of epsilon = 0 is true; every record gets its own."""

    def fit(self, X, y):
        self.classes_ = np.array([0, 1])
        self.privacy_ = PrivacyGuarantee(ApproxDPEvent(0.0))
        return self

    def predict_proba(self, X):
        one = np.asarray(X)[:, 0] % 1.0
        return np.column_stack([1.0 - one, one])

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)


def audited(n_distinct, times, seed=0):
    """Audit 1,000 members and 1,000 others, in copies."""
    X = np.random.default_rng(seed).random((2, n_distinct, 1))
    X = np.repeat(X, times, axis=1)
    y = np.ones(X.shape[1], int)
    model = Public().fit(X[0], y)
    return audit(model, X[0], y, X[1], y, attacks=LossThreshold())


@pytest.mark.slow
def test_a_true_claim_about_copies_is_not_called_violated():
    """Of 20 audits of ten copies each of 100 records that many were violated, at error 5%."""
    reports = [audited(100, 10, seed) for seed in range(20)]
    assert {report.verdict for report in reports} == {"doubtful"}
    unchecked = [replace(report, copied="", baseline=None) for report in reports]
    assert sum(report.verdict == "violated" for report in unchecked) >= 10
    worst = max(reports, key=lambda report: report.epsilon_lower_bound)
    assert not worst.to_frame()["violated"].any()
    assert not worst.refutations
    for text in (repr(worst), worst.to_html(), str(worst.to_dict())):
        assert "9.0 copies" in text
    assert audited(1000, 1).verdict == "consistent"


def copied(members, others):
    return explain_copies(*(fingerprints(np.reshape(side, (-1, 1))) for side in (members, others)))


def test_copies_are_told_of_either_sample():
    distinct, many = np.arange(100.0), np.repeat(np.arange(200.0, 210.0), 10)
    assert "Among the members, a record" in copied(many, distinct)
    assert "Among the non-members, a record" in copied(distinct, many)
    assert "has 0.0 copies there" in copied(many, distinct)
    assert not copied(distinct, distinct + 1000)
    assert not copied(np.repeat(distinct, 2), distinct + 1000)  # the bounds' slack covers pairs


@pytest.mark.parametrize("n_in", [20, 300, 2000])
@pytest.mark.parametrize("n_out", [20, 300, 2000])
@pytest.mark.parametrize("values", [1, 5, 50])
def test_a_random_split_of_a_table_of_few_values_has_no_copies(n_in, n_out, values):
    """Most of its records are alike, on both sides."""
    random = np.random.default_rng([n_in, n_out, values])
    for _ in range(20):
        drawn = random.zipf(1.5, n_in + n_out) % values
        assert not copied(drawn[:n_in], drawn[n_in:])
