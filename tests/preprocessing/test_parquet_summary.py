"""A private summary of Parquet files: what is counted, how much a person adds, what it costs."""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skprivacy import mechanisms
from skprivacy.accounting import PrivacyBudget
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema, private_summary
from skprivacy.preprocessing.statistics import parquet_scan as _scan

if not find_spec("duckdb"):
    pytest.skip("private_summary scans files with DuckDB", allow_module_level=True)

SCHEMA = Schema(
    {
        "age": BoundedColumn(0, 100, bins=4),
        "cost": BoundedColumn(0, 1000, scale="log", knee=10, bins=3),
        "sex": CategoricalColumn(["f", "m's"]),
        "state": CategoricalColumn([1, 2, 3]),
        "ill": CategoricalColumn([True, False]),
    }
)
random = np.random.RandomState(0)
N = 600
FRAME = pd.DataFrame(
    {
        "who": random.randint(90, size=N).astype(float),
        "age": random.uniform(-20, 130, N),
        "cost": random.exponential(200, N),
        "sex": random.choice(["f", " m's\t", "?"], N),
        "state": random.randint(5, size=N),
        "ill": random.rand(N) < 0.3,
    }
)
FRAME.loc[::7, "age"] = np.nan
FRAME.loc[::11, "who"] = np.nan
FRAME.loc[::13, "cost"] = np.inf
SETS = ["ill", ("age", "sex"), ("state",), ("cost",)]


@pytest.fixture
def scanned(monkeypatch, tmp_path):
    """Return what enters the mechanism, and its sensitivities; the noise is left out."""
    seen = []

    def release(self, value, random):
        seen.append((np.array(value), self))
        return np.array(value, dtype=float)

    for kind in (mechanisms.Laplace, mechanisms.Gaussian):
        monkeypatch.setattr(kind, "release", release)

    def scan(frame, **params):
        params = {"marginals": SETS, "means": ["age", "cost"], "epsilon": 1.0, **params}
        summary, _ = private_summary(written(frame), SCHEMA, **params)
        value, mechanism = seen[-1]
        return value, mechanism, summary

    def written(frame):
        path = tmp_path / f"{len(seen)}.parquet"
        frame.to_parquet(path, index=False, row_group_size=100)
        return path

    return scan


