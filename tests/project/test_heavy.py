"""The list of heavy tests names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..conftest import HEAVY

ROOT = Path(__file__).parents[2]


def names_a_test(entry: str) -> bool:
    file, _, test = entry.partition("::")
    if not (ROOT / file).exists():
        return False
    function = test.partition("[")[0].rpartition("::")[2]
    return not test or f"def {function}(" in (ROOT / file).read_text()


def test_every_entry_names_a_test():
    assert not [entry for entry in sorted(HEAVY) if not names_a_test(entry)]


@pytest.mark.parametrize("entry", ["tests/gone.py", "tests/project/test_heavy.py::test_gone[1]"])
def test_an_entry_that_names_none_is_found(entry):
    assert not names_a_test(entry)
