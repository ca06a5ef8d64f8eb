"""``skprivacy schema confirm``, at a pseudo-terminal and without one."""

import contextlib
import json
import os
import pty
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from skprivacy.attacks import LossThreshold
from skprivacy.audit import audit, claim_of
from skprivacy.certificates import issue_certificate, verify_certificate
from skprivacy.exceptions import PrivacyLeakWarning
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.persistence import load_model, save_model
from skprivacy.preprocessing import LocalPerturbation, Schema, make_private_pipeline
from skprivacy.synthesis import MarginalSynthesizer

from .shell import refuse, run, succeed

READ_OFF = "the schema is public (its bounds and categories were read off the data)"
RNG = np.random.default_rng(0)
N = 200
TABLE = pd.DataFrame(
    {
        "PatNr": RNG.integers(10**6, 10**7, 60)[RNG.integers(0, 60, N)],
        "age": RNG.integers(18, 90, N),
        "ward": RNG.choice(["A", "B"], N),
        "ill": RNG.choice(["no", "yes"], N),
    }
)


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("visits.csv", index=False)
    _, err = succeed("schema draft visits.csv --target ill --out s.json", capsys)
    assert "PatNr: left out: its name says that it identifies people" in err
    return tmp_path


@pytest.fixture
def terminal(monkeypatch):
    """Answer at a pseudo-terminal, which is standard input."""
    with contextlib.ExitStack() as stack:

        def answer(text):
            person, program = pty.openpty()
            stack.callback(os.close, person)
            stdin = stack.enter_context(os.fdopen(program, encoding="utf-8"))
            monkeypatch.setattr("sys.stdin", stdin)
            os.write(person, text.encode())

        yield answer


def confirm(capsys, options=""):
    return run(f"schema confirm s.json {options}", capsys)


def test_each_column_is_asked_about_at_a_terminal(folder, terminal, capsys):
    facts = json.loads((folder / "s.json").read_text())
    (folder / "s.json").write_text(json.dumps({"$schema": "skprivacy.schema.json"} | facts))
    terminal("yes\nperhaps\nno\ny\n")
    code, out, err = confirm(capsys, "visits.csv --by Ann")
    assert code == 1
    assert out.count("[yes/no/quit]") == 4  # one answer was none of them
    for words in ("age: a number from ", "ward: one of 2 categories: 'A', 'B'", "ill: the target"):
        assert words in out
    assert "the upper bound is the largest value: read off the data?" in out
    assert "not confirmed: ward." in err
    schema = Schema.from_json("s.json")
    assert schema.unconfirmed == ("ward",)
    assert schema["age"].confirmed.by == "Ann"
    terminal("yes\n")
    assert confirm(capsys)[0] == 0
    assert confirm(capsys)[2] == "s.json: no column is unconfirmed.\n"
    assert json.loads((folder / "s.json").read_text())["$schema"] == "skprivacy.schema.json"


def test_without_a_terminal_answers_must_be_piped_on_purpose(folder, monkeypatch, capsys):
    before = (folder / "s.json").read_bytes()
    monkeypatch.setattr("sys.stdin", StringIO("yes\n" * 9))
    refuse("schema confirm s.json", capsys, "standard input is not a terminal")
    assert (folder / "s.json").read_bytes() == before
    code, _, err = confirm(capsys, "--answers-from-stdin")
    assert (code, err) == (0, "s.json: every column is confirmed.\n")


def test_answers_so_far_are_kept(folder, terminal, capsys):
    terminal("yes\nquit\n")
    assert confirm(capsys)[0] == 1
    assert Schema.from_json("s.json").unconfirmed == ("ward", "ill")


def test_a_file_that_changes_in_the_meantime_is_left_alone(folder, monkeypatch, capsys):
    class Editing(StringIO):
        def readline(self):
            text = (folder / "s.json").read_text().replace('"B"', '"C"')
            (folder / "s.json").write_text(text)
            return "yes\n"

    monkeypatch.setattr("sys.stdin", Editing())
    code, _, err = confirm(capsys, "--answers-from-stdin")
    assert code == 2
    assert "s.json was changed in the meantime" in err
    assert Schema.from_json("s.json").unconfirmed == ("age", "ward", "ill")


def test_check_counts_the_rows_of_people(folder, capsys):
    check = "schema check s.json visits.csv"
    out, _ = succeed(check, capsys)
    sizes = TABLE["PatNr"].value_counts()
    told = f"{len(sizes)} people have {N / len(sizes):.1f} rows each on average, {sizes.max()} at"
    assert f"PatNr (an identifier by its name): {told}" in out
    assert f"PatNr (as given): {told}" in succeed(f"{check} --groups PatNr", capsys)[0]
    assert run(f"{check} --groups age", capsys)[0] == 2


@pytest.fixture
def model(folder):
    schema = Schema.from_json("s.json").confirm("age", by="Ann").confirm("ill", by="Ann")
    with pytest.warns(PrivacyLeakWarning, match="none is set"):
        model = make_private_pipeline(schema, ObjectivePerturbationClassifier())
    with pytest.warns(PrivacyLeakWarning) as warned:
        model.fit(TABLE[list(schema)], TABLE["ill"])
    assert any("bounds and categories of 'ward' were" in str(w.message) for w in warned)
    return model


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyLeakWarning")
def test_a_claim_with_one_unconfirmed_column_says_so_everywhere(model, folder):
    save_model(model, "m.safetensors")
    for found in (model, load_model("m.safetensors")):
        guarantee = claim_of(found).guarantee
        assert READ_OFF in guarantee.assumptions
        assert READ_OFF in repr(guarantee)
        assert guarantee.kind == "estimate"
    X = TABLE[["age", "ward"]]
    report = audit(
        model, X[:100], TABLE["ill"][:100], X[100:], TABLE["ill"][100:], attacks=[LossThreshold()]
    )
    for text in (repr(report), report.to_html(), json.dumps(report.to_dict())):
        assert "bounds and categories were read off the data" in text
    with pytest.raises(ValueError, match="bounds and categories were read off the data"):
        issue_certificate(model, "c.json", key="none.pem", model_file="m.safetensors")


@pytest.mark.filterwarnings("ignore::skprivacy.exceptions.PrivacyLeakWarning")
def test_models_that_read_a_schema_themselves_state_the_assumption(folder, capsys):
    schema = Schema.from_json("s.json")
    X = TABLE[list(schema)]
    for private in (LocalPerturbation(schema), MarginalSynthesizer(schema=schema)):
        assert READ_OFF in private.fit(X).privacy_.assumptions
    succeed("key k.pem", capsys)
    save_model(private, "m.safetensors")
    assert READ_OFF in load_model("m.safetensors").privacy_.assumptions
    issue_certificate(private, "c.json", key="k.pem", model_file="m.safetensors")
    assert READ_OFF in json.loads((folder / "c.json").read_text())["claim"]["words"]
    verdict = verify_certificate("c.json", "m.safetensors", key="k.pem.pub")
    assert verdict.holds
    assert READ_OFF in repr(verdict)
