"""Sweeps, shadow pools and sums on Dask, Ray and Spark, with a worker killed on the way."""

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


def ran(program, engine, folder):
    """Return what a program printed as JSON, in a process of its own, whose workers end with it."""
    if engine in NEEDS and not find_spec(NEEDS[engine]):
        pytest.skip(f"{NEEDS[engine]} is not installed; make nightly installs it")
    if engine == "spark" and not which("java"):
        pytest.skip("Spark needs Java, from the system's packages")
    folder.mkdir()
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"tests.nightly.{program}", engine, folder],
        check=True, capture_output=True, text=True, cwd=ROOT, timeout=500,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            "RAY_USAGE_STATS_ENABLED": "0",
        },
    )  # fmt: skip
    (found,) = [line for line in run.stdout.splitlines() if line.startswith("{")]  # Ray prints too
    return json.loads(found)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_a_cluster_finds_and_charges_the_same_though_a_worker_is_killed(engine, tmp_path):
    there = ran("on_cluster", engine, tmp_path / engine)
    here = ran("on_cluster", "here", tmp_path / "here")
    for what in ("results", "LogisticRegression", "MLPClassifier"):
        assert there[what] == here[what], what
    if engine == "ray" or "results, killed" in there:  # Dask may have lost the records, and says so
        assert there["results, killed"] == here["results"]
    assert here["whole"] == there["whole"] == {"fits": 4, "charges": 4}
    assert there["whole, workers"] == 2
    # What was killed was charged; and so is the fit that was begun anew in its place.
    assert there["killed"]["fits"] == there["killed"]["charges"] >= (5 if engine == "ray" else 1)
    assert there["whole, strict"] == there["killed, strict"] == ["True"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", NEEDS)
def test_a_cluster_sums_each_record_once_though_a_worker_is_killed(engine, tmp_path):
    found = ran("sums_on_cluster", engine, tmp_path / engine)
    assert found == dict.fromkeys(("records", "groups", "killed", "lying"), True)
