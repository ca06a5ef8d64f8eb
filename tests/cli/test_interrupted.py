"""Ctrl-C and SIGTERM never lose a model that the ledger counts as released."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest

from skprivacy import PrivacyBudget, load_model
from skprivacy.accounting import LaplaceEvent
from skprivacy.accounting.budget.ledger import Log
from skprivacy.accounting.budget.signals import (
    hold_signals,
    release_signals,
    signals_held_after_commit,
)
from skprivacy.cli import main
from skprivacy.cli import release as _release

pytestmark = pytest.mark.heavy

N = 200
LINE = (
    "{} t.csv --schema schema.json --model ObjectivePerturbationClassifier --epsilon 1 "
    "--save m.safetensors --budget ledger"
)
SWEEP = (
    "sweep t.csv --schema schema.json --model ObjectivePerturbationClassifier --epsilons 1 --cv 2 "
    "--refit 1 --save m.safetensors --budget ledger"
)
# Sends one signal to itself at the n-th call of a function after the last commit has begun, until
# the model is saved. Prints how many calls there are.
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from skprivacy.accounting import PrivacyBudget
from skprivacy.cli import main, release as _release

moment, number, calls = int(sys.argv[1]), int(sys.argv[2]), 0

def count(frame, event, arg):
    global calls
    if event == "call":
        calls += 1
        if calls == moment:
            os.kill(os.getpid(), number)

settle, save = PrivacyBudget._settle, _release.save

def settled(budget, charge, outcome):
    sys.setprofile(count)
    return settle(budget, charge, outcome)

def saved(args, model):
    save(args, model)
    sys.setprofile(None)

PrivacyBudget._settle, _release.save = settled, saved
code = main(sys.argv[3:])
print("calls:", calls)
sys.exit(code)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    age = np.random.default_rng(0).integers(18, 91, N)
    table = pd.DataFrame({"age": age, "ill": np.where(age > 50, "yes", "no")})
    table.to_csv(tmp_path / "t.csv", index=False)
    columns = {"age": {"type": "bounded", "lower": 0, "upper": 120}}
    facts = {"columns": columns, "target": "ill", "classes": ["no", "yes"]}
    (tmp_path / "schema.json").write_text(json.dumps(facts))
    monkeypatch.chdir(tmp_path)
    new_ledger(tmp_path)
    return tmp_path


def new_ledger(folder):
    for name in ("ledger", "m.safetensors"):
        (folder / name).unlink(missing_ok=True)
    PrivacyBudget(100.0, 1e-3, path=folder / "ledger")


def statuses(folder):
    return PrivacyBudget.open(folder / "ledger").entries()["status"].tolist()


class Terminated(Exception):
    """Raised by this test's handler of SIGTERM, whose default would end the test."""


@pytest.fixture(autouse=True)
def handlers():
    """Let signals raise, also where the tests run as a background job, which ignores SIGINT."""

    def terminate(*_):
        raise Terminated

    earlier = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
    }
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)


MOMENTS = {
    "commit begins": (Log, "append", 1),
    "commit ends": (PrivacyBudget, "_settle", 0),
    "save begins": (_release, "save", 1),
    "file is synchronised": (os, "fsync", 0),
    "draft is renamed": (os, "replace", 1),
    "save ends": (_release, "save", 0),
}


def interrupting(monkeypatch, moment, number):
    """Send a signal to this process before or after the function of a moment, once."""
    owner, name, before = MOMENTS[moment]
    original, sent = getattr(owner, name), []

    def wrapped(*args, **kwargs):
        is_moment = moment != "commit begins" or args[1] == "commit"
        if before and is_moment and not sent:
            sent.append(os.kill(os.getpid(), number))
        found = original(*args, **kwargs)
        if not before and not sent:
            sent.append(os.kill(os.getpid(), number))
        return found

    monkeypatch.setattr(owner, name, wrapped)
    return sent


