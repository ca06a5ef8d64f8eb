"""``skprivacy budget`` as a user types it."""

import json
import shutil

import pytest

from skprivacy.accounting import LaplaceEvent, PrivacyBudget, RepeatedEvent

from ..accounting.budget.budgets import verify_ledger
from .shell import refuse, run, succeed

STEP = "--noise-multiplier 1.1 --sampling-rate 0.01 --steps 100"


@pytest.fixture
def ledger(tmp_path, capsys):
    path = str(tmp_path / "adult.ledger")
    succeed(f"budget create {path} --epsilon 3 --delta 1e-5", capsys)
    return path


@pytest.mark.heavy
def test_budget_from_first_charge_to_refusal(ledger, tmp_path, capsys):
    out, _ = succeed(f"budget what-if {ledger} {STEP}", capsys)
    fits = int(out.splitlines()[-1].split()[0])
    assert fits > 20
    for _ in range(fits):
        succeed(f"budget spend {ledger} {STEP} --source epoch", capsys)
    code, out, _ = run(f"budget spend {ledger} {STEP}", capsys)
    assert code == 1
    assert "would be overspent" in out
    assert "`skprivacy budget what-if` in a shell" in out
    assert run(f"budget what-if {ledger} {STEP}", capsys)[0] == 1
    png = tmp_path / "spend.png"
    shown, _ = succeed(f"budget show {ledger} --plot {png}", capsys)
    assert "last digest" in shown
    assert shown.count(" epoch ") == fits
    assert png.stat().st_size > 1000


@pytest.mark.parametrize("action", ["what-if", "spend"])
@pytest.mark.parametrize(
    ("release", "words"),
    [
        ("--noise-multiplier 1 --steps 0", "--steps=0 releases nothing"),
        ("--noise-multiplier 1 --steps -3", "--steps=-3 releases nothing"),
        ("--epsilon 0", "--epsilon=0 releases nothing. Give a number above 0."),
    ],
)
def test_commands_without_a_release_are_refused(ledger, action, release, words, capsys):
    refuse(f"budget {action} {ledger} {release}", capsys, words)
    assert len(PrivacyBudget.open(ledger).entries()) == 0
    succeed(f"budget {action} {ledger} --epsilon 0 --delta 1e-7", capsys)


def test_counting_ends_where_it_says(ledger, capsys):
    """It once answered 2199023255551 for what costs nothing."""
    event = json.dumps(RepeatedEvent(LaplaceEvent(1.0), 0).to_dict(), separators=(",", ":"))
    out, _ = succeed(f"budget what-if {ledger} --event {event}", capsys)
    assert "at least 1099511627776 more such releases fit: Repeated" in out


def test_any_event_and_any_scope(ledger, capsys):
    event = json.dumps(LaplaceEvent(10.0).to_dict(), separators=(",", ":"))
    to_ann = f"budget spend {ledger} --event {event} --scope adult/=ann"
    words = (
        "the budget has no scope 'adult/=ann'; it has no scopes yet. Add --new-scope to charge "
        "a new one."
    )
    refuse(to_ann, capsys, words)
    succeed(f"{to_ann} --new-scope", capsys)
    succeed(f"budget spend {ledger} --epsilon 0.1 --scope adult", capsys)
    assert PrivacyBudget.open(ledger).spent(0.0) == pytest.approx(0.2)
    assert list(PrivacyBudget.open(ledger).entries()["scope"]) == ["/adult/=ann/", "/adult/"]


def test_what_if_explains_a_refusal(ledger, capsys):
    budget = PrivacyBudget.open(ledger)
    budget.reserve(LaplaceEvent(0.5))
    code, told, _ = run(f"budget what-if {ledger} --epsilon 2", capsys)
    assert code == 1
    assert "0 more such releases fit: ApproxDPEvent(epsilon=2.0" in told
    assert "counts epsilon=2, delta=0 as spent, and epsilon=4" in told
    code, told, _ = run(f"budget what-if {ledger} --noise-multiplier .1", capsys)
    assert (code, "Use a smaller epsilon, which takes more noise" in told) == (1, True)
    assert len(budget.entries()) == 1


