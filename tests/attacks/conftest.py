"""A leaky target and the records around it, and the null that every attack must pass."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, ShadowPool

mpl.use("agg")


def attack_halves(attack, X, y, known=slice(None), member=None, n=None, last=None):
    """Fit an attack on known records, and evaluate it on the first n records and the next."""
    records, n = LabeledRecords(X, y), len(y) // 2 if n is None else n
    attack.fit(records[known], *(() if member is None else (member[known],)))
    return attack.evaluate(records[:n], records[n:last])


def make_noisy(seed, n=600):
    X, y = make_classification(
        n, n_features=10, n_informative=5, n_classes=3, flip_y=0.3, random_state=seed
    )
    return X, np.array(["ash", "beech", "cedar"])[y]


@pytest.fixture(scope="session")
def noisy_problem():
    """Make records of three classes with labels wrong in up to 30%."""
    return make_noisy


@pytest.fixture(scope="session")
def leaky():
    """A forest fitted on the first half of 600 noisy records, and a pool on all of them."""
    X, y = make_noisy(0)
    model = RandomForestClassifier(20, min_samples_leaf=2)
    target = RandomForestClassifier(20, min_samples_leaf=2, random_state=0).fit(X[:300], y[:300])
    pool = ShadowPool(model, n_shadows=8, random_state=0).fit(X, y)
    records, split = LabeledRecords(X, y), (X[:300], y[:300], X[300:], y[300:])
    return SimpleNamespace(
        X=X, y=y, records=records, member=np.arange(600) < 300, target=target, pool=pool,
        split=split, sides=(records[:300], records[300:]),
    )  # fmt: skip


@pytest.fixture(scope="session")
def neighbours():
    """Nearest neighbours, on which RMIA is stronger than LiRA."""
    X, y = make_classification(1600, n_features=6, flip_y=0.3, random_state=0)
    target = KNeighborsClassifier().fit(X[:800], y[:800])
    pool = ShadowPool(target, n_shadows=16, random_state=0).fit(X, y)
    return SimpleNamespace(target=target, pool=pool, X=X, y=y)


@pytest.fixture(scope="session")
def assert_chance():
    """Let hardly any of several results claim leakage, by the area or (``epsilon``) by a bound.

    5% may miss by right. A sound attack exceeds the default limit with probability below 0.001.
    """

    def check(results, *, epsilon=True, chance=0.999, limit=None):
        results = list(results)
        intervals = [result.auc_interval for result in results]
        wrong_auc = sum(not low <= 0.5 <= high for low, high in intervals)
        wrong_epsilon = (
            sum(result.epsilon_lower_bound() > 0 for result in results) if epsilon else 0
        )
        limit = binom.ppf(chance, len(results), 0.05) if limit is None else limit
        assert max(wrong_auc, wrong_epsilon) <= limit, (
            f"claims leakage where there is none: AUC in {wrong_auc}, epsilon in {wrong_epsilon} "
            f"of {len(results)} runs, {limit:.0f} allowed"
        )

    return check


@pytest.fixture
def assert_null(assert_chance):
    """Attack models that never saw the "members"."""

    def check(make_attack, runs, n=240, limit=None):
        results = []
        for seed in range(runs):
            X, y = make_noisy(seed, n + 100)
            model = DecisionTreeClassifier(min_samples_leaf=3, random_state=seed)
            target = clone(model).fit(X[:100], y[:100])  # neither "members" nor the others
            X, y, half = X[100:], y[100:], n // 2
            pool = ShadowPool(model, n_shadows=4, random_state=seed)
            records = LabeledRecords(X, y)
            attack = make_attack(pool).set_params(target=target).fit(records)
            results.append(attack.evaluate(records[:half], records[half:]))
        assert_chance(results, limit=limit)

    return check
