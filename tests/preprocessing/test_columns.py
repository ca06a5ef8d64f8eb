"""Columns and their crosses: each value becomes bounded features, by itself alone."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skprivacy.additive_model import PrivateAdditiveClassifier
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    DateColumn,
    HashedColumn,
    LocalPerturbation,
    Schema,
    SchemaTransformer,
)

EVERY_KIND = Schema(
    {
        "age": BoundedColumn(0, 100, bins=4, missing=True, unit="years"),
        "sex": CategoricalColumn(["F", "M"], missing=True, description="as in the register"),
        "day": DateColumn(
            "2020-01-01", "2020-12-31", parts=["month", "weekday", "hour"], missing=True
        ),
        "code": HashedColumn(8, missing=True),
    }
)
HOSTILE = pd.DataFrame(
    {
        "age": [-1e308, np.inf, np.nan, "12", "x", None, 55, True],
        "sex": ["F", "f", None, 3, "", "M", np.nan, "F "],
        "day": ["2020-02-30", "1700-01-01", "9999-12-31T23:59", None, 7, "2020-05-01",
                datetime.date(2020, 6, 1), pd.Timestamp("2020-07-01", tz="Asia/Tokyo")],
        "code": ["8001", 8001, 8001.0, "", None, "\ud800", b"x", np.nan],
    },
    dtype=object,
)  # fmt: skip


def features(schema, X):
    return SchemaTransformer(schema).fit_transform(X)


def test_no_value_exceeds_the_stated_norm():
    """The radius of a private model is made of these: a larger row would be clipped, or leak."""
    out = features(EVERY_KIND, HOSTILE)
    assert np.isfinite(out).all()
    at = 0
    for fact in EVERY_KIND.values():
        block = out[:, at : at + fact.n_features_out]
        assert np.linalg.norm(block, axis=1).max() <= fact._largest_norm() + 1e-12
        assert np.abs(block).max() <= 1
        at += fact.n_features_out
    assert at == out.shape[1]


# Equal values of several types, and values that are neither number, category nor date.
ODD = [
    0, 1, True, 1.0, 0.5, "1", "a", " a ", "nan", "inf", "", None, pd.NA, np.nan, np.inf, -np.inf,
    10**400, -(10**400), b"x", 2j, 1 + 0j, Decimal(1), np.int8(1), np.str_("x"), 5e-324,
]  # fmt: skip


def test_a_row_becomes_the_same_among_any_others():
    odd = pd.DataFrame({name: pd.Series(ODD, dtype=object) for name in EVERY_KIND})
    for table in (HOSTILE, odd, odd.iloc[::-1]):
        whole = features(EVERY_KIND, table)
        for row in range(len(table)):
            assert_array_equal(features(EVERY_KIND, table.iloc[[row]])[0], whole[row])
        assert np.isfinite(whole).all()
        assert np.abs(whole).max() <= 1


def test_every_feature_has_a_name():
    names = SchemaTransformer(EVERY_KIND).fit(HOSTILE).get_feature_names_out()
    assert len(names) == EVERY_KIND.n_features_out == len(set(names))
    assert [n for n in names if n.endswith("_missing")] == [f"{n}_missing" for n in EVERY_KIND]


def test_what_is_missing_or_unknown_is_said():
    X = pd.DataFrame({"a": [1.0, np.nan, 99.0], "b": ["x", "y", None]})
    schema = Schema(
        {"a": BoundedColumn(0, 2, missing=True), "b": CategoricalColumn(["x"], missing=True)}
    )
    assert_array_equal(features(schema, X), [[0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]])


@pytest.mark.parametrize(
    ("fact", "values"),
    [
        (DateColumn("2020-01-01", "2020-01-31"), ["2020-01-16", "2020-01-16T00:00:00Z",
        "2019-01-01"]), (DateColumn("2020-01-01", "2020-01-31", format="%d.%m.%Y"),
         ["16.01.2020", datetime.datetime(2020, 1, 16), "01.01.2019"]),
        (DateColumn("2020-01-01", "2020-01-31"),
         [datetime.date(2020, 1, 16), pd.Timestamp("2020-01-16"), datetime.date(2019, 1, 1)]),
        (DateColumn("2020-01-01", datetime.date(2020, 1, 31)),
         pd.to_datetime(["2020-01-16", "2020-01-16", "2019-01-01"])),
    ],
)  # fmt: skip
def test_dates_in_any_clothes(fact, values):
    assert_allclose(features(Schema({"d": fact}), pd.DataFrame({"d": values}))[:, 0], [0, 0, -1])


def test_parts_of_a_date():
    schema = Schema({"d": DateColumn("2020-01-01", "2020-12-31", parts=["hour", "weekday"])})
    X = pd.DataFrame({"d": ["2020-03-02T17:30"]})  # a Monday
    names = SchemaTransformer(schema).fit(X).get_feature_names_out()
    assert set(names[1:][features(schema, X)[0, 1:] == 1]) == {"d_hour17", "d_weekday0"}


def test_buckets_are_those_of_any_other_run():
    """They are part of a saved model: another hash would be another model."""
    X = pd.DataFrame({"c": ["8001", "Zürich", "x"]})
    assert features(Schema({"c": HashedColumn(16)}), X).argmax(axis=1).tolist() == [8, 5, 4]


@pytest.mark.parametrize(
    "fact",
    [DateColumn("2020-01-01", "2020-12-31"), HashedColumn(4), BoundedColumn(0, 1, missing=True)],
)
def test_noise_for_two_kinds_alone(fact):
    with pytest.raises(ValueError, match=r"column 'x'.*only BoundedColumn and CategoricalColumn"):
        LocalPerturbation(Schema({"x": fact})).fit(pd.DataFrame({"x": [1.0]}))


COLUMNS = {
    "age": BoundedColumn(0, 90, bins=3),
    "sex": CategoricalColumn(["f", "m"]),
    "town": CategoricalColumn(["a", "b", "c"], missing=True),
    "gain": BoundedColumn(0, 1),
}
CROSSED = Schema(COLUMNS, classes=[0, 1]).with_crosses([("age", "sex"), ("sex", "town")])
TABLE = pd.DataFrame(
    {
        "age": [10, 30, 95, np.nan, 45],
        "sex": ["f", "m", "m", "f", "?"],
        "town": ["c", None, "a", "b", "b"],
        "gain": [0.0, 0.5, 1.0, 0.2, 0.1],
    }
)


def crossed(rows, schema=CROSSED):
    """The features of crosses alone, by their names."""
    encoder = SchemaTransformer(schema).fit(rows)
    names = encoder.get_feature_names_out()
    found = encoder.transform(rows)
    last = [i for i, name in enumerate(names) if ":" in name]
    assert last == list(range(len(names) - len(last), len(names)))  # after all columns
    return pd.DataFrame(found[:, last], columns=names[last])


def test_a_record_has_a_one_for_its_pair_of_cells():
    found = crossed(TABLE)
    assert list(found)[:3] == ["age_bin0:sex_f", "age_bin0:sex_m", "age_bin1:sex_f"]
    assert found.shape == (5, 3 * 2 + 2 * 3)
    ones = [list(found.columns[row == 1]) for row in found.to_numpy()]
    assert ones == [
        ["age_bin0:sex_f", "sex_f:town_c"],
        ["age_bin1:sex_m"],  # the town is missing
        ["age_bin2:sex_m", "sex_m:town_a"],
        ["sex_f:town_b"],  # the age is missing
        [],  # an unknown sex
    ]


def test_features_of_columns_stay_as_they_are():
    plain = SchemaTransformer(CROSSED.with_crosses([])).fit_transform(TABLE)
    np.testing.assert_array_equal(
        SchemaTransformer(CROSSED).fit_transform(TABLE)[:, : plain.shape[1]], plain
    )
    assert CROSSED.n_features_out == plain.shape[1] + 12


def test_crosses_are_written_and_read_and_part_of_equality():
    again = Schema.from_json(CROSSED.to_json())
    assert again == CROSSED
    assert again.crosses == (("age", "sex"), ("sex", "town"))
    assert again != CROSSED.with_crosses([("age", "sex")])
    assert "crosses" not in CROSSED.with_crosses([]).to_dict()
    assert CROSSED.with_bins(5).crosses == CROSSED.crosses
    assert CROSSED.with_bins(5).n_features_out == CROSSED.n_features_out + 2 + 4 + 4


@pytest.mark.filterwarnings("ignore:noise_seed")
def test_an_additive_model_considers_named_pairs_beside_its_limit():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(4, size=(4000, 3)), columns=list("abc"))
    y = (X["a"] + X["c"]) % 2
    facts = {name: CategoricalColumn(range(4)) for name in "abc"}
    schema = Schema(facts, classes=[0, 1]).with_crosses([("c", "a")])
    model = PrivateAdditiveClassifier(3.0, 1e-6, schema=schema, max_pairs=0, noise_seed=0)
    model.fit(X, y)
    assert [e.columns for e in model.effects_ if len(e.columns) == 2] == [("a", "c")]
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("age", "height")], "must be a pair of two columns"),
        ([("age", "age")], "must be a pair of two columns"),
        ([("age",)], "must be a pair of two columns"),
        (["age"], "must be a pair of two columns"),
        ([("age", "sex"), ("sex", "age")], "more than once"),
        ([("age", "gain")], "'gain' is BoundedColumn.*has no categories or bins"),
        ([("sex", "day")], "'day' is DateColumn"),
    ],
)
def test_other_crosses_are_refused(pairs, words):
    schema = Schema({**COLUMNS, "day": DateColumn("2020-01-01", "2020-12-31")})
    with pytest.raises(ValueError, match=words):
        schema.with_crosses(pairs)


def test_too_many_features_are_refused():
    wide = Schema({name: BoundedColumn(0, 1, bins=300) for name in "ab"})
    with pytest.raises(ValueError, match="90000 features"):
        wide.with_crosses([("a", "b")])


def test_records_perturbed_by_column_take_no_crosses():
    rows = TABLE[["age", "sex"]]
    schema = Schema({n: COLUMNS[n] for n in rows}).with_crosses([("age", "sex")])
    with pytest.raises(ValueError, match=r"with_crosses\(\[\]\)"):
        LocalPerturbation(schema).fit(rows)
