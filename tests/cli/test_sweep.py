"""Sweeps and audits from a shell: numbers as targets, budgets, subgroups, a model to keep."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

import skprivacy.audit
from skprivacy import PrivacyBudget, load_model
from skprivacy.audit import claim_of
from skprivacy.linear_model import AdaSSPRegressor, OutputPerturbationClassifier
from skprivacy.model_selection import sweep_plan as _affordable
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

from .shell import refuse, run, succeed

pytestmark = pytest.mark.heavy

N = 400


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    rooms = rng.uniform(1, 9, N)
    table = pd.DataFrame({"rooms": rooms, "area": rng.choice(["north", "south"], N)})
    table["price"] = np.round(100 * rooms + rng.normal(0, 20, N), 2)
    table["sold"] = np.where(rooms + rng.normal(0, 1, N) > 5, "yes", "no")
    table.to_csv(tmp_path / "houses.csv", index=False)
    columns = {"rooms": BoundedColumn(0, 10), "area": CategoricalColumn(["north", "south"])}
    prices = Schema(columns, target_column="price", target_bounds=(0, 1200))
    prices.to_json(tmp_path / "prices.json")
    sold = Schema(columns, target_column="sold", classes=["no", "yes"])
    sold.to_json(tmp_path / "sold.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def charged():
    """Return the events that the ledger was charged, in their order."""
    return PrivacyBudget.open("b.ledger").entries()["event"].tolist()


NUMBERS = "houses.csv --schema prices.json --model AdaSSPRegressor --delta 1e-4 --quiet"
CLASSES = "houses.csv --schema sold.json --model OutputPerturbationClassifier --quiet"


@pytest.mark.everyday(1)
@pytest.mark.parametrize("attack", ["", "--attack loss"])
def test_an_audit_of_a_regression(attack, folder, capsys):
    """It was refused, although the function audits regressors."""
    line = f"audit {NUMBERS} {attack} --n-shadows 4 --alpha 1e-7 --subgroups area --out a.html"
    out, _ = succeed(f"{line} --epsilon 2 --save m.safetensors", capsys)
    assert "Audit: consistent" in out
    page = (folder / "a.html").read_text(encoding="utf-8")
    assert "area north" in page
    assert "class 1" not in page  # a price is no class
    assert claim_of(load_model("m.safetensors")).proved


def test_an_audit_finds_a_regression_that_knows_its_records(folder, capsys):
    line = "audit houses.csv --schema prices.json --model sklearn.tree.DecisionTreeRegressor"
    out, _ = succeed(f"{line} --attack loss --quiet --out a.json", capsys)
    assert "no claim" in out
    assert json.loads((folder / "a.json").read_text())["attacks"][0]["auc"] > 0.9


def test_exposed_records_are_named_on_request_by_their_rows(folder, capsys, monkeypatch):
    line = "audit houses.csv --schema prices.json --model sklearn.tree.DecisionTreeRegressor"
    line = f"{line} --attack loss --quiet --out a.html --exposed rows.csv"
    given = []
    kept = skprivacy.audit.audit

    def noting(model, X_train, *args, **kwargs):
        given.append(X_train)
        return kept(model, X_train, *args, **kwargs)

    monkeypatch.setattr(sys.modules["skprivacy.audit"], "audit", noting)
    _, err = succeed(line, capsys)
    assert "names people's records" in err
    rows = pd.read_csv(folder / "rows.csv")["row"]
    assert len(rows) > 20
    table = pd.read_csv(folder / "houses.csv")
    assert set(table["rooms"].iloc[rows - 1]) <= set(given[0]["rooms"])  # members, none else
    assert (folder / "rows.csv").stat().st_mode & 0o077 == 0
    succeed(f"audit {CLASSES} --attack loss --exposed none.csv --alpha 1e-7", capsys)
    assert pd.read_csv(folder / "none.csv").empty


@pytest.mark.slow
def test_a_sweep_of_a_regression(folder, capsys):
    line = f"sweep {NUMBERS} --epsilons 1 10 --cv 3 --out s.csv --plot s.png"
    out, _ = succeed(f"{line} --subgroups area", capsys)
    assert "Test R²" in out
    assert "accuracy" not in out
    table = pd.read_csv(folder / "s.csv")
    scores = dict(zip(table["model"], table["test_score"], strict=True))
    assert scores["histogram gradient boosting"] > 0.9
    assert -0.1 < scores["mean"] <= 0
    assert np.isfinite(table["test_score"]).all()
    assert "north" in out
    assert "south" in out


def test_a_rare_class_gets_its_own_scores_and_a_constant_model_no_recommendation(folder, capsys):
    table = pd.read_csv("houses.csv")
    table["sold"] = np.where(table["rooms"] > 8.2, "yes", "no")  # one in ten
    table.to_csv("rare.csv", index=False)
    line = f"sweep {CLASSES.replace('houses', 'rare')} --epsilons 0.01 0.02 --cv 2 --out s.csv"
    line += " --set noise_seed=1"  # one in a hundred random models is better than a constant
    out, _ = succeed(line, capsys)
    shown = pd.read_csv(folder / "s.csv")
    assert {"test_score", "test_balanced_accuracy", "test_average_precision"} <= set(shown)
    assert shown["useless"].tolist() == [True, True, False, False, False]
    assert shown["model"].iloc[-1] == "most frequent class"
    assert shown["test_balanced_accuracy"].iloc[-1] == 0.5
    assert shown["test_average_precision"].iloc[2] > 0.9  # boosting, for the rarer class
    for words in (
        "Test average_precision", "By the noise", "By the model",
        "no epsilon is recommended, as the model is useless at each",
    ):  # fmt: skip
        assert words in out
    assert "knee" not in out


def test_a_sweep_is_scored_as_asked(folder, capsys):
    line = f"sweep {CLASSES} --epsilons 1 3 --cv 2 --scoring balanced_accuracy,f1 --out s.csv"
    out, _ = succeed(line, capsys)
    assert "Test balanced_accuracy" in out
    assert "Test f1" in out
    shown = pd.read_csv(folder / "s.csv")
    assert "test_f1" in shown
    assert "test_balanced_accuracy" not in shown  # it is the first, test_score
    assert shown["test_score"].iloc[-1] == 0.5


def test_an_attack_that_compares_classes_is_refused_before_any_charge(folder, capsys):
    run("budget create b.ledger --epsilon 3 --delta 1e-3", capsys)
    for command in ("audit", "sweep --epsilons 1 --cv 2"):
        line = f"{command} {NUMBERS} --attack shokriattack --budget b.ledger"
        refuse(line, capsys, "compares classes, but the target holds numbers")
    assert len(charged()) == 0


@pytest.mark.slow
def test_labels_alone_are_audited_by_the_attack_on_labels(folder, capsys):
    """The attacks by default are on membership, and were refused after the model was charged."""
    line = "houses.csv --schema sold.json --model RandomizedResponseClassifier --quiet"
    out, _ = succeed(f"audit {line} --epsilon 3 --alpha 1e-7", capsys)
    assert "label" in out
    succeed(f"sweep {line} --epsilons 3 --cv 2", capsys)
    run("budget create b.ledger --epsilon 3", capsys)
    for more, words in (
        ("--attack rmia", "labels alone"),
        ("--subgroups area", "hides no members"),
        ("--rows 150", "at least 100 training records"),
    ):
        refuse(f"audit {line} {more} --budget b.ledger", capsys, words)
    assert len(charged()) == 0


def test_a_sweep_charges_a_budget_and_keeps_one_model(folder, capsys):
    run("budget create b.ledger --epsilon 12", capsys)
    run("key k.pem", capsys)
    line = (
        f"sweep {CLASSES} --epsilons 1 3 --cv 2 --refit 3 --budget b.ledger "
        "--save m.safetensors --certificate c.json --key k.pem --out s.json"
    )
    out, _ = succeed(line, capsys)
    assert "if this epsilon was chosen before any score was seen:\nguarantee: 3.00-DP" in out
    budget = PrivacyBudget.open("b.ledger")
    assert len(charged()) == 5  # two splits at two epsilons, and the last model
    assert budget.guarantee().epsilon() == pytest.approx(11)
    told = json.loads((folder / "s.json").read_text())
    assert told["about"]["ledger_digest"] == budget.digest
    assert f"ledger digest: {budget.digest[:16]}\n" in out
    assert any("rollback" in assumption for assumption in told["assumptions"])
    assert "A rollback of the ledger to an older copy cannot be noticed" in out
    out, _ = succeed("verify c.json m.safetensors --key k.pem.pub --schema sold.json", capsys)
    assert "epsilon of all charges: 11" in out


@pytest.mark.parametrize("cap", [10.9, 0.5])
def test_a_budget_that_cannot_pay_for_all_models_is_told_before_the_first(cap, folder, capsys):
    """It ended the sweep in the middle, after some charges."""
    run(f"budget create b.ledger --epsilon {cap}", capsys)
    line = f"sweep {CLASSES} --epsilons 1 3 --cv 2 --refit 3 --save m.safetensors"
    code, out, _ = run(f"{line} --budget b.ledger", capsys)
    assert code == 1
    assert "cannot pay for all models" in out
    assert "Nothing was trained or charged" in out
    assert len(charged()) == 0
    assert not (folder / "m.safetensors").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"sweep {CLASSES} --budget b.ledger", "no budget can pay for"),
        (
            f"sweep {CLASSES} --epsilons 1 --budget none.ledger",
            "none.ledger does not exist",
        ),
        (f"sweep {CLASSES} --epsilons 1 --budget b.ledger --scope typo", "no scope 'typo'"),
        (f"sweep {CLASSES} --epsilons 1 --certificate c.json", "Pass --save"),
        (f"sweep {NUMBERS} --epsilons 1 --cv 1", "--cv must be at least 2"),
        (f"sweep {NUMBERS} --epsilons 1 --scoring f1", "--scoring f1 does not suit the target"),
        (f"sweep {CLASSES} --epsilons 1 --scoring f1,f2", "--scoring 'f2' is not known"),
        (f"sweep {CLASSES.replace('Output', 'Objective')} --epsilons 1 --set alpha=-1", "alpha"),
    ],
)
def test_mistakes_are_one_line_before_any_charge(line, words, folder, capsys, monkeypatch):
    run("budget create b.ledger --epsilon 3", capsys)
    for kind in (OutputPerturbationClassifier, AdaSSPRegressor):
        monkeypatch.setattr(kind, "fit", lambda *args: pytest.fail("trained"))
    refuse(line, capsys, words)
    assert len(charged()) == 0


def test_an_interrupted_sweep_goes_on_and_pays_once(folder, capsys, monkeypatch):
    run("budget create b.ledger --epsilon 9", capsys)
    line = f"sweep {CLASSES} --epsilons 1 2 --cv 2 --budget b.ledger --resume kept --out s.json"
    fit, fits = OutputPerturbationClassifier.fit, []

    def interrupted(self, *args):
        fits.append(self)
        if len(charged()) == 3:
            raise KeyboardInterrupt
        return fit(self, *args)

    monkeypatch.setattr(OutputPerturbationClassifier, "fit", interrupted)
    code, _, err = run(line, capsys)
    assert code == 130
    assert err.endswith("interrupted; run the same command to resume from kept\n")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    succeed(line, capsys)
    assert len(charged()) == 4
    first = json.loads((folder / "s.json").read_text())["results"]
    succeed(line, capsys)
    assert len(charged()) == 4
    again = json.loads((folder / "s.json").read_text())["results"]
    assert [row["test_score"] for row in again] == [row["test_score"] for row in first]
    code, _, err = run(line.replace("--cv 2", "--cv 3"), capsys)
    assert (code, "splits differ" in err) == (2, True)


def test_who_pays_is_told(folder, capsys):
    line = f"sweep {CLASSES} --epsilons 1 --cv 3 --subgroups area --out s.json"
    out, _ = succeed(line, capsys)
    assert "Pays" in out
    told = json.loads((folder / "s.json").read_text())["by_group"]
    assert {row["group"] for row in told} == {"north", "south"}


def test_a_trained_model_is_kept_whatever_happens_to_its_audit(folder, capsys, monkeypatch):
    """It was written after the audit, so that an interrupt lost what had been paid for."""

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("skprivacy.audit.runner.run_attacks", interrupted)
    line = f"audit {CLASSES} --epsilon 1 --attack loss --save m.safetensors"
    assert run(line, capsys)[0] == 130
    assert claim_of(load_model("m.safetensors")).proved


def test_the_rehearsal_reads_what_the_sweep_will_fit(folder, capsys, monkeypatch):
    """Each charge that was foreseen is one of those that are made, in this order."""
    run("budget create b.ledger --epsilon 12", capsys)
    foreseen = []
    check = _affordable.check_affordable

    def noting(fits):
        foreseen.extend(_affordable.rehearse_models(fits))
        check(fits)

    monkeypatch.setattr("skprivacy.model_selection.sweep.check_affordable", noting)
    line = f"sweep {CLASSES} --epsilons 1 3 --cv 2 --refit 3 --save m.safetensors"
    succeed(f"{line} --budget b.ledger", capsys)
    assert [stated.event for stated in foreseen] == charged()


@pytest.mark.slow
def test_reports_say_that_a_rollback_cannot_be_noticed(folder, capsys):
    notice = "A rollback of the ledger to an older copy cannot be noticed"
    run("budget create b.ledger --epsilon 12", capsys)
    run("budget create counted.ledger --epsilon 12 --counter counter", capsys)
    digest = PrivacyBudget.open("b.ledger").digest
    line = f"audit {CLASSES} --epsilon 1 --attack loss --rows 200 --alpha 1e-9"
    for ledger, noticed in (
        ("b.ledger", False), (f"b.ledger --expect {digest}", True), ("counted.ledger", True)
    ):  # fmt: skip
        out, _ = succeed(f"{line} --budget {ledger} --out report.html", capsys)
        assert (notice in out) != noticed
        assert (notice in (folder / "report.html").read_text()) != noticed
        run(f"{line} --budget {ledger} --out report.json", capsys)
        told = json.loads((folder / "report.json").read_text())["caveats"]
        assert any(notice in caveat for caveat in told) != noticed
        line_of_sweep = f"sweep {CLASSES} --epsilons 1 --cv 2 --budget {ledger} --out sweep.html"
        out, _ = succeed(line_of_sweep, capsys)
        assert (notice in out) != noticed
        assert (notice in (folder / "sweep.html").read_text()) != noticed
