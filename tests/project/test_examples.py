"""The examples of the gallery exist, import what there is, and run."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RUN = sorted(EXAMPLES.glob("*/plot_*.py"))  # by the build of the pages, too
SHOWN = {
    "distributed_training.py": "needs several processes, started by torchrun",
    "federated_flower.py": "needs the library flwr",
    "lora.py": "needs pretrained weights, transformers and peft; test_lora.py trains such a module",
    "pate_gan_student.py": "a class; the benchmark accuracy/pate trains it",
}
EVERY_DAY = EXAMPLES / "choose" / "plot_accountants.py"


def named(path):
    return f"{path.parent.name}/{path.name}"


def test_the_gallery_has_examples_in_every_section():
    assert len(RUN) >= 15
    sections = {path.parent for path in EXAMPLES.glob("*/*.py")}
    assert all((section / "GALLERY_HEADER.rst").exists() for section in sections)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.py")), ids=named)
def test_it_begins_with_a_title_and_imports_what_there_is(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    title, line = ast.get_docstring(tree).splitlines()[:2]
    assert line == "=" * len(title)
    pytest.importorskip("torch")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("skprivacy"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"


def run_example(path):
    environment = {**os.environ, "MPLBACKEND": "agg", "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(path)],
        env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_example_runs_or_is_listed_with_the_reason_why_not():
    others = {path.name for path in EXAMPLES.glob("*/*.py")} - {path.name for path in RUN}
    assert others == set(SHOWN)


@pytest.mark.heavy
def test_a_small_example_runs():
    run_example(EVERY_DAY)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in RUN if path != EVERY_DAY], ids=named)
def test_it_runs(path):
    pytest.importorskip("torch")
    run_example(path)
