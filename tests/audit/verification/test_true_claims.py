"""verify_privacy is misled neither by other contents of runs nor by assumptions of a claim."""

from __future__ import annotations

import itertools
import random
import time
from unittest import mock

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
from skprivacy.audit import verify_privacy, verify_release
from skprivacy.audit.verification import verify_privacy as verification
from skprivacy.audit.verification.neighbors import (
    NeighbourPair,
    PublicFeatures,
    PublicRanges,
    ReleaseRuns,
    neighbours,
)
from skprivacy.audit.verification.releases import IndependentFits
from skprivacy.ensemble import PATEClassifier
from skprivacy.linear_model import AdaSSPRegressor, OutputPerturbationClassifier
from skprivacy.neural_network import DPSGDClassifier
from skprivacy.preprocessing import PrivateStandardScaler

CLAIM = PrivacyGuarantee(GaussianEvent(0.5), at_delta=1e-5)
PAIR = (np.zeros(2), np.array([1.0, 0.0]))
UNIT = ([-1.0], [1.0])
GIVEN = OutputPerturbationClassifier(bounds=UNIT, classes=[0, 1])
DATA = np.linspace(0.0, 1.0, 8)[:, None]


def own_generator(noise):
    random = np.random.default_rng()
    return lambda value: value + noise * random.normal(size=2)


def fresh_generator(value):
    return value + 0.5 * np.random.default_rng().normal(size=2)


def no_noise(value):
    return value[:1]


def test_the_sides_take_turns_in_random_order():
    """A release of the time would separate all runs with the record, which came first."""
    count = itertools.count()
    runs = ReleaseRuns(lambda side: (side, next(count)), NeighbourPair("", 1, 0), 1)
    sides = [*runs.pilot_runs(100), *runs.fresh(100)]
    assert [{run[0] for run in side} for side in sides] == [{1}, {0}, {1}, {0}]
    told = [np.array([run[1] for run in side]) for side in sides]
    assert sorted(np.concatenate(told)) == list(range(400))
    for inside, outside in (told[:2], told[2:]):
        # Of two blocks the means are 100 apart; in random order 30, once in 100 million.
        assert abs(inside.mean() - outside.mean()) < 50


@pytest.mark.heavy
def test_copies_of_a_generator_do_not_pass_for_independent_runs():
    """Each process would draw the same noise: of 30 true claims 22 were broken."""
    kept = verify_release(own_generator(0.5), [PAIR], CLAIM, n_runs=60, alpha=1e-6, n_jobs=2)
    assert kept.changes[0].startswith("n_jobs=1")
    assert not kept.broken
    for release in (fresh_generator, no_noise):
        found = verify_release(release, [PAIR], CLAIM, n_runs=60, alpha=1e-6, n_jobs=2)
        assert not found.changes


class Mean(BaseEstimator):
    """Another library's private mean, whose noise comes from its argument."""

    def __init__(self, epsilon=1.0, rng=None, seed=None, bounds_X=(0, 1)):
        self.epsilon = epsilon
        self.rng = rng
        self.seed = seed
        self.bounds_X = bounds_X

    def fit(self, X, y=None):
        random = np.random.default_rng(self.seed) if self.rng is None else self.rng
        noise = getattr(random, "normal", None) or (lambda **_: random.gauss(0.0, 1.0))
        self.mean_ = X.mean() + noise(size=1) / len(X) / self.epsilon
        self.fitted_at_ = time.perf_counter()
        return self


@pytest.mark.parametrize(
    "given",
    [
        {"rng": np.random.default_rng(0)},
        {"rng": np.random.RandomState(0)},
        {"rng": random.Random(0)},
        {"seed": 0},
    ],
    ids=["Generator", "RandomState", "Random", "seed"],
)
def test_the_source_of_noise_is_fresh_in_every_run(given):
    """A clone has a copy of a generator: with the same noise in every run all claims are broken."""
    fits = IndependentFits(Mean(**given))
    means = {fits.fitted((DATA, None)).mean_.item() for _ in range(20)}
    assert len(means) == 20
    assert fits.changes == (f"{next(iter(given))} is fresh in every run: it may drive the noise",)


