"""What the oldest versions are that the library takes is said twice: both say the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parents[2]
# They judge the source, whose style and types are not looked at with the oldest versions.
LINTERS = {"ruff", "mypy", "pandas-stubs", "types-tqdm"}


def required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    used = ("torch", "test", "postgres", "parquet", "duckdb")
    lines = [*project["dependencies"], *(line for extra in used for line in extras[extra])]
    return [r for r in map(Requirement, lines) if r.name not in {*LINTERS, project["name"]}]


def pinned():
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pins = [Requirement(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]
    return {pin.name: next(iter(pin.specifier)) for pin in pins}


@pytest.mark.parametrize("requirement", required(), ids=str)
def test_the_lowest_version_allowed_is_the_one_that_is_tried(requirement):
    lowest = [s.version for s in requirement.specifier if s.operator in (">=", "==")]
    pin = pinned()[requirement.name]
    assert pin.operator == "=="
    assert [Version(v) for v in lowest] == [Version(pin.version)]
