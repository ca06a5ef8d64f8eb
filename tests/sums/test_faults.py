"""A scan is charged before it reads; a failed one stays charged and reveals nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.exceptions import BudgetExceededError
from skprivacy.preprocessing import private_mean
from skprivacy.sums import tables
from skprivacy.sums.sources import open_table
from skprivacy.sums.sum_plan import SumPlan

from .engines import COLUMNS, ENGINES, MODELS, SECRET, arguments, columns_of, patients, same_fits

pytestmark = pytest.mark.filterwarnings("ignore:noise_seed")
TABLE = patients(1_000)
NAME = "AdaSSPRegressor"
make = MODELS[NAME][0]


@pytest.fixture
def budget(tmp_path):
    return PrivacyBudget(1.5, 1e-4, path=tmp_path / "ledger")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_charge_comes_before_the_first_row(engine, budget, tmp_path, monkeypatch):
    charged = []

    def partial(plan, batch):
        charged.append(len(budget.entries()))
        return original(plan, batch)

    original = SumPlan.partial
    monkeypatch.setattr(SumPlan, "partial", partial)
    table = ENGINES[engine](TABLE[columns_of(NAME, True)], tmp_path)
    make(budget=budget).fit(table, **arguments(NAME, True))
    assert charged
    assert set(charged) == {1}
    assert len(budget.entries()) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_refused_charge_reads_no_row(engine, tmp_path, monkeypatch):
    table = ENGINES[engine](TABLE[columns_of(NAME, True)], tmp_path)
    monkeypatch.setattr(type(open_table(table)), "sum_parts", None)
    model = make(budget=PrivacyBudget(0.5, 1e-4))
    with pytest.raises(BudgetExceededError):
        model.fit(table, **arguments(NAME, True))
    assert not hasattr(model, "coef_")


def break_scan(table, failure, monkeypatch):
    """Let the scan of a table fail after its first part."""
    kind = type(open_table(table))
    original = kind.sum_parts

    def parts(self, plan, groups):
        yield next(iter(original(self, plan, groups)))
        raise failure

    monkeypatch.setattr(kind, "sum_parts", parts)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_scan_that_fails_stays_charged_and_says_no_value(engine, budget, tmp_path, monkeypatch):
    table = ENGINES[engine](TABLE[columns_of(NAME, False)], tmp_path)
    model = make(noise_seed=None).fit(table, "cost")
    before = dict(vars(model))
    model.set_params(budget=budget)
    break_scan(table, OSError(f"could not convert {SECRET}"), monkeypatch)
    with pytest.raises(RuntimeError, match=r"scan of a \w+ failed \(OSError\)") as failure:
        model.fit(table, "cost")
    assert SECRET not in str(failure.value)
    assert failure.value.__cause__ is failure.value.__context__ is None
    assert len(budget.entries()) == 1
    assert vars(model) == {**before, "budget": budget}


def test_an_interrupted_scan_stays_charged(budget, monkeypatch):
    break_scan(TABLE, KeyboardInterrupt(), monkeypatch)
    model = make(budget=budget)
    with pytest.raises(KeyboardInterrupt):
        model.fit(TABLE[columns_of(NAME, False)], "cost")
    assert len(budget.entries()) == 1
    assert not hasattr(model, "coef_")


def test_a_statistic_whose_scan_fails_stays_charged(budget, monkeypatch):
    table = pa.table({"age": TABLE["age"]})
    break_scan(table, MemoryError(), monkeypatch)
    with pytest.raises(RuntimeError, match="MemoryError"):
        private_mean(ds.InMemoryDataset(table), bounds=(0, 100), epsilon=1.0, budget=budget)
    assert len(budget.entries()) == 1


def test_a_damaged_file_is_charged_and_its_bytes_are_not_shown(budget, tmp_path):
    pq.write_table(pa.Table.from_pandas(TABLE[["age", "cost"]]), tmp_path / "whole.parquet")
    content = bytearray((tmp_path / "whole.parquet").read_bytes())
    content[4:4_000] = bytes(3_996)  # the footer stays whole
    (tmp_path / "damaged.parquet").write_bytes(content)
    table = ds.dataset(str(tmp_path / "damaged.parquet"))
    with pytest.raises(RuntimeError, match="scan of a FileSystemDataset failed"):
        make(budget=budget).fit(table, "cost")
    assert len(budget.entries()) == 1


@pytest.mark.parametrize("again", ["same", "sampled"])
def test_a_part_that_is_read_twice_counts_once_or_is_refused(again, budget, monkeypatch):
    """An engine may run a task twice; a reader that samples gives other rows then."""
    rows = TABLE[columns_of(NAME, False)]
    expected = make(noise_seed=1).fit(rows, "cost")
    original = tables.PandasTable.sum_parts

    def parts(self, plan, groups):
        for name, integers in original(self, plan, groups):
            yield name, integers
            fewer = self.frame.sample(frac=0.5, random_state=0)
            yield name, integers if again == "same" else plan.partial(fewer)

    monkeypatch.setattr(tables.PandasTable, "sum_parts", parts)
    if again == "same":
        assert same_fits(make(noise_seed=1).fit(rows, "cost"), expected)
    else:
        with pytest.raises(ValueError, match="'batch 0' was added before with other integers"):
            make(budget=budget).fit(rows, "cost")
        assert len(budget.entries()) == 1


@pytest.mark.parametrize("engine", ["polars-lazy", "duckdb", "dataset"])
def test_rows_that_change_after_the_join_are_refused(engine, budget, tmp_path, monkeypatch):
    """As of a table that is sampled anew at each read: a group could count more than once."""
    table = ENGINES[engine](TABLE[columns_of(NAME, True)], tmp_path)
    kind = type(open_table(table))
    original = kind.join_sizes
    fewer = ENGINES["pyarrow"](TABLE.sample(frac=0.5, random_state=0), tmp_path)

    def join_sizes(self, groups):
        joined = original(self, groups)
        monkeypatch.setattr(
            type(joined), "batches", lambda self, columns: iter([some_rows(joined, columns)])
        )
        return joined

    def some_rows(joined, columns):
        sizes = TABLE.groupby("patient")["age"].transform("size")
        rows = fewer.to_pandas()
        return rows.assign(skprivacy_group_size=sizes.to_numpy()[: len(rows)])[columns]

    monkeypatch.setattr(kind, "join_sizes", join_sizes)
    with pytest.raises(ValueError, match="not as many as their sizes say"):
        make(budget=budget).fit(table, **arguments(NAME, True))
    assert len(budget.entries()) == 1


KILLED = """
import sys
import pandas as pd
from skprivacy.accounting import PrivacyBudget
from skprivacy.linear_model import AdaSSPRegressor
from skprivacy.sums.sum_plan import SumPlan

