"""Rows a second of exact sums on each engine, beside its own plain aggregation; memory.

Ten columns and a target lie in one Parquet file. "plain" is the engine's sum of each column,
"moments" the sums of a private scaler, "Gram" those of AdaSSP, "tables" the counts by all pairs of
nine columns in 16 bins each. Every cell is the best of some rounds, in a process of its own:
million rows a second, and the ratios to plain of wall times and of processor times over all
threads, which a busy machine changes less. Worker processes of Dask, Ray and Spark keep their own
processor times, so there the first ratio stands alone. Memory, in MB, is the largest resident set
of the process that asks for the Gram matrix, and of its worker processes together, with the JVM.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from skprivacy.preprocessing.statistics.parquet_scan import SummaryPlan
from skprivacy.sums.sources import open_table
from skprivacy.sums.sum_plan import SumPlan

N_ROWS, ROUNDS = choose((4_000_000, 3), (20_000, 1))
FEATURES = [f"x{i}" for i in range(10)]
WHAT = ("plain", "moments", "Gram", "tables")
ENGINES = {
    "polars": "polars", "DuckDB": "duckdb", "pyarrow": "pyarrow", "Dask": "distributed",
    "Ray": "ray.data", "Spark": "pyspark",
}  # fmt: skip
_CLUSTERS = ("Dask", "Ray", "Spark")


def write_table(path: Path, n_rows: int) -> None:
    random = np.random.default_rng(0)
    with pq.ParquetWriter(path, pa.schema([(n, pa.float64()) for n in (*FEATURES, "y")])) as file:
        for start in range(0, n_rows, 1 << 20):
            rows = random.normal(50, 20, size=(min(1 << 20, n_rows - start), 11))
            file.write_table(pa.table(dict(zip((*FEATURES, "y"), rows.T, strict=True))))


@contextmanager
def open_engine(engine: str, path: str) -> Iterator[Any]:
    if engine == "polars":
        import polars as pl

        yield pl.scan_parquet(path)
    elif engine == "DuckDB":
        import duckdb

        yield duckdb.sql(f"FROM read_parquet('{path}')")
    elif engine == "Dask":
        import dask.dataframe as dd
        from distributed import Client, LocalCluster

        with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as own, Client(own):
            yield dd.read_parquet(path, split_row_groups=True)
    elif engine == "Ray":
        import ray.data

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield ray.data.read_parquet(path)
        ray.shutdown()
    elif engine == "Spark":
        from pyspark.sql import SparkSession

        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        yield session.getOrCreate().read.parquet(path)
    else:
        yield ds.dataset(path)


def sum_plainly(engine: str, table: Any) -> Any:
    """Return the engine's own sum of each column."""
    names = (*FEATURES, "y")
    if engine == "polars":
        return table.sum().collect()
    if engine == "DuckDB":
        return table.aggregate(", ".join(f"sum({name})" for name in names)).fetchall()
    if engine == "Dask":
        return table.sum().compute()
    if engine == "Ray":
        return table.sum(list(names))
    if engine == "Spark":
        return table.groupBy().sum(*names).collect()
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


def worker_memory() -> float:
    """Return the largest resident sets of all descendants of this process, added up, in MB."""
    parents, largest = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            facts = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:  # it has ended
            continue
        process = int(status.parent.name)
        parents[process] = int(facts["PPid"])
        largest[process] = int(facts.get("VmHWM", "0 kB").split()[0]) / 1024
    found, below = 0.0, [os.getpid()]
    while below:
        own = below.pop()
        children = [child for child, parent in parents.items() if parent == own]
        found += sum(largest[child] for child in children)
        below += children
    return found


def measure(engine: str, what: str, path: str, queue: Any) -> None:
    with open_engine(engine, path) as table:
        run: Callable[[], Any]
        if what == "plain":

            def run() -> Any:
                return sum_plainly(engine, table)

        else:
            plan = make_plans()[what]

            def run() -> Any:
                return open_table(table)._sum_rows(plan, None)

        walls, used = [], []
        for _ in range(ROUNDS):
            time.sleep(choose(1.0, 0.0))  # or Dask would find the last result, not yet released
            start, busy = time.perf_counter(), time.process_time()
            run()
            walls.append(time.perf_counter() - start)
            used.append(time.process_time() - busy)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        queue.put((min(walls), min(used), memory, worker_memory()))


def print_engine(engine: str, path: Path, n_rows: int) -> None:
    """Measure an engine and print its row."""
    spawn = multiprocessing.get_context("spawn")
    found = {}
    for what in WHAT:
        queue = spawn.Queue()
        child = spawn.Process(target=measure, args=(engine, what, str(path), queue))
        child.start()
        found[what] = queue.get()
        child.join()
    plain, busy, *_ = found["plain"]
    cells = ""
    for what in WHAT[1:]:
        wall, used, *_ = found[what]
        beside = f"{wall / plain:5.1f}x" + (f"{used / busy:5.1f}x" * (engine not in _CLUSTERS))
        cells += f"{n_rows / wall / 1e6:7.1f}{beside:13}"
    _, _, driver, workers = found["Gram"]
    print(
        f"{n_rows / 1e6:4.0f}M {engine:8}{n_rows / plain / 1e6:7.1f} {cells}{driver:7.0f}"
        f"{workers:8.0f}  [{describe_load()}]",
        flush=True,
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[N_ROWS])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    asked = parser.parse_args()
    print("million rows a second; wall time and processor time over those of plain; MB")
    print(f"rows  engine    plain {'moments':>7}{'Gram':>17}{'tables':>22}{'driver':>20} workers")
    for n_rows in asked.rows:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "table.parquet"
            write_table(path, n_rows)
            for engine in asked.engines:
                if find_spec(ENGINES[engine].partition(".")[0]):
                    print_engine(engine, path, n_rows)


if __name__ == "__main__":
    main()
