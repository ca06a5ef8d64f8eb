"""Models taught by noisy votes or labels: a file holds the learner and nothing else."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)

from skprivacy import Schema, SchemaTransformer, load_model, save_model
from skprivacy.audit import claim_of
from skprivacy.ensemble import PATEClassifier, PropagationStudent
from skprivacy.label_privacy import LabelPATEClassifier, RandomizedResponseClassifier
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn

from .test_damaged import contents, written

pytestmark = pytest.mark.heavy

RNG = np.random.RandomState(0)
X = RNG.uniform(-1, 1, size=(400, 3))
CODES = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
Y = np.array(["a", "b", "c"])[CODES]
PUBLIC = RNG.uniform(-1, 1, size=(150, 3))
CLASSES = ["a", "b", "c"]
FRAME = pd.DataFrame(
    {
        "age": 50 * X[:, 0] + 50,
        "ward": np.array(["x", "y", "z"])[CODES],
        "n": RNG.randint(0, 9, 400),
    }
)
SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100),
        "ward": CategoricalColumn(["x", "y", "z"]),
        "n": BoundedColumn(0, 9),
    },
    target_column="ill",
    classes=CLASSES,
)
VOTES = {"n_teachers": 20, "n_queries": 60, "epsilon": 20.0, "delta": 1e-5}


def _same(model, rows, tmp_path):
    save_model(model, tmp_path / "m")
    found = load_model(tmp_path / "m")
    for method in ("predict", "predict_proba"):
        if hasattr(model, method):
            assert np.array_equal(getattr(found, method)(rows), getattr(model, method)(rows))
    assert claim_of(found) == claim_of(model)
    assert (found.epsilon_, found.delta_) == (model.epsilon_, model.delta_)
    assert found.get_params()["epsilon"] == model.epsilon
    return found


def columns():
    return make_column_transformer(
        (MinMaxScaler(), ["age", "n"]),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["ward"]),
    )


STUDENTS = {
    "logistic": (lambda: LogisticRegression(), X),
    "scaled": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), X),
    "unscaled": (lambda: make_pipeline(StandardScaler(with_mean=False), GaussianNB()), X),
    "uncentred": (lambda: make_pipeline(StandardScaler(with_std=False), GaussianNB()), X),
    "largest": (lambda: make_pipeline(MaxAbsScaler(), Normalizer(), GaussianNB()), X),
    "clipped": (lambda: make_pipeline(MinMaxScaler((-1, 2), clip=True), GaussianNB()), 3 * X),
    "frozen": (
        lambda: make_pipeline(FrozenEstimator(MinMaxScaler().fit(PUBLIC)), LogisticRegression()), X
    ),
    "schema": (lambda: make_pipeline(SchemaTransformer(SCHEMA), LogisticRegression()), FRAME),
    "columns": (lambda: make_pipeline(columns(), LogisticRegression()), FRAME),
}  # fmt: skip


@pytest.mark.everyday(3)
@pytest.mark.parametrize("name", sorted(STUDENTS))
def test_learners_of_any_make(name, tmp_path):
    make, rows = STUDENTS[name]
    model = RandomizedResponseClassifier(make(), epsilon=8.0, n_rounds=1, classes=CLASSES)
    _same(model.fit(rows, Y), rows, tmp_path)


@pytest.mark.everyday(1)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_student_of_a_graph(kind, tmp_path):
    model = LabelPATEClassifier(student=PropagationStudent(), classes=CLASSES, **VOTES).fit(
        X.astype(kind), Y
    )
    found = _same(model, X.astype(kind), tmp_path)
    assert found.student_._coef_.dtype == kind


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_default_student_of_a_table(share, tmp_path):
    teacher = make_pipeline(SchemaTransformer(SCHEMA), LogisticRegression())
    model = PATEClassifier(
        teacher, schema=SCHEMA, classes=CLASSES, marginal_share=share, **VOTES
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # records drawn from a schema teach little
        model.fit(FRAME, Y)
    found = _same(model, FRAME, tmp_path)
    assert list(found.feature_names_in_) == ["age", "ward", "n"]


def test_a_student_of_one_class(tmp_path):
    model = PATEClassifier(n_teachers=5, n_queries=1, epsilon=20.0, classes=CLASSES)
    model.fit(X, Y, X_public=PUBLIC)
    assert isinstance(model.student_, DummyClassifier)
    _same(model, X, tmp_path)


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (RandomForestClassifier(3), r"The learner 'learner' \(RandomForestClassifier\)"),
        (make_pipeline(StandardScaler(), RandomForestClassifier(3)), "RandomForestClassifier"),
        (
            make_pipeline(
                make_column_transformer((MinMaxScaler(), [0]), remainder="passthrough"),
                GaussianNB(),
            ),
            "drops the remainder",
        ),
    ],
)
def test_other_learners_are_refused_by_name(learner, words, tmp_path):
    model = RandomizedResponseClassifier(learner, epsilon=8.0, n_rounds=1, classes=CLASSES)
    with pytest.raises(ValueError, match=words):
        save_model(model.fit(X, Y), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_learner_by_itself_is_refused(tmp_path):
    """Outside a private model it learned from records that nothing protects."""
    for model in (LogisticRegression().fit(X, Y), StandardScaler().fit(X)):
        with pytest.raises(ValueError, match="cannot be saved without pickle"):
            save_model(model, tmp_path / "m")


@pytest.mark.everyday(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda node: node["learner"]["steps"][-1][1].update(classes=[0, 1, 3]),
        lambda node: node["learner"]["steps"][-1][1].update(classes=[0, 0, 1]),
        lambda node: node["learner"]["steps"][-1][1]["types"].update(coef_="object"),
        lambda node: node["learner"]["steps"][-1][1].update(kind="RandomForestClassifier"),
        lambda node: node["learner"]["steps"][0][1].update(n_features_in_=2),
        lambda node: node["learner"]["steps"][0][1]["params"].update(clip="yes"),
        lambda node: node["params"].update(epsilon=0.1, teacher=1),
        lambda node: node["privacy"].update(kind="estimate"),
        lambda node: node.update(learner=dict(node)),
        lambda node: node.update(kind="LogisticRegression"),
        lambda node: node.pop("learner"),
    ],
)
def test_a_forged_file_is_refused(change, tmp_path):
    model = RandomizedResponseClassifier(epsilon=5.0, n_rounds=2, classes=CLASSES)
    save_model(model.fit(X, Y), tmp_path / "m")
    load_model(tmp_path / "m")
    header, arrays = contents(tmp_path / "m")
    change(header["model"])
    written(tmp_path / "m", header, arrays)
    with pytest.raises(ValueError, match="path="):
        load_model(tmp_path / "m")
