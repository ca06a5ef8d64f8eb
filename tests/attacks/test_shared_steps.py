"""Steps that learn nothing are taken once for all shadow models, and nothing else changes."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy.attacks import ShadowPool
from skprivacy.attacks.shadow_answers import split_stateless_steps
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

SCHEMA = Schema({"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["f", "m"])})


@pytest.fixture
def records():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": random.uniform(0, 100, size=80), "sex": random.choice(["f", "m"], size=80)}
    )
    return frame, (frame["age"] > 50).to_numpy().astype(int)


MODELS = {
    "one by one": LogisticRegression(),
    "stacked": MLPClassifier((4,), max_iter=20, random_state=0),
}


@pytest.mark.heavy
@pytest.mark.parametrize("own", [[], [StandardScaler()]], ids=["shared alone", "scaled"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_pool_is_the_same_and_records_are_transformed_once(records, name, own, tmp_path):
    X, y = records
    pipeline = make_pipeline(SchemaTransformer(SCHEMA), *own, MODELS[name])
    by_model = ShadowPool(pipeline, n_shadows=4, random_state=1).fit(X, y)
    fitted = pipeline.fit(X, y)
    with mock.patch.object(
        SchemaTransformer, "transform", autospec=True, side_effect=SchemaTransformer.transform
    ) as transform:
        pool = ShadowPool(fitted, n_shadows=4, random_state=1, path=tmp_path).fit(X, y)
        logits = pool.logits(X, y)
    assert transform.call_count <= 3
    np.testing.assert_allclose(logits, by_model.logits(X, y), rtol=1e-4, atol=1e-4)
    for model, table in zip(pool.estimators_, pool.iter_proba(X), strict=True):
        np.testing.assert_allclose(model.predict_proba(X), table, rtol=1e-6, atol=1e-12)
    assert pool._answers.vary(X)
    # A model stored in a folder takes raw records, whoever loads it.
    again = ShadowPool(fitted, n_shadows=4, path=tmp_path).fit(X, y)
    np.testing.assert_allclose(again.logits(X, y), logits, rtol=1e-6, atol=1e-9)
    unfitted = make_pipeline(SchemaTransformer(SCHEMA), *own, MODELS[name])
    by_others = ShadowPool(unfitted, n_shadows=4, path=tmp_path).fit(X, y)
    np.testing.assert_allclose(by_others.logits(X, y), logits, rtol=1e-6, atol=1e-9)


class Centred(TransformerMixin, BaseEstimator):
    """It claims to learn nothing, and learns the mean once it is switched on."""

    def __init__(self, learns=False):
        self.learns = learns

    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0) if self.learns else 0.0
        self.data_independent_ = not self.learns
        return self

    def transform(self, X):
        return np.asarray(X) - self.mean_


class Seeded(Centred):
    def __init__(self, learns=False, random_state=None):
        super().__init__(learns)
        self.random_state = random_state


def test_steps_that_learn_or_have_chance_of_their_own_stay_with_each_model(records):
    X, y = records[0][["age"]].to_numpy(), records[1]
    model = LogisticRegression()

    def shared(estimator):
        steps, rest, _ = split_stateless_steps(estimator.fit(X, y), X)
        assert steps is not None or rest is estimator
        return 0 if steps is None else len(steps.steps)

    assert shared(make_pipeline(Centred(), model)) == 1
    assert shared(make_pipeline(Centred(), Centred(), StandardScaler(), Centred(), model)) == 2
    assert shared(make_pipeline(Centred(learns=True), model)) == 0
    assert shared(make_pipeline(Seeded(), model)) == 0
    assert shared(make_pipeline(StandardScaler(), Centred(), model)) == 0
    assert shared(make_pipeline("passthrough", Centred(), model)) == 0
    assert shared(Pipeline([("only", model)])) == 0
    assert shared(model) == 0
    changed = make_pipeline(Centred(), model).fit(X, y).set_params(centred__learns=True)
    assert split_stateless_steps(changed, X)[:2] == (None, changed)
