"""Training on synthetic records from a user's view."""

from __future__ import annotations

import pickle
from unittest import mock

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from skprivacy import PrivacySweepCV
from skprivacy.accounting import PrivacyBudget
from skprivacy.audit import claim_of
from skprivacy.exceptions import PrivacyWarning, SyntheticTrainingError
from skprivacy.preprocessing import Schema, SchemaTransformer
from skprivacy.synthesis import (
    DPGANSynthesizer,
    MarginalSynthesizer,
    SyntheticDataClassifier,
    SyntheticDataRegressor,
)

from .tables import SCHEMA, people

COLUMNS = {name: SCHEMA[name] for name in ("age", "job", "gain", "city")}
TABLE = Schema(COLUMNS, target_column="rich", classes=["no", "yes"])
X, Y = people().drop(columns="rich"), people()["rich"]


def classifier(estimator=None, epsilon=10.0, **params):
    estimator = make_pipeline(SchemaTransformer(TABLE), estimator or LogisticRegression())
    return SyntheticDataClassifier(
        estimator, MarginalSynthesizer(epsilon, 1e-6, schema=TABLE, **params), random_state=0
    )


@pytest.mark.heavy
def test_it_learns_from_synthetic_records_alone():
    budget = PrivacyBudget(10.0, 1e-6)
    model = classifier(budget=budget).fit(X, Y)
    assert model.score(X, Y) > 0.85
    assert model.classes_.tolist() == ["no", "yes"]
    assert len(budget.entries()) == 1
    assert model.privacy_ == model.synthesizer_.privacy_ == claim_of(model).guarantee
    with mock.patch.object(GaussianNB, "fit", autospec=True, side_effect=GaussianNB.fit) as fit:
        classifier(GaussianNB()).set_params(n_samples=123).fit(X, Y)
    assert [len(call.args[1]) for call in fit.call_args_list] == [60, 123]  # made up, then drawn


@pytest.mark.heavy
def test_it_is_a_classifier_or_a_regressor_like_any_other():
    model = classifier()
    assert is_classifier(model)
    assert is_regressor(SyntheticDataRegressor(LinearRegression(), MarginalSynthesizer()))
    assert make_pipeline("passthrough", clone(model)).fit(X, Y).predict(X[:3]).shape == (3,)
    search = GridSearchCV(model, {"synthesizer__epsilon": [1.0, 10.0]}, cv=2)
    search.estimator.synthesizer.set_params(method="independent")
    assert search.fit(X[:200], Y[:200]).best_estimator_.epsilon_ <= 10
    assert hasattr(model, "predict_proba")
    assert not hasattr(classifier(LinearSVC()), "predict_proba")


@pytest.mark.heavy
def test_a_sweep_varies_the_epsilon_of_its_synthesizer():
    sweep = PrivacySweepCV(
        classifier(method="independent"), epsilons=[1.0, 10.0], cv=2, baseline=None
    ).fit(X[:200], Y[:200])
    assert list(sweep.cv_results_["param_synthesizer__epsilon"]) == [1.0, 10.0]


@pytest.mark.heavy
def test_any_synthesizer_will_do():
    pytest.importorskip("torch")
    schema = Schema({"age": SCHEMA["age"]}, classes=["no", "yes"])
    synthesizer = DPGANSynthesizer(5.0, 1e-5, schema=schema, batch_size=40, epochs=1)
    model = SyntheticDataClassifier(GaussianNB(), synthesizer).fit(X[["age"]], Y)
    assert set(model.predict(X[["age"]])) <= {"no", "yes"}


