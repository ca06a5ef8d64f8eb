"""Crosses of columns: their features, bounds and refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skprivacy.additive_model import PrivateAdditiveClassifier
from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    DateColumn,
    LocalPerturbation,
    Schema,
    SchemaTransformer,
)

COLUMNS = {
    "age": BoundedColumn(0, 90, bins=3),
    "sex": CategoricalColumn(["f", "m"]),
    "town": CategoricalColumn(["a", "b", "c"], missing=True),
    "gain": BoundedColumn(0, 1),
}
SCHEMA = Schema(COLUMNS, classes=[0, 1]).with_crosses([("age", "sex"), ("sex", "town")])
TABLE = pd.DataFrame(
    {
        "age": [10, 30, 95, np.nan, 45],
        "sex": ["f", "m", "m", "f", "?"],
        "town": ["c", None, "a", "b", "b"],
        "gain": [0.0, 0.5, 1.0, 0.2, 0.1],
    }
)


def crossed(rows, schema=SCHEMA):
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
    plain = SchemaTransformer(SCHEMA.with_crosses([])).fit_transform(TABLE)
    np.testing.assert_array_equal(
        SchemaTransformer(SCHEMA).fit_transform(TABLE)[:, : plain.shape[1]], plain
    )
    assert SCHEMA.n_features_out == plain.shape[1] + 12


def test_crosses_are_written_and_read_and_part_of_equality():
    again = Schema.from_json(SCHEMA.to_json())
    assert again == SCHEMA
    assert again.crosses == (("age", "sex"), ("sex", "town"))
    assert again != SCHEMA.with_crosses([("age", "sex")])
    assert "crosses" not in SCHEMA.with_crosses([]).to_dict()
    assert SCHEMA.with_bins(5).crosses == SCHEMA.crosses
    assert SCHEMA.with_bins(5).n_features_out == SCHEMA.n_features_out + 2 + 4 + 4


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
