"""The README's programs run as printed, in order, on a reader's table."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.heavy

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
