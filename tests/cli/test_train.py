"""From a table to a saved model and a certificate, only by the command line."""

import json
import re
import subprocess
import sys
import warnings
from io import StringIO

import numpy as np
import pandas as pd
import pytest

from skprivacy import PrivacyBudget, attacks, load_model
from skprivacy.accounting import LaplaceEvent
from skprivacy.audit import claim_of
from skprivacy.base import PrivateEstimatorMixin
from skprivacy.cli import registry as _names
from skprivacy.linear_model import ObjectivePerturbationClassifier
from skprivacy.preprocessing import BoundedColumn, CategoricalColumn, Schema

from .shell import refuse, run, succeed

pytestmark = pytest.mark.heavy

N = 400
READ_OFF = "the schema is public (its bounds and categories were read off the data)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A stranger's table, with German separators and marks, and no schema."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 91, N)
    table = pd.DataFrame(
        {
            "age": age,
            "weight": np.round(rng.normal(75, 10, N), 1),
            "smokes": rng.choice(["Yes", "No"], N),
            "ill": np.where(age + rng.normal(0, 5, N) > 50, "yes", "no"),
            "cost": np.round(100.0 * age + rng.normal(0, 50, N), 2),
        }
    )
    table.to_csv(tmp_path / "patients.csv", sep=";", decimal=",", index=False)
    monkeypatch.chdir(tmp_path)
    columns = {
        "age": BoundedColumn(0, 120, unit="years"),
        "weight": BoundedColumn(30, 200),
        "smokes": CategoricalColumn(["No", "Yes"]),
    }
    classes = Schema(columns, target_column="ill", classes=["no", "yes"])
    classes.to_json(tmp_path / "schema.json")
    costs = Schema(columns, target_column="cost", target_bounds=(0, 10_000))
    costs.to_json(tmp_path / "costs.json")
    return tmp_path


