"""A draft is never private until a person has confirmed each of its guesses."""

import inspect
import json
import warnings
from datetime import datetime, timedelta, timezone
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

from skprivacy import (
    config_context,
    ensemble,
    federated,
    fine_tuning,
    label_privacy,
    linear_model,
    neural_network,
    preprocessing,
    synthesis,
)
from skprivacy.audit import claim_of
from skprivacy.base import PrivateEstimatorMixin, rehearse_fit
from skprivacy.exceptions import PrivacyLeakWarning, PrivacyWarning
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    DateColumn,
    EqualColumns,
    HashedColumn,
    ImpossibleValues,
    MappedColumn,
    OrderedColumns,
    Schema,
    SummedColumns,
    make_private_pipeline,
)
from skprivacy.preprocessing.schema_draft import draft_schema

READ_OFF = "the schema is public (its bounds and categories were read off the data)"
WORDS = [f"c{i:02}" for i in range(40)]


def table(n=300):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.arange(1, n + 1),
            "age": rng.integers(18, 90, n),
            "income": np.where(np.arange(n) == 7, 1e6, rng.uniform(0, 5e4, n)),
            "smokes": rng.choice(["No", "Yes"], n),
            "ward": rng.choice(["A", "B", None], n),
            "born": rng.choice(["01.02.1980", "31.12.1999"], n),
            "postcode": rng.integers(1000, 1200, n).astype(str),
            "name": [f"Person {i}" for i in range(n)],
            "notes": [f"was seen on the ward for the {i}th time, complained of pain" * 2
                      for i in range(n)],
            "patient_id": rng.choice([f"P{i:05}" for i in range(200)], n),
            "empty": np.nan,
            "ill": rng.choice(["no", "yes"], n),
            "cost": rng.uniform(0, 100, n),
        }
    )  # fmt: skip


@pytest.fixture
def draft():
    with pytest.warns(PrivacyLeakWarning, match="read"):
        return draft_schema(table().drop(columns="cost"), target_column="ill")


def test_each_column_gets_the_facts_of_its_kind(draft):
    schema = draft.schema
    assert list(schema) == ["age", "income", "smokes", "ward", "born", "postcode"]
    assert schema["age"] == BoundedColumn(18, 89)
    assert schema["smokes"] == CategoricalColumn(["No", "Yes"])
    assert schema["ward"] == CategoricalColumn(["A", "B"], missing=True)
    assert schema["born"] == DateColumn("1980-02-01", "2000-01-01", format="%d.%m.%Y")
    assert schema["postcode"] == HashedColumn(64)
    assert schema.classes == ("no", "yes")
    assert "looks like an identifier (300 different values in 300 rows)" in draft.notes["id"]
    assert "names" in draft.notes["name"]
    assert "its name says that it identifies people" in draft.notes["patient_id"]
    assert "free text" in draft.notes["notes"]
    assert "empty" in draft.notes["empty"]
    assert "log" in draft.notes["income"]
    assert "2 classes" in draft.notes["ill"]


def confirmed(schema, *names):
    for name in names:
        schema = schema.confirm(name, by="Ann")
    return schema


def test_every_guess_is_marked_until_it_is_confirmed(draft, tmp_path):
    everything, schema = (*draft.schema, "ill"), draft.schema
    for i, name in enumerate(everything):
        assert schema.unconfirmed == everything[i:]
        schema.confirm(name, by="Ann").to_json(tmp_path / "draft.json")
        schema = Schema.from_json(tmp_path / "draft.json")
    assert schema.unconfirmed == schema.assumptions == ()
    assert schema.inferred  # it stays a draft that was confirmed


def test_a_confirmation_says_who_when_and_what(draft):
    schema = confirmed(draft.schema, "age")
    before = datetime.now(timezone.utc) - timedelta(minutes=1)
    assert schema["age"].confirmed.by == "Ann"
    assert before < datetime.fromisoformat(schema["age"].confirmed.at)
    assert schema["age"].confirmed.digest == BoundedColumn(18, 89)._digest("age")
    with pytest.raises(ValueError, match="name='age' must be one of"):
        schema.confirm("age", by="Ann")
    with pytest.raises(ValueError, match='"by" must be the name of a person'):
        schema.confirm("income", by=" ")


