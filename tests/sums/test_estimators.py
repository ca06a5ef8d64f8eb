"""The table of doc/how_to/sums.rst names every private estimator and statistic, and is true."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import skprivacy
from skprivacy.base import PrivateEstimatorMixin
from skprivacy.fine_tuning.head import SumHead
from skprivacy.fine_tuning.heads import HEADS
from skprivacy.sums.sum_estimator import SumEstimator
from tests.fuzz.entries import PACKAGES

from .engines import ALL

PAGE = Path(skprivacy.__file__).parents[1] / "doc" / "how_to" / "sums.rst"
COLUMN = 64  # at which the second column starts


def read_rows():
    """Return the two cells of each row of the table."""
    lines = PAGE.read_text().split("Estimator or function", 1)[1].splitlines()[2:]
    lines = lines[: next(i for i, line in enumerate(lines) if line.startswith("===="))]
    rows = []
    for line in lines:
        first, second = line[:COLUMN].strip(), line[COLUMN:].strip()
        if rows and (not second or not first or rows[-1][0].endswith((",", "or"))):
            rows[-1] = (f"{rows[-1][0]} {first}", f"{rows[-1][1]} {second}")
        else:
            rows.append((first, second))
    return rows


def named_in(cell):
    return re.findall(r"``\"?(\w+)\"?``", cell)


ROWS = read_rows()


def public_estimators():
    """Return the public private estimators and statistics by name."""
    found = {}
    for package in PACKAGES:
        module = import_module(f"skprivacy.{package}")
        for name in module.__all__:
            kind = getattr(module, name)
            is_estimator = isinstance(kind, type) and issubclass(kind, PrivateEstimatorMixin)
            if is_estimator or name.startswith("private_"):
                found[name] = kind
    return found


def test_the_table_names_every_estimator_and_head_once():
    named = [name for cell, _ in ROWS for name in named_in(cell)]
    assert set(named) == set(public_estimators()) | set(HEADS)
    assert {name for name in named if named.count(name) > 1} == {"ALMFineTuner"}


@pytest.mark.parametrize(("cell", "says"), ROWS, ids=[" ".join(named_in(c)) for c, _ in ROWS])
def test_the_table_says_who_fits_to_sums(cell, says):
    """Statistics have no class; tests/sums/test_engines.py runs them on every engine."""
    on_a_table = not says.startswith("no:")
    for name in named_in(cell):
        if name == "ALMFineTuner":
            continue  # its heads differ
        if name in HEADS:
            assert issubclass(HEADS[name], SumHead) == on_a_table
        elif not name.startswith("private_"):
            assert issubclass(public_estimators()[name], SumEstimator) == on_a_table
            assert hasattr(public_estimators()[name], "fit_sums") == on_a_table


def test_every_estimator_of_sums_is_held_to_the_bits_of_memory():
    """test_synthesizer.py tests MarginalSynthesizer."""
    tested = {name.partition("-")[0] for name in ALL} | {"MarginalSynthesizer"}
    kinds = public_estimators().items()
    assert tested == {n for n, k in kinds if isinstance(k, type) and issubclass(k, SumEstimator)}
    heads = {name.replace("_", "-") for name, kind in HEADS.items() if issubclass(kind, SumHead)}
    assert {f"ALMFineTuner-{head}" for head in heads} <= set(ALL)
