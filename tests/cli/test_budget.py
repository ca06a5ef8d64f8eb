"""``skprivacy budget`` as a user types it."""

import json
import shutil
from pathlib import Path

import pytest

from skprivacy.accounting import LaplaceEvent, PrivacyBudget, RepeatedEvent
from skprivacy.cli import main

from ..accounting.budget.budgets import verify_ledger

STEP = ["--noise-multiplier", "1.1", "--sampling-rate", "0.01", "--steps", "100"]


@pytest.fixture
def ledger(tmp_path):
    path = str(tmp_path / "adult.ledger")
    assert main(["budget", "create", path, "--epsilon", "3", "--delta", "1e-5"]) == 0
    return path


@pytest.mark.heavy
def test_budget_from_first_charge_to_refusal(ledger, tmp_path, capsys):
    assert main(["budget", "what-if", ledger, *STEP]) == 0
    fits = int(capsys.readouterr().out.splitlines()[-1].split()[0])
    assert fits > 20
    for _ in range(fits):
        assert main(["budget", "spend", ledger, *STEP, "--source", "epoch"]) == 0
    assert main(["budget", "spend", ledger, *STEP]) == 1
    refusal = capsys.readouterr().out
    assert "would be overspent" in refusal
    assert "`skprivacy budget what-if` in a shell" in refusal
    assert main(["budget", "what-if", ledger, *STEP]) == 1
    png = tmp_path / "spend.png"
    assert main(["budget", "show", ledger, "--plot", str(png)]) == 0
    shown = capsys.readouterr().out
    assert "last digest" in shown
    assert shown.count(" epoch ") == fits
    assert png.stat().st_size > 1000


@pytest.mark.parametrize("action", ["what-if", "spend"])
@pytest.mark.parametrize("steps", ["0", "-3"])
def test_zero_steps_are_refused_in_the_shell(ledger, action, steps, capsys):
    assert main(["budget", action, ledger, "--noise-multiplier", "1", "--steps", steps]) == 2
    assert f"--steps={steps} releases nothing" in capsys.readouterr().err
    assert len(PrivacyBudget.open(ledger).entries()) == 0


@pytest.mark.parametrize("action", ["what-if", "spend"])
def test_zero_epsilon_is_refused_in_the_shell(ledger, action, capsys):
    assert main(["budget", action, ledger, "--epsilon", "0"]) == 2
    assert "--epsilon=0 releases nothing. Give a number above 0." in capsys.readouterr().err
    assert len(PrivacyBudget.open(ledger).entries()) == 0
    assert main(["budget", action, ledger, "--epsilon", "0", "--delta", "1e-7"]) == 0


def test_counting_ends_where_it_says(ledger, capsys):
    """It once answered 2199023255551 for what costs nothing."""
    event = json.dumps(RepeatedEvent(LaplaceEvent(1.0), 0).to_dict())
    assert main(["budget", "what-if", ledger, "--event", event]) == 0
    assert "at least 1099511627776 more such releases fit: Repeated" in capsys.readouterr().out


def test_any_event_and_any_scope(ledger, capsys):
    event = json.dumps(LaplaceEvent(10.0).to_dict())
    to_ann = ["spend", ledger, "--event", event, "--scope", "adult/=ann"]
    assert main(["budget", *to_ann]) == 2
    assert (
        "there is no scope 'adult/=ann'; the budget has no scopes yet. Add --new-scope to charge "
        "a new one." in capsys.readouterr().err
    )
    assert main(["budget", *to_ann, "--new-scope"]) == 0
    assert main(["budget", "spend", ledger, "--epsilon", "0.1", "--scope", "adult"]) == 0
    assert PrivacyBudget.open(ledger).spent(0.0) == pytest.approx(0.2)
    assert list(PrivacyBudget.open(ledger).entries()["scope"]) == ["/adult/=ann/", "/adult/"]