def test_show_explains_charges_without_an_outcome(ledger, capsys):
    budget = PrivacyBudget.open(ledger)
    budget.charge(LaplaceEvent(10.0))
    assert "it stays charged" not in succeed(f"budget show {ledger}", capsys)[0]
    budget.reserve(LaplaceEvent(10.0))
    budget.fail(budget.reserve(LaplaceEvent(10.0)).receipt.charge_id)
    told, _ = succeed(f"budget show {ledger}", capsys)
    assert "reserved: running, or its process was killed; it stays charged" in told
    assert "fail: it ended in an error; it stays charged" in told


def test_a_mistyped_scope_does_not_escape_its_cap(ledger, capsys):
    PrivacyBudget.open(ledger).scope("adult", 0.2)
    for action in ("spend", "what-if", "show"):
        line = f"budget {action} {ledger} --scope adutl{' --epsilon 1' * (action != 'show')}"
        error = refuse(line, capsys, "the budget has no scope 'adutl'; the scopes are adult.")
        assert ("--new-scope" in error) == (action != "show")  # which has no such option
    assert run(f"budget spend {ledger} --epsilon 1 --scope adult", capsys)[0] == 1
    assert len(PrivacyBudget.open(ledger).entries()) == 0


def test_a_scope_is_given_a_cap_once(ledger, capsys):
    scope = f"budget scope {ledger}"
    told, _ = succeed(f"{scope} adult --epsilon 0.2 --delta 1e-6", capsys)
    assert "PrivacyBudget(epsilon=0.2, delta=1e-06) for /adult/: 0 spent" in told
    succeed(f"{scope} /adult/pilot/ --epsilon 0.1", capsys)
    spend = f"budget spend {ledger} --epsilon 0.15 --scope"
    assert run(f"{spend} adult/pilot", capsys)[0] == 1
    succeed(f"{spend} adult", capsys)
    told, _ = succeed(f"budget show {ledger}", capsys)
    assert "PrivacyBudget(epsilon=0.2, delta=1e-06) for /adult/: 0.15 spent by 1 charge" in told
    assert "PrivacyBudget(epsilon=0.1, delta=0) for /adult/pilot/: 0 spent" in told
    assert succeed(f"budget show {ledger} --scope adult", capsys)[0].count("for /adult/:") == 1
    for name, words in (
        ("adult", "already has the cap"),
        ("adlut/pilot", "the budget has no scope 'adlut'; the scopes are adult, adult/pilot."),
        ("/", "name='' must be a non-empty string"),
    ):
        code, _, err = run(f"{scope} {name} --epsilon 0.3", capsys)
        assert (code, words in err) == (2, True)
    verify_ledger(ledger)


@pytest.mark.parametrize("name", ["adult", "/adult", "adult/", "/adult/"])
def test_every_way_to_write_a_scope_is_under_its_cap(ledger, name, capsys):
    PrivacyBudget.open(ledger).scope("adult", 0.2)
    spend = f"budget spend {ledger} --new-scope --epsilon"
    assert run(f"{spend} 1 --scope {name}", capsys)[0] == 1
    succeed(f"{spend} 0.1 --scope {name}", capsys)
    assert list(PrivacyBudget.open(ledger).entries()["scope"]) == ["/adult/"]
    for wrong in ("", "//", "adult//x"):
        refuse(f"{spend} 0.1 --scope={wrong}", capsys, f"scope={wrong!r} must be")
    verify_ledger(ledger)


@pytest.mark.parametrize(
    ("name", "value", "other", "words"),
    [
        ("relation", "zero_out", "--relation replace_one", "'replace_one'"),
        ("unit", "patient", "", "unit='record' and the budget for unit='patient'"),
    ],
)
def test_relation_and_unit_are_shown_and_stored(
    name, value, other, words, ledger, tmp_path, capsys
):
    shown, _ = succeed(f"budget show {ledger}", capsys)
    assert f"{name}: that of the first charge" in shown
    spend = f"budget spend {ledger} --epsilon 0.1"
    create = f"budget create {tmp_path / 'fixed.ledger'} --epsilon 1"
    for line in (spend, create):
        assert f"{name}: {value}" in succeed(f"{line} --{name} {value}", capsys)[0]
    refuse(f"{spend} {other}", capsys, words)


@pytest.mark.parametrize("content", ["age,ill\n30,no\n" * 50, ""])
def test_other_file_is_refused_as_a_ledger(content, tmp_path, capsys):
    path = tmp_path / "patients.csv"
    path.write_text(content)
    for line in (f"show {path}", f"create {path} --epsilon 1"):
        refuse(f"budget {line}", capsys, "patients.csv is not a privacy ledger")
    assert path.read_text() == content


