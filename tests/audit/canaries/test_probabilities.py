"""One-run audits of targets with probabilities only, and of records that are not a table."""

import json

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier

from skprivacy.attacks import (
    RMIA,
    LabeledRecords,
    LabelOnlyAttack,
    LiRA,
    LossThreshold,
    MLLeaksAttack,
    ShadowPool,
)
from skprivacy.audit import audit

pytestmark = pytest.mark.heavy

X, y = make_classification(600, flip_y=0.3, random_state=0)
TREE = DecisionTreeClassifier(min_samples_leaf=3, random_state=0).fit(X[:300], y[:300])
ROWS = np.arange(600.0)[:, None]
IMAGES = X.reshape(600, 4, 5)


def halves(records):
    return records[:300], y[:300], records[300:], y[300:]


class Table(ClassifierMixin, BaseEstimator):
    """A table of probabilities in the form of a model; fit learns nothing."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, rows):
        return TREE.predict_proba(X[rows[:, 0].astype(int)])

    def predict(self, rows):
        return self.classes_[self.predict_proba(rows).argmax(axis=1)]


@pytest.mark.everyday(1)
@pytest.mark.parametrize(
    ("model", "records"), [(Table().fit(ROWS, y), ROWS), (FrozenEstimator(TREE), X)]
)
def test_attacks_that_need_retraining_are_not_measured(model, records):
    """LiRA printed .500 [.499, .501], as if it had found that nothing leaks."""
    report = audit(model, *halves(records), n_shadows=4, random_state=0)
    assert [finding.result.attack for finding in report.findings] == ["LossThreshold"]
    assert report.not_measured == ("StrongestAttack",)
    assert report.epsilon_lower_bound > 0.5
    for text in (repr(report), report.to_html(), json.dumps(report.to_dict())):
        assert "Not measured: StrongestAttack" in text
    with pytest.raises(ValueError, match="cannot measure anything"):
        audit(model, *halves(records), attacks=[LiRA(pool=2), RMIA(pool=2)])


@pytest.mark.parametrize("attack", [LiRA, RMIA, MLLeaksAttack])
def test_attacks_say_it_themselves(attack):
    model = Table().fit(ROWS, y)
    with pytest.raises(ValueError, match=f"{attack.__name__} cannot measure anything"):
        attack(model, pool=2).fit(LabeledRecords(ROWS, y))


def test_a_constant_model_and_a_learning_one_are_measured():
    class Constant(Table):
        def predict_proba(self, rows):
            return np.full((len(rows), 2), 0.5)

    for model in (Constant().fit(ROWS, y), DecisionTreeClassifier().fit(ROWS[:300], y[:300])):
        report = audit(model, *halves(ROWS), n_shadows=2, random_state=0)
        assert len(report.findings) == 2
        assert report.not_measured == ()


def test_models_that_differ_in_a_single_answer_vary():
    class Nearly(Table):
        def fit(self, rows, y):
            self.odd_ = 7.0 in rows
            return super().fit(rows, y)

        def predict_proba(self, rows):
            proba = super().predict_proba(rows)
            proba[(rows[:, 0] == 7) & self.odd_] = 0.5
            return proba

    assert ShadowPool(Nearly(), n_shadows=2, random_state=0).fit(ROWS, y)._answers.vary(ROWS)
    assert not ShadowPool(Table(), n_shadows=2, random_state=0).fit(ROWS, y)._answers.vary(ROWS)


def test_records_of_more_dimensions_are_audited_like_flat_ones():
    """They ended in pandas' "Must pass 2-d input"."""
    flatten = FunctionTransformer(lambda images: images.reshape(len(images), -1))
    model = make_pipeline(flatten, DecisionTreeClassifier(min_samples_leaf=3, random_state=0))
    model.fit(IMAGES[:300], y[:300])
    shaped = audit(model, *halves(IMAGES), n_shadows=4, random_state=0).to_frame()
    flat = audit(TREE, *halves(X), n_shadows=4, random_state=0).to_frame()
    assert shaped["auc"].tolist() == pytest.approx(flat["auc"].tolist())
    records = LabeledRecords(IMAGES, y)
    attack = LossThreshold(model).fit(records)
    told = attack.evaluate(records[:300], records[290:])
    assert told.details["in_both"] == 10
    with pytest.raises(ValueError, match=r"shape \(600, 4, 5\); .* this attack changes single"):
        LabelOnlyAttack(model, method="boundary", n_queries=20).fit(records)