def test_help_needs_no_scikit_learn():
    code = (
        "import sys; from skprivacy.cli import main; assert main(['--help']) == 0; "
        "print([m for m in ('sklearn', 'pandas', 'numpy', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


LINEAR = "--model ObjectivePerturbationClassifier"


def test_from_a_table_to_a_certificate(folder, capsys, monkeypatch):
    """The commands of a new user: draft, confirm, check, train, verify, predict."""
    _, err = succeed("schema draft patients.csv --target ill --out draft.json", capsys)
    assert "READ OFF THE DATA" in err
    assert "--sep semicolon --decimal ','" in err
    facts = json.loads((folder / "draft.json").read_text())
    del facts["columns"]["cost"]
    (folder / "patients.json").write_text(json.dumps(facts))
    confirm = "schema confirm patients.json patients.csv --answers-from-stdin --by Ann"
    monkeypatch.setattr("sys.stdin", StringIO("yes\n" * 3))
    code, _, err = run(confirm, capsys)
    assert (code, "not confirmed: ill." in err) == (1, True)
    _, _, err = run("schema check patients.json patients.csv", capsys)
    assert "not confirmed, so not private: ill" in err
    monkeypatch.setattr("sys.stdin", StringIO("yes\n"))
    succeed(confirm, capsys)
    succeed("schema check patients.json patients.csv", capsys)
    succeed("key hospital.pem", capsys)
    succeed("budget create patients.ledger --epsilon 3 --delta 1e-5", capsys)
    line = (
        f"train patients.csv --schema patients.json --epsilon 2 {LINEAR} --hold-out 0.25 "
        "--budget patients.ledger --save model.safetensors --certificate certificate.json "
        "--key hospital.pem --issuer Hospital"
    )
    out, _ = succeed(line, capsys)
    assert "guarantee: 2.00-DP, add-remove, floating-point noise, proved\n" in out
    assert "accuracy on 100 other records" in out
    assert "not private" in out
    found = (
        "verify certificate.json model.safetensors --key hospital.pem.pub --schema patients.json"
    )
    out, _ = succeed(found, capsys)
    assert out.startswith("VERIFIED: ")
    assert "by Hospital" in out
    out, _ = succeed("predict model.safetensors patients.csv --probabilities", capsys)
    shown = [line.split(",") for line in out.splitlines()]
    assert shown[0] == ["no", "yes"]
    assert len(shown) == N + 1
    succeed("predict model.safetensors patients.csv --out p.csv", capsys)
    truth = pd.read_csv(folder / "patients.csv", sep=";")["ill"]
    assert (pd.read_csv(folder / "p.csv")["prediction"] == truth).mean() > 0.5  # about .94
    code, out, _ = run(line, capsys)  # 2 + 2 exceed the cap of 3
    assert code == 1
    assert "refused" in out
    assert PrivacyBudget.open("patients.ledger").guarantee().epsilon() <= 2


def test_a_draft_is_an_estimate_and_gets_no_certificate(folder, capsys):
    run("schema draft patients.csv --target ill --out draft.json", capsys)
    line = f"train patients.csv --schema draft.json {LINEAR} --save m.safetensors"
    out, err = succeed(line, capsys)
    assert "estimate" in out
    assert "proved" not in out
    assert "not confirmed" in err
    assert READ_OFF in out
    guarantee = claim_of(load_model("m.safetensors")).guarantee
    assert guarantee.kind == "estimate"
    assert READ_OFF in guarantee.assumptions
    run("key k.pem", capsys)
    refuse(
        f"{line} --certificate c.json --key k.pem",
        capsys,
        "the schema was read off the data",
        "Confirm by `skprivacy schema confirm`: age, weight, smokes, cost, ill.",
    )
    assert not (folder / "c.json").exists()


def test_other_spellings_are_told(folder, capsys):
    text = (folder / "schema.json").read_text()
    (folder / "schema.json").write_text(text.replace('"No"', '"no"').replace('"Yes"', '"yes"'))
    code, out, _ = run("schema check schema.json patients.csv", capsys)
    assert code == 1
    assert "smokes: 100.00% unknown" in out
    assert "the schema has 'no'" in out
    assert "private data: do not publish" in out
    _, _, err = run(f"train patients.csv --schema schema.json {LINEAR}", capsys)
    assert "does not know values of smokes (100%)" in err


@pytest.mark.parametrize(
    "model", ["", "--model AdaSSPRegressor", "--model PrivateAdditiveRegressor"]
)
def test_a_regression(model, folder, capsys):
    if not model:  # a network by default
        pytest.importorskip("torch")
    line = f"train patients.csv --schema costs.json {model} --hold-out 0.5 --save m.safetensors"
    out, _ = succeed(f"{line} --epsilon 5 --delta 1e-4", capsys)
    assert "R2 on 200 other records" in out
    assert "proved" in out
    succeed("predict m.safetensors patients.csv", capsys)


def test_a_model_is_scored_beside_the_most_frequent_class(folder, capsys):
    """A constant model had the share of the class as its accuracy, without another word."""
    line = "train patients.csv --schema schema.json --hold-out 0.5"
    constant = f"{line} --model sklearn.dummy.DummyClassifier"
    out, _ = succeed(f"{constant} --scoring accuracy,balanced_accuracy,f1", capsys)
    shown = dict(re.findall(r"(\w+) on 200 other records: (\S+ \(most .*\)), not private", out))
    assert list(shown) == ["accuracy", "balanced_accuracy", "f1"]
    scores = [part.split(" (most frequent class: ") for part in shown.values()]
    assert all(score == f"{floor.rstrip(')')}" for score, floor in scores)
    assert shown["balanced_accuracy"].startswith("0.500")
    assert shown["f1"].startswith("0.000")  # of the rarer class
    assert "The model is useless by accuracy: it is not better than the most frequent" in out
    out, _ = succeed(f"{line} {LINEAR} --epsilon 9", capsys)
    assert "useless" not in out
    line = line.replace("schema.json", "costs.json").replace("0.5", "0.9")
    _, out, _ = run(f"{line} --model sklearn.dummy.DummyRegressor", capsys)
    assert "(mean: 0.000), not private" in out
    assert "The model is useless by R2: it is not better than the mean." in out


def test_options_from_a_file(folder, capsys):
    (folder / "run.toml").write_text(
        'data = "patients.csv"\nschema = "schema.json"\nepsilon = 3\nquiet = true\n'
        'model = "ObjectivePerturbationClassifier"\nhold-out = 0.5\n[set]\nalpha = 0.01\n'
    )
    out, _ = succeed("train --config run.toml", capsys)
    assert "3.00-DP" in out
    assert "200 other records" in out
    _, out, _ = run("train --config=run.toml --epsilon 2", capsys)
    assert "2.00-DP" in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epsilo = 1", "'epsilo' is not an option of this command"),
        ("epsilon = 'one'", "epsilon = 'one'"),
        ("epsilon = true", "epsilon = True"),
        ("quiet = 1", "must be true or false"),
        ("decimal = '!'", "invalid choice: '!'"),
        ("target = true", "target = True must be text or a number"),
        ("[model]\nname = 1", r"[model] is a table"),
        ("a = ", "is not TOML"),
    ],
)
def test_a_wrong_file_of_options(text, words, folder, capsys):
    (folder / "run.toml").write_text(text)
    refuse("train patients.csv --config run.toml", capsys, words)
    refuse("train patients.csv --config none.toml", capsys, "none.toml cannot be read")


