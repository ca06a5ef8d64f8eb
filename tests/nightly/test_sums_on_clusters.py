"""Sums on workers of Dask, Ray and Spark are those in memory, though a worker is killed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = {"dask": "distributed", "ray": "ray", "spark": "pyspark"}


@pytest.mark.slow
@pytest.mark.parametrize("engine", NEEDS)
def test_a_cluster_sums_each_record_once_though_a_worker_is_killed(engine, tmp_path):
    if not find_spec(NEEDS[engine]):
        pytest.skip(f"{NEEDS[engine]} is not installed; make nightly installs it")
    if engine == "spark" and not which("java"):
        pytest.skip("Spark needs Java, from the system's packages")
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.nightly.sums_on_cluster", engine, tmp_path],
        check=True, capture_output=True, text=True, cwd=ROOT, timeout=500,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            "RAY_USAGE_STATS_ENABLED": "0",
        },
    )  # fmt: skip
    (found,) = [line for line in run.stdout.splitlines() if line.startswith("{")]
    expected = ("records", "groups", "killed", "lying")
    assert json.loads(found) == dict.fromkeys(expected, True)
