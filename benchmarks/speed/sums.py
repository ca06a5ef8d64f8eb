"""Rows a second of exact sums on each engine, beside its own plain aggregation; memory.

Ten columns and a target lie in one Parquet file. "plain" is the engine's sum of each column,
"moments" the sums of a private scaler, "Gram" those of AdaSSP, "tables" the counts by all pairs of
nine columns in 16 bins each. Every cell is the best of some rounds, in a process of its own: rows a
second of wall time, and the ratio of processor times over all threads, which a busy machine changes
less. Memory is the largest resident set of the process that asked for the Gram matrix.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.shared.quick import choose, make_parser
from benchmarks.shared.timing import describe_load
from skprivacy.linear_model import AdaSSPRegressor
from skprivacy.preprocessing import BoundedColumn, PrivateStandardScaler
from skprivacy.preprocessing.summary_plan import SummaryPlan
from skprivacy.sums import SumPlan, open_table

N_ROWS, ROUNDS = choose((4_000_000, 3), (20_000, 1))
FEATURES = [f"x{i}" for i in range(10)]


def write_table(path: Path) -> None:
    random = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.schema([(n, pa.float64()) for n in (*FEATURES, "y")])) as file:
        for start in range(0, N_ROWS, 1 << 20):
            rows = random.normal(50, 20, size=(min(1 << 20, N_ROWS - start), 11))
            file.write_table(pa.table(dict(zip((*FEATURES, "y"), rows.T, strict=True))))


def open_engine(engine: str, path: str) -> Any:
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(path)
    if engine == "DuckDB":
        import duckdb

        return duckdb.sql(f"FROM read_parquet('{path}')")
    if engine == "Dask":
        import dask.dataframe as dd

        return dd.read_parquet(path, split_row_groups=True)
    return ds.dataset(path)


def sum_plainly(engine: str, table: Any) -> Any:
    """Return the engine's own sum of each column."""
    names = (*FEATURES, "y")
    if engine == "polars":
        return table.sum().collect()
    if engine == "DuckDB":
        return table.aggregate(", ".join(f"sum({name})" for name in names)).fetchall()
    if engine == "Dask":
        return table.sum().compute()
    sums = np.zeros(len(names))
    for batch in table.to_batches():
        sums += [pc.sum(batch.column(name)).as_py() for name in names]
    return sums


def make_plans() -> dict[str, SumPlan]:
    binned = tuple((name, BoundedColumn(0, 100, bins=16)) for name in FEATURES[:9])
    return {
        "moments": PrivateStandardScaler(bounds=(0, 100)).plan(FEATURES),
        "Gram": AdaSSPRegressor(bounds=(0, 100), target_bounds=(0, 100)).plan(FEATURES, y="y"),
        "tables": SummaryPlan(binned, (), tuple(combinations(FEATURES[:9], 2))),
    }


def measure(engine: str, what: str, path: str, queue: Any) -> None:
    table = open_engine(engine, path)
    run: Callable[[], Any]
    if what == "plain":

        def run() -> Any:
            return sum_plainly(engine, table)

    else:
        plan = make_plans()[what]

        def run() -> Any:
            return open_table(table).sum(plan, None)

    walls, used = [], []
    for _ in range(ROUNDS):
        start, busy = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - start)
        used.append(time.process_time() - busy)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.put((min(walls), min(used), memory))


def main() -> None:
    make_parser(__doc__).parse_args()
    spawn = multiprocessing.get_context("spawn")
    needs = {"polars": "polars", "DuckDB": "duckdb", "pyarrow": "pyarrow", "Dask": "dask"}
    print(f"{N_ROWS:,} rows; million rows a second, and processor time over that of plain")
    print(f"{'engine':10}{'plain':>8}{'moments':>14}{'Gram':>14}{'tables':>14}{'MB':>8}   load")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write_table(path)
        for engine in (name for name, module in needs.items() if find_spec(module)):
            found = {}
            for what in ("plain", "moments", "Gram", "tables"):
                queue = spawn.Queue()
                child = spawn.Process(target=measure, args=(engine, what, str(path), queue))
                child.start()
                found[what] = queue.get()
                child.join()
            plain, busy, _ = found["plain"]
            cells = "".join(
                f"{N_ROWS / found[what][0] / 1e6:8.1f}{found[what][1] / busy:5.1f}x"
                for what in ("moments", "Gram", "tables")
            )
            print(
                f"{engine:10}{N_ROWS / plain / 1e6:8.1f}{cells}{found['Gram'][2]:8.0f}   "
                f"[{describe_load()}]",
                flush=True,
            )


if __name__ == "__main__":
    main()