def test_what_if_explains_a_refusal(ledger, capsys):
    budget = PrivacyBudget.open(ledger)
    budget.reserve(LaplaceEvent(0.5))
    assert main(["budget", "what-if", ledger, "--epsilon", "2"]) == 1
    told = capsys.readouterr().out
    assert "0 more such releases fit: ApproxDPEvent(epsilon=2.0" in told
    assert "counts epsilon=2, delta=0 as spent, and epsilon=4" in told
    assert main(["budget", "what-if", ledger, "--noise-multiplier", ".1"]) == 1
    assert "Use a smaller epsilon, which takes more noise" in capsys.readouterr().out
    assert len(budget.entries()) == 1


def test_show_explains_charges_without_an_outcome(ledger, capsys):
    budget = PrivacyBudget.open(ledger)
    budget.charge(LaplaceEvent(10.0))
    assert main(["budget", "show", ledger]) == 0
    assert "it stays charged" not in capsys.readouterr().out
    budget.reserve(LaplaceEvent(10.0))
    budget.fail(budget.reserve(LaplaceEvent(10.0)).receipt.charge_id)
    assert main(["budget", "show", ledger]) == 0
    told = capsys.readouterr().out
    assert "reserved: running, or its process was killed; it stays charged" in told
    assert "fail: it ended in an error; it stays charged" in told


def test_a_mistyped_scope_does_not_escape_its_cap(ledger, capsys):
    PrivacyBudget.open(ledger).scope("adult", 0.2)
    for action in ("spend", "what-if", "show"):
        release = [] if action == "show" else ["--epsilon", "1"]
        assert main(["budget", action, ledger, *release, "--scope", "adutl"]) == 2
        error = capsys.readouterr().err
        assert "there is no scope 'adutl'; the scopes are adult." in error
        assert ("--new-scope" in error) == (action != "show")  # which has no such option
    assert main(["budget", "spend", ledger, "--epsilon", "1", "--scope", "adult"]) == 1
    assert len(PrivacyBudget.open(ledger).entries()) == 0


def test_a_scope_is_given_a_cap_once(ledger, capsys):
    scope = ["budget", "scope", ledger]
    assert main([*scope, "adult", "--epsilon", "0.2", "--delta", "1e-6"]) == 0
    assert "PrivacyBudget(epsilon=0.2, delta=1e-06) for /adult/: 0 spent" in capsys.readouterr().out
    assert main([*scope, "/adult/pilot/", "--epsilon", "0.1"]) == 0
    spend = ["budget", "spend", ledger, "--epsilon", "0.15", "--scope"]
    assert main([*spend, "adult/pilot"]) == 1
    assert main([*spend, "adult"]) == 0
    assert main(["budget", "show", ledger]) == 0
    told = capsys.readouterr().out
    assert "PrivacyBudget(epsilon=0.2, delta=1e-06) for /adult/: 0.15 spent by 1 charge" in told
    assert "PrivacyBudget(epsilon=0.1, delta=0) for /adult/pilot/: 0 spent" in told
    assert main(["budget", "show", ledger, "--scope", "adult"]) == 0
    assert capsys.readouterr().out.count("for /adult/:") == 1
    assert main([*scope, "adult", "--epsilon", "0.3"]) == 2
    assert "already has the cap" in capsys.readouterr().err
    assert main([*scope, "adlut/pilot", "--epsilon", "0.1"]) == 2
    assert (
        "there is no scope 'adlut'; the scopes are adult, adult/pilot." in capsys.readouterr().err
    )
    assert main([*scope, "/", "--epsilon", "0.1"]) == 2
    assert "name='' must be a non-empty string" in capsys.readouterr().err
    verify_ledger(ledger)


