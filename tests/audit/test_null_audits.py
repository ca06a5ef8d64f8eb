"""2,000 audits of models that know nothing of their records: a slow proof of the error promise."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom
from sklearn.base import BaseEstimator, ClassifierMixin

from skprivacy.accounting import ApproxDPEvent, PrivacyGuarantee
from skprivacy.attacks import LossThreshold
from skprivacy.audit import claim_of
from skprivacy.audit.runner import run_attacks
from skprivacy.metrics import auc
from skprivacy.metrics import evidence as _evidence

ALPHA, TIMES = 0.05, 2000
NOTHING = PrivacyGuarantee(ApproxDPEvent(0.0, 1e-9), at_delta=1e-9)


class Told(ClassifierMixin, BaseEstimator):
    """A model whose probability of class 1 is the first feature; the second names the record."""

    def __init__(self, claim=NOTHING):
        self.claim = claim

    def fit(self, X, y):
        self.classes_, self.privacy_ = np.array([0, 1]), self.claim
        return self

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X):
        return (X[:, 0] > 0.5).astype(int)


# Probabilities of the true class: how they are tied, from not at all to all of them.
TIES = {
    "none": lambda rng, n: rng.random(n),
    "rounded to tenths": lambda rng, n: rng.random(n).round(1),
    "of few trees": lambda rng, n: rng.binomial(4, 0.8, n) / 4,
    "two values": lambda rng, n: np.where(rng.random(n) < 0.5, 0.9, 0.4),
    "one value and some others": lambda rng, n: np.where(rng.random(n) < 0.03, 0.2, 0.7),
    "one value and many others": lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, rng.random(n)),
    "one value": lambda rng, n: np.full(n, 0.6),
}


def accused(kind, times, *, claim=NOTHING, leak=0.0, seed=0):
    """Return how many of these attacks refute a true claim; sizes are 20 to 6,000."""
    rng, wrong = np.random.default_rng(seed), 0
    for _ in range(times):
        n_in, n_out = (np.exp(rng.uniform(np.log(20), np.log(6000), 2))).astype(int)
        truth = rng.integers(0, 2, n_in + n_out)
        proba = TIES[kind](rng, n_in + n_out)
        # A share of the records is answered by randomised response on whether they are members.
        keep = np.where(np.arange(n_in + n_out) < n_in, expit(leak), 1 - expit(leak))
        proba = np.where(rng.random(n_in + n_out) < keep, proba, proba * 0.5) if leak else proba
        X = np.column_stack([np.where(truth == 1, proba, 1 - proba), np.arange(len(truth))])
        model = Told(claim).fit(X, truth)
        (finding,) = run_attacks(
            [LossThreshold(target=model)],
            (X[:n_in], truth[:n_in], X[n_in:], truth[n_in:]),
            claim_of(model),
            ALPHA,
        )
        beyond = finding.epsilon_lower_bound > claim.epsilon()
        wrong += beyond or bool(finding.refutation)
    return wrong


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("leak", [0.0, 1.0])
def test_true_claims_are_called_violated_in_at_most_alpha_of_2000_audits(leak):
    """Also where the model leaks exactly what it claims."""
    claim = PrivacyGuarantee(ApproxDPEvent(leak, 1e-9), at_delta=1e-9)
    each = TIMES // len(TIES) + 1
    wrong = {kind: accused(kind, each, claim=claim, leak=leak) for kind in TIES}
    assert sum(wrong.values()) <= binom.isf(1e-6, each * len(TIES), ALPHA)
    for kind in TIES:
        assert wrong[kind] <= binom.isf(1e-6, each, ALPHA), kind


@pytest.mark.heavy
def test_planted_area_without_its_interval_is_caught(monkeypatch):
    monkeypatch.setattr(
        _evidence, "bound_area", lambda members, others, alpha: auc(members, others)
    )
    assert accused("two values", 20) > binom.isf(1e-6, 20, ALPHA)
