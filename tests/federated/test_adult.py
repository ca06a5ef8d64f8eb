"""Accuracy of federations on Adult; the benchmark accuracy/federated has more fits."""

from __future__ import annotations

import numpy as np
import pytest

from skprivacy.datasets import fetch_adult
from skprivacy.datasets.adult import ADULT_SCHEMA
from skprivacy.datasets.files import data_folder
from skprivacy.federated import DPFederatedClassifier
from skprivacy.preprocessing import SchemaTransformer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (data_folder() / "adult").is_dir(), reason="Adult is not in SKPRIVACY_DATA"
    ),
    pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning"),  # seeded
]


@pytest.fixture(scope="module")
def adult():
    parts = [fetch_adult(subset=s, as_frame=True, return_X_y=True) for s in ("train", "test")]
    scale = SchemaTransformer(ADULT_SCHEMA).fit(parts[0][0])
    return [(np.asarray(scale.transform(X), float), np.asarray(y)) for X, y in parts]


def skewed(y, n):
    """Deal records out to parties with different shares of labels."""
    rng, codes = np.random.default_rng(0), np.unique(y, return_inverse=True)[1]
    shares = rng.dirichlet(np.bincount(codes) / len(y), size=n)  # Dirichlet(0.5) times 2 classes
    weights = shares / shares.sum(axis=0)
    return np.array([rng.choice(n, p=weights[:, code]) for code in codes])


def accuracy(adult, parties, **params):
    (X, y), test = adult
    model = DPFederatedClassifier(classes=np.unique(y), noise_seed=0, **params)
    return model.fit(X, y, parties=parties).score(*test)


def test_twenty_parties_learn_what_one_table_teaches(adult):
    """DP-SGD on all records has .8523, and its first figure was .8517."""
    parties = np.arange(len(adult[0][1])) % 20
    assert accuracy(adult, parties, epsilon=1.0, delta=1e-5) >= 0.8497


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_a_thousand_parties_are_protected_at_a_price(adult, epsilon):
    alike = np.arange(len(adult[0][1])) % 1000
    of_parties = {"unit": "party", "epsilon": epsilon, "delta": 1e-4}
    assert accuracy(adult, alike, **of_parties) >= 0.845
    whose = skewed(adult[0][1], 1000)
    assert accuracy(adult, whose, party_names=range(1000), **of_parties) >= 0.83
