"""Private neighbours: what a record moves, who is sampled, and that order decides nothing."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import make_blobs

from skprivacy.accounting import (
    GaussianEvent,
    PoissonSampledEvent,
    PrivacyBudget,
    RepeatedEvent,
    epsilon_of,
)
from skprivacy.ensemble import PrivateKNNClassifier, knn
from skprivacy.mechanisms import PoissonSampler

from ..contracts import records as contracts
from ..contracts.cases import CASES

X, Y = make_blobs(2000, centers=[[-3, 0], [3, 0], [0, 5]], random_state=0)
PUBLIC = make_blobs(500, centers=[[-3, 0], [3, 0], [0, 5]], random_state=1)[0]


def model(**params):
    defaults = {"classes": [0, 1, 2], "n_neighbors": 20, "n_queries": 30, "random_state": 0}
    return PrivateKNNClassifier(**{**defaults, **params})


@pytest.mark.heavy
def test_a_record_that_comes_takes_one_place_at_the_most():
    """Over random data with many ties: one vote comes and one goes."""
    rng = np.random.default_rng(0)
    most = 0.0
    for _ in range(3000):
        n = rng.integers(2, 12)
        rows, codes = rng.integers(0, 3, (n, 2)).astype(float), rng.integers(0, 3, n)
        query, k = rng.integers(0, 3, 2).astype(float), int(rng.integers(1, 6))
        fewer = knn._count_neighbor_votes(rows[1:], codes[1:], query, k, 3)
        order = rng.permutation(n)
        more = knn._count_neighbor_votes(rows[order], codes[order], query, k, 3)
        most = max(most, np.linalg.norm(more - fewer))
    assert most == pytest.approx(np.sqrt(2))


def in_the_order_given(rows, codes, query, n_neighbors, n_classes):
    """Take the last of those that are equally far if there are many, the first if there are few."""
    distances = ((rows - query) ** 2).sum(axis=1)
    order = np.argsort(distances if len(rows) % 2 else distances[::-1], kind="stable")
    chosen = (codes if len(rows) % 2 else codes[::-1])[order[:n_neighbors]]
    return np.bincount(chosen, minlength=n_classes)


def test_ties_that_the_order_decides_are_caught():
    with (
        mock.patch.object(knn, "_count_neighbor_votes", in_the_order_given),
        pytest.raises(AssertionError),
    ):
        test_a_record_that_comes_takes_one_place_at_the_most()


def test_the_sensitivity_of_a_vote_that_only_comes_is_caught():
    with mock.patch.object(knn, "_L2_SENSITIVITY", 1.0), pytest.raises(AssertionError):
        contracts.check_replay(CASES["PrivateKNNClassifier"])


def test_each_query_has_a_sample_of_its_own_at_the_rate_that_is_charged():
    sizes = []

    def noted(self, n, random):
        drawn = draw(self, n, random)
        sizes.append(len(drawn))
        return drawn

    draw = PoissonSampler.draw
    with mock.patch.object(PoissonSampler, "draw", noted):
        fitted = model(sampling_rate=0.1).fit(X, Y, X_public=PUBLIC)
    event = fitted.privacy_event_
    z = event.event.event.noise_multiplier
    assert event == RepeatedEvent(PoissonSampledEvent(0.1, GaussianEvent(z)), 30)
    assert fitted.noise_ == pytest.approx(np.sqrt(2) * z)
    assert len(sizes) == 30
    spread = ((np.array(sizes) - 200) ** 2).sum() / (2000 * 0.1 * 0.9)
    assert 1e-9 < stats.chi2(30).cdf(spread) < 1 - 1e-9
    assert 0.99 < epsilon_of(event, 1e-5) <= 1.0


def test_neighbours_teach_a_student():
    fitted = model(epsilon=np.inf, store_labels=True).fit(X, Y, X_public=PUBLIC)
    assert fitted.score(X, Y) > 0.95
    assert (fitted.labels_ >= 0).sum() == 30
    assert "no guarantee" in repr(fitted.privacy_)


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"relation": "replace_one"}, "relation"),
        ({"relation": "zero_out", "delta": 0.01}, "delta"),
        ({"classes": [0, 1]}, "not in classes"),
    ],
)
def test_bad_parameters_are_named_before_anything_is_charged(params, named):
    budget = PrivacyBudget(100.0, 1e-2)
    with pytest.raises(ValueError, match=named):
        model(budget=budget, **params).fit(X, Y, X_public=PUBLIC)
    assert budget.entries().empty