@pytest.mark.parametrize(
    "edit",
    [
        lambda facts: facts["columns"]["age"].update(upper=90),
        lambda facts: facts["columns"]["age"].update(unit="months"),
        lambda facts: facts["columns"].update(age=facts["columns"]["income"]),
        lambda facts: facts["columns"]["age"].update(confirmed=facts["confirmed"]),
        lambda facts: facts["columns"]["age"].pop("confirmed"),
        lambda facts: [facts["columns"]["age"].pop(mark) for mark in ("inferred", "confirmed")],
    ],
)
def test_an_edited_column_is_unconfirmed_again(draft, edit):
    facts = confirmed(draft.schema, *draft.schema, "ill").to_dict()
    edit(facts)
    assert Schema.from_dict(facts).unconfirmed == ("age",)


def test_edited_classes_and_new_columns_are_unconfirmed(draft):
    facts = confirmed(draft.schema, *draft.schema, "ill").to_dict()
    facts["classes"].append("dead")
    facts["columns"]["height"] = {"type": "bounded", "lower": 0, "upper": 3}
    assert Schema.from_dict(facts).unconfirmed == ("height", "ill")


def test_bins_and_the_order_of_keys_are_not_facts(draft):
    schema = confirmed(draft.schema, *draft.schema, "ill")
    assert schema.with_bins(8).unconfirmed == ()
    reordered = json.loads(json.dumps(schema.to_dict(), sort_keys=True))
    assert Schema.from_dict(reordered).unconfirmed == ()


def test_the_mark_of_a_draft_is_no_switch(draft):
    """A draft made a proved claim after its flags were switched by sed."""
    text = draft.schema.to_json().replace('"inferred": true', '"inferred": false')
    with pytest.raises(
        ValueError, match=r'"inferred" is False; .* `skprivacy schema confirm FILE`'
    ):
        Schema.from_json(text)
    facts = draft.schema.to_dict()
    for column in facts["columns"].values():
        del column["inferred"]
    assert Schema.from_dict(facts).unconfirmed == draft.schema.unconfirmed


@pytest.mark.parametrize(
    "mark",
    [
        True,
        "Ann",
        {"by": "Ann", "at": "now"},
        {"by": 1, "at": "now", "digest": ""},
        {"by": "", "at": "now", "digest": ""},
        {"by": "a\nb", "at": "now", "digest": ""},
    ],
)
def test_a_confirmation_that_says_too_little_is_refused(draft, mark):
    facts = draft.schema.to_dict()
    facts["columns"]["age"]["confirmed"] = mark
    with pytest.raises(ValueError, match=r"column 'age': .(confirmed|by). must"):
        Schema.from_dict(facts)


def test_a_target_without_facts_needs_no_confirmation():
    schema = Schema({"age": BoundedColumn(0, 1)}, target_column="ill", inferred=True)
    assert schema.unconfirmed == ("age",)
    both = Schema({"target": BoundedColumn(0, 1)}, classes=["a", "b"], inferred=True)
    assert both.unconfirmed == ("target", "target")  # a column first, then the target
    assert confirmed(both, "target").unconfirmed == ("target",)
    assert confirmed(both, "target", "target").unconfirmed == ()


@pytest.mark.parametrize("left", ["age", "ill"])
def test_one_guess_makes_a_model_an_estimate(draft, left):
    X = table()
    schema = confirmed(draft.schema, *{*draft.schema, "ill"} - {left})
    X, y = X[list(schema)], X["ill"]
    with pytest.warns(PrivacyLeakWarning, match="read off data"):
        model = make_private_pipeline(schema, ObjectivePerturbationClassifier())
    assert model[-1].get_params() == ObjectivePerturbationClassifier().get_params()
    with pytest.warns(PrivacyLeakWarning) as warned:
        model.fit(X, y)
    assert any(f"{left}" in str(w.message) and "not confirmed" in str(w.message) for w in warned)
    guarantee = claim_of(model, X).guarantee
    assert guarantee.kind == "estimate"
    assert READ_OFF in guarantee.assumptions
    assert not any("reveals nothing" in assumption for assumption in guarantee.assumptions)
    with config_context(strict=True):
        with pytest.raises(ValueError, match="not confirmed"):
            model[0].fit(X)
        with pytest.raises(ValueError, match="read off data"):
            make_private_pipeline(schema, ObjectivePerturbationClassifier())