class Foreign(BaseEstimator):
    """It has no noise_seed: its noise may come from its seed, or from numpy's generator."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y=None):
        seeded = np.random.default_rng(self.random_state)
        self.noise_ = seeded.normal(), np.random.normal()  # noqa: NPY002
        return self


@pytest.mark.parametrize("seed", [None, 0])
def test_a_source_of_noise_beside_it_does_not_make_a_seed_public(seed):
    """In a pipeline with a private scaler, true claims of another library's step were broken."""
    scaler = PrivateStandardScaler(bounds=([0.0], [1.0]))
    fits = IndependentFits(make_pipeline(scaler, Foreign(seed)))
    noise = [fits.fitted((DATA, None))[-1].noise_ for _ in range(20)]
    assert [len(set(column)) for column in zip(*noise, strict=True)] == [20, 20]


@pytest.mark.parametrize(
    "model",
    [
        DPSGDClassifier(random_state=3),
        make_pipeline(DPSGDClassifier(random_state=3)),
        OneVsRestClassifier(DPSGDClassifier(random_state=3)),
        BaggingClassifier(GIVEN, random_state=3),
        PATEClassifier(DecisionTreeClassifier(random_state=3)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_seeds_in_and_around_what_has_its_own_noise_are_public(model):
    assert IndependentFits(model).changes == ()
    beside = IndependentFits(make_pipeline(Foreign(5), model)).changes
    assert beside == ("foreign__random_state is fresh in every run: it may drive the noise",)


@pytest.mark.parametrize(
    ("estimator", "agreed"),
    [
        (OutputPerturbationClassifier(), PublicFeatures(labels=True, ranges=True)),
        (OneVsRestClassifier(GIVEN), PublicFeatures(labels=True)),
        (VotingClassifier([("one", GIVEN)]), PublicFeatures(labels=True)),
        (AdaSSPRegressor(delta=1e-5), PublicFeatures(ranges=True)),
        (PrivateStandardScaler(), PublicFeatures(ranges=True)),
        (GIVEN, PublicFeatures()),
    ],
    ids=str,
)
def test_public_facts_of_a_claim_are_read_from_its_assumptions(estimator, agreed):
    assert (
        PublicFeatures.from_guarantee(IndependentFits(estimator).claim((DATA, np.arange(8) % 2)))
        == agreed
    )


def test_a_claim_that_takes_facts_of_the_data_for_public_is_tested_as_one():
    """Neighbours with other labels or ranges were separated at once, outside the claim."""
    with mock.patch.object(verification, "_test_claim") as verified:
        verify_privacy(OutputPerturbationClassifier(), epsilon=3.0)
    pairs = verified.call_args.args[1]
    assert len(pairs) > 10
    assert all(facts(pair.data) == facts(pair.other) for pair in pairs)


def facts(data):
    rows, labels = data
    return set(labels.tolist()), float(np.nanmin(rows)), float(np.nanmax(rows))


def test_neighbours_agree_in_labels_and_ranges_where_the_claim_says_so():
    X, y = np.arange(6.0)[:, None], np.array([0, 1, 1, 0, 1, 0])
    public = PublicRanges(np.zeros(1), np.full(1, 5.0), (0, 1), numbers=False)

    for relation in ("add_remove", "replace_one", "zero_out", "label"):
        every, alike = (
            list(neighbours(relation, X, y, public, erased=False, agreed=agreed))
            for agreed in (PublicFeatures(), PublicFeatures(labels=True, ranges=True))
        )
        assert any(facts(pair.data) != facts(pair.other) for pair in every)
        assert all(facts(pair.data) == facts(pair.other) == ({0, 1}, 0, 5) for pair in alike)
        assert len(alike) >= 6
