"""SchemaTransformer: bounded, one row at a time, and blind to the private values."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from skprivacy._config import config_context
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, SchemaTransformer

SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100),
        "gain": BoundedColumn(0, 99_999, scale="log"),
        "sex": CategoricalColumn(["Female", "Male"]),
        "code": CategoricalColumn([1, 2, "x"]),
    }
)


def table(**changes):
    columns = {
        "age": [20.0, 50.0, 80.0],
        "gain": [0, 10, 99_999],
        "sex": ["Male", "Female", "Male"],
        "code": [1, 2, "x"],
    }
    return pd.DataFrame({**columns, **changes})


@pytest.mark.everyday(20)
@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyLeakWarning")
@parametrize_with_checks([SchemaTransformer(), SchemaTransformer(dtype=np.float32)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_values_by_hand():
    out = SchemaTransformer(SCHEMA).fit_transform(table())
    log = 2 * np.log1p(10) / np.log1p(99_999) - 1
    assert_array_equal(
        out,
        [
            [-0.6, -1, 0, 1, 1, 0, 0],
            [0, log, 1, 0, 0, 1, 0],
            [0.6000000000000001, 1, 0, 1, 0, 0, 1],
        ],
    )


def test_bins_by_hand():
    edge = np.expm1(np.log1p(100) / 2)  # where the log scale is halfway
    schema = Schema(
        {
            "age": BoundedColumn(0, 100, bins=4),
            "gain": BoundedColumn(0, 100, scale="log", bins=2),
            "sex": CategoricalColumn(["Female", "Male"]),
            "fixed": BoundedColumn(3, 3, bins=2),
        }
    )
    X = pd.DataFrame(
        {
            "age": [0, 25, 62.5, 1e9, None],
            "gain": [0, edge * 0.999, edge * 1.001, np.inf, np.nan],
            "sex": ["Male"] * 5,
            "fixed": [3] * 5,
        }
    )
    frame = SchemaTransformer(schema).set_output(transform="pandas").fit_transform(X)
    bits = [c for c in frame if "_bin" in c]
    assert bits == ["age_bin1", "age_bin2", "age_bin3", "gain_bin1", "fixed_bin1"]
    assert frame.shape[1] == schema.n_features_out == 4 + 2 + 2 + 2
    assert list(frame.columns[:6]) == ["age", *bits[:3], "gain", "gain_bin1"]
    assert_array_equal(frame["age"], [-1, -0.5, 0.25, 1, 0])
    assert_array_equal(
        frame[bits],
        np.array(
            [[0, 0, 0, 0, 1], [1, 0, 0, 0, 1], [1, 1, 0, 1, 1], [1, 1, 1, 1, 1], [1, 1, 0, 1, 1]]
        )
        / 2,
    )
    assert_array_equal(frame[["sex_Female", "sex_Male"]], [[0, 1]] * 5)
    plain = SchemaTransformer(schema.with_bins(1)).fit_transform(X)
    assert_array_equal(frame.drop(columns=bits), plain)  # nothing else changes


def test_fit_on_other_data_gives_the_same_transform():
    X = table()
    other = table(age=[1e9, -1e9, np.nan], gain=[7, 7, 7], sex=["?"] * 3, code=["z", None, 3])
    one, two = SchemaTransformer(SCHEMA).fit(X), SchemaTransformer(SCHEMA).fit(other)
    assert_array_equal(one.transform(X), two.transform(X))
    assert pickle.dumps(one) == pickle.dumps(two)  # nothing of either is kept


def test_unknown_missing_and_out_of_range():
    X = table(age=[-5, np.nan, np.inf], gain=["many", None, "10"], sex=["?", None, np.nan])
    out = SchemaTransformer(SCHEMA).fit_transform(X)
    assert_array_equal(out[:, 0], [-1, 0, 1])
    assert_array_equal(out[:, 1], [0, 0, 2 * np.log1p(10) / np.log1p(99_999) - 1])
    assert_array_equal(out[:, 2:4], np.zeros((3, 2)))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1.0, 2.0, 3.0, None]),
        pd.Series(["1", " 2", "3 ", None], dtype=object),
        pd.Series([1, 2, 3, None], dtype="Int64"),
        pd.Series(["1", "2", "3", None], dtype="category"),
        pd.Series([1, 2, 3, None], dtype="category"),
        pd.Series(["1", "2", "3", None], dtype="string"),
        pd.Series([1, "2", 3.0, None], dtype=object),
        pd.Series([1, 2, 3, None], dtype=np.float32),
    ],
    ids=lambda c: f"{c.dtype} {c[0]!r}",
)
@pytest.mark.parametrize(
    "facts", [CategoricalColumn([1, 2]), CategoricalColumn(["1", "2"]), BoundedColumn(1, 3)]
)
def test_columns_of_any_dtype(column, facts):
    schema = Schema({"a": facts})
    out = SchemaTransformer(schema).fit_transform(column.to_frame("a"))
    known = [[-1], [0], [1]] if isinstance(facts, BoundedColumn) else [[1, 0], [0, 1], [0, 0]]
    assert_array_equal(out, [*known, [0] * out.shape[1]])  # nothing is known of the last


def test_arrays_go_by_position_and_frames_by_name():
    X = table()
    transformer = SchemaTransformer(SCHEMA)
    expected = transformer.fit_transform(X)
    assert_array_equal(transformer.fit_transform(X.to_numpy()), expected)
    assert_array_equal(transformer.fit_transform(X[["sex", "code", "gain", "age"]]), expected)


def test_names_set_output_clone_pickle():
    X = table()
    transformer = SchemaTransformer(SCHEMA, dtype=np.float32).set_output(transform="pandas")
    out = clone(transformer).fit(X).transform(X)
    names = ["age", "gain", "sex_Female", "sex_Male", "code_1", "code_2", "code_x"]
    assert list(out.columns) == names
    assert (out.dtypes == np.float32).all()
    again = pickle.loads(pickle.dumps(transformer.fit(X)))
    assert again.transform(X).equals(out)
    array = SchemaTransformer(SCHEMA).fit(X.to_numpy())
    assert list(array.get_feature_names_out()) == names
    assert list(array.get_feature_names_out(list("abcd")))[:3] == ["a", "b", "c_Female"]


def test_no_schema_leaks_and_says_so():
    X = np.array([[0.0, 5.0], [10.0, 7.0]])
    with pytest.warns(PrivacyLeakWarning, match="codebook"):
        transformer = SchemaTransformer().fit(X)
    assert not transformer.data_independent_
    assert_array_equal(transformer.transform(X), [[-1, -1], [1, 1]])
    with config_context(strict=True), pytest.raises(ValueError, match="strict"):
        SchemaTransformer().fit(X)
    assert SchemaTransformer(SCHEMA).fit(table()).data_independent_


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (table().drop(columns="age"), "lacks.*'age'"),
        (table().assign(name="x"), r"does not describe: \['name'\].*for example X\[list"),
        (
            table().assign(client_id=1),
            "'client_id' looks like an identifier: .* groups to the private",
        ),
        (pd.concat([table(), table()[["age"]]], axis=1), "more than one column named"),
        (table().to_numpy()[:, :2], "2 columns.*describes 4"),
        (table().iloc[:0], "0 sample"),
        ([1, 2, 3], "Expected 2D"),
        (table(age=pd.to_datetime(["2020-01-01"] * 3)).assign(age=[[1], [2], [3]]), "'age'"),
    ],
)
def test_wrong_columns(X, words):
    with pytest.raises(ValueError, match=words):
        SchemaTransformer(SCHEMA).fit(X).transform(X)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"schema": {"age": (0, 1)}}, "schema=.* must be a Schema"),
        ({"dtype": np.int64}, "dtype"),
    ],
)
def test_wrong_parameters(parameters, words):
    with pytest.raises((TypeError, ValueError), match=words):
        SchemaTransformer(**{"schema": SCHEMA, **parameters}).fit(table())


def test_rows_are_worked_on_by_numpy_alone():
    """Data of Adult's size take 0.015 s: Python is called for each column, never for a row."""
    rng = np.random.default_rng(0)
    n = 32_561
    columns = {f"n{i}": rng.uniform(size=n) for i in range(6)}
    words = [f"value {i}" for i in range(13)]
    columns |= {f"c{i}": rng.choice(words, n).astype(object) for i in range(8)}
    X = pd.DataFrame(columns)
    schema = Schema(
        {c: BoundedColumn(0, 1) if c[0] == "n" else CategoricalColumn(words) for c in X.columns}
    )
    transformer = SchemaTransformer(schema, dtype=np.float32).fit(X)
    calls = 0

    def count(frame, event, called):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        transformer.transform(X)
    finally:
        sys.setprofile(None)
    assert calls < n // 3  # 4,900, as of 300 rows