def test_a_confirmed_draft_is_as_good_as_any_schema(draft):
    X = table()
    schema = confirmed(draft.schema, *draft.schema, "ill")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make_private_pipeline(schema, ObjectivePerturbationClassifier())
        model.fit(X[list(schema)], X["ill"])
    assert claim_of(model).proved
    assert READ_OFF not in claim_of(model).guarantee.assumptions


def test_taking_a_schema_apart_launders_nothing(draft):
    """The mark was the schema's, once: a schema made of its columns passed for public."""
    assert Schema(dict(draft.schema), classes=["no", "yes"]).inferred
    assert Schema({"age": draft.schema["age"]}).unconfirmed == ("age",)
    assert draft.schema.with_bins(4).unconfirmed == draft.schema.unconfirmed
    assert not Schema({"age": BoundedColumn(18, 89)}).inferred


WITH_SCHEMA = {
    "DPGANSynthesizer": {},
    "LocalPerturbation": {},
    "PATEClassifier": {
        "n_teachers": 4,
        "n_queries": 10,
        "classes": [0, 1],
        "student": GaussianNB(),
    },
    "PrivateKNNClassifier": {"n_queries": 10, "classes": [0, 1], "student": GaussianNB()},
    "MarginalSynthesizer": {},
}


def private_estimators_with_a_schema():
    packages = (ensemble, federated, fine_tuning, label_privacy, linear_model, neural_network,
                preprocessing, synthesis)  # fmt: skip
    classes = (getattr(package, name) for package in packages for name in package.__all__)
    return {
        found.__name__: found
        for found in classes
        if isinstance(found, type)
        and issubclass(found, PrivateEstimatorMixin)
        and "schema" in inspect.signature(found).parameters
    }


def test_no_estimator_with_a_schema_is_forgotten():
    pytest.importorskip("torch")
    assert set(WITH_SCHEMA) == set(private_estimators_with_a_schema())


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyWarning")
@pytest.mark.parametrize("name", WITH_SCHEMA)
def test_every_estimator_with_a_schema_assumes_that_it_is_public(name):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=300), "b": rng.uniform(size=300)})
    y = rng.integers(0, 2, 300)
    columns = {"a": BoundedColumn(0, 1, inferred=True), "b": BoundedColumn(0, 1)}
    schema = Schema(columns, classes=[0, 1])
    model = private_estimators_with_a_schema()[name](schema=schema, **WITH_SCHEMA[name])
    with pytest.warns(PrivacyWarning, match="read off"):
        assert READ_OFF in rehearse_fit(lambda: model.fit(X, y)).assumptions
    model.set_params(schema=schema.confirm("a", by="Ann"))
    assert READ_OFF not in rehearse_fit(lambda: model.fit(X, y)).assumptions


@pytest.mark.parametrize(
    ("y", "facts"),
    [
        (np.arange(31), {"target_bounds": (0.0, 30.0)}),
        (np.arange(30), {"classes": tuple(range(30))}),
        (np.array([0.5, 1.0, 2.0]), {"target_bounds": (0.5, 2.0)}),
        (np.array([0.0, 1.0]), {"classes": (0.0, 1.0)}),
        (np.array([True, False]), {"classes": (False, True)}),
        (np.array(WORDS), {"classes": tuple(WORDS)}),
    ],
)  # fmt: skip
def test_a_target_of_many_numbers_has_bounds(y, facts):
    """Each price was a separate class."""
    with pytest.warns(PrivacyLeakWarning):
        schema = Schema.infer(np.zeros((2, 1)), y)
    assert {"classes": schema.classes, "target_bounds": schema.target_bounds} == {
        "classes": None, "target_bounds": None, **facts
    }  # fmt: skip
    assert "target" in schema.unconfirmed


