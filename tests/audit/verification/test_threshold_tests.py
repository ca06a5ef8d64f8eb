"""Scores of records that take part in some steps only separate as well as possible."""

from __future__ import annotations

import numpy as np
import pytest

from skprivacy.accounting import (
    ApproxDPEvent,
    GaussianEvent,
    PoissonSampledEvent,
    PrivacyGuarantee,
    RepeatedEvent,
)
from skprivacy.audit.verification.releases import IndependentFits
from skprivacy.audit.verification.threshold_tests import ThresholdTest, participation_ratios
from skprivacy.metrics.repeated_runs import Counts
from skprivacy.preprocessing import PrivateStandardScaler

STEPS, SIZE, RATE, NOISE = 6, 4, 1 / 3, 0.41
WHERE = [slice(SIZE * i, SIZE * (i + 1)) for i in range(STEPS)]
WAY = np.array([0.5, -0.5, 0.5, 0.5])


def runs(random, n, rate):
    part = random.random((n, STEPS, 1)) < rate
    return (part * WAY + NOISE * random.normal(size=(n, STEPS, SIZE))).reshape(n, -1)


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("which", [0, 1], ids=["one direction", "each step's own"])
def test_the_score_reaches_what_sampling_allows_and_the_sum_does_not(which):
    random = np.random.default_rng(0)
    score = list(participation_ratios(runs(random, 2_000, RATE), runs(random, 2_000, 0.0), WHERE))[
        which
    ]
    claim = PrivacyGuarantee(
        RepeatedEvent(PoissonSampledEvent(RATE, GaussianEvent(NOISE)), STEPS),
        at_delta=1e-5,
        relation="zero_out",
    )
    many, none = runs(random, 40_000, RATE), runs(random, 40_000, 0.0)

    def told(found, fpr):
        return float(np.mean(found(many) > np.quantile(found(none), 1 - fpr)))

    def summed(values):
        return values.reshape(-1, STEPS, SIZE).sum(1) @ WAY

    for fpr in (0.01, 0.1):
        best = float(claim.tpr_bound(fpr))
        assert best - 0.04 < told(score, fpr) < best + 0.02  # six deviations of both rates
        assert told(summed, fpr) < best - 0.1


def test_one_step_of_another_size_leaves_each_its_own_direction():
    random = np.random.default_rng(1)
    where = [slice(0, 8), *WHERE[2:]]
    assert len(list(participation_ratios(runs(random, 50, 1.0), runs(random, 50, 0.0), where))) == 1


def test_runs_that_reach_the_cut_are_counted_on_their_own_side():
    test = ThresholdTest(lambda runs: runs[:, 0], 1.0)
    assert test.count(np.array([[1.0], [0.0]]), np.zeros((3, 1))) == Counts(1, 2, 0, 3)


def test_where_the_answers_of_the_mechanisms_stand():
    data = np.zeros((5, 2)), None
    scaler = PrivateStandardScaler(bounds=([-1.0, -1.0], [1.0, 1.0]))
    fits = IndependentFits(scaler)
    told, steps = fits.with_answers(fits.claim(data), data)
    assert (told.answers, steps) == (True, (slice(0, 5),))
    other = PrivacyGuarantee(ApproxDPEvent(1.0))  # of what is not the scaler's noise
    assert fits.with_answers(other, data) == (fits, ())
