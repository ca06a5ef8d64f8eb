"""A leaky target and the records around it, and the null that every attack must pass."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import ShadowPool

mpl.use("agg")


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
    return SimpleNamespace(
        X=X, y=y, target=target, pool=pool, split=(X[:300], y[:300], X[300:], y[300:])
    )


@pytest.fixture
def assert_null():
    """Attack models that never saw the "members": hardly any run may claim leakage.

    5% of runs may miss by right. A sound attack exceeds the default limit with probability below
    0.001.
    """

    def check(make_attack, runs, n=240, limit=None):
        wrong_auc = wrong_epsilon = 0
        for seed in range(runs):
            X, y = make_noisy(seed, n + 100)
            model = DecisionTreeClassifier(min_samples_leaf=3, random_state=seed)
            target = clone(model).fit(X[:100], y[:100])  # neither "members" nor the others
            X, y, half = X[100:], y[100:], n // 2
            pool = ShadowPool(model, n_shadows=4, random_state=seed)
            attack = make_attack(pool).set_params(target=target).fit(X, y)
            result = attack.evaluate(X[:half], y[:half], X[half:], y[half:])
            low, high = result.auc_interval
            wrong_auc += not low <= 0.5 <= high
            wrong_epsilon += result.epsilon_lower_bound() > 0
        limit = binom.ppf(0.999, runs, 0.05) if limit is None else limit
        assert max(wrong_auc, wrong_epsilon) <= limit, (
            f"claims leakage where there is none: AUC in {wrong_auc}, epsilon in {wrong_epsilon} "
            f"of {runs} runs, {limit:.0f} allowed"
        )

    return check
