"""pyproject.toml and constraints-lowest.txt name the same oldest versions."""

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


def required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    used = ("torch", "report", "parquet", "excel", "duckdb", "postgres", "test")
    lines = [*project["dependencies"], *(line for extra in used for line in extras[extra])]
    return [r for r in map(Requirement, lines) if r.name != project["name"]]


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


def test_extras_bring_what_their_names_promise():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_ours = {
        "all": {"torch", "report", "parquet", "excel", "duckdb", "postgres"},
        "test": {"all"},
        "dev": {"test", "peers", "lora"},
    }
    for extra, parts in of_ours.items():
        named = [r.extras for r in map(Requirement, extras[extra]) if r.name == "skprivacy"]
        assert named == [parts]
        assert parts <= set(extras)
