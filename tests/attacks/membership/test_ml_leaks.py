"""ML-Leaks: three adversaries, each knowing less."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, MLLeaksAttack, ShadowPool, SignalThreshold

pytestmark = pytest.mark.heavy

N = 300
FOREST = RandomForestClassifier(20, min_samples_leaf=2, random_state=0)


def victims(seed=0, n_classes=3, n=2 * N):
    X, y = make_classification(
        n, 10, n_informative=6, n_classes=n_classes, flip_y=0.3, random_state=seed
    )
    y = np.array(["ash", "beech", "cedar"])[y]
    return X, y, LabeledRecords(X, y), FOREST.fit(X[:N], y[:N])


def others(n_classes=7, n_features=25, seed=9):
    """Another population: more features, more classes, numbers for labels, another scale."""
    X, y = make_classification(
        900, n_features, n_informative=10, n_classes=n_classes, flip_y=0.2, random_state=seed
    )
    return 40 * X + 7, y + 100


@pytest.mark.everyday(1)
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_adversary_2_transfers_from_data_of_another_shape(n_classes):
    _, _, records, target = victims()
    own, label = others(n_classes)
    pool = ShadowPool(RandomForestClassifier(20, min_samples_leaf=2), n_shadows=2, random_state=0)
    attack = MLLeaksAttack(target, pool=pool).fit(LabeledRecords(own, label))
    result = attack.evaluate(records[:N], records[N:])
    assert result.auc_interval[0] > 0.6
    assert attack.pool_.estimators_[0].n_features_in_ == 25
    assert np.isfinite(attack.threshold_)
    attack.predict(records)


@pytest.mark.slow
def test_adversary_2_on_the_null(assert_chance):
    results = []
    own, label = others()
    pool = ShadowPool(DecisionTreeClassifier(min_samples_leaf=3), n_shadows=2, random_state=0)
    pool.fit(own, label)
    for seed in range(20):
        X, y, records, _ = victims(seed, n=400)
        target = DecisionTreeClassifier(min_samples_leaf=3, random_state=0).fit(X[:100], y[:100])
        attack = MLLeaksAttack(target, pool=pool).fit(LabeledRecords(own, label))
        results.append(attack.evaluate(records[100:250], records[250:]))
    assert_chance(results, epsilon=False)


@pytest.mark.parametrize("adversary", [1, 3])
def test_labels_are_not_looked_at(adversary):
    X, y, records, target = victims()
    attack = MLLeaksAttack(target, random_state=0)
    if adversary == 3:  # it trains nothing
        attack = SignalThreshold(target, signal="max_confidence")
    expected = attack.fit(records).decision_function(records)
    for other in (y[::-1], np.full(2 * N, "yew" if adversary == 1 else "ash")):
        assert (attack.decision_function(LabeledRecords(X, other)) == expected).all()
    assert attack.evaluate(records[:N], records[N:]).auc_interval[0] > 0.6


@pytest.mark.everyday(1)
@pytest.mark.parametrize("known", ["strangers", "everybody"])
@pytest.mark.parametrize("given", [True, False])
def test_the_aimed_false_positive_rate_is_kept(given, known):
    """Set on small shadow trees, the threshold called 48% of the non-members of another tree."""
    for seed in range(8):
        X, y = make_classification(2600, 10, n_informative=5, flip_y=0.3, random_state=seed)
        tree = DecisionTreeClassifier(max_depth=6, random_state=seed).fit(X[:N], y[:N])
        rows = slice(N, 2 * N) if known == "strangers" else slice(0, 2 * N)
        pool = ShadowPool(tree, n_shadows=2, random_state=seed) if given else 2
        records = LabeledRecords(X, y)
        attack = MLLeaksAttack(tree, pool=pool, random_state=seed).fit(records[rows])
        # 300 records of which at most 15 were called: a rate of .15 would give fewer than 1 in 10^8
        assert attack.predict(records[600:]).mean() < 0.15
