"""Thresholds that are learned on shadow models."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import LabeledRecords, LossThreshold, ShadowPool, ShadowThreshold
from skprivacy.attacks.model_answers import SIGNALS


@pytest.fixture(scope="module")
def setting():
    X, y = make_classification(1200, n_informative=6, n_classes=3, flip_y=0.3, random_state=0)
    target = DecisionTreeClassifier(min_samples_leaf=2, random_state=0).fit(X[:400], y[:400])
    pool = ShadowPool(target, n_shadows=8, random_state=0).fit(X[400:], y[400:])
    return X, y, target, pool


def test_the_threshold_needs_no_known_member(setting):
    X, y, target, pool = setting
    records = LabeledRecords(X, y)
    attack = ShadowThreshold(target, pool=pool).fit(records[400:])
    true, false = attack.predict(records[:400]), attack.predict(records[400:])
    best = LossThreshold(target).fit(records, np.arange(1200) < 400)
    found = best.predict(records[:400]).mean() - best.predict(records[400:]).mean()
    assert true.mean() - false.mean() > 0.9 * found > 0.2


def test_each_class_has_its_own(setting):
    """It is the threshold that best separates the shadow models' members of the class."""
    X, y, target, pool = setting
    records = LabeledRecords(X, y)
    each = ShadowThreshold(target, pool=pool, signal="loss").fit(records[400:])
    proba, label = each._target_proba(X, y)
    view = SIGNALS["loss"]
    signal, trained, seen = each._view_shadows(X[400:], y[400:], each._label_classes, view)
    for c in range(3):
        own = signal[seen == c], trained[seen == c]
        cuts = np.unique(own[0])
        gain = [(own[0][own[1]] >= t).mean() - (own[0][~own[1]] >= t).mean() for t in cuts]
        here = label == c
        loss = np.log(np.maximum(proba[here, c], 1e-300))
        best = cuts[np.array(gain) >= max(gain) - 1e-12]
        found = each.predict(records[here])
        assert any(np.array_equal(found, loss >= t - 1e-12) for t in best)


def test_a_class_that_no_shadow_model_had_takes_the_threshold_for_all(setting):
    X, y, target, _ = setting
    two = y[400:] < 2
    pool = ShadowPool(target, n_shadows=2, random_state=0).fit(X[400:][two], y[400:][two])
    attack = ShadowThreshold(target, pool=pool).fit(LabeledRecords(X[400:][two], y[400:][two]))
    assert np.isfinite(attack.decision_function(LabeledRecords(X, y))).all()


def test_records_that_the_pool_does_not_know_are_refused(setting):
    X, y, target, pool = setting
    with pytest.raises(ValueError, match="X holds no record that the pool was trained on"):
        ShadowThreshold(target, pool=pool).fit(LabeledRecords(X, y)[:400])