def test_compare_accountants_marks_estimates(capsys):
    out, _ = succeed(f"budget compare {STEP} --delta 1e-5", capsys)
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert "estimate" in lines["gdp"]
    assert "proved" in lines["pld"]
    assert float(lines["pld"].split()[0]) < float(lines["rdp"].split()[0])


PLAIN = "compare --delta 1e-5"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("show nowhere.ledger", "nowhere.ledger does not exist; see `skprivacy budget"),
        ("create no/x --epsilon 1", "does not exist. Create it first"),
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
    refuse(f"budget {line}", capsys, message)


def test_no_output_overwrites_a_ledger(ledger, tmp_path, capsys):
    other = str(tmp_path / "other.ledger")
    PrivacyBudget(1.0, path=other)
    for target in (ledger, other):
        refuse(f"budget show {ledger} --plot {target}", capsys, "is not overwritten")
        verify_ledger(target)
    with pytest.raises(ValueError, match="is not overwritten"):
        PrivacyBudget.open(ledger).export(ledger)
    verify_ledger(ledger)


def test_texts_of_a_ledger_steer_no_terminal(ledger, capsys):
    budget = PrivacyBudget.open(ledger)
    budget.reserve(LaplaceEvent(10.0), source="mean\x1b]0;owned\x07\x9b")
    out, err = succeed(f"budget show {ledger}", capsys)
    assert not {"\x1b", "\x07", "\x9b"} & set(out + err)
    assert "mean\\x1b]0;owned" in out
    assert "\x1b" not in refuse(f"budget show {ledger} --scope \x1b[2Jelse", capsys)


def succeed_with_digest(line, capsys):
    """Return the digest that a command shows."""
    last = succeed(line, capsys)[0].splitlines()[-1]
    assert last.startswith("ledger digest: ")
    return last.removeprefix("ledger digest: ")


def test_each_charge_shows_the_digest_that_the_next_command_expects(tmp_path, capsys):
    ledger, older = tmp_path / "adult.ledger", tmp_path / "older"
    digest = succeed_with_digest(f"budget create {ledger} --epsilon 1", capsys)
    spend = f"budget spend {ledger} --epsilon 0.1 --expect"
    digest = succeed_with_digest(f"{spend} {digest}", capsys)
    shutil.copy(ledger, older)
    digest = succeed_with_digest(f"{spend} {digest} --source mean", capsys)
    assert PrivacyBudget.open(ledger).digest.startswith(digest)
    succeed(f"budget show {ledger} --expect {digest}", capsys)
    refuse(f"budget show {ledger} --expect {'0' * 64}", capsys, "last lines were cut off")
    shutil.copy(older, ledger)
    for line in (
        spend,
        f"budget scope {ledger} adult --epsilon 0.5 --expect",
        f"budget what-if {ledger} --epsilon 0.1 --expect",
        f"budget show {ledger} --expect",
    ):
        refuse(f"{line} {digest}", capsys, "restored from an older copy")
    assert ledger.read_bytes() == older.read_bytes()
    refuse(f"{spend} {digest[:8]}", capsys, "at least 16 hexadecimal digits")


def test_a_counter_is_created_and_named(tmp_path, capsys):
    ledger, counter, older = (tmp_path / name for name in ("adult.ledger", "counter", "older"))
    succeed(f"budget create {ledger} --epsilon 1 --counter {counter}", capsys)
    shutil.copy(ledger, older)
    spend = f"budget spend {ledger} --epsilon 0.1"
    succeed(spend, capsys)
    out, err = succeed(f"budget show {ledger}", capsys)
    assert f"A rollback of the ledger is noticed by its counter {counter}." in out
    assert "WARNING" not in err
    shutil.copy(older, ledger)
    refuse(spend, capsys, "behind its counter")


def test_show_says_that_a_rollback_cannot_be_noticed(ledger, capsys):
    out, err = succeed(f"budget show {ledger}", capsys)
    assert "A rollback of the ledger to an older copy cannot be noticed" in out
    assert "create the budget with a counter" in err
    expect = f"budget show {ledger} --expect {PrivacyBudget.open(ledger).digest}"
    assert "cannot be noticed" not in "".join(succeed(expect, capsys))
