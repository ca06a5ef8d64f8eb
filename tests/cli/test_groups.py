"""``--groups``: who has several rows is protected with all of them, and is on one side only."""

import json
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.audit.report.audit_report import AuditReport
from skprivacy.cli import data as _data
from skprivacy.preprocessing import BoundedColumn, Schema

from .shell import refuse, run, succeed

LINEAR = "--model OutputPerturbationClassifier --set relation=zero_out"
TABLE = "visits.csv --schema schema.json --groups patient_id"


NEVER = "--alpha 1e-9"  # how often an honest model is accused, or its samples are doubted


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 150)
    person = np.repeat(np.arange(150), sizes)
    age = rng.integers(18, 91, 150)[person]
    table = pd.DataFrame(
        {
            "patient_id": [f"{p:04d}" for p in person],
            "age": age,
            "weight": np.round(rng.normal(75, 10, len(person)), 1),
            "ill": np.where(age + rng.normal(0, 5, len(person)) > 50, "yes", "no"),
        }
    )
    table.to_csv(tmp_path / "visits.csv", index=False)
    columns = {"age": BoundedColumn(0, 120), "weight": BoundedColumn(30, 200)}
    schema = Schema(columns, target_column="ill", classes=["no", "yes"])
    schema.to_json(tmp_path / "schema.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_column_that_says_whose_records_these_are_is_asked_about(folder, capsys):
    """It stands beside the schema, so that no step of the pipeline ever sees its name."""
    train = f"train visits.csv --schema schema.json {LINEAR}"
    _, told = succeed(train, capsys)
    assert "for single records. If people have several records, pass `--groups patient_id`." in told
    assert "single records" not in run(f"{train} --groups patient_id", capsys)[2]


@pytest.fixture
def halves():
    """Watch who is on which side."""
    seen = []
    whole = _data.Records.split_random

    def noting(self, *args):
        parts = whole(self, *args)
        seen.append([dict.fromkeys(part.groups).keys() for part in parts])  # sets, in order
        return parts

    with mock.patch.object(_data.Records, "split_random", noting):
        yield seen


def test_train_protects_people(capsys, halves):
    budget = PrivacyBudget(epsilon=5.0, path="visits.ledger", unit="patient_id")
    line = f"train {TABLE} {LINEAR} --epsilon 2 --hold-out 0.3 --budget visits.ledger"
    out, _ = succeed(line, capsys)
    assert "per patient_id" in out
    assert set(budget.entries()["unit"]) == {"patient_id"}
    ((own, new),) = halves
    assert not own & new
    assert "0007" in own | new  # no number


def test_audit_attacks_people(folder, capsys, halves):
    line = f"audit {TABLE} {LINEAR} --epsilon 2 --attack LossThreshold {NEVER} --out report.json"
    out, _ = succeed(line, capsys)
    assert "all records together of each patient_id" in out
    ((own, new),) = halves
    assert not own & new
    report = json.loads((folder / "report.json").read_text())
    assert report["attacked"] == "patient_id"
    assert report["n_train"] == len(own) == 75


def test_exposed_people_are_named_on_request_by_their_numbers(folder, capsys, halves, monkeypatch):
    """And subgroups are shown, which each of them is in with all records."""
    table = pd.read_csv("visits.csv", dtype=str)
    table["age"] = table["age"].str[0]
    table.to_csv("visits.csv", index=False)
    fourth = pd.DataFrame({"row": [3], "attack": ["a"], "risk": [0.1], "q_value": [0.01]})
    monkeypatch.setattr(AuditReport, "exposed_records", lambda self: fourth)
    line = f"audit {TABLE} {LINEAR} --attack LossThreshold --subgroups age {NEVER} --out a.json"
    succeed(f"{line} --exposed who.csv", capsys)
    ((own, _),) = halves
    named = pd.read_csv("who.csv", dtype=str)
    assert list(named) == ["patient_id", "attack", "risk", "q_value"]
    assert list(named["patient_id"]) == [list(own)[3]]
    shown = json.loads((folder / "a.json").read_text())["groups"]
    assert {group["by"] for group in shown} == {"age"}


def test_subgroups_that_part_somebodys_records_are_refused_before_the_charge(capsys):
    budget = PrivacyBudget(epsilon=5.0, path="visits.ledger", unit="patient_id")
    line = f"audit {TABLE} {LINEAR} --subgroups weight --rows 90 --budget visits.ledger"
    refuse(line, capsys, "subgroups by 'weight' differ within")
    assert budget.entries().empty


@pytest.mark.slow
def test_sweep_is_about_people(capsys):
    budget = PrivacyBudget(epsilon=20.0, path="visits.ledger", unit="patient_id")
    paid = f"sweep {TABLE} {LINEAR} --epsilons 1 --cv 3 --budget visits.ledger"
    succeed(paid, capsys)
    assert list(budget.entries()["unit"]) == ["patient_id"] * 3
    line = f"sweep {TABLE} {LINEAR} --epsilons 1 --cv 3 --attack LossThreshold"
    out, _ = succeed(line, capsys)
    assert "per patient_id" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"train adult {LINEAR} --groups age", "Leave out --target, --schema and --groups"),
        (f"train visits.csv --schema schema.json --groups who {LINEAR}", "has no column 'who'"),
        (f"train visits.csv --schema schema.json --groups age {LINEAR}", "is also a feature"),
        (f"train visits.csv --schema schema.json --groups ill {LINEAR}", "is also the target"),
        (f"sweep {TABLE} {LINEAR} --epsilons 1 --cv 34 --rows 100", "values of patient_id, fewer"),
        (f"train {TABLE} --model sklearn.linear_model.LogisticRegression", "fit takes no groups"),
    ],
)
def test_mistakes_are_one_line(line, words, capsys):
    refuse(line, capsys, words)


def test_a_row_of_nobody_is_refused(folder, capsys):
    table = pd.read_csv("visits.csv", dtype=str)
    table.loc[3, "patient_id"] = " "
    table.to_csv("visits.csv", index=False)
    refuse(f"train {TABLE} {LINEAR}", capsys, "1 values are missing")
