"""No command reveals a value of its table, in a result, an error, a warning or a log."""

from __future__ import annotations

import json
import os

import numpy as np
import pandas as pd
import pytest

from skprivacy.cli import main

from ..fuzz.markers import NUMBER, TEXT, hear
from .shell import refuse

N = 40
AGE = np.arange(N) * 2
TABLE = pd.DataFrame(
    {
        "age": AGE, "ward": np.where(AGE % 3, "north", "south"), "visits": AGE / 10,
        "ill": np.where(AGE > N, "yes", "no"), "patient": AGE // 4,
    },
    dtype=object,
)  # fmt: skip
SCORES = pd.DataFrame(
    {"no": AGE / 100, "yes": 1 - AGE / 100, "label": TABLE["ill"], "member": AGE // 2 % 2},
    dtype=object,
)
COLUMNS = {
    "age": {"type": "bounded", "lower": 0, "upper": 100},
    "ward": {"type": "categories", "values": ["north", "south"]},
}
PAID = "--epsilon 1 --delta 1e-4"
OF_CLASSES = f"--schema ill.json --model OutputPerturbationClassifier --set alpha=1 {PAID}"
COMMANDS = {
    "train": f"train t.csv {OF_CLASSES} --hold-out 0.25",
    "train people": f"train t.csv {OF_CLASSES} --groups patient",
    "train numbers": f"train t.csv --schema visits.json --model AdaSSPRegressor {PAID}",
    "train without a schema": "train t.csv --target ill --model OutputPerturbationClassifier "
    f"--set alpha=1 {PAID}",
    "audit": f"audit t.csv {OF_CLASSES} --attack loss",
    "audit without a schema": "audit t.csv --target ill --attack loss "
    "--model sklearn.tree.DecisionTreeClassifier",
    "sweep": "sweep t.csv --schema ill.json --model OutputPerturbationClassifier --set alpha=1 "
    "--epsilons 1 --cv 2",
    "predict": "predict model.safetensors t.csv --out p.csv",
    "draft": "schema draft t.csv --target ill --out draft.json",
    "draft numbers": "schema draft t.csv --target visits --out draft.json",
    "audit-predictions": "audit-predictions t.csv",
}  # schema check reports values to the data holder, and says so first
LINES = TABLE.to_csv(index=False).splitlines()
FILES = {
    "without a header": [f"{NUMBER},{TEXT},2173-09-14,yes,1", *LINES[1:]],
    "a header of texts": [",".join(f"{TEXT}{i}" for i in range(5)), *LINES[1:]],
    "names that differ by blanks": [f"{TEXT},{TEXT} ,age,ward,ill", *LINES[1:]],
    "one more cell": [*LINES[:5], f"{LINES[5]},{TEXT}", *LINES[6:]],
    "an open quotation mark": [*LINES[:5], f'"{TEXT},1,2', *LINES[6:]],
    "one line": [f"{TEXT},{NUMBER}"],
    "cells before the first column": [LINES[0], *(f"{TEXT},{line}" for line in LINES[1:])],
}
CELLS = {
    "number": NUMBER, "text": TEXT, "day": "2173-09-14", "negative": -NUMBER,
    "quotation marks": f'"{TEXT}"', "digits": "73941" * 80, "list": f"[{NUMBER}]",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, earlier = tmp_path_factory.mktemp("values"), os.getcwd()
    os.chdir(place)
    for name, more in {
        "ill": {"target": "ill", "classes": ["no", "yes"]},
        "visits": {"target": "visits", "target_bounds": [0, 10]},
    }.items():
        (place / f"{name}.json").write_text(json.dumps({"columns": COLUMNS, **more}))
    TABLE.to_csv("t.csv", index=False)
    assert main(f"train t.csv {OF_CLASSES} --save model.safetensors".split()) == 0
    yield place
    os.chdir(earlier)


def told(folder, line):
    """Return where a command shows a marker; it ends with an exit code and leaves no file."""
    codes = []
    heard = hear(lambda: codes.append(main(line.split())))
    for name in ("p.csv", "draft.json"):
        (folder / name).unlink(missing_ok=True)
    assert heard.error is None
    assert codes[0] in (0, 1, 2, 3)
    return heard.leaks()


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("command", COMMANDS)
def test_no_cell_is_told(folder, command):
    table = SCORES if command == "audit-predictions" else TABLE
    slow = command in ("audit", "audit without a schema", "sweep")
    for column in table:
        for cell in list(CELLS.values())[:: 3 if slow else 1]:
            for rows in [[3]] if slow else [[3], slice(None)]:
                changed = table.copy()
                changed.iloc[rows, table.columns.get_loc(column)] = cell
                changed.to_csv(folder / "t.csv", index=False)
                assert not told(folder, COMMANDS[command])


@pytest.mark.everyday(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_told(folder, command):
    for lines in FILES.values():
        (folder / "t.csv").write_text("\n".join(lines))
        assert not told(folder, COMMANDS[command])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize("command", [*COMMANDS, "check"])
def test_a_pipe_in_place_of_a_table_is_not_waited_for(
    tmp_path, monkeypatch, command, folder, capsys
):
    os.mkfifo(tmp_path / "t.csv")
    line = COMMANDS.get(command, "schema check ill.json t.csv")
    line = line.replace("t.csv", str(tmp_path / "t.csv"))
    refuse(line, capsys, "a device or a pipe")
