"""Parts passed fitted may have seen private records: an assumption of the guarantee."""

from __future__ import annotations

import copy
import warnings
from functools import partial

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from skprivacy import PATEClassifier, PrivateSearchCV, load_model, save_model
from skprivacy.audit import claim_of
from skprivacy.base import list_frozen_assumptions
from skprivacy.ensemble import PrivateKNNClassifier
from skprivacy.fine_tuning import ALMFineTuner
from skprivacy.label_privacy import (
    ALIBIClassifier,
    LabelPATEClassifier,
    LP2STClassifier,
    RandomizedResponseClassifier,
)
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.preprocessing import BoundedColumn, Schema, SchemaTransformer
from skprivacy.synthesis import MarginalSynthesizer, SyntheticDataClassifier

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(300, 3))
Y = (X[:, 0] > 0).astype(int)
MEAN = X.mean(axis=0)
PUBLIC = RNG.uniform(-1, 1, size=(60, 3))
SCALER = FrozenEstimator(StandardScaler().fit(X))
MODEL = FrozenEstimator(LogisticRegression().fit(X, Y))
INNER = make_pipeline(SCALER, StandardScaler())
COLUMNS = ColumnTransformer([("all", make_pipeline(SCALER), [0, 1, 2])])
SCHEMA = Schema({name: BoundedColumn(-1, 1) for name in "abc"}, classes=[0, 1])


def behind(step):
    return make_pipeline(step, LogisticRegression())


def by_votes(teacher=None, student=None):
    model = PATEClassifier(teacher, student, n_teachers=4, n_queries=10, epsilon=5.0, delta=1e-4)
    return model.set_params(classes=[0, 1]).fit(X, Y, X_public=PUBLIC)


def by_neighbours(student):
    model = PrivateKNNClassifier(student, n_queries=10, epsilon=5.0, delta=1e-4, classes=[0, 1])
    return model.fit(X, Y, X_public=PUBLIC)


def of_labels(kind):
    return kind(behind(SCALER), epsilon=2.0, classes=[0, 1]).fit(X, Y)


def by_labelled_votes(teacher=None, student=None):
    model = LabelPATEClassifier(teacher, student, n_teachers=4, n_queries=10, epsilon=5.0)
    return model.set_params(delta=1e-4, classes=[0, 1]).fit(X, Y)


def of_synthetic_records(estimator):
    synthesizer = MarginalSynthesizer(2.0, 1e-4, schema=SCHEMA)
    return SyntheticDataClassifier(estimator, synthesizer).fit(X, Y)


def tuned(encoder, **fit_params):
    model = ALMFineTuner(encoder, epsilon=2.0, delta=1e-4, classes=[0, 1])
    return model.fit(X, Y, **fit_params)


@pytest.mark.everyday(4)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("fitted", "assumed"),
    [
        (lambda: by_votes(teacher=behind(SCALER)), "what is frozen in teacher"),
        (lambda: by_votes(student=behind(SCALER)), "what is frozen in student"),
        (lambda: by_votes(student=MODEL), "the student"),
        (lambda: by_neighbours(behind(SCALER)), "what is frozen in student"),
        (lambda: by_labelled_votes(student=behind(SCALER)), "what is frozen in student"),
        (lambda: of_labels(RandomizedResponseClassifier), "what is frozen in estimator"),
        (lambda: of_labels(LP2STClassifier), "what is frozen in estimator"),
        (lambda: of_labels(ALIBIClassifier), "what is frozen in estimator"),
        (lambda: of_synthetic_records(behind(SCALER)), "what is frozen in estimator"),
        (lambda: of_synthetic_records(MODEL), "the estimator"),
        (lambda: tuned(SCALER), "the encoder"),
        (lambda: tuned(INNER, X_public=PUBLIC), "what is frozen in encoder"),
        (lambda: by_votes(behind(COLUMNS)), "what is frozen in teacher"),
    ],
)  # fmt: skip
def test_frozen_parts_are_assumed_to_know_nothing_private(fitted, assumed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fitted()
    private = "label" if model.privacy_.relation == "label" else "record"
    told = f"{assumed} depends on no private {private}"
    assert model.privacy_.assumptions.count(told) == 1
    assert claim_of(model).guarantee.assumptions.count(told) == 1


@pytest.mark.heavy
@pytest.mark.parametrize(
    "fitted",
    [
        lambda: by_votes(student=behind(SCALER)),
        lambda: of_labels(RandomizedResponseClassifier),
        lambda: of_synthetic_records(MODEL),
    ],
)
def test_a_file_keeps_the_assumption(fitted, tmp_path):
    model = fitted()
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert again.privacy_ == model.privacy_
    assert any("depends on no private" in told for told in again.privacy_.assumptions)


@pytest.mark.heavy
def test_parts_that_learn_nothing_need_no_assumption():
    steps = SchemaTransformer(SCHEMA).fit(X)
    for step in (FrozenEstimator(Normalizer()), FrozenEstimator(steps), StandardScaler()):
        guarantee = by_votes(teacher=behind(step)).privacy_
        assert not any("frozen" in told for told in guarantee.assumptions)


class OwnClone(StandardScaler):
    """An estimator that is its own clone, like a frozen one."""

    def __sklearn_clone__(self):
        return self


class Untagged:
    """The same of somebody who does without scikit-learn's base class."""

    def get_params(self, deep=True):
        return {}

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X

    def __sklearn_clone__(self):
        return self


class Holder(BaseEstimator):
    """A classifier with a list of fitted parts that scikit-learn knows nothing of."""

    def __init__(self, parts=()):
        self.parts = parts

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.parts[0].transform(X)[:, 0] > 0


class Copied(StandardScaler):
    """An estimator whose clone has learned what it has."""

    def __sklearn_clone__(self):
        return copy.deepcopy(self)


@pytest.mark.heavy
def test_frozen_parts_of_others_are_found():
    own, copied = OwnClone().fit(X), Copied().fit(X)
    for teacher in (
        behind(own),
        behind(copied),
        Holder([own]),
        Holder({0: own}),
        Holder([Untagged()]),
    ):
        told = by_votes(teacher=teacher).privacy_.assumptions
        assert "what is frozen in teacher depends on no private record" in told


class Centred(SchemaTransformer):
    """It inherits that it learns nothing."""

    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0)
        return super().fit(X, y)