def test_lists_in_a_file(folder, capsys):
    (folder / "sweep.toml").write_text(
        'data = "patients.csv"\nschema = "schema.json"\nepsilons = [1, inf]\ncv = 2\n'
        'model = "OutputPerturbationClassifier"\nquiet = true\nout = "out.csv"\n'
    )
    succeed("sweep --config sweep.toml", capsys)
    table = pd.read_csv(folder / "out.csv")
    assert table["epsilon"][~table["baseline"]].tolist() == [1, np.inf]


def test_parameters_of_the_model(folder, capsys):
    pytest.importorskip("torch")
    line = "train patients.csv --schema schema.json --save m.safetensors --delta 1e-4"
    parameters = (
        "hidden_layer_sizes=(4,3)", "epochs=2", "optimizer=adam", "optimizer__momentum=0.5",
        "max_grad_norm__method=automatic", "class_prior=[0.9,0.1]",
    )  # fmt: skip
    succeed(" --set ".join([line, *parameters]), capsys)
    model = load_model("m.safetensors")[-1]
    assert model.hidden_layer_sizes in ((4, 3), [4, 3])
    assert (model.epochs, model.optimizer.method, model.optimizer.momentum) == (2, "adam", 0.5)
    assert model.max_grad_norm.method == "automatic"
    assert model.class_prior_ == pytest.approx([0.9, 0.1])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--model Perceptron", "--model 'Perceptron' is not known"),
        ("--model os.path", "is not an estimator"),
        ("--model no.such.Thing", "No module named"),
        ("--model AdaSSPRegressor", "predicts numbers, but the target of patients.csv holds"),
        ("--set epochs", "expected NAME=VALUE"),
        (f"{LINEAR} --set epochs=5", "'epochs'. The parameters of ObjectivePerturbationClassifier"),
        ("--set epoch=5", "no parameter 'epoch'. The parameters of DPSGDClassifier are"),
        ("--set optimizer__x=5", "Invalid parameter 'x'"),
        (f"{LINEAR} --set alpha=-1", "alpha"),
        ("--save model.pkl", "--save must end in .safetensors"),
        ("--certificate c.json", "Pass --save"),
        ("--save m.safetensors --certificate c.json --key none.pem", "none.pem"),
        ("--budget none.ledger", "the ledger none.ledger does not exist"),
        ("--hold-out 1", "--hold-out must be at least 0 and below 1"),
        ("--bins 0", "expected a number of bins, none or auto"),
        ("--scoring f1", "Pass both"),
        ("--hold-out 0.5 --scoring best", "--scoring 'best' is not known"),
        ("--hold-out 0.5 --scoring f1,f1", "names a score twice"),
        ("--hold-out 0.5 --scoring r2", "--scoring r2 does not suit the target"),
        ("--model sklearn.linear_model.LogisticRegression --budget b.ledger", "is not private"),
    ],
)
def test_a_mistake_is_one_line_before_training(line, words, folder, capsys, monkeypatch):
    if "DPSGDClassifier" in words:
        pytest.importorskip("torch")
    if "b.ledger" in line:
        run("budget create b.ledger --epsilon 1", capsys)
    refuse(f"train patients.csv --schema schema.json {line}", capsys, words)
    assert list(folder.glob("*.safetensors")) == []


def test_a_wrong_epsilon_is_refused_before_any_warning(folder, capsys):
    """The warnings about a schema that is read off the data came first, and hid the error."""
    for command in ("audit", "train"):
        code, _, err = run(f"{command} patients.csv --target ill --epsilon -1", capsys)
        assert (code, "epsilon must be positive; got -1" in err) == (2, True)
        assert "WARNING" not in err


