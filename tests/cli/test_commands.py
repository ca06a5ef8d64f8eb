"""The command line: results, exit codes, and one clear line for a user's mistake."""

import inspect
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import skprivacy
import skprivacy.cli.data as cli_data
from skprivacy.audit import audit as audit_function
from skprivacy.audit import runner
from skprivacy.cli import main
from skprivacy.cli import registry as _attacks
from skprivacy.cli.main import COMMANDS, make_parser
from skprivacy.datasets import load_demo
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

from .shell import refuse, run, succeed

SCHEMA = Schema(
    {"age": BoundedColumn(0, 100), "city": CategoricalColumn(["NA", "Rome", "Oslo"])},
    target_column="ill",
    classes=["no", "yes"],
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a table, its schema, and some broken files."""
    rng = np.random.default_rng(0)
    n = 300
    table = pd.DataFrame(
        {"age": rng.integers(0, 100, n), "city": rng.choice(["NA", "Rome", "Oslo", "?"], n)}
    )
    table["ill"] = np.where(table["age"] + rng.normal(0, 10, n) > 50, "yes", "no")
    table.to_csv(tmp_path / "data.csv", index=False)
    table.assign(name="Jo").to_csv(tmp_path / "extra.csv", index=False)
    table.drop(columns="city").to_csv(tmp_path / "narrow.csv", index=False)
    table.assign(ill="no").to_csv(tmp_path / "one.csv", index=False)
    table.assign(ill=table["age"] / 7).to_csv(tmp_path / "real.csv", index=False)
    table.assign(ill=table["ill"].where(table.index > 3)).to_csv(tmp_path / "gaps.csv", index=False)
    table.assign(ill=table["ill"].where(table.index != 3, "maybe")).to_csv(
        tmp_path / "maybe.csv", index=False
    )
    table.iloc[:0].to_csv(tmp_path / "header.csv", index=False)
    pd.DataFrame({"name": [f"p{i}" for i in range(1200)], "ill": ["no", "yes"] * 600}).to_csv(
        tmp_path / "names.csv", index=False
    )
    (tmp_path / "empty.csv").touch()
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3,4\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "subfolder").mkdir()
    SCHEMA.to_json(tmp_path / "schema.json")
    Schema(dict(SCHEMA)).to_json(tmp_path / "open.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.heavy
def test_sweep_of_a_table(folder, capsys):
    pytest.importorskip("torch")
    code, out, err = run(
        "sweep data.csv --schema schema.json --epsilons 1 10,inf --cv 2 --delta 1e-4 --quiet "
        "--out results.csv --plot curve.png",
        capsys,
    )
    assert code == 0
    assert "Traceback" not in err
    everything = pd.read_csv(folder / "results.csv")
    others = ["histogram gradient boosting", "most frequent class"]
    assert everything["model"].dropna().tolist() == others
    assert everything["baseline"].tolist() == [False, False, False, True, True]
    assert "histogram gradient boosting" in out
    results = everything[everything["model"].isna()]
    assert results["epsilon"].tolist() == [1, 10, np.inf]
    assert (results["claimed_epsilon"] <= results["epsilon"]).all()
    assert results["claimed_epsilon"].iloc[0] > 0.9
    assert results["test_score"].iloc[-1] > 0.7
    assert results["attack_auc"].between(0.3, 0.7).all()
    for value in results["test_score"]:
        assert f"{value:.3f}" in out
    assert "not private" in out
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")


# How often an honest model is accused: the noise of training is fresh.
NEVER = "--alpha 1e-7"


@pytest.mark.heavy
def test_audit_of_an_honest_model(folder, capsys):
    pytest.importorskip("torch")
    code, out, _ = run(
        "audit data.csv --schema schema.json --epsilon 1 --delta 1e-4 --n-shadows 2 --quiet "
        f"--out audit.html --subgroups city {NEVER}",
        capsys,
    )
    assert code == 0
    assert "Audit: consistent" in out
    assert "city Rome" in (folder / "audit.html").read_text(encoding="utf-8")
    assert re.search(r"accuracy: [\d.]+ % on new records, .*\(most frequent class: [\d.]+ %\)", out)
    assert "zero-out" in out
    assert "Audit: consistent" in (folder / "audit.html").read_text(encoding="utf-8")


def test_the_attacks_of_the_command_are_those_of_the_function():
    """The command ran offline LiRA long after the function ran the strongest attack."""
    line = ["audit", "demo"]
    given = make_parser(line).parse_args(line)
    assert given.n_shadows == inspect.signature(audit_function).parameters["n_shadows"].default
    by_default = runner.check_attacks(None)
    given.seed = None  # the command has a seed by default
    offered = _attacks.make_attacks(given)
    assert [repr(attack) for attack in offered] == [repr(attack) for attack in by_default]


@pytest.mark.heavy
def test_audit_that_refutes_returns_one(folder, capsys, monkeypatch):
    pytest.importorskip("torch")

    def refuting(*args, **kwargs):
        report = audit_function(*args, **kwargs)
        finding = report.findings[0]
        object.__setattr__(finding, "epsilon_lower_bound", 7.0)
        return report

    monkeypatch.setattr(sys.modules["skprivacy.audit"], "audit", refuting)
    code, out, _ = run(
        "audit data.csv --schema schema.json --delta 1e-4 --attack loss --quiet", capsys
    )
    assert code == 1
    assert "violated" in out


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("schema", ["", "--schema open.json"])
def test_classes_read_off_the_data_are_an_assumption_of_the_claim(schema, folder, capsys):
    pytest.importorskip("torch")
    line = f"data.csv --target ill {schema} --delta 1e-4 --quiet --out report.html"
    words = "the set of class labels is public (it was read off y)"
    for command in (f"audit {NEVER} --attack loss", "sweep --cv 2"):
        where, _, more = command.partition(" ")
        epsilons = "--epsilons 5" if where == "sweep" else ""
        out, _ = succeed(f"{where} {line} {more} {epsilons}", capsys)
        assert words in out
        assert words in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.heavy
def test_a_schema_read_off_the_data_proves_nothing(folder, capsys, monkeypatch):
    pytest.importorskip("torch")
    line = "data.csv --target ill --delta 1e-4 --quiet"
    for command in (f"audit {line} --attack loss {NEVER}", f"sweep {line} --epsilons 5 --cv 2"):
        out, err = succeed(command, capsys)
        assert "WARNING: Without a schema, bounds and categories are read off the data" in err
        assert "estimate" in out
        assert ", proved" not in out
        assert "the schema is public (its bounds and categories were read off the data)" in out
    monkeypatch.setenv("SKPRIVACY_STRICT", "1")
    refuse(command, capsys, "strict")


@pytest.mark.heavy
def test_columns_outside_the_schema_are_told(folder, capsys):
    pytest.importorskip("torch")
    line = f"audit extra.csv --schema schema.json --delta 1e-4 --attack loss --quiet {NEVER}"
    _, err = succeed(line, capsys)
    assert "not used: name" in err


def test_categories_that_look_missing_are_categories(folder):
    line = ["train", "data.csv", "--schema", "schema.json"]
    records = cli_data.load_records(make_parser(line).parse_args(line))
    assert {"NA", "Rome", "Oslo", "?"} == set(records.X["city"])
    assert set(records.y) == {"no", "yes"}


@pytest.mark.everyday(8)
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sweep nowhere.csv --target y", "nowhere.csv is neither a file nor the name of a data"),
        ("sweep data.csv", "Give the column to predict by --target NAME"),
        ("sweep data.csv --target sick", "no column 'sick' among its 3. Does it have a header"),
        ("sweep data.csv --target ill --schema no.json", "the schema file no.json does not exist"),
        ("sweep data.csv --target ill --schema bad.json", "bad.json is not valid JSON"),
        ("audit data.csv --target age --schema schema.json", "differs from the schema's target"),
        ("audit data.csv --target age --schema open.json", "'age' is also a feature of the schema"),
        ("sweep narrow.csv --schema schema.json", "lacks columns of the schema: city"),
        ("sweep one.csv --target ill", "must have at least two classes; it has one"),
        ("audit real.csv --target ill --attack shokriattack", "compares classes"),
        ("audit data.csv --schema schema.json --subgroups ward", "'ward' is not a column"),
        ("sweep data.csv --schema schema.json --subgroups ward", "'ward' is not a column"),
        ("sweep data.csv --schema schema.json --epsilons 1 --refit 2", "must be one of --epsilons"),
        ("sweep data.csv --schema schema.json --epsilons 1 --refit 1", "Pass both or neither"),
        ("sweep data.csv --schema schema.json --save m.safetensors", "Pass both or neither"),
        ("sweep data.csv --schema schema.json --resume data.csv", "is a file"),
        ("sweep data.csv --schema schema.json --attack loss,lira", "must be one attack"),
        ("sweep gaps.csv --target ill", "must not have missing values; it has 4"),
        ("sweep maybe.csv --schema schema.json", "is not one of the schema's classes"),
        ("sweep header.csv --target ill", "must have at least one row"),
        ("sweep empty.csv --target ill", "cannot be read"),
        ("sweep ragged.csv --target b", "cannot be read"),
        ("sweep binary.csv --target b", "cannot be read"),
        ("sweep names.csv --target ill", "name: left out: nearly every row has a value of its own"),
        ("sweep subfolder --target b", "is a folder, a device or a pipe"),
        ("sweep data.csv --schema schema.json --epsilons 1,0", "epsilon must be positive; got 0"),
        ("sweep data.csv --schema schema.json --epsilons 1,one", "such as 0.1 1 10 or 0.1,1,10"),
        ("sweep --epsilons 1 10 data.csv", "put DATA before this option"),
        ("sweep data.csv --schema schema.json --delta 2", "--delta must be between 0 and 1"),
        ("sweep data.csv --schema schema.json --delta 0.1", "must be below 1 over the 300 records"),
        ("sweep data.csv --schema schema.json --cv 1", "--cv must be at least 2"),
        ("sweep data.csv --schema schema.json --cv 290", "rarest class has"),
        ("sweep data.csv --schema schema.json --rows 0", "--rows must be at least 1"),
        ("sweep data.csv --schema schema.json --attack magic", "The names are loss, lira"),
        ("sweep data.csv --schema schema.json --out no/report.html", "does not exist. Create"),
        ("sweep data.csv --schema schema.json --out subfolder", "is a folder"),
        ("sweep data.csv --schema schema.json --plot curve.jpeg", "must end in .png"),
        ("sweep digits --target digit", "has a built-in target"),
        ("audit data.csv --schema schema.json --alpha 2", "--alpha must be between"),
        ("audit data.csv --schema schema.json --epsilon one", "invalid float value"),
        ("datasets nothing", "invalid choice"),
        ("", "required"),
        ("dance", "invalid choice"),
    ],
)
def test_a_users_mistake_is_one_line(line, words, folder, capsys, monkeypatch):
    pytest.importorskip("torch")
    from skprivacy.neural_network import DPSGDClassifier

    monkeypatch.setattr(DPSGDClassifier, "fit", lambda *args: pytest.fail("trained"))
    err = refuse(line, capsys, words)
    assert err.rstrip().rsplit("\n", 1)[-1].startswith(("skprivacy: error:", "skprivacy"))


def written_commands():
    """Every command line that the README, the guides and the help texts show."""
    root = Path(skprivacy.__file__).parents[1]
    files = [root / "README.md", *root.glob("doc/*/*.rst"), *root.glob("skprivacy/cli/**/*.py")]
    for file in files:
        for line in file.read_text(encoding="utf-8").replace("\\\n", "").splitlines():
            if found := re.match(r"(?:\$|\s+\$?) ?skprivacy ((?!--)[^>]*)", line):
                yield pytest.param(found[1], id=f"{file.name}: {found[1]}")


@pytest.mark.heavy
@pytest.mark.parametrize("line", list(written_commands()))
def test_the_commands_that_are_written_about_exist(line):
    words = re.sub(r"--config \S+", "DATA", line).split()  # the file is the reader's own
    assert callable(make_parser(words).parse_args(words).run)


def test_a_traceback_on_request(folder):
    with pytest.raises(Exception, match=r"nowhere\.csv"):
        main(["--traceback", "sweep", "nowhere.csv", "--target", "y"])


@pytest.mark.parametrize("command", ["", "sweep", "audit", "datasets"])
def test_help_teaches(command, capsys):
    out, _ = succeed(f"{command} --help", capsys)
    if command != "datasets":
        assert "skprivacy sweep demo" in out or "skprivacy audit digits" in out


def test_datasets(capsys):
    out, _ = succeed("datasets", capsys)
    assert {"adult", "digits", "demo"} <= {line.split(" ")[0] for line in out.splitlines()}
    out, _ = succeed("datasets digits", capsys)
    assert Schema.from_json(out)["pixel_0_0"] == BoundedColumn(0, 16)
    assert len(json.loads(out)["columns"]) == 64


def test_the_demo_has_digits_with_a_fifth_of_the_labels_wrong():
    found, true = (cli_data.CATALOGUE[name].load() for name in ("demo", "digits"))
    assert 0.18 < np.mean(found.target != true.target) < 0.22
    assert set(found.target) == set(range(10))
    assert np.array_equal(found.data, true.data)
    assert np.array_equal(found.target, cli_data.CATALOGUE["demo"].load().target)
    with pytest.raises(ValueError, match=r"mislabeled=1\.5 must be a share"):
        load_demo(mislabeled=1.5)


@pytest.mark.slow
def test_the_demo_shows_a_leak_without_privacy_and_none_with_it(capsys, tmp_path):
    """Measured: an AUC of .82 without privacy, and .51 at epsilon 1."""
    pytest.importorskip("torch")
    out = tmp_path / "demo.json"
    code, *_ = run(f"sweep demo --attack strongest --epsilons 1 inf --cv 2 --out {out}", capsys)
    assert code == 0
    private, free = json.loads(out.read_text())["results"][:2]
    assert private["attack_auc"] < 0.56
    assert free["attack_auc"] > 0.65


def test_a_data_set_that_is_absent_is_an_error(capsys, monkeypatch):
    def absent(**kwargs):
        raise OSError("no adult here")

    entry = cli_data.CATALOGUE["adult"]
    monkeypatch.setitem(cli_data.CATALOGUE, "adult", type(entry)(absent, entry.summary))
    refuse("sweep adult --epsilons 10", capsys, "no adult here")


REPORTED = "data.csv --schema schema.json --epsilon 1 --delta 1e-4 --attack loss --quiet"


@pytest.mark.slow
def test_the_type_of_a_report_follows_its_name(folder, capsys):
    pytest.importorskip("torch")
    line = f"audit {REPORTED} {NEVER} --author Curator --record person --seed 5"
    succeed(f"{line} --out audit.json", capsys)
    read = json.loads((folder / "audit.json").read_text(encoding="utf-8"))
    assert read["about"]["command"] == f"skprivacy {line} --out audit.json"
    assert read["about"]["data"] == "data.csv"
    assert read["about"]["author"] == "Curator"
    assert set(read["about"]["seeds"].values()) == {5}
    assert len(read["about"]["schema_digest"]) == 64
    succeed(f"{line} --out audit.csv", capsys)
    assert pd.read_csv(folder / "audit.csv")["attack"].tolist() == ["LossThreshold"]
    succeed(f"{line} --out AUDIT.HTM", capsys)
    page = (folder / "AUDIT.HTM").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "one person&#39;s record" in page
    assert f"skprivacy {line}" in page


@pytest.mark.parametrize("name", ["audit.pdf", "audit", "audit.png"])
@pytest.mark.parametrize("command", ["sweep", "audit"])
def test_other_types_of_report_are_refused_before_training(command, name, folder, capsys):
    epsilon = "--epsilons 1 --cv 2" if command == "sweep" else "--epsilon 1"
    line = f"{command} data.csv --schema schema.json {epsilon} --delta 1e-4 --out {name}"
    refuse(line, capsys, "--out must end in .html, .htm, .json, .csv")
    assert not (folder / name).exists()


def test_the_page_of_the_command_line_names_every_command():
    page = Path(__file__).parents[2] / "doc" / "reference" / "command_line.rst"
    page = page.read_text(encoding="utf-8")
    missing = {name for name in COMMANDS if f"``{name}``" not in page}
    assert not missing, "add a row to the table of doc/reference/command_line.rst"