@pytest.mark.parametrize("moment", list(MOMENTS))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_paid_model_is_saved_before_a_signal_counts(number, moment, folder, monkeypatch, capfd):
    sent = interrupting(monkeypatch, moment, number)
    line = LINE.format("train").split()
    if number == signal.SIGINT:
        assert main(line) == 130
    else:
        with pytest.raises(Terminated):
            main(line)
    assert sent
    assert statuses(folder) == ["commit"]
    assert load_model(folder / "m.safetensors").predict(pd.DataFrame({"age": [20]})) is not None
    assert "the model has been paid for, and is saved first" in capfd.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(LINE.format("audit"), id="audit"),
        pytest.param(SWEEP, marks=pytest.mark.slow, id="sweep"),
    ],
)
def test_audits_and_sweeps_save_the_paid_model_too(line, folder, monkeypatch):
    sent = interrupting(monkeypatch, "save begins", signal.SIGINT)
    assert main(line.split()) == 130
    assert sent
    assert set(statuses(folder)) == {"commit"}
    assert load_model(folder / "m.safetensors") is not None


def test_training_is_interrupted_at_once(folder, monkeypatch):
    """Nothing is committed then, and the charge stays."""

    def reserved(self, *args, **kwargs):
        number = reserve(self, *args, **kwargs)
        os.kill(os.getpid(), signal.SIGINT)
        return number

    reserve = PrivacyBudget.reserve
    monkeypatch.setattr(PrivacyBudget, "reserve", reserved)
    assert main(LINE.format("train").split()) == 130
    assert "commit" not in statuses(folder)
    assert not (folder / "m.safetensors").exists()


def test_a_held_signal_stops_the_next_charge(tmp_path):
    budget = PrivacyBudget(1.0, path=tmp_path / "ledger")

    def charge_twice():
        with signals_held_after_commit():
            budget.commit(budget.reserve(LaplaceEvent(10.0)).receipt.charge_id)
            os.kill(os.getpid(), signal.SIGINT)
            budget.reserve(LaplaceEvent(10.0))

    with pytest.raises(KeyboardInterrupt):
        charge_twice()
    assert len(budget.entries()) == 1


def test_handlers_are_as_before():
    earlier = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with signals_held_after_commit():
        hold_signals()
        release_signals()
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == earlier


def test_an_ignored_signal_stays_ignored():
    """As under nohup and in background jobs."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_held_after_commit():
            os.kill(os.getpid(), signal.SIGINT)
            hold_signals()
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, earlier)


def test_an_error_is_not_hidden_by_a_held_signal():
    """It may say where the model is."""

    def fail():
        with signals_held_after_commit():
            hold_signals()
            os.kill(os.getpid(), signal.SIGINT)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()


def test_other_threads_hold_nothing():
    found = []

    def work():
        with signals_held_after_commit():
            hold_signals()
        found.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found


def run(folder, command, moment, number):
    line = LINE.format(command).split()
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(moment), str(int(number)), *line],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(3600)  # 21 processes, each of which takes a minute on a busy machine
@pytest.mark.parametrize("command", ["train", "audit"])
def test_a_real_process_is_interrupted_at_twenty_moments(command, folder):
    whole = run(folder, command, 0, signal.SIGINT)
    calls = int(whole.stdout.rsplit("calls:", 1)[1])
    assert calls > 100
    committed = 0
    # A run makes some calls more or fewer than another, such as for names of temporary files.
    for i, moment in enumerate(np.linspace(1, 0.9 * calls, 20).astype(int)):
        number = (signal.SIGINT, signal.SIGTERM)[i % 2]
        new_ledger(folder)
        done = run(folder, command, moment, number)
        expected = 130 if number == signal.SIGINT else -signal.SIGTERM
        assert done.returncode == expected, (moment, calls, done.stdout, done.stderr)
        if "commit" in statuses(folder):
            assert load_model(folder / "m.safetensors") is not None
            committed += 1
    assert committed >= 19  # at the first moment the commit has not begun
