"""The list of heavy tests names tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import HEAVY

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("entry", sorted(HEAVY))
def test_every_entry_names_a_test(entry):
    file, _, test = entry.partition("::")
    source = (ROOT / file).read_text()
    function = test.partition("[")[0].rpartition("::")[2]
    assert f"def {function}(" in source if test else source
