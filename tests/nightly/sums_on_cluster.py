"""Sums on worker processes of Dask, Ray or Spark, one of which is killed on the way.

``python -m tests.nightly.sums_on_cluster ENGINE FOLDER`` prints as JSON which sums equal those in
memory: of records, of groups, of values that nobody expects, and with a killed worker.
"""

import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from skprivacy.linear_model import AdaSSPRegressor, FunctionalMechanismClassifier
from skprivacy.sums.sources import open_table
from skprivacy.sums.sum_plan import GROUP_SIZE, TargetRange
from tests.sums.engines import COLUMNS, patients
from tests.sums.test_lying_tables import NUMBERS, TABLE


@dataclass(frozen=True)
class FatalTarget(TargetRange):
    """Kills the process that reads it first."""

    marker: str = ""

    def read_target(self, batch: Any, name: str) -> Any:
        found = super().read_target(batch, name)
        try:
            Path(self.marker).touch(exist_ok=False)
        except FileExistsError:
            return found
        os.kill(os.getpid(), signal.SIGKILL)
        return found


@contextmanager
def open_dask(folder: Path):
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    with LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        yield lambda name: dd.read_parquet(str(folder / name))


@contextmanager
def open_ray(folder: Path):
    import ray.data

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    settings = ray.data.DataContext.get_current()
    settings.default_hash_shuffle_parallelism = 2
    settings.enable_progress_bars = False
    try:
        yield lambda name: ray.data.read_parquet(str(folder / name))
    finally:
        ray.shutdown()


@contextmanager
def open_spark(folder: Path):
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,4]")  # a task may fail three times
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    try:
        yield lambda name: session.read.parquet(str(folder / name))
    finally:
        session.stop()


def write_parts(table: pd.DataFrame, folder: Path) -> None:
    (folder / "table").mkdir(parents=True)
    for i in range(6):
        table[i::6].to_parquet(folder / "table" / f"{i}.parquet", index=False)


def compare_sums(engine: str, folder: Path) -> dict[str, bool]:
    """Return whether each sum on the engine equals that in memory."""
    table = patients(6_000)
    table["patient"] = table["patient"].astype("Int64").where(table.index % 11 > 0)
    write_parts(table, folder)
    model = AdaSSPRegressor(bounds=(0, 100), target_bounds=(0, 90))
    plan = model.plan(COLUMNS, y="cost")
    grouped = model.plan(COLUMNS, y="cost", groups="patient")
    fatal = replace(plan, encoding=FatalTarget(0.0, 90.0, marker=str(folder / "killed")))
    known = table.dropna(subset=["patient"])
    labels = FunctionalMechanismClassifier(bounds=(0, 100), classes=["home", "ward", "died"])
    lying = labels.plan(NUMBERS, y="label")
    (folder / "lying").mkdir()
    pq.write_table(TABLE, folder / "lying" / "0.parquet")
    sizes = known.groupby("patient")["age"].transform("size")
    expected = {
        "records": plan.partial(table),
        "groups": grouped.partial(known.assign(**{GROUP_SIZE: sizes})),
        "killed": plan.partial(table),
        "lying": lying.partial(TABLE),
    }
    with {"dask": open_dask, "ray": open_ray, "spark": open_spark}[engine](folder) as read:
        held = open_table(read("table"))
        totals = {
            "records": held._sum_rows(plan, None),
            "groups": held._sum_rows(grouped, "patient"),
            "killed": held._sum_rows(fatal, None),
            "lying": open_table(read("lying"))._sum_rows(lying, None),
        }
        assert (folder / "killed").exists()
        assert held.count_units("patient") == table["patient"].nunique()
        assert held.count_units(None) == len(table)
    return {name: bool(np.array_equal(totals[name]._limbs, expected[name])) for name in expected}


if __name__ == "__main__":
    print(json.dumps(compare_sums(sys.argv[1], Path(sys.argv[2]))))
