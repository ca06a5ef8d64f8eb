"""Tables that break their schema: equal sums on every engine, and no value in any message."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.sums.sources import open_table

from .engines import ENGINES, MODELS, SECRET, refused, same_fits

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
N = 400
random = np.random.default_rng(5)
EXTREMES = [np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 5e-324, -0.0, 50.0]


def arrow_table():
    """Return types and values that nobody expects in columns of numbers and labels."""
    units = [int(u) for u in random.integers(-(10**14), 10**14, N)]
    long = [int(u) * 10**20 + 7 for u in random.integers(0, 10**5, N)]
    return pa.table(
        {
            "extreme": pa.array(np.resize(EXTREMES, N)),
            "whole": pa.array([None if i % 5 == 0 else 2**62 - i for i in range(N)], pa.int64()),
            "single": pa.array(random.normal(50, 30, N).astype(np.float32)),
            "short decimal": pa.array(
                [None if i % 9 == 0 else Decimal(u).scaleb(-12) for i, u in enumerate(units)],
                pa.decimal128(15, 12),
            ),
            "long decimal": pa.array([Decimal(u).scaleb(-22) for u in long], pa.decimal128(38, 22)),
            "flag": pa.array([None if i % 7 == 0 else i % 2 == 0 for i in range(N)]),
            "void": pa.array([None] * N, pa.float64()),
            "label": pa.array(
                np.resize(["home", "ward", None, "x" * 5_000, "", "home ", "died", "n\0l"], N)
            ),
        }
    )


TABLE = arrow_table()
NUMBERS = [name for name in TABLE.column_names if name != "label"]


def in_engine(engine, tmp_path, table):
    """Return the table of Arrow in an engine, with the types that its reader gives."""
    if engine in ("pandas", "dask"):
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)  # Dask makes text of objects
        return ENGINES[engine](frame, tmp_path)
    pq.write_table(table, tmp_path / "lying.parquet")
    path = str(tmp_path / "lying.parquet")
    if engine == "dataset":
        return ds.dataset(path)
    if engine == "duckdb":
        duckdb = pytest.importorskip("duckdb", reason="relations of DuckDB")
        return duckdb.sql(f"FROM read_parquet('{path}')")
    if engine.startswith("polars"):
        polars = pytest.importorskip("polars", reason="frames of polars")
        frame = polars.scan_parquet(path)
        return frame if engine == "polars-lazy" else frame.collect()
    return table


@pytest.mark.parametrize("engine", ENGINES)
def test_lying_tables_have_equal_sums_on_every_engine(engine, tmp_path):
    name = "FunctionalMechanismClassifier"
    make = MODELS[name][0]
    expected = make(noise_seed=1).fit(TABLE, "label")
    plan = make().plan(NUMBERS, y="label")
    integers = plan.partial(TABLE)
    assert integers[1, 0] == N
    for column in NUMBERS:  # no column is left out as a whole, but for the void one
        alone = make().plan([column], y="label").partial(TABLE)
        assert alone[:, 1:].any() == (column != "void"), column
    found = make(noise_seed=1).fit(in_engine(engine, tmp_path, TABLE), "label")
    assert same_fits(found, expected)


def test_numbers_of_every_reader_are_the_nearest_floats():
    """As Python rounds them: the value of a cell depends on no library."""
    polars = pytest.importorskip("polars", reason="frames of polars")
    from skprivacy.sums.batch_columns import read_numbers

    expected = np.array(
        [[np.nan if v is None else float(v) for v in TABLE[name].to_pylist()] for name in NUMBERS]
    ).T
    forms = {
        "pyarrow": TABLE,
        "chunks": pa.concat_tables([TABLE[:100], TABLE[100:107], TABLE[107:]]),
        "slice": pa.concat_tables([TABLE[:3], TABLE])[3:],
        "pandas": TABLE.to_pandas(),
        "pandas-arrow": TABLE.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": polars.from_arrow(TABLE),
    }
    for form, batch in forms.items():
        found = read_numbers(batch, tuple(NUMBERS))
        assert found.tobytes() == expected.tobytes() or np.array_equal(
            found, expected, equal_nan=True
        ), form


@pytest.mark.parametrize("engine", ENGINES)
def test_text_among_numbers_is_refused_before_the_charge(engine, tmp_path):
    table = TABLE.append_column("name", pa.array([SECRET] * N))
    model = MODELS["FunctionalMechanismClassifier"][0]()
    with refused(TypeError, "'name' holds text; expected numbers") as budget:
        model.set_params(budget=budget).fit(
            in_engine(engine, tmp_path, table.select(["name", "flag", "label"])), "label"
        )
    assert not hasattr(model, "coef_")


def test_labels_of_another_kind_are_refused_before_the_charge():
    make = MODELS["FunctionalMechanismClassifier"][0]
    with refused(TypeError, "'flag' holds numbers; expected text") as budget:
        make(budget=budget).fit(TABLE.select(["single", "flag"]), "flag")
    with refused(TypeError, "'label' holds text; expected numbers") as budget:
        make(budget=budget, classes=[0, 1]).fit(TABLE.select(["single", "label"]), "label")


def test_objects_that_are_no_numbers_are_named_by_their_column_after_the_charge():
    """Only a reader of the values can see it: the scan has been charged."""
    frame = pd.DataFrame({"age": pd.Series([3.0, SECRET, None], dtype=object), "cost": 1.0})
    model = MODELS["AdaSSPRegressor"][0]()
    with refused(TypeError, "'age' holds values that are not numbers", charges=1) as budget:
        model.set_params(budget=budget).fit(frame, "cost")
    assert not hasattr(model, "coef_")


def test_files_of_unlike_types_are_refused_before_the_charge(tmp_path):
    pq.write_table(pa.table({"age": [1.0], "cost": [2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"age": [2**60 + 1], "cost": [2.0]}), tmp_path / "b.parquet")
    both = ds.dataset([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")])
    with refused(ValueError, "'age' is of type int64 in one file and double") as budget:
        MODELS["AdaSSPRegressor"][0](budget=budget).fit(both, "cost")


UNLIKE = {"numbers": ([7.5], [2**53 + 1]), "groups": ([1], ["1"]), "text": ([1.5], [SECRET])}


@pytest.mark.parametrize("column", ["age", "patient"])
@pytest.mark.parametrize("types", UNLIKE)
@pytest.mark.parametrize("engine", ["polars-lazy", "duckdb", "dask"])
def test_files_of_unlike_types_fail_without_a_value_or_are_read_as_one_type(
    engine, types, column, tmp_path
):
    """They must not make two patients of one."""
    for name, values in zip("ab", UNLIKE[types], strict=True):
        table = pa.table({"age": [1.0], "cost": [2.0], "patient": [3]})
        place = table.schema.get_field_index(column)
        pq.write_table(table.set_column(place, column, [values]), tmp_path / f"{name}.parquet")
    files = f"{tmp_path}/*.parquet"
    if engine == "dask":
        held = pytest.importorskip("dask.dataframe", reason="frames of Dask").read_parquet(files)
    elif engine == "duckdb":
        held = pytest.importorskip("duckdb", reason="relations of DuckDB").read_parquet(files)
    else:
        held = pytest.importorskip("polars", reason="frames of polars").scan_parquet(files)
    budget = PrivacyBudget(5.0, 1e-4)
    model = MODELS["AdaSSPRegressor"][0](budget=budget)
    plan = model.plan(["age"], y="cost", groups="patient")
    told = ""
    try:
        model.fit(held, "cost", groups="patient")
    except (RuntimeError, TypeError) as failure:
        told = str(failure)
    assert SECRET not in told
    assert hasattr(model, "coef_") == (told == "")
    assert len(budget.entries()) == 1
    if not told:
        is_one = types == "groups" or column == "age"
        assert open_table(held)._sum_rows(plan, "patient").n_units == (1 if is_one else 2)


def test_partitions_of_dask_with_unlike_groups_are_refused():
    """1 in one and "1" in the other would be two patients; Dask compares no types itself."""
    dask = pytest.importorskip("dask.dataframe", reason="frames of Dask")
    rows = pd.DataFrame({"age": [1.0], "cost": [2.0], "patient": [1]})
    parts = {0: rows, 1: rows.assign(patient=["1"])}
    held = dask.from_map(parts.get, [0, 1], meta=rows[:0])
    with pytest.raises(TypeError, match="'patient' has values of unlike types in two partitions"):
        MODELS["AdaSSPRegressor"][0]().fit(held, "cost", groups="patient")


def test_a_file_that_is_named_twice_is_refused_before_the_charge(tmp_path):
    pq.write_table(pa.table({"age": [1.0], "cost": [2.0]}), tmp_path / "a.parquet")
    twice = [str(tmp_path / "a.parquet"), f"{tmp_path}/../{tmp_path.name}/a.parquet"]
    with refused(ValueError, "names a file twice") as budget:
        MODELS["AdaSSPRegressor"][0](budget=budget).fit(ds.dataset(twice), "cost")


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ({"y": "nobody"}, "y='nobody' is not a column"),
        ({"y": "cost", "groups": "nobody"}, "groups='nobody' is not a column"),
        ({"y": "cost", "groups": "cost"}, "groups='cost' must be a column other than y"),
        ({"y": [1.0, 2.0], "groups": "age"}, "y must be the name of a column"),
        ({"y": "cost", "groups": [1, 2]}, "groups must be the name of a column"),
    ],
)
def test_names_that_are_no_columns_are_refused(names, match):
    table = pa.table({"age": [1.0, 2.0], "cost": [2.0, 3.0]})
    with pytest.raises((TypeError, ValueError), match=match):
        MODELS["AdaSSPRegressor"][0]().fit(table, **names)


@pytest.mark.parametrize("missing", ["bounds", "target_bounds"])
def test_a_table_reveals_no_public_fact(missing):
    table = pa.table({"age": [1.0, 2.0], "cost": [2.0, 3.0]})
    with pytest.raises(ValueError, match=f"{missing}=None"):
        MODELS["AdaSSPRegressor"][0](**{missing: None}).fit(table, "cost")


def test_patients_named_by_a_number_and_its_text_are_refused():
    table = pd.DataFrame({"age": 1.0, "cost": 2.0, "patient": pd.Series([1, "1"], dtype=object)})
    with pytest.raises(TypeError, match="groups has a value both as a number and as text"):
        MODELS["AdaSSPRegressor"][0]().fit(table, "cost", groups="patient")


@pytest.mark.parametrize("engine", ["pyarrow", "dataset", "polars-lazy", "duckdb"])
def test_patients_of_large_numbers_stay_apart_beside_missing_ones(engine, tmp_path):
    """As floats, two of them would be one, and either would change the other's shares."""
    patients = [None if i % 5 == 0 else 2**60 + i // 2 for i in range(N)]
    table = TABLE.select(["single", "short decimal"]).append_column(
        "patient", pa.array(patients, pa.int64())
    )
    known = table.filter(table["patient"].is_valid()).to_pandas(types_mapper=pd.ArrowDtype)
    make = MODELS["AdaSSPRegressor"][0]
    expected = make(noise_seed=1).fit(known, "short decimal", groups="patient")
    held = in_engine(engine, tmp_path, table)
    assert same_fits(make(noise_seed=1).fit(held, "short decimal", groups="patient"), expected)
