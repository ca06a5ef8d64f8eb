"""Sensitivities of people with several records, by brute force: never exceeded, nearly reached."""

from unittest import mock

import numpy as np
import pytest

from skprivacy._groups import Groups
from skprivacy.linear_model import (
    AdaSSPRegressor,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
)

from .releases import distances, releases
from .test_sensitivity import LOWER, RELATIONS, UPPER, D, candidates

REST = (LOWER + UPPER)[None] / 2  # of whom nothing differs


def people(targets):
    """Yield records and targets of people of 1 to 5 records: alike, opposite, missing, any."""
    rng = np.random.default_rng(0)
    rows = [*candidates(), np.full(D, np.nan), np.full(D, np.inf)]
    for row in rows[::3]:
        for m in (1, 5):
            yield np.repeat([row], m, axis=0), np.repeat(rng.choice(targets), m)
    for m in (2, 3, 4, 5):
        for _ in range(12):
            yield (
                np.array([rows[i] for i in rng.integers(len(rows), size=m)]),
                rng.choice(targets, m),
            )


def with_a_person(targets):
    """Yield data sets of one person who is always there, and one who differs; at last of nobody."""
    for rows, target in [*people(targets), (np.empty((0, D)), targets[:0])]:
        groups = np.array(["one"] * (len(rows) + 1), dtype=object)
        groups[min(len(rows), 1)] = "other"
        yield (
            np.vstack([rows[:1], REST, rows[1:]]),
            np.concatenate([target[:1], targets[:1], target[1:]]),
            groups,
        )


CLASSIFICATION = {"bounds": (LOWER, UPPER), "classes": range(3)}
REGRESSION = {"bounds": (LOWER, UPPER), "target_bounds": (-3, 10)}


def adassp(relation):
    return AdaSSPRegressor(delta=1e-3, **REGRESSION, relation=relation)


def functional(relation, **params):
    return FunctionalMechanismRegressor(**REGRESSION, relation=relation, **params)


def classifier(relation, **params):
    return FunctionalMechanismClassifier(**CLASSIFICATION, relation=relation, **params)


MODELS = {
    "AdaSSP": (adassp, {}),
    "functional": (functional, {}),
    "functional-delta": (functional, {"delta": 1e-3, "fit_intercept": False}),
    "classifier": (classifier, {}),
    "classifier-order-1": (classifier, {"order": 1, "delta": 1e-3}),
}


def targets_of(name):
    return np.arange(3) if name.startswith("classifier") else np.array([-3.0, 10.0, 1e6])


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", MODELS)
def test_sums(name, relation):
    make, params = MODELS[name]
    [reached] = distances(lambda: make(relation, **params), with_a_person(targets_of(name)))
    assert 0.6 < reached <= 1.0


@pytest.mark.heavy
@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_output_perturbation(delta, n_classes):
    [reached] = distances(
        lambda: OutputPerturbationClassifier(
            **{**CLASSIFICATION, "classes": range(n_classes)}, delta=delta, alpha=100.0
        ),
        with_a_person(np.arange(n_classes)),
    )
    assert 0.2 < reached <= 1.0


@pytest.mark.everyday(1)
@pytest.mark.parametrize("name", MODELS)
def test_people_of_whom_every_record_counts_are_caught(name):
    make, params = MODELS[name]
    every = mock.patch.object(Groups, "exact_shares_of", staticmethod(np.ones_like))
    with every:
        people_of = with_a_person(targets_of(name))
        [reached] = distances(lambda: make("add_remove", **params), people_of)
    assert reached > 1.5


@pytest.mark.heavy
def test_one_record_of_each_takes_part_in_an_objective_and_each_as_often_as_another():
    X, y = np.repeat([[0.1], [0.2], [0.3], [0.4]], 2, axis=1), np.array([0, 1, 0, 1])
    model = ObjectivePerturbationClassifier(bounds=(0, 1), classes=[0, 1])
    drawn = []
    for _ in range(200):
        [(_, _), *_] = caught = releases(model, X, y, ["a", "a", "b", "a"], as_given=True)
        drawn.append(caught[0][1][2] > 0)
    drawn = np.array(drawn)
    assert (drawn[:, [0, 1, 3]].sum(axis=1) == 1).all()
    assert drawn[:, 2].all()
    # each of variance 200 x 1/3 x 2/3: six standard deviations
    assert (abs(drawn[:, [0, 1, 3]].sum(axis=0) - 200 / 3) < 6 * np.sqrt(400 / 9)).all()


@pytest.mark.parametrize("name", MODELS)
def test_copies_of_records_in_the_same_group_change_little(name):
    """Eight visits with the same numbers count as one visit, but for rounding to the grid."""
    make, params = MODELS[name]
    rng = np.random.default_rng(1)
    X = LOWER + (UPPER - LOWER) * rng.uniform(size=(40, D))
    y = rng.choice(targets_of(name), 40)
    [(_, once)] = releases(make("add_remove", **params), X, y)
    [(_, often)] = releases(
        make("add_remove", **params), np.tile(X, (8, 1)), np.tile(y, 8), np.tile(np.arange(40), 8)
    )
    # Each number of a row loses up to 2**-16, a product with one of size 1/3 a third of that.
    np.testing.assert_allclose(often, once, atol=40 * 8 * 2.0**-16)
    assert np.abs(once).max() > 1
