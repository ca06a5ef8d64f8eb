"""A party's contribution: bounded, exact, and computed record by record."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax

from skprivacy.accounting import epsilon_of
from skprivacy.federated import FederatedPlan, plan

STEPS = 2**36
RNG = np.random.RandomState(0)
X = RNG.normal(size=(300, 6)) * np.geomspace(1e-3, 1e3, 300)[:, None]


def planned(**params):
    return FederatedPlan(
        **{"n_features": 6, "n_outputs": 1, "n_parties": 4, "n_units": 300, "n_rounds": 5, **params}
    )


def weights_of(of, seed=1):
    return np.random.RandomState(seed).normal(size=(of.n_outputs, of.n_features + 1))


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("max_grad_norm", [1e-6, 0.3, 1e6])
def test_no_record_adds_more_than_the_norm(n_outputs, max_grad_norm):
    of, y = (
        planned(n_outputs=n_outputs, max_grad_norm=max_grad_norm),
        np.arange(300) % max(n_outputs, 2),
    )
    norms = [
        np.linalg.norm(of.contribution(weights_of(of), X[[i]], y[[i]]).astype(float))
        for i in range(300)
    ]
    assert 0.9 * STEPS < max(norms) <= STEPS or max_grad_norm == 1e6
    assert max(norms) <= STEPS


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_sum_is_that_of_its_records_to_the_last_step(n_outputs, monkeypatch):
    """In whatever order and company: no record moves how another one is rounded."""
    of, y = planned(n_outputs=n_outputs), np.arange(300) % max(n_outputs, 2)
    weights = weights_of(of)
    each = sum(of.contribution(weights, X[[i]], y[[i]]) for i in range(300))
    order = np.random.RandomState(2).permutation(300)
    assert np.array_equal(each, of.contribution(weights, X, y))
    assert np.array_equal(each, of.contribution(weights, X[order], y[order]))
    monkeypatch.setattr(plan, "_MAX_NUMBERS_IN_MEMORY", 64)
    assert np.array_equal(each, of.contribution(weights, X, y))


def test_it_is_the_gradient_of_the_logistic_loss():
    of, y = planned(max_grad_norm=1e4), np.arange(300) % 2
    weights, rows = weights_of(of), np.column_stack([X, np.ones(300)])
    gradient = (expit(rows @ weights[0]) - y) @ rows
    found = of.contribution(weights, X, y) * 1e4 / STEPS
    assert np.allclose(found, gradient, rtol=1e-5)
    of, y = planned(n_outputs=3, max_grad_norm=1e4), np.arange(300) % 3
    weights = weights_of(of)
    gradient = (softmax(rows @ weights.T, axis=1) - np.eye(3)[y]).T @ rows
    found = of.contribution(weights, X, y).reshape(3, 7) * 1e4 / STEPS
    assert np.allclose(found, gradient, rtol=1e-5)


def test_a_party_sends_what_its_own_training_moves():
    of = planned(
        of_parties=True, n_units=4, max_grad_norm=50.0, local_steps=3, local_learning_rate=0.1
    )
    weights, rows = weights_of(of), np.column_stack([X[:150], np.ones(150)])
    y, here = np.arange(150) % 2, weights.copy()
    for _ in range(3):
        here = here - 0.1 * ((expit(rows @ here[0]) - y) @ rows / 150)
    found = of.contribution(weights, X[:150], y) * 50.0 / STEPS
    assert np.allclose(found, (weights - here)[0] / 0.1, rtol=1e-5)


@pytest.mark.parametrize("of_parties", [False, True])
def test_weights_that_have_grown_beyond_all_bounds_change_nothing_of_a_sensitivity(of_parties):
    """A score that is infinite, or no number, counts for nothing: as a step it would be -2**63."""
    of = planned(of_parties=of_parties, n_units=4)
    for weights in (np.full((1, 7), np.inf), np.full((1, 7), np.nan), np.full((1, 7), 1e308)):
        weights[0, 2] = -weights[0, 2]
        for rows in (X, 1e90 * X, 0 * X):
            for i in range(0, 300, 37):
                added = of.contribution(weights, rows[[i]], np.array([1])).astype(float)
                assert np.linalg.norm(added) <= STEPS


def test_steps_fall_to_zero_and_remember():
    of = planned(momentum=0.5, learning_rate=2.0, max_grad_norm=3.0, sampling_rate=0.5)
    weights, velocity = of.start()
    total = np.full(7, STEPS, np.int64)
    weights, velocity = of.step(weights, velocity, total, done=0)
    mean = 3.0 / (300 * 0.5)
    assert np.allclose(weights, -2.0 * mean)
    weights, velocity = of.step(weights, velocity, total, done=4)
    assert np.allclose(velocity, 1.5 * mean)
    assert np.allclose(weights, -2.0 * mean - 2.0 * (1 - 4 / 5) * 1.5 * mean)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sampling_rate": 0.0}, "sampling_rate=0.0 must be in"),
        ({"of_parties": True, "sampling_rate": 0.5}, "sampling_rate=0.5 must be 1 if parties"),
        ({"local_steps": 2}, "local_steps=2 must be 1 if records"),
        ({"n_units": 2**25}, "n_units=33554432 must be"),
        ({"momentum": 1.0}, "momentum=1.0"),
        ({"n_untrusted": 4}, "n_untrusted=4 must be below n_parties=4"),
    ],
)
def test_plans_without_a_proof_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        planned(**wrong)


@pytest.mark.parametrize("relation", ["replace_one", "label"])
@pytest.mark.parametrize("of_parties", [False, True])
def test_a_replaced_contribution_moves_a_sum_by_twice_its_norm(of_parties, relation):
    """The event says so to whoever asks for a relation that no classifier offers."""
    of = planned(of_parties=of_parties, n_units=4)
    removed = of.with_noise_for(1.0, 1e-5, "zero_out").noise_multiplier
    replaced = of.with_noise_for(1.0, 1e-5, relation)
    assert replaced.noise_multiplier == pytest.approx(2 * removed, rel=1e-3)
    assert epsilon_of(replaced.event, 1e-5, relation) <= 1.0