partial = SumPlan.partial
def slow(self, batch):
    integers = partial(self, batch)
    print("scanned", flush=True)
    sys.stdin.read()
    return integers
SumPlan.partial = slow
model = AdaSSPRegressor(
    bounds=(0, 100), target_bounds=(0, 90), budget=PrivacyBudget.open(sys.argv[2])
)
model.fit(pd.read_parquet(sys.argv[1]), "cost")
"""


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_driver_leaves_one_charge(budget, tmp_path, how):
    TABLE[["age", "cost"]].to_parquet(tmp_path / "table.parquet")
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(tmp_path / "table.parquet"),
        str(tmp_path / "ledger"),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    ) as child:  # fmt: skip
        assert child.stdout.readline() == b"scanned\n"
        os.kill(child.pid, how)
        child.wait(300)
    assert len(budget.entries()) == 1
    budget.verify()


def test_an_unknown_engine_is_told_the_three_calls():
    class Frame:
        pass

    with pytest.raises(TypeError, match=r"plan\.partial\(batch\).*SumTotal.*fit_sums"):
        open_table(Frame())


class Dataset:
    """Looks like a Dataset of Ray whose columns are unknown before its rows are computed."""

    __module__ = "ray.data.dataset"

    def schema(self, fetch_if_missing):
        assert not fetch_if_missing, "the rows are read before the charge"


def test_a_dataset_of_ray_without_known_columns_is_refused_before_the_charge(budget):
    with pytest.raises(ValueError, match=r"Call materialize\(\)"):
        make(budget=budget).fit(Dataset(), "cost")
    assert not len(budget.entries())


def test_nobody_needs_an_engine_that_is_not_used():
    code = """
import sys
for name in ("polars", "duckdb", "dask", "pyspark", "ray"):
    sys.modules[name] = None
import numpy as np, pandas as pd
from skprivacy.linear_model import AdaSSPRegressor
table = pd.DataFrame({"age": [1.0, 2.0], "cost": [3.0, 4.0], "who": [1, 1]})
model = AdaSSPRegressor(bounds=(0, 9), target_bounds=(0, 9))
print(model.fit(table, "cost", groups="who").privacy_.unit)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "who\n"


def test_groups_that_do_not_fit_in_a_share_add_nothing():
    """A patient of more than 2**20 rows has a share of 0 in each of them."""
    plan = make().plan(COLUMNS, y="cost", groups="patient")
    rows = TABLE.assign(skprivacy_group_size=2**20 + 1)
    assert not plan.partial(rows)[:, 1:].any()
    assert plan.partial(pd.DataFrame(rows))[:, 0].any()
    assert np.isfinite(TABLE["cost"]).all()
