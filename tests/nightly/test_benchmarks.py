"""Every benchmark explains itself and runs: ``--help``, and ``--quick`` on tiny data."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = ROOT / "benchmarks" / "run.py"
FOLDERS, BENCHMARKS = (
    runpy.run_path(str(RUN))[name] for name in ("FOLDERS", "find_benchmarks")
)  # fmt: skip
NAMES = list(BENCHMARKS())


def run_benchmark(*arguments, cwd=ROOT):
    environment = {k: v for k, v in os.environ.items() if k != "SKPRIVACY_DATA"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HOME": str(cwd)}
    done = subprocess.run(
        [sys.executable, str(RUN), *arguments],
        env=environment, cwd=cwd, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_every_file_is_a_benchmark_or_shared_by_several():
    assert len(NAMES) >= 30
    files = {path.relative_to(RUN.parent) for path in RUN.parent.rglob("*.py")}
    others = {file for file in files if file.parent.name not in FOLDERS}
    assert {file.parent.name for file in others} == {"", "shared"}
    assert {file.name for file in others if not file.parent.name} == {"__init__.py", "run.py"}
    assert {file.with_suffix("").as_posix() for file in files - others} == set(NAMES)


def test_no_folder_holds_more_than_fifteen_files():
    assert max(sum(name.startswith(f"{folder}/") for name in NAMES) for folder in FOLDERS) <= 15


def test_the_list_has_a_title_for_each():
    code, printed, errors = run_benchmark("--list")
    assert code == 0, errors
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(line.endswith(".") and len(line.split()) > 3 for line in lines)


def test_an_unknown_or_ambiguous_name_is_refused():
    for name, expected in (("speed/nothing", "speed/ledger"), ("pate", "papers/pate")):
        code, _, errors = run_benchmark(name)
        assert code == 1
        assert expected in errors


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_explains_itself(name):
    pytest.importorskip("torch")
    code, printed, errors = run_benchmark(name, "--help")
    assert code == 0, errors[-2000:]
    assert "--quick" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_ends_well_anywhere_without_data_sets(name, tmp_path):
    pytest.importorskip("torch")
    if name == "speed/memory" and sys.platform != "linux":
        pytest.skip("peaks of memory are read from Linux's /proc")
    code, printed, errors = run_benchmark(name, "--quick", cwd=tmp_path)
    assert code == 0, errors[-2000:]
    assert printed.strip()
