"""``skprivacy audit MODEL DATA``: the model that was trained, its members, and its digest."""

import hashlib
import json
import os
import stat

import numpy as np
import pandas as pd
import pytest

from skprivacy import load_model
from skprivacy.accounting import ApproxDPEvent, GaussianEvent, PrivacyBudget, PrivacyGuarantee
from skprivacy.audit import audit as audit_function
from skprivacy.cli import main
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

from .shell import refuse, succeed

N = 400
TRAIN = (
    "train t.csv --schema s.json --model ObjectivePerturbationClassifier --epsilon 2 --quiet "
    "--save m.safetensors"
)
AUDIT = "audit m.safetensors t.csv --attack loss --quiet --alpha 1e-9"  # how often it accuses


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a table, its schema, and a model of one half of it, with its members."""
    folder, before = tmp_path_factory.mktemp("saved"), os.getcwd()
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(0, 100, N), "city": rng.choice(["Rome", "Oslo"], N)})
    table["ill"] = np.where(table["age"] + rng.normal(0, 10, N) > 50, "yes", "no")
    table["patient"] = np.arange(N) // 2
    columns = {"age": BoundedColumn(0, 100), "city": CategoricalColumn(["Rome", "Oslo"])}
    os.chdir(folder)
    try:
        table.to_csv("t.csv", index=False)
        Schema(columns, target_column="ill", classes=["no", "yes"]).to_json("s.json")
        assert main(f"{TRAIN} --hold-out 0.5 --members members.csv".split()) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def test_the_trained_model_is_audited_with_its_own_members(folder, capsys, monkeypatch):
    seen = []

    def noting(model, X_train, y_train, X_test, y_test, **given):
        seen.append((model, X_train, X_test))
        return audit_function(model, X_train, y_train, X_test, y_test, **given)

    monkeypatch.setitem(vars(__import__("sys").modules["skprivacy.audit"]), "audit", noting)
    out, _ = succeed(f"{AUDIT} --members members.csv --out a.html", capsys)
    digest = hashlib.sha256((folder / "m.safetensors").read_bytes()).hexdigest()
    assert f"model file: m.safetensors, SHA-256 {digest}" in out
    assert "claimed: 2.00-DP" in out
    page = (folder / "a.html").read_text()
    assert f"<dt>Model file, SHA-256</dt><dd><code>{digest}</code></dd>" in page
    succeed(f"{AUDIT} --members members.csv --out a.json", capsys)
    assert json.loads((folder / "a.json").read_text())["about"]["model_digest"] == digest
    model, X_train, X_test = seen[0]
    table, member = pd.read_csv("t.csv"), pd.read_csv("members.csv")["member"] == 1
    assert member.sum() == N // 2
    assert X_train["age"].tolist() == table.loc[member, "age"].tolist()
    assert X_test["age"].tolist() == table.loc[~member, "age"].tolist()
    stored = load_model("m.safetensors")
    assert (model.predict_proba(X_test) == stored.predict_proba(X_test)).all()


def test_the_members_are_those_that_were_trained_on(folder, capsys, monkeypatch):
    """Records of the fit and rows of the file, compared where both are seen."""
    from skprivacy.linear_model import ObjectivePerturbationClassifier

    fitted, original = [], ObjectivePerturbationClassifier.fit

    def noting(self, X, y):
        fitted.append(np.asarray(X)[:, 0])
        return original(self, X, y)

    monkeypatch.setattr(ObjectivePerturbationClassifier, "fit", noting)
    line = TRAIN.replace("m.safetensors", "again.safetensors")
    succeed(f"{line} --hold-out 0.3 --seed 3 --members again.csv", capsys)
    assert stat.S_IMODE((folder / "again.csv").stat().st_mode) == 0o600
    member = pd.read_csv("again.csv")["member"].to_numpy() == 1
    ages = pd.read_csv("t.csv")["age"].to_numpy()[member]
    first = np.sort(fitted[0])
    assert len(first) == member.sum() == 280
    assert np.corrcoef(first, np.sort(ages))[0, 1] == pytest.approx(1.0, abs=1e-9)


def test_two_tables_are_members_and_others(folder, capsys):
    table = pd.read_csv("t.csv")
    member = pd.read_csv("members.csv")["member"] == 1
    table[member].to_csv("in.csv", index=False)
    table[~member].to_csv("out.csv", index=False)
    line = AUDIT.replace("t.csv", "in.csv") + " --non-members out.csv --out b.json"
    succeed(line, capsys)
    succeed(f"{AUDIT} --members members.csv --out a.json", capsys)
    found = [json.loads((folder / name).read_text()) for name in ("a.json", "b.json")]
    assert found[0]["attacks"] == found[1]["attacks"]


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ("3", "claimed: 3.00-DP, add-remove"),
        ("3,1e-6", "claimed: (3.00, 1e-06)-DP, add-remove"),
        ("guarantee.json", "claimed: (3.00, 1e-05)-DP, zero-out"),
        ("event.json", "1e-05)-DP, add-remove"),
    ],
)
def test_a_claim_is_passed_as_number_pair_or_file(claim, words, folder, capsys):
    stated = PrivacyGuarantee(ApproxDPEvent(3.0, 1e-5), 1e-5, relation="zero_out")
    (folder / "guarantee.json").write_text(json.dumps(stated.to_dict()))
    (folder / "event.json").write_text(json.dumps(GaussianEvent(1.0).to_dict()))
    out, _ = succeed(f"{AUDIT} --members members.csv --claim {claim}", capsys)
    assert words in out
    assert "claimed by the model itself: 2.00-DP" in out


def test_a_saved_model_is_certified_with_its_audit_and_its_ledger(folder, capsys):
    """The certificate of a training holds no audit, and the audit of its model gave none."""
    succeed("budget create b.ledger --epsilon 3", capsys)
    succeed("key hospital.pem", capsys)
    line = f"{TRAIN} --budget b.ledger --hold-out 0.5 --members c.csv --key hospital.pem"
    line = line.replace("m.safetensors", "c.safetensors")
    _, err = succeed(f"{line} --certificate early.json", capsys)
    assert "It holds no audit. `skprivacy audit MODEL DATA --certificate` writes one" in err
    spent = PrivacyBudget.open("b.ledger").spent()
    line = AUDIT.replace("m.safetensors", "c.safetensors")
    line = f"{line} --members c.csv --budget b.ledger --certificate late.json --key hospital.pem"
    _, err = succeed(line, capsys)
    assert "It holds no audit" not in err
    assert PrivacyBudget.open("b.ledger").spent() == spent
    line = "verify late.json c.safetensors --key hospital.pem.pub --extends early.json"
    out, _ = succeed(line, capsys)
    assert out.startswith("VERIFIED")
    for words in ("holds: the audit: consistent", "it begins with all", "LossThreshold: AUC"):
        assert words in out
    refuse(line.replace("early.json", "s.json"), capsys, "extends='s.json' is not a certificate")


def test_groups_are_members_as_a_whole(folder, capsys):
    line = f"{TRAIN} --groups patient".replace("m.safetensors", "g.safetensors")
    succeed(f"{line} --hold-out 0.5 --members g.csv", capsys)
    line = AUDIT.replace("m.safetensors", "g.safetensors")
    out, _ = succeed(f"{line} --groups patient --members g.csv", capsys)
    assert "per patient" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (AUDIT, "Pass --members FILE.csv"),
        (f"{AUDIT} --members members.csv --non-members t.csv", "Pass --members FILE.csv"),
        (f"{AUDIT} --members t.csv", "no column 'member'"),
        (f"{AUDIT} --members members.csv --rows 10", "400 rows; expected one for each of the 10"),
        (f"{AUDIT} --members ones.csv", "the same value for all records"),
        (f"{AUDIT} --members wrong.csv", "row 2 of column 'member' in wrong.csv is neither"),
        (f"{AUDIT} --members members.csv --epsilon 1", "--epsilon is for training"),
        (f"{AUDIT} --members members.csv --budget b --set a=1", "--set and --budget is for"),
        (f"{AUDIT} --members members.csv --certificate c.json", "--certificate signs a saved"),
        (
            f"{AUDIT} --members members.csv --certificate c.json --key k.pem --claim 1",
            "--certificate signs an audit of the model's own claim",
        ),
        (f"{AUDIT} --members members.csv --schema s.json", "holds its own schema"),
        (f"{AUDIT} --members members.csv --claim 1,2", "below 1"),
        (f"{AUDIT} --members members.csv --claim one", "expected EPSILON, EPSILON,DELTA"),
        (f"{AUDIT} --members members.csv --claim s.json", "expected EPSILON, EPSILON,DELTA"),
        (f"{AUDIT} --members members.csv --out members.csv", "is a file that this command reads"),
        ("audit t.csv t.csv --members members.csv", "not a safetensors file"),
        ("audit p.safetensors t.csv --members members.csv", "not a safetensors file"),
        ("audit t.csv --schema s.json --members members.csv", "Pass MODEL before DATA"),
        ("train t.csv --schema s.json --members new.csv", "Pass both"),
        (f"{TRAIN} --hold-out 0.5 --members no/new.csv", "does not exist. Create it first"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_attacked(line, words, folder, capsys):
    pd.DataFrame({"member": np.ones(N, int)}).to_csv("ones.csv", index=False)
    pd.DataFrame({"member": [1, 2, *np.zeros(N - 2, int)]}).to_csv("wrong.csv", index=False)
    (folder / "p.safetensors").write_bytes(b"\x80\x04cos\nsystem\n(S'false'\ntR.")  # a pickle
    refuse(line, capsys, words)
