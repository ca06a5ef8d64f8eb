"""Membership from predictions for other records."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skprivacy.attacks import IndirectInference, LabeledRecords, ShadowPool
from skprivacy.attacks.membership import few_neighbors as indirect
from skprivacy.datasets import make_membership_benchmark

from ..conftest import attack_halves

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def model():
    data = make_membership_benchmark("location30", 800, random_state=0)
    X, y = np.asarray(data.data), np.asarray(data.target)
    network = MLPClassifier((64,), max_iter=40, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        target = network.fit(X[:400], y[:400])
    pool = ShadowPool(network, n_shadows=16, random_state=0).fit(X, y)
    return target, pool, LabeledRecords(X, y)


@pytest.mark.slow
def test_other_records_tell_of_a_record(model):
    target, pool, records = model
    attack = IndirectInference(target, pool=pool).fit(records)
    result = attack.evaluate(records[:400], records[400:])
    assert result.auc_interval[0] > 0.53


def test_the_record_itself_is_never_queried(model):
    """Poisoned answers at the record itself change nothing."""
    target, pool, records = model
    attack = IndirectInference(target, pool=pool).fit(records)
    honest = attack.decision_function(records[:1])
    itself = attack._query_prints == indirect.fingerprints(records.X[:1])
    assert itself.sum() == 1
    attack._answers[itself] = 1e9
    attack._query_labels = np.where(itself, -1, attack._query_labels)  # not even as another class
    # its variance still counts in the mean of all
    assert attack.decision_function(records[:1]) == pytest.approx(honest, rel=0.02)


@pytest.mark.slow
def test_null(assert_chance):
    results, linear = [], LogisticRegression(max_iter=300)
    for seed in range(20):
        X, y = make_classification(
            300, 30, n_informative=10, n_classes=4, flip_y=0.3, random_state=seed
        )
        target = linear.fit(X[:100], y[:100])
        X, y = X[100:], y[100:]
        pool = ShadowPool(linear, n_shadows=4, random_state=seed)
        results.append(attack_halves(IndirectInference(target, pool=pool), X, y))
    assert_chance(results, epsilon=False)


def test_influence_against_its_definition():
    rng = np.random.default_rng(0)
    shadow = rng.normal(size=(8, 5))
    trained = np.array([rng.permutation([True] * 4 + [False] * 4) for _ in range(3)]).T
    weight, middle = indirect._measure_influence(shadow, trained)
    assert middle == pytest.approx(shadow.mean(axis=0))
    for r in range(3):
        inside, outside = shadow[trained[:, r]], shadow[~trained[:, r]]
        squares = 4 * (inside.var(axis=0) + outside.var(axis=0))
        all_squares = [
            4 * (shadow[trained[:, k]].var(axis=0) + shadow[~trained[:, k]].var(axis=0))
            for k in range(3)
        ]
        variance = 0.8 * squares / 6 + 0.2 * np.mean(all_squares) / 6
        effect = inside.mean(axis=0) - outside.mean(axis=0)
        assert weight[r] == pytest.approx(effect / variance, rel=1e-6)


def test_unknown_records_are_named(model):
    target, pool, records = model
    attack = IndirectInference(target, pool=pool, n_queries=10).fit(records)
    with pytest.raises(ValueError, match="1 records that the pool was not trained on"):
        attack.decision_function(LabeledRecords(records.X[:1] + 1, records.y[:1]))