@pytest.mark.heavy
def test_it_counts_what_pandas_counts(scanned):
    _, _, summary = scanned(FRAME)
    assert summary.count == N
    age = FRAME["age"].clip(0, 100)
    assert summary.means["age"] == pytest.approx(age.fillna(50).mean(), abs=1e-2)
    assert summary.means["cost"] == pytest.approx(FRAME["cost"].clip(0, 1000).mean(), abs=2e-2)
    bins = np.minimum(age // 25, 3)
    for i in range(4):
        for j, sex in enumerate(["f", "m's"]):
            expected = ((bins == i) & (FRAME["sex"].str.strip() == sex)).sum()
            assert summary.marginals["age", "sex"][i, j] == expected
    assert summary.marginals[("ill",)].tolist() == [FRAME["ill"].sum(), (~FRAME["ill"]).sum()]
    expected = [(FRAME["state"] == state).sum() for state in (1, 2, 3)]
    assert summary.marginals[("state",)].tolist() == expected
    edges = SCHEMA["cost"].from_unit(np.arange(4) / 3)
    expected = np.histogram(FRAME["cost"].clip(0, 1000), edges)[0]
    assert summary.marginals[("cost",)].tolist() == expected.tolist()


def test_the_first_rows_of_a_person_count_whatever_the_others_do(scanned):
    _, _, summary = scanned(FRAME, groups="who", max_group_size=3)
    kept = FRAME[FRAME["who"].notna()].groupby("who").head(3)
    assert summary.count == len(kept)
    expected = [(kept["state"] == state).sum() for state in (1, 2, 3)]
    assert summary.marginals[("state",)].tolist() == expected
    assert summary.means["age"] == pytest.approx(
        kept["age"].clip(0, 100).fillna(50).mean(), abs=1e-2
    )


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("max_group_size", [1, 4])
def test_a_person_changes_no_more_than_the_noise_is_made_for(scanned, max_group_size, delta):
    whole, mechanism, _ = scanned(FRAME, groups="who", max_group_size=max_group_size, delta=delta)
    order = 1 if delta == 0 else 2
    for who in (0.0, 1.0, 2.0):
        extreme = FRAME.copy()
        extreme.loc[extreme["who"] == who, ["age", "cost"]] = 1e300  # of one person alone
        whole = scanned(extreme, groups="who", max_group_size=max_group_size, delta=delta)[0]
        without = scanned(
            extreme[extreme["who"] != who], groups="who", max_group_size=max_group_size, delta=delta
        )[0]
        assert 0 < np.linalg.norm(whole - without, order) <= mechanism.sensitivity


@pytest.mark.heavy
def test_the_sensitivity_is_reached(scanned):
    alike = pd.DataFrame({"who": [1.0] * 9, "age": 100.0, "cost": 1e9, "sex": "f"})
    alike = alike.assign(state=1, ill=True)
    for delta, norm in ((0.0, 1), (1e-6, 2)):
        value, mechanism, _ = scanned(alike, groups="who", max_group_size=4, delta=delta)
        assert np.linalg.norm(value, norm) == pytest.approx(mechanism.sensitivity)
        assert mechanism.sensitivity == pytest.approx(4 * 7 ** (1 / norm))
        other = scanned(alike, groups="who", max_group_size=4, delta=delta, relation="replace_one")[
            1
        ]
        assert other.sensitivity == 2 * mechanism.sensitivity


@pytest.mark.heavy
def test_sums_are_exact_in_any_order_and_number_of_parts(scanned, monkeypatch):
    np.testing.assert_array_equal(scanned(FRAME.iloc[::-1])[0], scanned(FRAME)[0])
    groups = {"groups": "who", "max_group_size": 3}
    whole = scanned(FRAME, **groups)[0]
    monkeypatch.setattr(_scan, "ROWS_PER_PART", 100)  # each holds whole persons
    np.testing.assert_array_equal(scanned(FRAME, **groups)[0], whole)


def test_several_files_are_one_table(tmp_path):
    halves = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for half, rows in zip(halves, (slice(300), slice(300, None)), strict=True):
        FRAME[rows].to_parquet(half, index=False)
    with pytest.warns(Warning, match="noise_seed"):
        summary, _ = private_summary(
            halves,
            SCHEMA,
            marginals=["state"],
            groups="who",
            max_group_size=2,
            epsilon=1e6,
            noise_seed=0,
        )
    kept = FRAME[FRAME["who"].notna()].groupby("who").head(2)
    assert summary.count == pytest.approx(len(kept), abs=0.01)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "it's.parquet"
    FRAME.to_parquet(path, index=False)
    return path


def test_it_is_charged_once_for_a_person(file, tmp_path):
    budget = PrivacyBudget(1.5, 1e-6, path=tmp_path / "ledger")
    _, privacy = private_summary(
        file, SCHEMA, marginals=SETS, means=["age"], groups="who", epsilon=1.0, budget=budget
    )
    assert (privacy.unit, round(privacy.epsilon(), 6)) == ("who", 1.0)
    assert len(budget.entries()) == 1


def test_noise_is_as_large_as_it_says(file):
    n = 400
    summary, _ = private_summary(file, SCHEMA.with_bins(n), marginals=["age"], epsilon=0.5)
    bins = np.minimum(FRAME["age"].clip(0, 100).dropna() * n // 100, n - 1).astype(int)
    noise = summary.marginals[("age",)] - np.bincount(bins, minlength=n)
    scale = 2 / 0.5  # the mean of 400 sizes lies within half of it, but for one in 1e15
    assert 0.5 * scale < np.mean(np.abs(noise)) < 1.5 * scale


def test_an_empty_file_has_an_answer(file, tmp_path):
    nothing = tmp_path / "none.parquet"
    FRAME[:0].astype({"sex": "string"}).to_parquet(nothing, index=False)
    summary, _ = private_summary(
        nothing, SCHEMA, marginals=["state"], means=["age"], groups="who", epsilon=1.0
    )
    assert math.isfinite(summary.count)
    assert 0 <= summary.means["age"] <= 100


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"marginals": ["nobody"]}, "'nobody', which the schema does not describe"),
        ({"means": ["sex"]}, "has categories"),
        ({"means": ["age", "age"]}, "a column twice"),
        ({"marginals": [("sex", "sex")]}, "a column twice"),
        ({"marginals": ["sex", ("sex",)]}, "different sets"),
        ({"max_group_size": 0, "groups": "who"}, "max_group_size=0"),
        ({"max_group_size": 2}, "Name the column"),
        ({"groups": "nobody"}, "no column 'nobody'"),
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"memory_limit": "many"}, "memory_limit='many'"),
        ({"path": []}, "at least one file"),
        ({"directory": "nowhere"}, "directory='nowhere' must be a folder"),
        ({"path": "nowhere.parquet"}, "could not be read"),
        ({"schema": Schema({"age": BoundedColumn(0, 9)}), "marginals": ["age"]}, "one bin"),
        ({"schema": Schema({"sex": BoundedColumn(0, 9)}), "means": ["sex"]}, "type VARCHAR"),
        ({"schema": Schema({"age": CategoricalColumn([1])}), "marginals": ["age"]}, "type DOUBLE"),
        (
            {"schema": SCHEMA.with_bins(4000), "marginals": [("age", "cost")]},
            "16,000,000 cells",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_before_a_charge(file, tmp_path, params, match):
    budget = PrivacyBudget(5.0, path=tmp_path / "ledger")
    known = {"path": file, "schema": SCHEMA, "epsilon": 1.0, "budget": budget, **params}
    with pytest.raises(ValueError, match=match):
        private_summary(**known)
    assert not len(budget.entries())


@pytest.mark.parametrize("name", ["marginals", "means"])
def test_one_column_is_asked_for_in_a_list(file, name):
    with pytest.raises(TypeError, match=rf"{name}='sex' must be a list .* such as \['sex'\]"):
        private_summary(file, SCHEMA, epsilon=1.0, **{name: "sex"})


def test_without_duckdb_the_extra_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"skprivacy\[duckdb\]"):
        private_summary(file, SCHEMA, epsilon=1.0)


