"""The layers of the library: who may import whom, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import skprivacy

ROOT = Path(skprivacy.__file__).parent
LAYERS = [
    {"cli"},
    {"audit", "model_selection"},
    {"attacks"},
    {
        "_stacked",
        "datasets",
        "defences",
        "ensemble",
        "fine_tuning",
        "label_privacy",
        "linear_model",
        "neural_network",
        "preprocessing",
    },
    {"public_facts"},
    {"mechanisms"},
    {"base"},
    {"accounting", "metrics"},
]  # fmt: skip
ANYWHERE = {"exceptions", "_clones", "_config", "_output", "_sklearn", "_validation", "_version"}
# Displays are drawn from results, beside whoever makes them; they import no layer but metrics.
LAYER_OF = {name: depth for depth, names in enumerate(LAYERS) for name in names}
LAYER_OF["display"] = LAYER_OF["attacks"]
LAYER_OF["__main__"] = LAYER_OF["cli"]
# Attacks that look into torch modules; torch is imported when it is used.
MAY_IMPORT_TORCH = {"neural_network", "attacks/_membership_net.py", "attacks/_networks.py"}


def sources() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem != "__init__")


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Return the absolute names of the modules that a file imports, wherever in it."""
    package = ["skprivacy", *path.relative_to(ROOT).parts[:-1]]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def test_every_part_of_the_package_has_one_layer():
    named = [name for names in LAYERS for name in names] + ["display", "__main__", *ANYWHERE]
    assert sorted(named) == sorted({part_of(path) for path in sources()})


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_layer_imports_those_below_it(path):
    here = part_of(path)
    if here in ANYWHERE:
        return
    for name in imported(path):
        if not name.startswith("skprivacy."):
            continue
        there = name.split(".")[1]
        if there.startswith("__") or there in ANYWHERE or there == here:
            continue
        assert LAYER_OF[there] >= LAYER_OF[here], f"{here} imports {there}, a layer above it"


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_private_scikit_learn_names_live_in_one_file(path):
    if path.name == "_sklearn.py":
        return
    private = [
        name for name in imported(path)
        if name.startswith("sklearn") and any(p.startswith("_") for p in name.split("."))
    ]  # fmt: skip
    assert not private


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_torch_is_imported_by_the_networks_alone(path):
    relative = path.relative_to(ROOT)
    if relative.parts[0] in MAY_IMPORT_TORCH or str(relative) in MAY_IMPORT_TORCH:
        return
    assert not {n for n in imported(path) if n.split(".")[0] in ("torch", "skorch")}


@pytest.mark.parametrize("part", ["accounting", "metrics"])
def test_the_ground_floor_needs_numpy_and_scipy_only(part):
    allowed = {"numpy", "scipy"}
    if part == "accounting":  # a budget's entries are a frame, and its statement draws a plot
        allowed |= {"pandas", "matplotlib"}
    names = {n.split(".")[0] for p in sources() if part_of(p) == part for n in imported(p)}
    assert names - {"__future__", "skprivacy"} - set(sys.stdlib_module_names) == allowed


def test_importing_the_package_takes_no_torch():
    code = "import skprivacy, sys; assert not {'torch', 'skorch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_resolve():
    for name in skprivacy.__all__:
        assert getattr(skprivacy, name) is not None
    assert callable(skprivacy.audit)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = skprivacy.no_such_name