def test_training_shows_the_digest_that_it_expects_next_time(folder, capsys):
    run("budget create b.ledger --epsilon 9", capsys)
    older = (folder / "b.ledger").read_bytes()
    train = f"train patients.csv --schema schema.json {LINEAR} --budget b.ledger"
    out, _ = succeed(train, capsys)
    digest = PrivacyBudget.open("b.ledger").digest[:16]
    assert f"ledger digest: {digest}\n" in out
    code, out, _ = run(f"{train} --set epochs=5 --expect {digest}", capsys)
    assert (code, out) == (2, "")  # a mistake after the digest was accepted
    (folder / "b.ledger").write_bytes(older)
    rest = train.removeprefix("train")
    for line in (f"train{rest}", f"audit{rest}", f"sweep{rest} --epsilons 1"):
        refuse(f"{line} --expect {digest}", capsys, "restored from an older copy")
    assert (folder / "b.ledger").read_bytes() == older
    line = f"{train.partition(' --budget')[0]} --expect x"
    refuse(line, capsys, "Pass --budget LEDGER as well")


def test_a_failed_fit_that_was_charged_shows_the_digest(folder, capsys, monkeypatch):
    run("budget create b.ledger --epsilon 9", capsys)

    def fails(self, X, y):
        with (
            self._private_fit() as fit,
            fit.charged(LaplaceEvent(1.0), relation="add_remove", at_delta=0.0),
        ):
            raise ValueError("no luck")

    monkeypatch.setattr(ObjectivePerturbationClassifier, "fit", fails)
    line = f"train patients.csv --schema schema.json {LINEAR} --budget b.ledger"
    code, out, err = run(line, capsys)
    assert (code, "no luck" in err) == (2, True)
    assert out == f"ledger digest: {PrivacyBudget.open('b.ledger').digest[:16]}\n"


def test_a_model_without_privacy_claims_nothing(folder, capsys):
    line = "--model sklearn.linear_model.LogisticRegression --save m.safetensors"
    code, out, err = run(f"train patients.csv --schema schema.json {line}", capsys)
    assert "no claim" in out
    assert code == 2
    assert "cannot be saved without pickle" in err


def test_votes_on_public_records(folder, capsys):
    table = pd.read_csv(folder / "patients.csv", sep=";", decimal=",")
    table[200:].drop(columns=["ill", "cost"]).to_csv(folder / "agreed.csv", index=False)
    table[:200].to_csv(folder / "own.csv", index=False)
    line = "train own.csv --schema schema.json --model PATEClassifier --set n_teachers=10"
    more = "--public agreed.csv --epsilon 8 --delta 1e-4 --save m.safetensors"
    out, err = succeed(f"{line} {more}", capsys)
    assert "agreed.csv: 200 public records" in err
    assert "queries are drawn" not in err
    assert "proved assuming the public records and their choice depend on no private" in out
    found = load_model("m.safetensors").predict(table[["age", "weight", "smokes"]])
    assert set(found) <= {"yes", "no"}  # how well it does is a matter of the noise


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--public agreed.csv", "DPSGDClassifier is not one. Pass --model PATEClassifier"),
        ("--model PATEClassifier --public none.csv", "the file none.csv does not exist"),
        ("--model PATEClassifier --public agreed.csv", "columns of the private records: age"),
        ("--model PrivateKNNClassifier", "measures distances between numbers, but smokes"),
    ],
)
def test_public_records_that_are_of_no_use_are_told_before_any_charge(line, words, folder, capsys):
    if "DPSGDClassifier" in words:
        pytest.importorskip("torch")
    (folder / "agreed.csv").write_text("weight,smokes\n70,Yes\n80,No\n")
    run("budget create b.ledger --epsilon 3 --delta 1e-3", capsys)
    line = f"train patients.csv --schema schema.json --delta 1e-4 --budget b.ledger {line}"
    refuse(line, capsys, words)
    assert PrivacyBudget.open("b.ledger").entries().empty


def test_an_audit_with_any_attack_is_certified(folder, capsys):
    run("key k.pem", capsys)
    run("budget create b.ledger --epsilon 3", capsys)
    line = (
        f"audit patients.csv --schema schema.json {LINEAR} --attack loss,rmia --n-shadows 4 "
        "--alpha 1e-7 --quiet --budget b.ledger --save m.safetensors --certificate c.json "
        "--key k.pem --out audit.json"
    )
    succeed(line, capsys)
    read = json.loads((folder / "audit.json").read_text())
    assert {finding["attack"] for finding in read["attacks"]} == {"LossThreshold", "RMIA"}
    assert read["about"]["ledger_digest"] == PrivacyBudget.open("b.ledger").digest
    out, _ = succeed("verify c.json m.safetensors --key k.pem.pub", capsys)
    assert "RMIA: AUC" in out


