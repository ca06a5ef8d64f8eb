"""The reference lists every public name, and no name that is not there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

REFERENCE = Path(__file__).parents[1] / "doc" / "api.rst"
PARTS = [
    "accounting", "attacks", "attacks.inversion", "attacks.synthesis", "audit", "datasets",
    "display", "exceptions", "linear_model", "mechanisms", "metrics", "model_selection",
    "neural_network", "preprocessing",
]  # fmt: skip


def listed():
    return set(re.findall(r"^   ([a-z_.]+\.\w+)$", REFERENCE.read_text(), re.MULTILINE))


def public(part):
    module = importlib.import_module(f"skprivacy.{part}")
    values = {name: getattr(module, name) for name in module.__all__}
    return {name for name, value in values.items() if callable(value)}  # constants have no page


@pytest.mark.parametrize("part", PARTS)
def test_every_public_name_is_in_the_reference(part):
    if part == "neural_network":
        pytest.importorskip("torch")
    missing = {f"{part}.{name}" for name in public(part)} - listed()
    assert not missing, f"doc/api.rst lacks {sorted(missing)}"


def test_every_name_in_the_reference_exists():
    pytest.importorskip("torch")
    for name in listed():
        part, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(f"skprivacy.{part}"), attribute), name
