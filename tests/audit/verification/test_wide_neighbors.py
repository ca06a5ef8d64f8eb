"""Neighbours and scores that show the faults of odd models, of spreads and of few fits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from skprivacy.accounting import ApproxDPEvent, GaussianEvent, PrivacyGuarantee
from skprivacy.audit import verify_privacy, verify_release
from skprivacy.audit.verification.neighbors import PublicRanges, neighbours
from skprivacy.audit.verification.releases import IndependentFits, choose_epsilon
from skprivacy.audit.verification.threshold_tests import choose_thresholds
from skprivacy.metrics.repeated_runs import line_curve

X = np.random.default_rng(0).normal(size=(24, 3))
Y = (X[:, 0] > 0).astype(int)


def first_gradient(data):
    """Return the clipped gradients at zero of a logistic regression without intercept, summed."""
    rows, labels = data
    gradients = -rows * np.where(labels == 1, 0.5, -0.5)[:, None]
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return (gradients * np.minimum(1.0, 1.0 / (norms + 1e-12))).sum(axis=0)


def test_a_replaced_record_moves_an_odd_model_by_its_sensitivity():
    public = PublicRanges(np.full(3, -3.0), np.full(3, 3.0), (0, 1), numbers=False)
    moved = {
        pair.name: np.linalg.norm(first_gradient(pair.data) - first_gradient(pair.other))
        for pair in neighbours("replace_one", X, Y, public, erased=False)
    }
    assert max(moved.values()) == pytest.approx(2.0)
    both = [size for name, size in moved.items() if name.endswith("image with another target")]
    assert both
    assert max(both) < 1e-9
    assert sum(size > 1.99 for size in moved.values()) >= 20


def broken(inside, outside, n_pilot):
    """Return whether tests that pilot runs choose refute epsilon 1 in 2,000 other runs."""
    random = np.random.default_rng(0)
    curve = line_curve(1.0, 1e-3)
    learn, check, fresh = (
        tuple(np.c_[np.zeros((n, 2)), side(random, n)] for side in (inside, outside))
        for n in (n_pilot, n_pilot, 2_000)
    )
    events, _ = choose_thresholds(learn, check, curve, 1e-3, 0.01)
    return min(event.count(*fresh).surprise(curve) for event in events) < 1e-4


def test_small_differences_of_many_spreads_add_up():
    def noise(scale):
        return lambda random, n: scale * random.normal(size=(n, 100))

    assert broken(noise(1.15), noise(1.0), 200)
    assert not broken(noise(1.0), noise(1.0), 200)


def test_few_fits_without_noise_are_seen():
    def rarely_bare(value, share):
        return lambda random, n: (
            value + (random.random((n, 1)) >= share) * 30 * random.normal(size=(n, 20))
        )

    assert broken(rarely_bare(1.0, 0.02), rarely_bare(0.0, 0.02), 1_000)
    assert not broken(rarely_bare(1.0, 0.0), rarely_bare(0.0, 0.0), 1_000)


class Sum(BaseEstimator):
    def __init__(self, epsilon=1.0, delta=1e-5, largest=1.0):
        self.epsilon = epsilon
        self.delta = delta
        self.largest = largest

    def fit(self, X, y=None):
        if self.delta > self.largest:
            raise ValueError("delta is too large")
        self.sum_ = np.random.default_rng().normal(size=2)
        return self


def test_a_claim_of_one_point_is_tested_at_a_large_delta_if_the_estimator_takes_it():
    def chosen(estimator, epsilon=None, stated=None):
        fits = IndependentFits(estimator, stated=stated)
        fits, claim = choose_epsilon(fits, (X, None), epsilon)
        return claim.at_delta, len(fits.changes)

    assert chosen(Sum()) == (0.01, 1)
    assert chosen(Sum(delta=0.1)) == (0.1, 0)
    assert chosen(Sum(largest=1e-3)) == (1e-5, 0)
    assert chosen(Sum(), epsilon=2.0) == (1e-5, 0)
    assert chosen(Sum(), stated=PrivacyGuarantee(ApproxDPEvent(1.0, 1e-6), 1e-6)) == (1e-6, 0)
    assert "delta=0.01" in repr(verify_privacy(Sum(), X, n_runs=20))


def test_held_says_how_rare_a_fault_could_have_been_seen():
    random = np.random.default_rng()
    claim = PrivacyGuarantee(GaussianEvent(1.0), at_delta=1e-5)

    def verified(n_runs):
        return verify_release(lambda v: v + random.normal(), [(0.0, 0.0)], claim, n_runs=n_runs)

    few, many = verified(20), verified(2_000)
    assert 0 < many.rarest_fault < few.rarest_fault <= 1
    assert f"missing in {many.rarest_fault:.2%} of the fits or more" in many.verdict