def test_what_a_subclass_says_of_itself_is_assumed():
    own = FrozenEstimator(Centred(SCHEMA).fit(X))
    told = by_votes(teacher=behind(own)).privacy_.assumptions
    assert "what is frozen in teacher depends on no private record" in told


@pytest.mark.heavy
@pytest.mark.parametrize(
    "function",
    [
        StandardScaler().fit(X).transform,
        partial(StandardScaler().fit(X).transform, copy=True),
        partial(lambda Z, by: by(Z), by=StandardScaler().fit(X).transform),
    ],
)
def test_a_method_of_an_estimator_is_frozen_with_it(function):
    step = FunctionTransformer(function)
    for given in (step, FrozenEstimator(step)):
        told = by_votes(teacher=behind(given)).privacy_.assumptions
        assert "what is frozen in teacher depends on no private record" in told


class Centre:
    """Subtracts what it was handed; no estimator, and no function either."""

    def __init__(self, middle):
        self.middle = middle

    def __call__(self, Z):
        return Z - self.middle


MIDDLE = Centre(X.mean(axis=0))


KNOWING = {
    "lambda": lambda Z: Z - MEAN,
    "bound argument": partial(lambda Z, by: Z - by, by=MEAN),
    "object": MIDDLE,
    "method": MIDDLE.__call__,
    "partial": partial(np.subtract, MIDDLE),
    "vectorize": np.vectorize(lambda z: z - MIDDLE.middle[0]),
    "frompyfunc": np.frompyfunc(lambda z: z - MIDDLE.middle[0], 1, 1),
    "interpolator": CubicSpline([-9.0, 9.0], [-9.0, 9.0]),
}
OF_LIBRARIES = {
    getattr(function, "__name__", "none"): function
    for function in (np.tanh, np.cbrt, np.log1p, expit, abs, np.nan_to_num, softmax, None)
}


@pytest.mark.parametrize("name", [*KNOWING, *OF_LIBRARIES])
def test_what_a_function_knows_is_assumed(name):
    step = FunctionTransformer((KNOWING | OF_LIBRARIES)[name])
    for given in (step, FrozenEstimator(step)):
        found = list_frozen_assumptions({"teacher": behind(given)}, "add_remove")
        expected = ["the functions in teacher depend on no private record"] * (name in KNOWING)
        assert [told for told in found if "functions" in told] == expected


@pytest.mark.heavy
def test_a_model_states_what_its_functions_know():
    step = FunctionTransformer(KNOWING["lambda"])
    for model, part in (
        (by_votes(teacher=behind(step)), "teacher"),
        (of_synthetic_records(behind(FrozenEstimator(step))), "estimator"),
    ):
        assert f"the functions in {part} depend on no private record" in model.privacy_.assumptions


def test_a_private_search_refuses_them():
    model = ObjectivePerturbationClassifier(bounds=(-1, 1), classes=[0, 1])
    settings = {"objectiveperturbationclassifier__alpha": [0.1, 1.0]}
    search = PrivateSearchCV(make_pipeline(SCALER, model), settings, epsilon=2.0, delta=1e-4)
    with pytest.raises(ValueError, match="step 'frozenestimator'"):
        search.set_params(n_records=300).fit(X, Y)
