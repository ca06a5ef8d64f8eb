"""Every engine gives the bits of a fit in memory, for any order, cut and group."""

from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from skprivacy.preprocessing import (
    BoundedColumn,
    CategoricalColumn,
    Schema,
    private_count,
    private_group_size,
    private_histogram,
    private_mean,
    private_quantile,
    private_sum,
    private_summary,
    private_variance,
)
from skprivacy.sums import SumTotal, tables
from skprivacy.sums.sources import open_table
from skprivacy.sums.sum_plan import GROUP_SIZE

from .engines import (
    ALL,
    COLUMNS,
    ENGINES,
    MODELS,
    arguments,
    columns_of,
    fit_by_scans,
    fit_in_memory,
    patients,
)
from .engines import same_fits as same

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
TABLE = patients()
SUMMARY = Schema(
    {
        "age": BoundedColumn(0, 100, bins=5),
        "dose": BoundedColumn(0, 80, bins=3),
        "outcome": CategoricalColumn(["home", "ward"]),
    }
)


@pytest.mark.parametrize("grouped", [False, True], ids=["records", "patients"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ALL)
def test_every_engine_gives_the_bits_of_a_fit_in_memory(name, engine, grouped, tmp_path):
    make = ALL[name][0]
    expected = fit_in_memory(make(noise_seed=1), TABLE, name, grouped)
    table = ENGINES[engine](TABLE[columns_of(name, grouped)], tmp_path)
    if engine in ("pandas", "pyarrow", "polars") and not arguments(name, grouped):
        pytest.skip("a table in memory without names of columns is read as an array")
    found = make(noise_seed=1).fit(table, **arguments(name, grouped))
    assert same(found, expected)
    assert found.feature_names_in_.tolist() == COLUMNS
    assert found.privacy_.unit == ("patient" if grouped else "record")


@pytest.mark.parametrize("grouped", [False, True], ids=["records", "patients"])
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_counts_the_units_if_their_number_is_public(
    engine, relation, grouped, tmp_path
):
    name = "AdaSSPRegressor"
    make = MODELS[name][0]
    expected = fit_in_memory(make(relation=relation, noise_seed=1), TABLE, name, grouped)
    table = ENGINES[engine](TABLE[columns_of(name, grouped)], tmp_path)
    found = make(relation=relation, noise_seed=1).fit(table, **arguments(name, grouped))
    assert same(found, expected)
    n = TABLE["patient"].nunique() if grouped else len(TABLE)
    with pytest.raises(ValueError, match="delta"):
        make(relation=relation, delta=1.1 / n).fit(table, **arguments(name, grouped))
    make(relation=relation, delta=0.9 / n).fit(table, **arguments(name, grouped))


@pytest.mark.parametrize("grouped", [False, True], ids=["records", "patients"])
@pytest.mark.parametrize("n_parts", [1, 3, 77, 401])
@pytest.mark.parametrize("name", ALL)
def test_order_and_cuts_change_no_bit(name, n_parts, grouped):
    make, target = ALL[name]
    expected = fit_in_memory(make(noise_seed=1), TABLE, name, grouped)
    model = make(noise_seed=1)
    types = dict(TABLE[COLUMNS].dtypes)
    plan = model.plan(types, y=target, groups="patient" if grouped else None)
    random = np.random.default_rng(n_parts)
    rows = TABLE.assign(**{GROUP_SIZE: TABLE.groupby("patient")["age"].transform("size")})
    rows = rows.iloc[random.permutation(len(rows))]
    cuts = np.sort(random.integers(0, len(rows) + 1, n_parts - 1))
    edges = [0, *cuts, len(rows)]
    parts = {
        f"part {number}": rows.iloc[edges[number] : edges[number + 1]]
        for number in random.permutation(n_parts)
    }
    total = SumTotal(plan)
    for part, batch in parts.items():
        total.add(part, plan.partial(batch))
    assert total.n_units == (TABLE["patient"].nunique() if grouped else len(TABLE))
    assert same(fit_by_scans(model, plan, parts), expected)


def test_batches_of_any_library_give_equal_integers():
    polars = pytest.importorskip("polars", reason="frames of polars")
    rows = pa.Table.from_pandas(TABLE, preserve_index=False)
    batches = [TABLE, rows, rows.to_batches()[0], polars.from_arrow(rows)]
    for name, (make, target) in ALL.items():
        plan = make().plan(COLUMNS, y=target)
        first, *others = map(plan.partial, batches)
        assert all(np.array_equal(first, other) for other in others), name


STATISTICS = {
    "sum": lambda x, **k: private_sum(x, bounds=(0, 100), **k),
    "mean": lambda x, **k: private_mean(x, bounds=(0, 100), **k),
    "variance": lambda x, **k: private_variance(x, bounds=(0, 100), **k),
    "bins": lambda x, **k: private_histogram(x, bins=[0, 10, 60, 100], **k),
    "quantile": lambda x, **k: private_quantile(x, 0.3, bounds=(0, 100), **k),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_a_table_are_those_of_its_column(name, engine, tmp_path):
    function, params = STATISTICS[name], {"epsilon": 1.0, "noise_seed": 1}
    table = ENGINES[engine](TABLE[["age", "patient"]], tmp_path)
    expected = function(TABLE["age"], groups=TABLE["patient"], **params)
    found = function(table, groups="patient", **params)
    assert np.array_equal(np.ravel(found.value), np.ravel(expected.value))
    assert found.privacy == expected.privacy


@pytest.mark.parametrize("engine", ENGINES)
def test_categories_and_conditions_are_counted_on_every_engine(engine, tmp_path):
    params = {"epsilon": 1.0, "noise_seed": 1}
    outcomes = ["home", "ward", "died"]
    table = ENGINES[engine](TABLE[["outcome", "patient"]], tmp_path)
    counts = private_histogram(table, categories=outcomes, groups="patient", **params)
    expected = private_histogram(
        TABLE["outcome"], categories=outcomes, groups=TABLE["patient"], **params
    )
    assert np.array_equal(counts.value, expected.value)
    assert counts.privacy == expected.privacy
    old = (TABLE["age"] > 60).rename("old")
    table = ENGINES[engine](pd.concat([old, TABLE["patient"]], axis=1), tmp_path)
    count = private_count(table, groups="patient", **params)
    assert count == private_count(old, groups=TABLE["patient"], **params)


def test_a_batch_is_cut_no_further_than_memory_needs():
    """Short batches of every engine reach the same sums: none is lost at an edge."""
    make = MODELS["AdaSSPRegressor"][0]
    expected = fit_in_memory(make(noise_seed=1), TABLE, "AdaSSPRegressor", False)
    with mock.patch.object(tables, "_ROWS", 7):
        found = make(noise_seed=1).fit(TABLE[columns_of("AdaSSPRegressor", False)], "cost")
    assert same(found, expected)


def test_a_data_set_holds_a_few_batches_in_memory(tmp_path):
    """pyarrow would hold what it has read of a file until the end of the file."""
    rows = pa.table({"x": np.random.default_rng(0).normal(size=1 << 22)})
    size = rows.nbytes
    pq.write_table(rows, tmp_path / "x.parquet", row_group_size=1 << 17)
    del rows
    table, before = open_table(ds.dataset(str(tmp_path / "x.parquet"))), pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in table.batches(["x"])]
    assert len(held) >= 32
    assert np.median(held) < size  # 0.2 to 0.5 of it, or 1.4 to 1.6 with pyarrow's buffer


def test_a_table_of_no_rows_has_a_fit():
    model = MODELS["AdaSSPRegressor"][0]()
    model.fit(TABLE[columns_of("AdaSSPRegressor", False)][:0], "cost")
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_summary_of_a_table_is_that_of_its_file(engine, tmp_path):
    pytest.importorskip("duckdb", reason="the summary of a file")
    (tmp_path / "table").mkdir()
    TABLE.to_parquet(tmp_path / "whole.parquet", index=False)
    asked = {
        "marginals": ["outcome", ("age", "outcome"), ("age", "dose")], "means": ["age", "dose"],
        "epsilon": 1.0, "noise_seed": 1,
    }  # fmt: skip
    expected = private_summary(tmp_path / "whole.parquet", SUMMARY, **asked)
    found = private_summary(ENGINES[engine](TABLE, tmp_path / "table"), SUMMARY, **asked)
    assert found.privacy == expected.privacy
    assert (found.value.count, found.value.means) == (expected.value.count, expected.value.means)
    for names, counts in expected.value.marginals.items():
        assert np.array_equal(found.value.marginals[names], counts)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_summary_of_patients_is_that_of_their_mean_rows(engine, relation, tmp_path):
    asked = {
        "marginals": ["outcome", ("age", "outcome")], "means": ["age", "dose"],
        "groups": "patient", "relation": relation,
    }  # fmt: skip
    table = ENGINES[engine](TABLE, tmp_path)
    found, privacy = private_summary(table, SUMMARY, epsilon=1e5, noise_seed=1, **asked)
    weights = 1 / TABLE.groupby("patient")["age"].transform("size")
    n = TABLE["patient"].nunique()
    assert found.count == pytest.approx(n, abs=0.01)
    for name, (low, high) in {"age": (0, 100), "dose": (0, 80)}.items():
        values = TABLE[name].clip(low, high).fillna((low + high) / 2)
        assert found.means[name] == pytest.approx((weights * values).sum() / n, abs=0.01)
    for outcome, count in zip(["home", "ward"], found.marginals["outcome",], strict=True):
        assert count == pytest.approx(weights[TABLE["outcome"] == outcome].sum(), abs=0.02)
    assert privacy.unit == "patient"
    noisy = [
        private_summary(frame, SUMMARY, epsilon=1.0, noise_seed=1, **asked).value
        for frame in (table, TABLE)
    ]
    assert (noisy[0].count, noisy[0].means) == (noisy[1].count, noisy[1].means)
    for names, counts in noisy[1].marginals.items():
        assert np.array_equal(noisy[0].marginals[names], counts)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_group_size_of_a_table_is_that_of_its_column(engine, tmp_path):
    who = TABLE["patient"].where(TABLE["patient"] > 9)
    table = ENGINES[engine](who.astype("Int64").to_frame(), tmp_path)
    known = who.dropna().astype(int)
    for asked in ({}, {"quantile": 0.5}, {"max_group_size": 3}, {"relation": "replace_one"}):
        asked = {"max_group_size": 40, "epsilon": 0.1, **asked}
        for seed in range(5):
            found = private_group_size(table, noise_seed=seed, **asked)
            assert found == private_group_size(known, noise_seed=seed, **asked)
    with pytest.raises(ValueError, match="groups has the columns"):
        private_group_size(ENGINES[engine](TABLE, tmp_path), max_group_size=9, epsilon=1.0)


def test_a_summary_of_a_table_takes_no_first_rows_and_names_absent_columns():
    with pytest.raises(ValueError, match="no order of rows"):
        private_summary(TABLE, SUMMARY, groups="patient", max_group_size=2, epsilon=1.0)
    with pytest.raises(ValueError, match="groups='who' is not a column"):
        private_summary(TABLE, SUMMARY, means=["age"], groups="who", epsilon=1.0)
    with pytest.raises(ValueError, match="no column 'age'"):
        private_summary(TABLE[["dose"]], SUMMARY, means=["age"], epsilon=1.0)
