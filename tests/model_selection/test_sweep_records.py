"""A first step that learns nothing is taken once for a sweep, and nothing else changes by it."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import make_scorer, recall_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy import PrivacyBudget
from skprivacy.accounting import GaussianEvent, PrivacyGuarantee
from skprivacy.attacks import LiRA, ShadowPool
from skprivacy.audit import claim_of
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.linear_model import OutputPerturbationClassifier
from skprivacy.model_selection import PrivacySweepCV
from skprivacy.model_selection import sweep_records as _split
from skprivacy.model_selection.sweep_records import fit_first_step
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

SCHEMA = Schema({"age": BoundedColumn(0, 100), "sex": CategoricalColumn(["f", "m"])})
CV = StratifiedKFold(2, shuffle=True, random_state=0)


def frame(n=80):
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {"age": random.uniform(0, 110, size=n), "sex": random.choice(["f", "m", "?"], size=n)}
    )
    return table, (table["age"] + random.normal(0, 30, size=n) > 50).to_numpy().astype(int)


class Exact(ClassifierMixin, BaseEstimator):
    """Remembers what it was fitted to, bit by bit, and claims what it is told to."""

    def __init__(self, epsilon=1.0, seen=None):
        self.epsilon = epsilon
        self.seen = seen

    def fit(self, X, y, sample_weight=None):
        weights = b"" if sample_weight is None else np.asarray(sample_weight).tobytes()
        if self.seen is not None:
            content = X.to_numpy() if isinstance(X, pd.DataFrame) else X
            assert content.flags.c_contiguous
            assert content.flags.writeable
            digest = hashlib.blake2b(content.tobytes() + np.asarray(y).tobytes() + weights)
            self.seen.append((self.epsilon, content.dtype.name, digest.hexdigest()))
        self.classes_ = np.unique(y)
        self.coef_ = np.array([np.asarray(X)[y == 1].mean(0) - np.asarray(X)[y == 0].mean(0)])
        self.privacy_ = PrivacyGuarantee(GaussianEvent(3.0 / self.epsilon), 1e-3, "zero_out")
        self.privacy_event_ = self.privacy_.event
        return self

    def __sklearn_clone__(self):
        return type(self)(self.epsilon, self.seen)

    def predict_proba(self, X):
        values = 1 / (1 + np.exp(-np.asarray(X) @ self.coef_[0]))
        return np.column_stack([1 - values, values])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def sexes(model, X, y):
    """A scorer that looks at the records themselves."""
    return float(np.mean(model.predict(X) == np.asarray(X["sex"] == "m")))


def swept(model, X, y, *, shared=True, counts=None, weights=None, **params):
    """Return a fitted sweep, whose models share their first step or do not."""
    settings = {"epsilons": [1.0, 2.0], "cv": CV} | params
    sweep = PrivacySweepCV(model, **settings)
    given = {} if weights is None else {f"{model.steps[-1][0]}__sample_weight": weights}
    apart = mock.patch.object(_split, "fit_first_step", return_value=None)
    watched = mock.patch.object(
        SchemaTransformer, "transform", autospec=True, side_effect=SchemaTransformer.transform
    )
    with watched as transform:
        if shared:
            sweep.fit(X, y, **given)
        else:
            with apart:
                sweep.fit(X, y, **given)
    if counts is not None:
        counts.append(sum(len(call.args[1]) for call in transform.call_args_list))
    return sweep


def same(first, second):
    for results in ("cv_results_", "baseline_results_"):
        one, other = getattr(first, results), getattr(second, results)
        assert one.keys() == other.keys()
        for key in one:
            if "time" not in key and key != "params":
                np.testing.assert_array_equal(one[key], other[key], err_msg=key)
    assert first.charged_ == second.charged_
    assert first.guarantees_ == second.guarantees_
    assert str(first.group_results_) == str(second.group_results_)


def as_array(X):
    return X.assign(sex=(X["sex"] == "m") + 0.0).to_numpy()


NUMBERS = Schema({"age": BoundedColumn(0, 100), "sex": CategoricalColumn([0, 1])})
CASES = {
    "frame": (frame()[0], SchemaTransformer(SCHEMA), {}),
    "array": (as_array(frame()[0]), SchemaTransformer(NUMBERS), {}),
    "single precision": (frame()[0], SchemaTransformer(SCHEMA, dtype=np.float32), {}),
    "scorers": (
        frame()[0],
        SchemaTransformer(SCHEMA),
        {"scoring": {"recall": make_scorer(recall_score), "sexes": sexes, "auc": "roc_auc"}},
    ),
    "two workers": (frame()[0], SchemaTransformer(SCHEMA), {"n_jobs": 2, "baseline": None}),
    "weights": (frame()[0], SchemaTransformer(SCHEMA), {"weights": np.arange(80.0) + 1}),
    "shadows": (
        frame()[0],
        SchemaTransformer(SCHEMA),
        {"attack": LiRA(pool=ShadowPool(None, n_shadows=2, random_state=0))},
    ),
}


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("name", CASES)
def test_models_scores_and_charges_are_the_same_to_the_bit(name):
    X, step, params = CASES[name]
    y = frame()[1]
    logs, counts, sweeps = ([], []), [], []
    for log, shared in zip(logs, (True, False), strict=True):
        log = None if name == "two workers" else log
        model = make_pipeline(step, Exact(seen=log))
        sweeps.append(swept(model, X, y, shared=shared, counts=counts, **params))
    same(*sweeps)
    assert logs[0] == logs[1]
    if name in ("frame", "array", "single precision", "weights"):
        assert counts[0] <= 80 + 4 * 20  # once, and a few records of each claim
        assert counts[1] > 4 * 4 * 40


def test_models_answer_a_score_and_an_attack_once():
    X, y = frame()
    asking = mock.patch.object(
        Exact, "predict_proba", autospec=True, side_effect=Exact.predict_proba
    )
    with asking as asked:
        swept(make_pipeline(SchemaTransformer(SCHEMA), Exact()), X, y, baseline=None)
    rows = sum(len(call.args[1]) for call in asked.call_args_list)
    assert rows == 4 * (80 + 80)  # of four models; the scores are of all records, too


def fit_of_people(sweep, X, y):
    people = pd.Series(np.arange(80) // 2, name="person")
    return sweep.fit(X, y, groups=people, subgroups="sex")


@pytest.mark.heavy
def test_people_and_subgroups_are_the_same():
    model = make_pipeline(SchemaTransformer(SCHEMA), Exact())
    shared, apart = (PrivacySweepCV(model, epsilons=[1.0, 2.0], cv=2) for _ in range(2))
    with pytest.warns(match="person"):
        fit_of_people(shared, *frame())
    never = mock.patch.object(_split, "fit_first_step", return_value=None)
    with never, pytest.warns(match="person"):
        fit_of_people(apart, *frame())
    same(shared, apart)


class Learning(SchemaTransformer):
    """It inherits its parent's declaration, but learns the mean."""

    def fit(self, X, y=None):
        self.mean_ = X["age"].mean()
        return super().fit(X, y)

    def transform(self, X):
        return super().transform(X) - self.mean_


