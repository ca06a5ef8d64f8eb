"""The programs of the README and of the gallery run as they are printed."""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture
def patients(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    age, sex = rng.integers(18, 95, 2000), rng.choice(["f", "m"], 2000)
    odds = np.exp(0.08 * (age - 60) + (sex == "m"))
    table = pd.DataFrame({"age": age, "sex": sex, "income": rng.lognormal(10, 0.7, 2000).round()})
    table["readmitted"] = np.where(rng.random(2000) < odds / (1 + odds), "yes", "no")
    table["days"] = (2 + 0.2 * age + rng.integers(0, 5, 2000)).round()
    table.to_csv("patients.csv", index=False)
    return table


@pytest.mark.heavy
def test_python_from_the_first_line_to_the_last(patients):
    pytest.importorskip("torch")
    names = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    # Guessing has .5; this usually has .78 +- .01, and the regressor .88 +- .02.
    assert names["model"].score(names["X_new"], names["y_new"]) > 0.65
    assert names["regressor"].score(patients[["age", "sex"]], patients["days"]) > 0.3
    assert names["report"].guarantee.epsilon() <= 1.0
    assert "What is protected?" in Path("audit.html").read_text(encoding="utf-8")


def test_lines_fit_a_terminal():
    assert [line for line in README.splitlines() if len(line) > 100] == []


def test_the_schema_in_json_is_the_one_in_python(tmp_path):
    from skprivacy.preprocessing import Schema

    names = {}
    exec(blocks("python")[1], names)
    [told] = blocks("json")
    assert Schema.from_dict(json.loads(told)) == names["schema"]


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
