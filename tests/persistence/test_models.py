"""Saved models: the same predictions and claim, nothing private, and no other class."""

from __future__ import annotations

import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skprivacy import (
    AdaSSPRegressor,
    DPSGDClassifier,
    FunctionalMechanismClassifier,
    FunctionalMechanismRegressor,
    LocalPerturbation,
    MarginalSynthesizer,
    ObjectivePerturbationClassifier,
    OutputPerturbationClassifier,
    PrivacyBudget,
    Schema,
    SchemaTransformer,
    load_model,
    save_model,
)
from skprivacy.additive_model import PrivateAdditiveClassifier, PrivateAdditiveRegressor
from skprivacy.audit import claim_of
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.label_privacy import RandomizedResponseClassifier
from skprivacy.neural_network import ScatteringTransformer
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, PrivateStandardScaler
from skprivacy.synthesis import SyntheticDataClassifier, SyntheticDataRegressor

from ..contracts.cases import CASES, LINEAR
from ..contracts.tape import Tape, recording

RNG = np.random.RandomState(0)
X = RNG.uniform(-1, 1, size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
FRAME = pd.DataFrame({"age": RNG.uniform(0, 90, 60), "sex": np.where(Y, "f", "m")})
SCHEMA = Schema(
    {"age": BoundedColumn(0, 100, "log"), "sex": CategoricalColumn(["f", "m"])}, target_column="ill"
)
ROWS = Schema({"age": BoundedColumn(0, 100)})


def again(model, tmp_path, **given):
    save_model(model, tmp_path / "m")
    return load_model(tmp_path / "m", **given)


def classifier(**params):
    params = {"delta": 1e-5, "classes": [0, 1], "bounds": (-3, 3), **params}
    return ObjectivePerturbationClassifier(**params)


TRAINED = {
    "classes": lambda: SyntheticDataClassifier(
        make_pipeline(SchemaTransformer(ROWS), LogisticRegression()), of_rows(classes=["f", "m"])
    ).fit(FRAME[["age"]], FRAME["sex"]),
    "one class": lambda: SyntheticDataClassifier(
        GaussianNB(), of_rows(epsilon=100.0, classes=["f", "m"])
    ).fit(FRAME[["age"]], np.full(60, "m")),
    "numbers": lambda: SyntheticDataRegressor(Ridge(), of_rows(target_bounds=(0, 1))).fit(
        FRAME[["age"]], Y
    ),
    "an array": lambda: SyntheticDataRegressor(
        make_pipeline(StandardScaler(), LinearRegression()), of_rows(target_bounds=(0, 1))
    ).fit(FRAME[["age"]].to_numpy(), Y),
}


def of_rows(epsilon=1.0, **target):
    return MarginalSynthesizer(epsilon, schema=Schema(ROWS, **target), label=None)


@pytest.mark.parametrize("name", TRAINED)
def test_models_of_synthetic_records_are_restored(name, tmp_path):
    model = TRAINED[name]()
    found = again(model, tmp_path)
    rows = FRAME[["age"]] if name != "an array" else FRAME[["age"]].to_numpy()
    assert np.array_equal(found.predict(rows), model.predict(rows))
    assert claim_of(found) == claim_of(model)
    drawn = (m.synthesizer_.sample(20, random_state=0) for m in (found, model))
    pd.testing.assert_frame_equal(*drawn)
    assert clone(found).fit(rows, FRAME["sex"] if name == "classes" else Y).privacy_


def test_a_tree_that_was_trained_on_synthetic_records_is_refused_by_its_place(tmp_path):
    model = TRAINED["one class"]().set_params(estimator=DecisionTreeClassifier())
    with pytest.raises(ValueError, match="The learner 'estimator'"):
        save_model(model.fit(FRAME[["age"]], FRAME["sex"]), tmp_path / "m")


@pytest.mark.parametrize("label", [None, "sex"])
@pytest.mark.parametrize("method", ["independent", "tree"])
def test_all_that_a_synthesizer_released_comes_back(method, label, tmp_path):
    schema = Schema({**ROWS, "sex": CategoricalColumn(["f", "m"])})
    model = MarginalSynthesizer(delta=1e-3, schema=schema, method=method, label=label)
    model.fit(FRAME[[*schema]])
    for found, kept in zip(again(model, tmp_path).measurements_, model.measurements_, strict=True):
        assert found.columns == kept.columns
        assert np.array_equal(found.table, kept.table)
        assert np.array_equal(found.std, kept.std)


ADDITIVE = {
    "two classes": lambda: PrivateAdditiveClassifier(
        delta=1e-3, schema=Schema(SCHEMA, classes=[0, 1])
    ).fit(FRAME, Y),
    "three classes, integers": lambda: PrivateAdditiveClassifier(
        delta=1e-3, schema=Schema(SCHEMA, classes=["a", "b", "c"])
    ).fit(FRAME.astype({"age": int}), np.array(["a", "b", "c"])[np.arange(60) % 3]),
    "numbers": lambda: PrivateAdditiveRegressor(
        delta=1e-3, schema=Schema(SCHEMA, target_bounds=(0, 1))
    ).fit(FRAME, Y),
}


@pytest.mark.parametrize("name", ADDITIVE)
def test_additive_models_come_back_with_their_effects(name, tmp_path):
    model = ADDITIVE[name]()
    found = again(model, tmp_path)
    rows = FRAME.astype({"age": int}) if "integers" in name else FRAME
    assert np.array_equal(found.predict(rows), model.predict(rows))
    assert claim_of(found) == claim_of(model)
    for one, other in zip(found.effects_, model.effects_, strict=True):
        assert one.columns == other.columns
        assert np.array_equal(one.noise_std, other.noise_std)
    assert found.n_records_ == model.n_records_
    assert claim_of(clone(found).fit(rows, model.predict(rows))) == claim_of(model)


def scaled():
    return make_pipeline(PrivateStandardScaler(epsilon=0.5, bounds=(-1, 1)), classifier())


def by_schema(last, output="default"):
    return make_pipeline(SchemaTransformer(SCHEMA).set_output(transform=output), last)


PIPELINES = {
    "scaler": (scaled, X),
    "schema": (lambda: by_schema(classifier()), FRAME),
    "frames": (lambda: by_schema(classifier(), "pandas"), FRAME),
    "network": (
        lambda: by_schema(DPSGDClassifier(delta=1e-4, classes=[0, 1], epochs=1), "pandas"), FRAME
    ),
    "local": (
        lambda: make_pipeline(
            LocalPerturbation(SCHEMA, perturb="fit", delta=1e-3),
            classifier(relation="replace_one"),
        ),
        FRAME,
    ),
    "nested": (
        lambda: Pipeline([
            ("rows", make_pipeline(FunctionTransformer(), Normalizer("l1"), "passthrough")),
            ("frozen", FrozenEstimator(Binarizer(threshold=0.1).fit(X))),
            ("last", FunctionalMechanismRegressor(bounds=(-1, 1), target_bounds=(0, 2))),
        ]),
        X,
    ),
    "images": (
        lambda: make_pipeline(ScatteringTransformer((12, 12)), classifier(radius=2.0)),
        RNG.uniform(size=(60, 144)),
    ),
}  # fmt: skip


@pytest.mark.everyday(2)
@pytest.mark.heavy
@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_come_back_with_the_claim_of_all_steps(name, tmp_path):
    make, rows = PIPELINES[name]
    model = make().fit(rows, Y)
    found = again(model, tmp_path)
    assert claim_of(found) == claim_of(model)
    assert claim_of(found).proved
    assert np.array_equal(found.predict(rows), model.predict(rows))
    assert [name for name, _ in found.steps] == [name for name, _ in model.steps]
    assert claim_of(clone(found).fit(rows, Y)) == claim_of(model)  # parameters came back, too


def test_transformers_are_restored(tmp_path):
    schema = SchemaTransformer(SCHEMA, dtype=np.float32).fit(FRAME)
    found = again(schema, tmp_path)
    assert found.schema == found.schema_ == SCHEMA
    assert found.transform(FRAME).dtype == np.float32
    assert np.array_equal(found.transform(FRAME), schema.transform(FRAME))
    local = LocalPerturbation(SCHEMA, epsilon=100.0).fit(FRAME)
    noisy = again(local, tmp_path)
    assert noisy.privacy_ == local.privacy_
    assert noisy.epsilon_ == local.epsilon_
    clean = SchemaTransformer(SCHEMA).fit_transform(FRAME)
    assert 0 < np.abs(noisy.transform(FRAME) - clean).mean() < 0.1
    local.set_params(epsilon=1.0)
    with pytest.raises(ValueError, match="changed after fit"):
        save_model(local, tmp_path / "m")


def test_a_schema_that_was_read_off_the_data_stays_one(tmp_path):
    with pytest.warns(PrivacyLeakWarning):
        model = make_pipeline(SchemaTransformer(), classifier()).fit(X, Y)
    found = again(model, tmp_path)
    assert claim_of(found) == claim_of(model)
    assert not claim_of(found).proved
    assert found[0].schema is None


@pytest.mark.parametrize(
    "labels",
    [
        np.array([-1, 7], np.int8), np.array([0.5, 2], np.float32), np.array([False, True]),
        np.array(["ä", "long"]), np.array(["a", "b", "c"], object), np.array([3, 5, 9]),
    ],
)  # fmt: skip
def test_labels_of_every_type_come_back(labels, tmp_path):
    model = classifier(classes=labels).fit(X, labels[np.arange(60) % len(labels)])
    found = again(model, tmp_path)
    assert found.classes_.dtype == model.classes_.dtype
    assert np.array_equal(found.predict(X), model.predict(X))


def test_labels_that_are_no_words_are_refused(tmp_path):
    labels = np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")
    with pytest.raises(ValueError, match="labels must be numbers or text"):
        save_model(classifier(classes=labels).fit(X, labels[Y]), tmp_path / "m")


def test_no_noise_is_saved_as_no_guarantee(tmp_path):
    model = AdaSSPRegressor(epsilon=np.inf, bounds=(-1, 1), target_bounds=(0, 1)).fit(X, Y)
    found = again(model, tmp_path)
    assert found.epsilon == found.epsilon_ == np.inf
    assert found.privacy_ == model.privacy_


@pytest.mark.parametrize(
    ("model", "leaks"),
    [
        (OutputPerturbationClassifier(), 2),
        (AdaSSPRegressor(), 2),
        (PrivateStandardScaler(), 1),
        (FunctionalMechanismClassifier(bounds=(-1, 1)), 1),
        (FunctionalMechanismRegressor(bounds=(-1, 1), target_bounds=(0, 1)), 0),
        (RandomizedResponseClassifier(), 1),
    ],
)
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyLeakWarning")
def test_facts_read_off_the_data_are_not_public_after_loading(model, leaks, tmp_path):
    model.fit(X, Y)
    found = again(model, tmp_path)
    assert found.privacy_ == model.privacy_
    with pytest.warns(PrivacyLeakWarning) if leaks else nullcontext():
        anew = clone(found).fit(X, Y)
    assert anew.privacy_ == model.privacy_
    assert sum("read off" in assumed for assumed in anew.privacy_.assumptions) == leaks


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("network", [False, True])
def test_no_record_no_seed_and_no_ledger_is_in_the_file(network, seeded, tmp_path):
    canary = 0.123456789
    rows = X.copy()
    rows[3] = canary
    budget = PrivacyBudget(epsilon=3, delta=1e-4, path=tmp_path / "secret-ledger")
    kept = {"noise_seed": 987654321} if seeded else {"budget": budget}
    last = (
        DPSGDClassifier(delta=1e-5, classes=[0, 1], epochs=1, random_state=876543219, **kept)
        if network
        else FunctionalMechanismClassifier(bounds=(-3, 3), classes=[0, 1], **kept)
    )
    model = make_pipeline(PrivateStandardScaler(bounds=(-1, 1), **kept), last).fit(rows, Y)
    found = again(model, tmp_path)
    blob = (tmp_path / "m").read_bytes()
    for secret in (b"987654321", b"876543219", b"secret-ledger", b"budget", str(canary).encode(),
                   np.float32(canary).tobytes(), np.float64(canary).tobytes()):  # fmt: skip
        assert secret not in blob
    for step in found:
        assert step.noise_seed is step.budget is None
        assert step.privacy_.kind == ("estimate" if seeded else "proved")


@pytest.mark.parametrize("name", sorted({*LINEAR, "PrivateStandardScaler"}))
def test_nothing_from_before_the_noise_is_in_the_file(name, tmp_path):
    tape = Tape()
    rows, y = CASES[name].data(30)
    with recording(tape):
        model = CASES[name].make().fit(rows, y)
    save_model(model, tmp_path / "m")
    blob = (tmp_path / "m").read_bytes()
    given = [v for value in tape.inputs for v in (value if isinstance(value, tuple) else (value,))]
    assert given
    for secret in [rows, *rows, *given, *[column for value in given for column in value.T]]:
        if np.size(secret) > 1 and np.any(secret):
            assert np.ascontiguousarray(secret).tobytes() not in blob


def test_the_file_says_what_it_is_without_this_library(tmp_path):
    save_model(scaled().fit(X, Y), tmp_path / "m")
    with safe_open(tmp_path / "m", framework="np") as file:
        header = json.loads(file.metadata()["skprivacy"], parse_constant=pytest.fail)
        names = set(file.keys())
    assert header["format"] == 1
    assert {"skprivacy", "numpy", "scikit-learn"} == set(header["versions"])
    assert [name for name, _ in header["model"]["steps"]] == [
        "privatestandardscaler", "objectiveperturbationclassifier"
    ]  # fmt: skip
    assert names == {
        *(f"privatestandardscaler.{name}" for name in ("bounds_", "mean_", "var_", "scale_")),
        *(f"objectiveperturbationclassifier.{n}" for n in ("bounds_", "coef_", "intercept_")),
    }


class Own(ObjectivePerturbationClassifier):
    """A subclass, which may predict otherwise."""


# A subclass by the name of its parent, which may predict otherwise.
ALIKE = type("ObjectivePerturbationClassifier", (ObjectivePerturbationClassifier,), {})
REFUSED = [
    (make_pipeline(StandardScaler(), classifier()), "'standardscaler'.*PrivateStandardScaler"),
    (
        make_pipeline(make_column_transformer((Normalizer(), [0])), classifier()),
        "'columntransformer' .ColumnTransformer.*SchemaTransformer",
    ),
    (make_pipeline(FunctionTransformer(np.sign), classifier()), "func.*is code"),
    (Pipeline([("a.b", Normalizer()), ("last", classifier())]), "'a.b' has a dot"),
    (Own(delta=1e-5, classes=[0, 1], bounds=(-1, 1)), "Own cannot be saved"),
    (ALIKE(delta=1e-5, classes=[0, 1], bounds=(-1, 1)), "^ObjectivePert.* cannot be saved"),
]


@pytest.mark.parametrize(("model", "told"), REFUSED, ids=[told for _, told in REFUSED])
def test_forbidden_content_is_refused_and_nothing_is_written(model, told, tmp_path):
    (tmp_path / "m").write_text("before")
    with pytest.raises(ValueError, match=told):
        save_model(model.fit(X, Y), tmp_path / "m")
    assert (tmp_path / "m").read_text() == "before"


@pytest.mark.parametrize(
    "model", [classifier(), scaled(), SchemaTransformer(SCHEMA), DPSGDClassifier()]
)
def test_what_is_not_fitted_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="Call fit first"):
        save_model(model, tmp_path / "m")


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "v1.PICKLE"])
def test_a_name_that_readers_would_open_by_pickle_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"ends like a pickle.*Pass a name such as 'model.safet"):
        save_model(classifier().fit(X, Y), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_ledger_is_not_overwritten(tmp_path):
    PrivacyBudget(epsilon=3, delta=1e-4, path=tmp_path / "ledger")
    before = (tmp_path / "ledger").read_bytes()
    with pytest.raises(ValueError, match="perhaps a privacy ledger"):
        save_model(scaled().fit(X, Y), tmp_path / "ledger")
    assert (tmp_path / "ledger").read_bytes() == before


def test_modules_of_ones_own_go_to_the_networks_that_have_none(tmp_path):
    from torch import nn

    from skprivacy.neural_network import SCARFEncoder

    encoder = SCARFEncoder(n_components=3, epochs=1, hidden_layer_sizes=(4,)).fit(X)
    last = DPSGDClassifier(module=nn.Linear(3, 2), delta=1e-4, classes=[0, 1], epochs=1)
    model = make_pipeline(FrozenEstimator(encoder), last).fit(X, Y)
    found = again(model, tmp_path, module=nn.Linear(3, 2))
    assert np.array_equal(found.predict_proba(X), model.predict_proba(X))
    assert claim_of(found) == claim_of(model)
    with pytest.raises(ValueError, match=r"m'.*load_model\(path, module="):
        load_model(tmp_path / "m")
    with pytest.raises(ValueError, match="does not fit"):
        load_model(tmp_path / "m", module=nn.Linear(3, 3))
    with pytest.raises(ValueError, match="leave module"):
        again(scaled().fit(X, Y), tmp_path, module=nn.Linear(3, 2))