class Numbering(SchemaTransformer):
    """It numbers ages as they come, in all calls together."""

    def transform(self, X):
        self.known_ = getattr(self, "known_", {})
        number = [self.known_.setdefault(age, len(self.known_)) for age in X["age"]]
        return np.column_stack([super().transform(X), number])


class Blurring(SchemaTransformer):
    def transform(self, X):
        return super().transform(X) + np.random.default_rng().normal()


class Said(StandardScaler):
    """It only says that it learns nothing."""

    data_independent_ = True


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(Learning(SCHEMA), Exact()),
        make_pipeline(Numbering(SCHEMA), Exact()),
        make_pipeline(Blurring(SCHEMA), Exact()),
        make_pipeline(StandardScaler(), Exact()),
        make_pipeline(Said(), Exact()),
        make_pipeline("passthrough", Exact()),
        make_pipeline(SchemaTransformer(SCHEMA).set_output(transform="pandas"), Exact()),
        make_pipeline(SchemaTransformer(SCHEMA), Exact()).set_output(transform="pandas"),
        make_pipeline(SchemaTransformer(SCHEMA), Exact(), memory="somewhere"),
        make_pipeline(SchemaTransformer(SCHEMA), Exact(), verbose=True),
        make_pipeline(SchemaTransformer(None), Exact()),
        Pipeline([("only", Exact())]),
        Exact(),
    ],
    ids=lambda model: str(model)[:40],
)
def test_steps_that_learn_or_may_do_more_are_never_shared(model):
    assert fit_first_step(model, frame()[0]) is None


def test_inferred_failing_or_mixing_steps_are_never_shared():
    X, _ = frame()
    model = make_pipeline(SchemaTransformer(SCHEMA), Exact())
    assert fit_first_step(model, X) is not None
    assert fit_first_step(model, X.to_numpy().tolist()) is None  # types depend on the other rows
    assert fit_first_step(model, X.drop(columns="sex")) is None
    with config_context(transform_output="pandas"):
        assert fit_first_step(model, X) is None
    with pytest.warns(PrivacyLeakWarning):
        inferred = Schema.infer(X)
    assert fit_first_step(make_pipeline(SchemaTransformer(inferred), Exact()), X) is None
    with mock.patch("skprivacy.model_selection.sweep_records._MAX_FEATURE_BYTES", 80 * 3 * 8 - 1):
        assert fit_first_step(model, X) is None  # too large to keep


