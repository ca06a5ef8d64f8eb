"""Dates, buckets and missing values become bounded features, independently of other rows."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

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