def test_a_damaged_file_is_charged_and_named_without_its_values(file, tmp_path):
    content = bytearray(file.read_bytes())
    content[100:2000] = bytes(1900)  # the footer stays whole
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(content)
    budget = PrivacyBudget(5.0, path=tmp_path / "ledger")
    with pytest.raises(ValueError, match="could not be read") as refusal:
        private_summary(damaged, SCHEMA, marginals=SETS, means=["age"], epsilon=1.0, budget=budget)
    assert refusal.value.__cause__ is None
    assert len(budget.entries()) == 1


def test_an_interrupted_scan_was_charged_before_it_began(file, tmp_path, monkeypatch):
    budget = PrivacyBudget(5.0, path=tmp_path / "ledger")

    def interrupted(*_):
        assert len(budget.entries()) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(_scan.Scan, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        private_summary(file, SCHEMA, means=["age"], epsilon=1.0, budget=budget)
    assert len(budget.entries()) == 1
    budget.verify()


@pytest.mark.parametrize("other", ["again", "pattern"])
def test_a_file_that_is_read_twice_is_refused_before_a_charge(file, tmp_path, other):
    """Its rows would add twice what the noise is made for."""
    paths = {
        "again": f"{tmp_path}/../{tmp_path.name}/{file.name}",
        "pattern": f"{tmp_path}/*.parquet",
    }
    budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(ValueError, match="names a file twice"):
        private_summary([file, paths[other]], SCHEMA, epsilon=1.0, budget=budget)
    assert not len(budget.entries())


@pytest.mark.parametrize("name", ["file_row_number", "FILE_INDEX"])
def test_a_column_in_the_place_of_the_order_of_rows_is_refused(tmp_path, name):
    """Rows that it does not tell apart would be kept as the rows of others have it."""
    path = tmp_path / "table.parquet"
    FRAME.assign(**{name: 0}).to_parquet(path)
    with pytest.raises(ValueError, match=f"path has a column '{name}'"):
        private_summary(path, SCHEMA, groups="who", epsilon=1.0)
    private_summary(path, SCHEMA, epsilon=1.0)


def test_persons_whom_duckdb_would_round_to_one_are_refused(tmp_path):
    path = tmp_path / "table.parquet"
    names = pa.array([Decimal(10**45), Decimal(10**45 + 1)], pa.decimal256(60, 0))
    pq.write_table(pa.table({"who": names, "age": [1.0, 2.0]}), path)
    schema = Schema({"age": BoundedColumn(0, 100)})
    with pytest.raises(ValueError, match="more than 38 digits"):
        private_summary(path, schema, means=["age"], groups="who", epsilon=1.0)
    private_summary(path, schema, means=["age"], epsilon=1.0)


@pytest.mark.parametrize("column", ["age", "who"])
def test_files_of_different_types_are_refused_before_a_charge(tmp_path, column):
    """As numbers of 53 bits two persons would be one: either would decide over the other's rows."""
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    FRAME.to_parquet(first)
    others = 2**60 + np.arange(N)
    FRAME.assign(**{column: others if column == "who" else "?"}).to_parquet(second)
    budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(ValueError, match=f"column '{column}' is of type DOUBLE in"):
        private_summary(
            [first, second], SCHEMA, means=["age"], groups="who", epsilon=1.0, budget=budget
        )
    assert not len(budget.entries())