def test_a_gap_in_the_target_is_named():
    with pytest.warns(PrivacyLeakWarning), pytest.raises(ValueError, match="y holds missing"):
        Schema.infer(np.zeros((2, 1)), [1.5, np.nan])


def test_no_target_and_nothing_to_describe():
    with pytest.raises(ValueError, match="'x' is not a column"):
        draft_schema(table(), target_column="x")
    with pytest.warns(PrivacyLeakWarning), pytest.raises(ValueError, match="name: left out"):
        draft_schema(table()[["name"]])
    with config_context(strict=True), pytest.raises(ValueError, match="strict"):
        draft_schema(table())


def published():
    file = resources.files("skprivacy.preprocessing") / "schema.schema.json"
    return json.loads(file.read_text(encoding="utf-8"))


def test_the_published_format_takes_what_is_written(draft):
    """An editor checks a schema by this file while it is written."""
    jsonschema = pytest.importorskip("jsonschema")
    check = jsonschema.Draft202012Validator(published())
    check.check_schema(published())
    full = Schema(
        {
            "a": BoundedColumn(0, 1, "log", 0.5, 4, unit="m", missing=True, inferred=True),
            "b": CategoricalColumn(["x", 2, True], description="y", missing=True),
            "c": DateColumn(
                "2020-01-01", "2021-01-01", ["hour"], "%d", missing=True, description="z"
            ),
            "d": HashedColumn(3, missing=True, description="z"),
        },
        target_column="t", target_bounds=(0, 1),
    )  # fmt: skip
    done = confirmed(draft.schema, *draft.schema, "ill")
    for schema in (
        full,
        draft.schema,
        done,
        Schema({"a": BoundedColumn(0, 1)}, target_column="y", classes=[0, 1]),
        Schema(
            {"a": BoundedColumn(0, 1), "b": BoundedColumn(0, 1), "c": CategoricalColumn(["x", 2])},
            target_column="t",
            target_bounds=(0, 2),
            constraints=[
                EqualColumns(["a", "b"]),
                OrderedColumns(["a", "b"], strict=True),
                OrderedColumns(["b", "a"]),
                SummedColumns(["a", "b"], "t"),
                MappedColumn("c", "a", {"x": 0.5, 2: 1}),
                ImpossibleValues({"c": [2], "b": (None, 0.5)}),
            ],
        ),
    ):
        check.validate(schema.to_dict())
        assert Schema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": {}},
        {"columns": {"a": {"type": "bounded", "lower": 0}}},
        {"columns": {"a": {"type": "bounded", "lower": 0, "upper": 1, "bins": 0}}},
        {"columns": {"a": {"type": "categories", "values": []}}},
        {"columns": {"a": {"type": "hashed", "buckets": 1}}},
        {"columns": {"a": {"type": "text"}}},
        {"columns": {"a": {"type": "dates", "first": "1.1.2020", "last": "2021-01-01"}}},
        {"columns": {"a": {"type": "hashed", "inferred": "no"}}},
        {"columns": {"a": {"type": "hashed"}}, "inferred": "no"},
        {"columns": {"a": {"type": "hashed", "inferred": False}}},
        {"columns": {"a": {"type": "hashed"}}, "inferred": False},
        {"columns": {"a": {"type": "hashed", "confirmed": True}}},
        {"columns": {"a": {"type": "hashed"}}, "confirmed": {"by": "", "at": "", "digest": ""}},
        {"columns": {"a": {"type": "hashed"}}, "clases": ["x"]},
    ],
)
def test_the_published_format_refuses_what_is_refused(wrong):
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises((TypeError, ValueError)):
        Schema.from_dict(wrong)
    assert not jsonschema.Draft202012Validator(published()).is_valid(wrong)
