"""Figures of the membership inference papers, on the data sets that were published with them."""

import os

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline

from skprivacy.attacks import LabeledRecords, LiRA, LossThreshold, ShadowPool, ShokriAttack
from skprivacy.datasets import fetch_adult, fetch_membership_benchmark
from skprivacy.preprocessing import SchemaTransformer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Stochastic Optimizer"),
    pytest.mark.skipif("SKPRIVACY_DATA" not in os.environ, reason="needs the published data"),
]


@pytest.mark.timeout(900)
def test_location_30():
    X, y = fetch_membership_benchmark("location30", return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:3200]
    X, y, member = (
        np.asarray(X, dtype=np.float32)[rows],
        np.asarray(y)[rows],
        np.arange(3200) < 1600,
    )
    net = MLPClassifier((128,), activation="tanh", alpha=0.0, max_iter=60, random_state=0)
    target = clone(net).fit(X[member], y[member])
    assert target.score(X[member], y[member]) == 1.0
    pool = ShadowPool(net, n_shadows=64, random_state=0, stacked=True).fit(X, y)
    records = LabeledRecords(X, y)
    loss, shokri, lira = (
        attack.fit(records).evaluate(records[member], records[~member])
        for attack in (
            LossThreshold(target),
            ShokriAttack(target, pool=pool),
            LiRA(target, pool=pool, online=True),
        )
    )
    assert shokri.precision_recall(0.5)[0] >= 0.68  # the paper's is 0.678
    assert lira.auc >= shokri.auc + 0.05
    assert lira.tpr_at_fpr(0.01).tpr >= 5 * loss.tpr_at_fpr(0.01).tpr


def test_adult_is_chance():
    data = fetch_adult(subset="train", as_frame=True)
    n = 5000
    rows = np.random.default_rng(0).permutation(len(data.target))[: 2 * n]
    X, y = data.data.iloc[rows], np.asarray(data.target)[rows]
    net = MLPClassifier((32,), activation="tanh", max_iter=8, batch_size=256, random_state=0)
    model = make_pipeline(SchemaTransformer(data.schema), net)
    target = clone(model).fit(X[:n], y[:n])
    pool = ShadowPool(model, n_shadows=8, random_state=0, stacked=True).fit(X, y)
    records = LabeledRecords(X, y)
    result = ShokriAttack(target, pool=pool).fit(records).evaluate(records[:n], records[n:])
    assert result.precision_recall(0.5)[0] == pytest.approx(0.5, abs=0.02)  # the paper's is 0.503
    assert result.is_chance
    assert "no better than chance" in repr(result)
