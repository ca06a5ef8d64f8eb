"""A draft is never private, until each of its guesses was reviewed."""

import json
import warnings
from importlib import resources

import numpy as np
import pandas as pd
import pytest

from skprivacy import config_context
from skprivacy.audit import claim_of
from skprivacy.ensemble import PATEClassifier
from skprivacy.exceptions import PrivacyLeakWarning, PrivacyWarning
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.preprocessing import (
    Bounded,
    Categories,
    Dates,
    Hashed,
    Schema,
    draft_schema,
    make_private_pipeline,
)
from skprivacy.synthesis import PrivateSynthesizer

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
        return draft_schema(table().drop(columns="cost"), target="ill")


def test_each_column_gets_the_facts_of_its_kind(draft):
    schema = draft.schema
    assert list(schema) == ["age", "income", "smokes", "ward", "born", "postcode"]
    assert schema["age"] == Bounded(18, 89)
    assert schema["smokes"] == Categories(["No", "Yes"])
    assert schema["ward"] == Categories(["A", "B"], missing=True)
    assert schema["born"] == Dates("1980-02-01", "2000-01-01", format="%d.%m.%Y")
    assert schema["postcode"] == Hashed(64)
    assert schema.classes == ("no", "yes")
    assert "number the records" in draft.notes["id"]
    assert "names" in draft.notes["name"]
    assert "pass it as groups (--groups)" in draft.notes["patient_id"]
    assert "free text" in draft.notes["notes"]
    assert "empty" in draft.notes["empty"]
    assert "log" in draft.notes["income"]
    assert "2 classes" in draft.notes["ill"]


def reviewed(facts, *names):
    for name in names:
        (facts if name == "target" else facts["columns"][name])["inferred"] = False
    return Schema.from_dict(facts)


def test_every_guess_is_marked_until_it_is_reviewed(draft, tmp_path):
    everything = (*draft.schema, "target")
    assert draft.schema.unreviewed == everything
    draft.schema.to_json(tmp_path / "draft.json")
    facts = json.loads((tmp_path / "draft.json").read_text())
    for i, name in enumerate(everything):
        assert Schema.from_dict(facts).unreviewed == everything[i:]
        assert Schema.from_dict(facts).inferred
        reviewed(facts, name)
    assert not Schema.from_dict(facts).inferred


@pytest.mark.parametrize("left", ["age", "target"])
def test_one_guess_makes_a_model_an_estimate(draft, left):
    X = table()
    facts = draft.schema.to_dict()
    schema = reviewed(facts, *{*draft.schema, "target"} - {left})
    X, y = X[list(schema)], X["ill"]
    with pytest.warns(PrivacyLeakWarning, match="read off data"):
        model = make_private_pipeline(schema, ObjectivePerturbationClassifier())
    with pytest.warns(PrivacyLeakWarning) as warned:
        model.fit(X, y)
    assert any(f"{left}" in str(w.message) and "not reviewed" in str(w.message) for w in warned)
    assert claim_of(model, X).guarantee.kind == "estimate"
    with config_context(strict=True), pytest.raises(ValueError, match="not reviewed"):
        model[0].fit(X)


def test_a_reviewed_draft_is_as_good_as_any_schema(draft):
    X = table()
    schema = reviewed(draft.schema.to_dict(), *draft.schema, "target")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make_private_pipeline(schema, ObjectivePerturbationClassifier())
        model.fit(X[list(schema)], X["ill"])
    assert claim_of(model).proved


def test_taking_a_schema_apart_launders_nothing(draft):
    """The mark was the schema's, once: a schema made of its columns passed for public."""
    assert Schema(dict(draft.schema), classes=["no", "yes"]).inferred
    assert Schema({"age": draft.schema["age"]}).unreviewed == ("age",)
    assert draft.schema.with_bins(4).unreviewed == draft.schema.unreviewed
    assert not Schema({"age": Bounded(18, 89)}).inferred


def test_records_drawn_from_a_guess_are_not_public():
    """PATE took a schema that was read off the data for a public one, and said nothing."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(size=300), "b": rng.uniform(size=300)})
    y = (X["a"] > 0.5).astype(int)
    with pytest.warns(PrivacyLeakWarning):
        schema = Schema.infer(X)
    model = PATEClassifier(n_teachers=4, n_queries=10, classes=[0, 1], schema=schema)
    with pytest.warns(PrivacyWarning) as warned:
        model.fit(X, y)
    assert any("read off" in str(w.message) for w in warned)
    assert "the schema is public (it was read off the data)" in model.privacy_.assumptions


def test_a_synthesizer_takes_no_guess_for_public():
    """As PATE did, it took a schema that was read off the data for a public one."""
    X = pd.DataFrame({"a": [0.0, 1.0] * 50, "b": ["x", "y"] * 50})
    with pytest.warns(PrivacyLeakWarning):
        schema = Schema.infer(X)
    with pytest.warns(PrivacyLeakWarning, match="not reviewed"):
        model = PrivateSynthesizer(schema=schema).fit(X)
    assert "the schema is public (it was read off the data)" in model.privacy_.assumptions
    dates = Schema({"a": Hashed(4), "b": Categories(["x", "y"])})
    with pytest.raises(ValueError, match="PrivateSynthesizer knows only Bounded and Categories"):
        PrivateSynthesizer(schema=dates).fit(X)


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
    """Each price was a class of its own."""
    with pytest.warns(PrivacyLeakWarning):
        schema = Schema.infer(np.zeros((2, 1)), y)
    assert {"classes": schema.classes, "target_bounds": schema.target_bounds} == {
        "classes": None, "target_bounds": None, **facts
    }  # fmt: skip
    assert "target" in schema.unreviewed


def test_a_gap_in_the_target_is_named():
    with pytest.warns(PrivacyLeakWarning), pytest.raises(ValueError, match="y holds missing"):
        Schema.infer(np.zeros((2, 1)), [1.5, np.nan])


def test_no_target_and_nothing_to_describe():
    with pytest.raises(ValueError, match="'x' is no column"):
        draft_schema(table(), target="x")
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
            "a": Bounded(0, 1, "log", 0.5, 4, unit="m", missing=True, inferred=True),
            "b": Categories(["x", 2, True], description="y", missing=True),
            "c": Dates("2020-01-01", "2021-01-01", ["hour"], "%d", missing=True, description="z"),
            "d": Hashed(3, missing=True, description="z"),
        },
        target="t", target_bounds=(0, 1),
    )  # fmt: skip
    for schema in (full, draft.schema, Schema({"a": Bounded(0, 1)}, target="y", classes=[0, 1])):
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
        {"columns": {"a": {"type": "hashed"}}, "clases": ["x"]},
    ],
)
def test_the_published_format_refuses_what_is_refused(wrong):
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises((TypeError, ValueError)):
        Schema.from_dict(wrong)
    assert not jsonschema.Draft202012Validator(published()).is_valid(wrong)


def test_free_text_is_refused_with_advice():
    with pytest.raises(ValueError, match=r"column 'a' is free text.*encoder"):
        Schema.from_dict({"columns": {"a": {"type": "text"}}})
