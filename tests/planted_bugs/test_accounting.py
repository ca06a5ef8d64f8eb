"""Planted bugs in what events cost and how they are stored: the accounting's tests catch each."""

from __future__ import annotations

import math
from contextlib import suppress
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from skprivacy.accounting import (
    Event,
    GaussianEvent,
    GNMaxEvent,
    MixtureEvent,
    VoteThresholdEvent,
    delta_of,
    epsilon_of,
    pld,
    rdp,
)
from skprivacy.accounting import (
    event as _event,
)
from skprivacy.accounting import (
    guarantee as _chained,
)
from skprivacy.accounting.events import (
    composition as sampled_group,
)
from skprivacy.accounting.events import (
    composition as sampling,
)
from skprivacy.accounting.events import (
    matrix_factorization as streams,
)
from skprivacy.accounting.events import (
    noise as gaussian,
)
from skprivacy.accounting.pld import argmax
from skprivacy.accounting.pld.pairs import GaussianPair, MixedPair, symmetric_pairs
from skprivacy.accounting.renyi import binomial_rdp

from ..accounting import test_group_privacy as test_group
from ..accounting import test_renyi as test_rdp
from ..accounting.events import (
    test_labels as test_label,
)
from ..accounting.events import (
    test_mixtures as test_mixture,
)
from ..accounting.events import (
    test_sampled_discrete_gaussian,
    test_stored_events,
    test_votes,
)
from ..accounting.pld import rounding


def forget():
    for remembered in (pld, epsilon_of, delta_of):
        remembered.cache_clear()


def pair_of(sensitivity):
    return lambda self, relation: symmetric_pairs(GaussianPair(self.noise_multiplier / sensitivity))


def replace_one_alone(relation):
    return relation == "replace_one"


def mean_of_renyi(self, orders, relation):
    each = np.array([rdp(event, orders, relation) for event in self.events])
    return self.weights @ each


def no_weights(self, edges):
    each = [part.masses(edges) for part in self.parts]
    return tuple(np.mean([masses[i] for masses in each], axis=0) for i in (0, 1))


def small_noise_only(noise, rate, orders, relation):
    """The first term of the series, which is what it tends to for much noise."""
    return orders * rate**2 / (2 * noise**2)


def taken_over(tag, cls):
    _event._TAGS[tag] = cls


def check_tags():
    with mock.patch.dict(_event._TAGS):
        with suppress(TypeError):  # it is refused
            type("Gaussian", (GaussianEvent,), {"__module__": "notebook"}, tag="Gaussian")
        assert Event.from_dict({"type": "Gaussian", "noise_multiplier": 1.0}) == GaussianEvent(1.0)


def check_sampled_noise():
    test_rdp.test_never_below_the_quadrature_nor_far_above(3.7, 0.01, 1.0, "add_remove")


def check_sampled_integers():
    test_sampled_discrete_gaussian.test_moment_is_the_sum_over_the_grid(0.3, 1.0, "two integers")


def check_group_step():
    test_group.test_one_step_is_the_mixture_of_gaussians(5, 0.3, 2.0, "add_remove")


def check_replaced_group():
    test_group.test_one_step_is_the_mixture_of_gaussians(5, 0.3, 2.0, "replace_one")


def check_first_format():
    for row, event in zip(test_stored_events.STORED, test_stored_events.EVENTS, strict=True):
        try:
            assert Event.from_dict(row["event"]) == event
        except ValueError as error:
            raise AssertionError("the first format cannot be read") from error


MUTANTS = {
    "GNMax: a vote moves one count": (
        GNMaxEvent, "dominating_pairs", pair_of(1.0),
        lambda: test_votes.check_distribution(GNMaxEvent, math.sqrt(2)),
    ),
    "the threshold test: half the sensitivity": (
        VoteThresholdEvent, "dominating_pairs", pair_of(0.5),
        lambda: test_votes.check_distribution(VoteThresholdEvent, 1.0),
    ),
    "a grid of an arg-max rounded to the larger ratio": (
        argmax, "np", SimpleNamespace(**{**vars(np), "floor": np.ceil}), rounding.check_filter,
    ),
    "a mixture's Renyi cost is the mean": (
        MixtureEvent, "renyi", mean_of_renyi, test_mixture.test_one_choice_is_exact,
    ),
    "a mixture without its probabilities": (
        MixedPair, "masses", no_weights, test_mixture.test_one_choice_is_exact,
    ),
    "sampled noise by its first term": (
        gaussian, "sampled_gaussian_rdp", small_noise_only,
        check_sampled_noise,
    ),
    "sampled integers at the order below": (
        gaussian, "binomial_rdp", lambda a, q, z: binomial_rdp(max(a - 1, 2), q, z),
        check_sampled_integers,
    ),
    "another label moves a stream by one contribution": (
        streams, "allows_replacement", replace_one_alone,
        test_label.test_sampled_contributions_are_replaced_by_another_label,
    ),
    "another label adds a sampled contribution": (
        sampling, "allows_replacement", replace_one_alone,
        test_label.test_sampled_contributions_are_replaced_by_another_label,
    ),
    "a group is in the sample as one record": (
        sampled_group, "_count_probabilities",
        lambda rate, size: ((1 - rate, rate), (0.0, float(size))),
        check_group_step,
    ),
    "a group's records are replaced as if they left": (
        sampled_group, "allows_replacement", lambda relation: False, check_replaced_group,
    ),
    "the steps between neighbours are forgotten": (
        _chained, "_chain_tpr", lambda fpr, steps, curve: _chained._highest_tpr(fpr, curve),
        test_group.test_steps_along_a_gaussian_curve_are_exact,
    ),
    "a tag is taken over": (_event, "_register", taken_over, check_tags),
    "a renamed field without its stored name": (
        GaussianEvent, "_stored", ("sigma",), check_first_format,
    ),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name):
    owner, attribute, bug, check = MUTANTS[name]
    check()
    forget()
    with mock.patch.object(owner, attribute, bug), pytest.raises(AssertionError):
        check()
    forget()