@pytest.mark.parametrize("name", ["adult", "/adult", "adult/", "/adult/"])
def test_every_way_to_write_a_scope_is_under_its_cap(ledger, name, capsys):
    PrivacyBudget.open(ledger).scope("adult", 0.2)
    spend = ["budget", "spend", ledger, "--scope", name]
    assert main([*spend, "--epsilon", "1"]) == 1
    assert main([*spend, "--epsilon", "0.1", "--new-scope"]) == 0
    assert list(PrivacyBudget.open(ledger).entries()["scope"]) == ["/adult/"]
    for wrong in ("", "//", "adult//x"):
        assert main([*spend[:-1], wrong, "--epsilon", "0.1", "--new-scope"]) == 2
        assert f"scope={wrong!r} must be" in capsys.readouterr().err
    verify_ledger(ledger)


@pytest.mark.parametrize(
    ("name", "value", "other", "words"),
    [
        ("relation", "zero_out", ["--relation", "replace_one"], "'replace_one'"),
        ("unit", "patient", [], "unit='record' and the budget for unit='patient'"),
    ],
)
def test_relation_and_unit_are_shown_and_stored(
    name, value, other, words, ledger, tmp_path, capsys
):
    assert main(["budget", "show", ledger]) == 0
    assert f"{name}: that of the first charge" in capsys.readouterr().out
    spend = ["budget", "spend", ledger, "--epsilon", "0.1"]
    assert main([*spend, f"--{name}", value]) == 0
    assert f"{name}: {value}" in capsys.readouterr().out
    assert main([*spend, *other]) == 2
    assert words in capsys.readouterr().err
    fixed = str(tmp_path / "fixed.ledger")
    assert main(["budget", "create", fixed, "--epsilon", "1", f"--{name}", value]) == 0
    assert f"{name}: {value}" in capsys.readouterr().out


@pytest.mark.parametrize("content", ["age,ill\n30,no\n" * 50, ""])
def test_other_file_is_refused_as_a_ledger(content, tmp_path, capsys):
    path = tmp_path / "patients.csv"
    path.write_text(content)
    for arguments in (["show", str(path)], ["create", str(path), "--epsilon", "1"]):
        assert main(["budget", *arguments]) == 2
        assert "patients.csv is not a privacy ledger" in capsys.readouterr().err
    assert path.read_text() == content


