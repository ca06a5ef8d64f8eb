"""A leaky target and the records around it, shared by the tests of attacks."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from skprivacy.attacks import ShadowPool

mpl.use("agg")


def noisy_problem(seed, n=600):
    X, y = make_classification(
        n, n_features=10, n_informative=5, n_classes=3, flip_y=0.3, random_state=seed
    )
    return X, np.array(["ash", "beech", "cedar"])[y]


@pytest.fixture(scope="session")
def leaky():
    """A forest fitted on the first half of 600 noisy records, and a pool on all of them."""
    X, y = noisy_problem(0)
    model = RandomForestClassifier(20, min_samples_leaf=2)
    target = RandomForestClassifier(20, min_samples_leaf=2, random_state=0).fit(X[:300], y[:300])
    pool = ShadowPool(model, n_shadows=8, random_state=0).fit(X, y)
    return SimpleNamespace(
        X=X, y=y, target=target, pool=pool, split=(X[:300], y[:300], X[300:], y[300:])
    )