@pytest.mark.heavy
def test_a_model_that_begins_otherwise_is_not_fitted_behind_it():
    X, _ = frame()
    first = fit_first_step(make_pipeline(SchemaTransformer(SCHEMA), Exact()), X)
    assert first.begins(make_pipeline(SchemaTransformer(SCHEMA), StandardScaler(), Exact()))
    other = Schema({"age": BoundedColumn(0, 99), "sex": CategoricalColumn(["f", "m"])})
    assert not first.begins(make_pipeline(SchemaTransformer(other), Exact()))
    assert not first.begins(make_pipeline(SchemaTransformer(SCHEMA, dtype="f4"), Exact()))
    assert not first.begins(make_pipeline(Learning(SCHEMA), Exact()))
    assert not first.begins(Exact())
    # A baseline that has the name of the model's own sibling, and begins otherwise.
    log = [], []
    for seen, shared in zip(log, (True, False), strict=True):
        free = make_pipeline(SchemaTransformer(SCHEMA, dtype="f4"), Exact(seen=seen))
        model = make_pipeline(SchemaTransformer(SCHEMA), Exact(seen=seen))
        swept(model, *frame(), shared=shared, baseline={"same model without privacy": free})
    assert log[0] == log[1]


def test_a_step_keeps_its_name_in_a_model_whose_later_step_has_the_other_name():
    """Two steps of one name would be one parameter, and one line of what is not covered."""
    X, y = frame()
    step = SchemaTransformer(SCHEMA)
    models = {
        "plain": Pipeline([("scaled", step), ("last", Exact())]),
        "scaled": Pipeline([("first", step), ("scaled", StandardScaler()), ("last", Exact())]),
    }
    claims = mock.patch("skprivacy.model_selection.sweep_runner.claim_of", side_effect=claim_of)
    with claims as claimed:
        PrivacySweepCV(models, epsilons=[1.0], cv=CV, baseline=None).fit(X, y)
    names = {tuple(name for name, _ in call.args[0].steps) for call in claimed.call_args_list}
    assert names == {("scaled", "last"), ("first", "scaled", "last")}


def test_a_later_step_that_learns_is_fitted_anew_for_every_model_and_takes_the_proof_away():
    X, y = frame()
    model = make_pipeline(SchemaTransformer(SCHEMA), StandardScaler(), Exact())
    fits = mock.patch.object(StandardScaler, "fit", autospec=True, side_effect=StandardScaler.fit)
    with fits as fit:
        sweep = swept(model, X, y, baseline=None)
    assert fit.call_count == 4
    assert {len(call.args[1]) for call in fit.call_args_list} == {40}
    assert sweep.charged_.kind == "estimate"
    assert "standardscaler" in " ".join(sweep.charged_.assumptions)


@pytest.mark.heavy
def test_every_model_is_charged():
    X, y = frame()
    spent = []
    for shared in (True, False):
        budget = PrivacyBudget(100.0, 1e-2)
        private = OutputPerturbationClassifier(bounds=(-1, 1), classes=[0, 1], budget=budget)
        swept(make_pipeline(SchemaTransformer(SCHEMA), private), X, y, shared=shared, baseline=None)
        spent.append(budget.spent())
    assert spent[0] == spent[1]
    assert spent[0] > 2 * (1.0 + 2.0) * 0.99


@pytest.mark.heavy
def test_shadow_models_share_it_too():
    X, y = frame()
    counts = []
    attack = LiRA(pool=4, random_state=0)
    for shared in (True, False):
        model = make_pipeline(SchemaTransformer(SCHEMA), Exact())
        swept(model, X, y, shared=shared, counts=counts, attack=attack, baseline=None)
    assert counts[0] < counts[1] / 2


def test_a_gap_that_becomes_the_middle_of_the_range_is_named_and_a_marked_one_is_not():
    X, y = frame()
    X.loc[3, "age"] = np.nan
    with pytest.warns(UserWarning, match="'age' have missing values"):
        swept(make_pipeline(SchemaTransformer(SCHEMA), Exact()), X, y, baseline=None)
    marked = Schema({**SCHEMA, "age": replace(SCHEMA["age"], missing=True)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swept(make_pipeline(SchemaTransformer(marked), Exact()), X, y, baseline=None)