def test_an_estimator_that_does_not_take_the_columns_costs_nothing():
    budget = PrivacyBudget(10.0, 1e-6)
    synthesizer = MarginalSynthesizer(10.0, 1e-6, schema=TABLE, budget=budget)
    model = SyntheticDataClassifier(LogisticRegression(), synthesizer)  # of text
    with pytest.raises(ValueError, match="cannot be fitted to records of this schema"):
        model.fit(X, Y)
    assert budget.entries().empty
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize(
    ("kind", "schema", "y", "said"),
    [
        (
            SyntheticDataClassifier,
            Schema(COLUMNS, target_bounds=(0, 1)),
            Y == "yes",
            "a numeric target",
        ),
        (SyntheticDataRegressor, TABLE, Y, "not numbers"),
        (SyntheticDataClassifier, TABLE, None, "requires y"),
        (SyntheticDataClassifier, TABLE, Y[:5], "inconsistent"),
    ],
)
def test_a_target_that_there_is_no_learning_of_costs_nothing(kind, schema, y, said):
    budget = PrivacyBudget(10.0, 1e-6)
    model = kind(GaussianNB(), MarginalSynthesizer(10.0, 1e-6, schema=schema, budget=budget))
    with pytest.raises(ValueError, match=said):
        model.fit(X, y)
    assert budget.entries().empty


def test_classes_that_are_never_drawn_are_known():
    schema = Schema({"age": SCHEMA["age"]}, classes=["a", "b", "c"])
    synthesizer = MarginalSynthesizer(50.0, 1e-6, schema=schema)
    ages = X[["age"]]
    for y in (np.full(len(X), "b"), np.where(X["age"] > 50, "a", "c")):
        model = SyntheticDataClassifier(GaussianNB(), synthesizer, n_samples=30).fit(ages, y)
        assert model.classes_.tolist() == ["a", "b", "c"]
        assert model.predict_proba(ages).shape == (len(X), 3)
        assert model.predict_proba(ages).sum(axis=1) == pytest.approx(1.0)
        assert (model.predict(ages) == y).mean() > 0.9


class FailsOnMany(GaussianNB):
    """Takes the made-up records that it is tried on, and no more."""

    def __init__(self, error=RuntimeError):
        super().__init__()
        self.error = error

    def fit(self, X, y):
        if len(y) > 60:
            raise self.error("a class is too rare")
        return super().fit(X, y)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_paid_records_survive_a_failing_estimator(kind):
    budget = PrivacyBudget(10.0, 1e-6)
    model = classifier(FailsOnMany(kind), method="independent", budget=budget)
    with pytest.raises((SyntheticTrainingError, KeyboardInterrupt)) as caught:
        model.fit(X, Y)
    synthesizer = caught.value.synthesizer
    assert len(budget.entries()) == 1
    assert len(synthesizer.sample(30)) == 30
    assert synthesizer.epsilon_ == pytest.approx(10.0, abs=0.01)
    assert not hasattr(model, "privacy_")
    if kind is RuntimeError:
        assert "attribute `synthesizer` draws further records" in str(caught.value)
        again = pickle.loads(pickle.dumps(caught.value))  # as another process hands it on
        assert len(again.synthesizer.sample(30)) == 30


def test_other_objects_than_synthesizers_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'synthesizer' parameter.*KernelDensity"):
        SyntheticDataClassifier(GaussianNB(), KernelDensity()).fit(X[["age"]], Y)


@pytest.mark.parametrize(
    ("classes", "kind"),
    [([0, 1], "str"), ([0, 1], "bool"), ([0, 1], "category"), ([False, True], "Int64")],
)
def test_labels_are_classes_however_they_are_written(classes, kind):
    y = (X["age"] > 50).astype(int)
    y = (y.astype(bool) if kind == "bool" else y).astype(kind).rename("old")
    schema = Schema({"age": SCHEMA["age"]}, classes=classes)
    synthesizer = MarginalSynthesizer(50.0, 1e-6, schema=schema)
    model = SyntheticDataClassifier(GaussianNB(), synthesizer).fit(X[["age"]], y)
    assert (model.predict(X[["age"]]) == model.classes_[(X["age"] > 50) * 1]).mean() > 0.9


def test_a_seed_of_the_noise_is_not_pickled():
    model = classifier(method="independent", noise_seed=987654321)
    assert pickle.loads(pickle.dumps(model)).synthesizer.noise_seed == 987654321
    with pytest.warns(PrivacyWarning, match="noise_seed"):
        model.fit(X, Y)
    blob = pickle.dumps(model)
    assert (987654321).to_bytes(4, "little") not in blob
    assert (pickle.loads(blob).predict(X) == model.predict(X)).all()
