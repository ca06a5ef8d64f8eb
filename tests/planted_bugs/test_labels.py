"""Planted bugs in estimators that protect labels: the contracts catch each."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from skprivacy.base import PrivateFit
from skprivacy.ensemble import pate
from skprivacy.ensemble.teachers import partition_by_hash
from skprivacy.label_privacy import (
    ALIBIClassifier,
    LP2STClassifier,
    RandomizedResponseClassifier,
)
from skprivacy.label_privacy import (
    base as _base,
)
from skprivacy.label_privacy import (
    noisy_labels as alibi,
)
from skprivacy.label_privacy import (
    noisy_labels as stages,
)
from skprivacy.mechanisms import RandomizedResponse, RandomizedResponseWithPrior, SecureRandom
from skprivacy.mechanisms.additive import Laplace

from ..contracts import labels as contracts_labels
from ..contracts.cases import LABELS

pytestmark = pytest.mark.heavy

REPLAY, LAW = contracts_labels.check_label_replay, contracts_labels.check_law
FRESH, CLAIM = contracts_labels.check_fresh_labels, contracts_labels.check_label_claim
TRACES = contracts_labels.check_labels_leave_no_trace


def noised_twice(original):
    """Ask each label again, and believe both answers."""

    def released(self, X, codes, random, noise):
        first, second = (original(self, X, codes, random, noise) for _ in range(2))
        return first[0], first[1] * second[1], first[2]

    return released


def noised_again_in_the_second_stage(original):
    """Ask the labels of the first part in the second stage too, with those of the second."""

    def released(self, X, codes, random, noise):
        labels, likelihood, prior = original(self, X, codes, random, noise)
        _, again, _ = stages._respond(codes, prior.shape[1], self.epsilon, noise)
        return labels, likelihood * again, prior

    return released


def prior_of_clean_labels(original):
    """Choose the candidates of the second part with a look at its labels."""

    def responses(codes, prior, epsilon, noise):
        return original(codes, prior + np.eye(prior.shape[1])[codes], epsilon, noise)

    return responses


def clean_class_rates(original):
    """Take the bias off with the shares of the true classes, which were never released."""

    def released(self, X, codes, random, noise):
        labels, likelihood, prior = original(self, X, codes, random, noise)
        rates = np.bincount(codes, minlength=prior.shape[1]) / len(codes)
        return labels, likelihood, prior * rates

    return released


def clean_first_model(original):
    """Begin with a model of the true labels."""

    def released(self, X, codes, random, noise):
        labels, likelihood, _ = original(self, X, codes, random, noise)
        return labels, likelihood, np.eye(likelihood.shape[1])[codes] + 0.1

    return released


def hash_of_labels(original):
    """Deal records to teachers by features and label: another label changes two teachers."""

    def count(teacher, X, y, parts, n_teachers, *rest):
        parts = partition_by_hash(X, y, n_teachers, np.random.RandomState(0))
        return original(teacher, X, y, parts, n_teachers, *rest)

    return count


def less_noise(original):
    return lambda self, scale, size, random: original(self, scale, size, random) // 2


def more_truth(original):
    return property(lambda self: 0.5 * (1 + original.fget(self)))


def first_candidate(original):
    """Whose label is no candidate responds for the first one, so that likelihoods are wrong."""

    def release(self, value, random):
        return original(self, np.where(value == -1, 0, value), random)

    return release


def seeded(original):
    return lambda self, value, random: original(self, value, SecureRandom(7))


def keeps_labels(original):
    def fit(self, X, y):
        model = original(self, X, y)
        model._seen = np.array(y)
        return model

    return fit


def of_another_relation(original):
    def charged(self, event, *, relation, **rest):
        return original(self, event, relation="zero_out", **rest)

    return charged


MUTANTS = {
    "label noised twice, charged once": (
        RandomizedResponseClassifier, "_release_labels", noised_twice, REPLAY,
        "RandomizedResponseClassifier",
    ),
    "vector noised twice, charged once": (
        ALIBIClassifier, "_release_labels", noised_twice, REPLAY, "ALIBIClassifier",
    ),
    "first part asked again": (
        LP2STClassifier, "_release_labels", noised_again_in_the_second_stage, REPLAY,
        "LP2STClassifier",
    ),
    "prior of the second part's own labels": (
        stages, "_respond_with_prior", prior_of_clean_labels, REPLAY, "LP2STClassifier",
    ),
    "bias taken off by clean class rates": (
        RandomizedResponseClassifier, "_release_labels", clean_class_rates, REPLAY,
        "RandomizedResponseClassifier",
    ),
    "first model of true labels": (
        ALIBIClassifier, "_release_labels", clean_first_model, REPLAY, "ALIBIClassifier",
    ),
    "indicators of sensitivity 1": (
        alibi, "_SENSITIVITY", lambda original: 1.0, REPLAY, "ALIBIClassifier",
    ),
    "records dealt by their labels": (
        pate, "count_votes", hash_of_labels, REPLAY, "LabelPATEClassifier-turning",
    ),
    "half the noise": (Laplace, "_noise", less_noise, LAW, "ALIBIClassifier"),
    "more truth": (
        RandomizedResponse, "truth_probability", more_truth, LAW, "RandomizedResponseClassifier",
    ),
    "no candidate is the first": (
        RandomizedResponseWithPrior, "_release", first_candidate, LAW, "LP2STClassifier-guesses",
    ),
    "fixed noise": (RandomizedResponse, "_release", seeded, FRESH, "RandomizedResponseClassifier"),
    "labels kept": (_base.NoisyLabelClassifier, "fit", keeps_labels, TRACES, "ALIBIClassifier"),
    "called a guarantee of records": (
        PrivateFit, "charged", of_another_relation, CLAIM, "LP2STClassifier",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name):
    owner, attribute, make, check, case = MUTANTS[name]
    with (
        mock.patch.object(owner, attribute, make(getattr(owner, attribute))),
        pytest.raises(AssertionError),
    ):
        check(LABELS[case])