def test_compare_accountants_marks_estimates(capsys):
    assert main(["budget", "compare", *STEP, "--delta", "1e-5"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert "estimate" in lines["gdp"]
    assert "proved" in lines["pld"]
    assert float(lines["pld"].split()[0]) < float(lines["rdp"].split()[0])


PLAIN = "compare --delta 1e-5"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("show nowhere.ledger", "no ledger nowhere.ledger. Create one with `skprivacy budget"),
        ("create no/x --epsilon 1", "there is no folder"),
        (f"{PLAIN} --event {{}} --noise-multiplier 1", "only one of --noise-multiplier, --event"),
        ("create x --epsilon -1", "epsilon=-1.0"),
        ("create x --epsilon 1 --delta 0.1 --records 50", "below 1/n"),
        ("create x --epsilon 1 --delta 1e-5 --records 0", "n_records=0"),
        (PLAIN, "the release is not described"),
        (f"{PLAIN} --event {{", "--event must be JSON"),
        (f'{PLAIN} --event {{"type":"Nothing"}}', "known event"),
        (
            f'{PLAIN} --event {{"type":"GNMaxVote","noise_multiplier":40,"votes":[9,1]}}',
            "private votes",
        ),
        ("compare --delta 2 --noise-multiplier 1", "delta=2.0"),
        (f"{PLAIN} --noise-multiplier 1e300", "noise_multiplier=1e+300"),
        (f"{PLAIN} --noise-multiplier 1 --sampling-rate 0", "sampling_rate=0"),
    ],
)
def test_mistakes_are_explained(line, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["budget", *line.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_no_output_overwrites_a_ledger(ledger, tmp_path, capsys):
    other = str(tmp_path / "other.ledger")
    PrivacyBudget(1.0, path=other)
    for target in (ledger, other):
        assert main(["budget", "show", ledger, "--plot", target]) == 2
        assert "is not overwritten" in capsys.readouterr().err
        verify_ledger(target)
    with pytest.raises(ValueError, match="is not overwritten"):
        PrivacyBudget.open(ledger).export(ledger)
    verify_ledger(ledger)


def test_texts_of_a_ledger_steer_no_terminal(ledger, capsys):
    budget = PrivacyBudget.open(ledger)
    budget.reserve(LaplaceEvent(10.0), source="mean\x1b]0;owned\x07\x9b")
    assert main(["budget", "show", ledger]) == 0
    printed = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x9b"} & set(printed.out + printed.err)
    assert "mean\\x1b]0;owned" in printed.out
    assert main(["budget", "show", ledger, "--scope", "\x1b[2Jelse"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_a_kept_digest_is_checked(ledger, capsys):
    digest = PrivacyBudget.open(ledger).digest
    assert main(["budget", "spend", ledger, "--epsilon", "0.1"]) == 0
    assert main(["budget", "show", ledger, "--expect", digest]) == 0
    assert main(["budget", "show", ledger, "--expect", "0" * 64]) == 2
    assert "last lines were cut off" in capsys.readouterr().err


def shown_digest(capsys):
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("ledger digest: ")
    return line.removeprefix("ledger digest: ")


def test_each_charge_shows_the_digest_that_the_next_command_expects(tmp_path, capsys):
    ledger, older = str(tmp_path / "adult.ledger"), tmp_path / "older"
    assert main(["budget", "create", ledger, "--epsilon", "1"]) == 0
    spend = ["budget", "spend", ledger, "--epsilon", "0.1", "--expect"]
    assert main([*spend, shown_digest(capsys)]) == 0
    shutil.copy(ledger, older)
    assert main([*spend, shown_digest(capsys), "--source", "mean"]) == 0
    digest = shown_digest(capsys)
    assert PrivacyBudget.open(ledger).digest.startswith(digest)
    scope = ["budget", "scope", ledger, "adult", "--epsilon", "0.5", "--expect"]
    what_if = ["budget", "what-if", ledger, "--epsilon", "0.1", "--expect"]
    show = ["budget", "show", ledger, "--expect"]
    shutil.copy(older, ledger)
    for command in (spend, scope, what_if, show):
        assert main([*command, digest]) == 2
        assert "restored from an older copy" in capsys.readouterr().err
    assert Path(ledger).read_bytes() == older.read_bytes()
    assert main([*spend, digest[:8]]) == 2
    assert "at least 16 hexadecimal digits" in capsys.readouterr().err


def test_a_counter_is_created_and_named(tmp_path, capsys):
    ledger, counter = str(tmp_path / "adult.ledger"), str(tmp_path / "counter")
    assert main(["budget", "create", ledger, "--epsilon", "1", "--counter", counter]) == 0
    shutil.copy(ledger, older := tmp_path / "older")
    spend = ["budget", "spend", ledger, "--epsilon", "0.1"]
    assert main(spend) == 0
    assert main(["budget", "show", ledger]) == 0
    printed = capsys.readouterr()
    assert f"A rollback of the ledger is noticed by its counter {counter}." in printed.out
    assert "WARNING" not in printed.err
    shutil.copy(older, ledger)
    assert main(spend) == 2
    assert "behind its counter" in capsys.readouterr().err


def test_show_says_that_a_rollback_cannot_be_noticed(ledger, capsys):
    assert main(["budget", "show", ledger]) == 0
    printed = capsys.readouterr()
    assert "A rollback of the ledger to an older copy cannot be noticed" in printed.out
    assert "create the budget with a counter" in printed.err
    assert main(["budget", "show", ledger, "--expect", PrivacyBudget.open(ledger).digest]) == 0
    assert "cannot be noticed" not in "".join(capsys.readouterr())