def test_the_names_are_those_of_the_library():
    pytest.importorskip("torch")
    found = {
        name
        for name in attacks.__all__
        if isinstance(getattr(attacks, name), type)
        and issubclass(getattr(attacks, name), attacks.MembershipAttack)
    }
    # Of the shell's attacks a model is the target, not the updates of a federation.
    left_out = {"MembershipAttack", "UpdatesMembership"}
    assert set(_names.ATTACKS) == found - left_out, "add it to ATTACKS in cli/registry.py"
    for name in _names.ATTACKS:
        assert _names.attack_class(name.lower()).__name__ == name
    from skprivacy import additive_model, ensemble, label_privacy, linear_model, neural_network

    packages = (additive_model, ensemble, label_privacy, linear_model, neural_network)
    private = {
        name
        for package in packages
        for name in package.__all__
        if isinstance(getattr(package, name), type)
        and issubclass(getattr(package, name), PrivateEstimatorMixin)
    }
    expected = private - {"DPNeuralNet"}  # which needs a module
    assert set(_names.MODELS) == expected, "add it to MODELS in cli/registry.py"
    for name in _names.MODELS:
        assert _names.model_class(name.lower()).__name__ == name


def test_a_draft_overwrites_no_schema(folder, capsys):
    refuse(
        "schema draft patients.csv --out schema.json",
        capsys,
        "schema.json exists, perhaps reviewed",
    )
    out, _ = succeed("schema draft patients.csv", capsys)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Schema.from_json(out).inferred
    assert json.loads(run("schema format", capsys)[1])["title"] == "Schema of skprivacy"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("schema draft nowhere.csv", "the file nowhere.csv does not exist"),
        ("schema draft patients.csv --target sick", "no column 'sick'"),
        ("schema check none.json patients.csv", "the schema file none.json does not exist"),
        ("predict none.safetensors patients.csv", "the file none.safetensors does not exist"),
        ("key schema.json", "schema.json"),
    ],
)
def test_other_mistakes_are_one_line(line, words, folder, capsys):
    refuse(line, capsys, words)


@pytest.mark.parametrize("model", ["AdaSSPRegressor", "PrivateAdditiveRegressor"])
@pytest.mark.parametrize("engine", ["duckdb", "polars", "pyarrow"])
def test_a_parquet_file_is_trained_on_in_an_engine(folder, capsys, engine, model):
    pytest.importorskip(engine, reason="the engine of the option")
    table = pd.read_csv("patients.csv", sep=";", decimal=",").assign(who=np.arange(N) // 2, other=1)
    table.to_parquet("patients.parquet", index=False)
    code, printed = run(
        f"train patients.parquet --schema costs.json --model {model} --groups who "
        f"--engine {engine} --save model.safetensors",
        capsys,
    )[:2]
    assert code == 0
    assert "per who" in str(printed)
    loaded = load_model("model.safetensors")
    assert np.isfinite(loaded.predict(table[["age", "weight", "smokes"]])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--schema costs.json --hold-out 0.2", "--hold-out reads rows into memory"),
        ("--target cost", "Pass --schema FILE"),
        ("--schema costs.json --model DPSGDRegressor", "needs more than sums"),
        ("--schema costs.json --groups nobody", "no column 'nobody'"),
    ],
)
def test_an_engine_refuses_what_needs_rows(folder, capsys, options, message):
    table = pd.read_csv("patients.csv", sep=";", decimal=",")
    table.to_parquet("patients.parquet", index=False)
    model = "" if "--model" in options else " --model AdaSSPRegressor"
    found = run(f"train patients.parquet --engine pyarrow {options}{model}", capsys)
    assert found[0] == 2
    assert message in " ".join(str(found).split())


@pytest.mark.parametrize(
    ("options", "bins"),
    [
        ("--epsilon 9", 16),
        ("--epsilon 0.01", 1),
        ("--epsilon 9 --bins none", 1),
        ("--epsilon 9 --bins 5", 5),
        ("--epsilon 9 --bins 5 --model ObjectivePerturbationClassifier", 5),
        ("--epsilon 9 --model ObjectivePerturbationClassifier", 1),
    ],
)
def test_a_network_gets_bins_where_its_noise_leaves_room(folder, capsys, options, bins):
    table = "patients.csv --schema schema.json"
    network = "" if "--model" in options else "--set epochs=1"
    succeed(f"train {table} --save m.safetensors {options} {network}", capsys)
    schema = load_model("m.safetensors")[0].schema_
    assert {schema["age"].bins, schema["weight"].bins} == {bins}
