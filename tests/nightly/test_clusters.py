"""Sweeps and shadow pools on Dask and on Ray, with a worker killed on the way."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = {"dask": "distributed", "ray": "ray"}


def ran(engine, folder):
    """Return what came of a sweep in a process of its own, whose workers end with it."""
    folder.mkdir()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.nightly.on_cluster", engine, folder],
        check=True, capture_output=True, text=True, cwd=ROOT, timeout=500,
        env={**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    (found,) = [line for line in run.stdout.splitlines() if line.startswith("{")]  # Ray prints too
    return json.loads(found)


@pytest.mark.slow
@pytest.mark.parametrize("engine", NEEDS)
def test_a_cluster_finds_and_charges_the_same_though_a_worker_is_killed(engine, tmp_path):
    if not find_spec(NEEDS[engine]):
        pytest.skip(f"{NEEDS[engine]} is not installed; make nightly installs it")
    here, there = ran("here", tmp_path / "here"), ran(engine, tmp_path / engine)
    for what in ("results", "LogisticRegression", "MLPClassifier"):
        assert there[what] == here[what], what
    if engine == "ray" or "results, killed" in there:  # Dask may have lost the records, and says so
        assert there["results, killed"] == here["results"]
    assert here["whole"] == there["whole"] == {"fits": 4, "charges": 4}
    assert there["whole, workers"] == 2
    # What was killed was charged; and so is the fit that was begun anew in its place.
    assert there["killed"]["fits"] == there["killed"]["charges"] >= (5 if engine == "ray" else 1)
    assert there["whole, strict"] == there["killed, strict"] == ["True"]
