"""``skprivacy audit-predictions`` on tables that any language can write."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

from .shell import refuse, run, succeed

N = 400
NAMES = np.array(["1", "no", "yes"])


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The table of a forest and of four shadow forests, in pairs; members in no order."""
    folder = tmp_path_factory.mktemp("tables")
    X, y = make_classification(N, n_informative=6, n_classes=3, flip_y=0.3, random_state=0)
    rng = np.random.default_rng(0)
    forest = RandomForestClassifier(10, random_state=0)
    target, one, two = rng.random((3, N)) < 0.5
    trained = {"target": target, "s1": one, "s2": ~one, "s3": two, "s4": ~two}
    for name, member in trained.items():
        proba = clone(forest).fit(X[member], y[member]).predict_proba(X)
        frame = pd.DataFrame(proba, columns=NAMES)
        if name == "s2":
            frame = frame[NAMES[::-1]]
        frame.insert(1, "label", NAMES[y])
        frame["member"] = member if name == "s1" else member.astype(int)
        if name == "s4":
            frame["label"] = frame["label"].replace("1", "1.0")
        frame.to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.mark.slow
def test_tables_of_shadow_models_serve_the_strongest_attack(tables, tmp_path, capsys):
    csv = tmp_path / "audit.csv"
    shadows = " ".join(str(tables / f"s{i}.csv") for i in (1, 2, 3, 4))
    line = f"audit-predictions {tables / 'target.csv'} --shadows {shadows} --claim 0.1,1e-6"
    code, shown, _ = run(f"{line} --out {csv}", capsys)
    assert (code, "Audit: violated" in shown) == (1, True)
    assert "Not measured" not in shown
    table = pd.read_csv(csv)
    assert table["auc"].max() > 0.9
    assert not table["attack"].str.contains("Supervised").any()
    assert table["violated"].any()


@pytest.mark.heavy
def test_records_show_whether_the_samples_differ(tables, tmp_path, capsys):
    member = pd.read_csv(tables / "target.csv")["member"].to_numpy()
    age = np.random.default_rng(0).normal(size=N) + 1.5 * member
    pd.DataFrame({"age": age}).to_csv(tmp_path / "records.csv", index=False)
    line = f"audit-predictions {tables / 'target.csv'} --claim 0.1 --records {tmp_path}"
    code, shown, _ = run(f"{line}/records.csv", capsys)
    assert (code, "Audit: doubtful" in shown) == (3, True)
    assert "labels alone" not in shown
    pd.DataFrame({"age": age[1:]}).to_csv(tmp_path / "short.csv", index=False)
    refuse(f"{line}/short.csv", capsys, "399 rows; expected one for each of the 400 rows")


@pytest.mark.heavy
def test_without_shadow_models_the_report_says_so(tables, capsys):
    shown, _ = succeed(f"audit-predictions {tables / 'target.csv'}", capsys)
    assert "Audit: no claim" in shown
    assert "SupervisedAttack: AUC" in shown
    assert "Not measured: StrongestAttack" in shown


@pytest.mark.heavy
def test_exchanged_groups_are_no_success(tables, tmp_path, capsys):
    """Without a claim there is no verdict, and the command ended as if all were well."""
    swapped = changed(tables, tmp_path, lambda f: f.assign(member=1 - f["member"].astype(int)))
    code, out, _ = run(f"audit-predictions {swapped}", capsys)
    shown = out.splitlines()
    assert (code, shown[0]) == (3, "Audit: no claim")
    assert "exchanged?" in shown[1]


def changed(tables, tmp_path, change):
    frame = pd.read_csv(tables / "target.csv", dtype=str)
    path = tmp_path / "changed.csv"
    change(frame).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.drop(columns="member"), "changed.csv has no column 'member' among its 4"),
        (lambda f: f.assign(member="0"), "must hold members and non-members"),
        (lambda f: f.assign(member="maybe"), "row 1 of column 'member' in"),
        (lambda f: f.assign(label="perhaps"), "no column for the label in row 1"),
        (lambda f: f.assign(no="high"), "not a probability in row 1 of column 'no'"),
        (lambda f: f.assign(no=""), "not a probability in row 1 of column 'no'"),
        (lambda f: f.assign(no="0.9"), "changed.csv has rows that are not probab"),
        (lambda f: f.assign(no="nan"), "not a probability in row 1 of column 'no'"),
        (lambda f: f.assign(no="86"), "changed.csv has rows that are not probab"),
        (lambda f: f[:0], "changed.csv must have at least one row"),
    ],
)
def test_wrong_tables_are_told_in_one_line(change, words, tables, tmp_path, capsys):
    told = refuse(f"audit-predictions {changed(tables, tmp_path, change)}", capsys, words)
    assert told.count("\n") == 1


@pytest.mark.slow
def test_tables_are_read_as_r_writes_them(tables, tmp_path, capsys):
    """With names of rows, logical values, semicolons and decimal commas."""
    frame = pd.read_csv(tables / "target.csv")
    frame["member"] = np.where(frame["member"] == 1, "TRUE", "FALSE")
    told = []
    for number, options in enumerate(
        ({}, {"index": True, "index_label": ""}, {"sep": ";", "decimal": ","})
    ):
        path = tmp_path / f"{number}.csv"
        frame.to_csv(path, **({"index": False} | options))
        told.append(succeed(f"audit-predictions {path}", capsys))
    assert told[0][0] == told[1][0] == told[2][0]
    assert "the first column, which has no name, is ignored" in told[1][1]
    assert "--sep semicolon --decimal ','" in told[2][1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f[::-1], "must hold the records of"),
        (lambda f: f[:9], "its 9 labels differ"),
        (lambda f: f.rename(columns={"no": "nope"}).assign(label="1"), "has the classes"),
    ],
)
def test_tables_of_other_records_are_refused(change, words, tables, tmp_path, capsys):
    wrong = changed(tables, tmp_path, change)
    refuse(f"audit-predictions {tables / 'target.csv'} --shadows {wrong}", capsys, words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{}/target.csv --claim 1,2", "a delta of at least 0 and below 1"),
        ("nowhere.csv", "the file nowhere.csv does not exist"),
        ("{}/target.csv --out no/such/page.html", "does not exist. Create it first"),
    ],
)
def test_mistakes_are_told_first(line, words, tables, capsys):
    refuse(f"audit-predictions {line.format(tables)}", capsys, words)
