"""Older copies of a ledger are refused by its counter, also after kills at every step."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from skprivacy.accounting import LaplaceEvent, LedgerError, PrivacyBudget
from skprivacy.accounting.budget.ledger import Ledger, LedgerCounter, Log
from skprivacy.accounting.budget.stores import counter_at
from skprivacy.exceptions import BudgetExceededError, PrivacyWarning

from .test_ledger import _damaged

EVENT = LaplaceEvent(10.0)


@pytest.fixture
def counter(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere" / "counter"


def charge_all(budget):
    """Charge until the cap and return how many charges were granted."""
    granted = 0
    while True:
        try:
            budget.charge(EVENT)
        except BudgetExceededError:
            return granted
        granted += 1


def check_rollback_is_refused(address, restore):
    """Assert that a process without memory charges neither an older copy nor verifies it."""
    older = PrivacyBudget.open(address)
    for use in (older.charge, older.reserve, older.scope("a").charge):
        with pytest.raises(LedgerError, match=r"behind its counter .* nothing was released"):
            use(EVENT)
    for use in (lambda: older.scope("b", 0.1), older.verify):
        with pytest.raises(LedgerError, match="behind its counter"):
            use()
    restore()
    latest = PrivacyBudget.open(address)
    latest.verify()
    with pytest.raises(BudgetExceededError):
        latest.charge(EVENT)


def test_an_older_copy_is_refused_with_a_counter(ledger, counter):
    budget = PrivacyBudget(0.5, path=ledger, counter=counter)
    for _ in range(2):
        budget.charge(EVENT)
    shutil.copy(ledger, ledger.with_name("older"))
    assert charge_all(budget) == 3
    shutil.copy(ledger, ledger.with_name("latest"))
    shutil.copy(ledger.with_name("older"), ledger)
    check_rollback_is_refused(ledger, lambda: shutil.copy(ledger.with_name("latest"), ledger))


def test_without_a_counter_a_budget_says_that_it_cannot_notice_a_rollback(ledger, budget):
    digest = budget.charge(EVENT).digest
    assert "noticed by the digest that this budget knows" in budget.rollback_notice
    opened = PrivacyBudget.open(ledger)
    assert "cannot be noticed" in opened.rollback_notice
    assumption = "the ledger was not restored from an older copy"
    assert assumption in opened.guarantee().assumptions
    assert assumption not in budget.guarantee().assumptions
    with pytest.warns(PrivacyWarning, match=r"rollback .* cannot be noticed.* counter") as warned:
        assert opened.verify() == digest
    assert [w.filename for w in warned] == [__file__]
    assert opened.verify(digest[:16]) == digest  # without a warning
    assert "cannot" not in opened.rollback_notice
    assert assumption not in opened.guarantee().assumptions


def test_a_digest_finds_an_older_copy(ledger, budget):
    budget.charge(EVENT)
    shutil.copy(ledger, ledger.with_name("older"))
    digest = budget.charge(EVENT).digest
    shutil.copy(ledger.with_name("older"), ledger)
    with pytest.raises(LedgerError, match="restored from an older copy"):
        PrivacyBudget.open(ledger).verify(digest[:16])


def _kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_after(function):
    def run(*args, **kwargs):
        function(*args, **kwargs)
        _kill()

    return run


# Where a process dies: what it had done, whether the charge is in the ledger, and in the counter.
KILLS = {
    "before the ledger's commit": ("reserve", False, False),
    "between the two commits": ("ledger", True, False),
    "after the counter's commit": ("counter", True, True),
}


def _die(path, step, released):
    place = {
        "reserve": (Log, "append", _kill_after(Log.append)),
        "ledger": (Ledger, "_move_counter", _kill),
        "counter": (LedgerCounter, "move", _kill_after(LedgerCounter.move)),
    }[step]
    with mock.patch.object(*place):
        PrivacyBudget.open(path).charge(EVENT)
        released.set()


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("when", KILLS)
def test_a_kill_leaves_the_counter_at_most_one_charge_behind(ledger, counter, when):
    check_kill(PrivacyBudget(1.0, path=ledger, counter=counter), when)


def check_kill(budget, when):
    """Assert that a kill releases nothing uncharged, and that the budget goes on."""
    step, in_ledger, in_counter = KILLS[when]
    budget.charge(EVENT)
    before, fork = budget._ledger.read_log().tail.seq, multiprocessing.get_context("fork")
    released = fork.Event()
    process = fork.Process(target=_die, args=(budget.path, step, released))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL
    assert not released.is_set()  # nothing is granted before the counter covers it
    line, digest = counter_at(budget.counter).read_version()
    tail = budget._ledger.read_log().tail
    assert tail.seq == before + 2 * in_ledger  # the charge and its outcome
    assert line == before + 2 * in_counter  # it never leads, and lags by this charge at most
    assert len(budget.entries()) == 1 + in_ledger
    opened = PrivacyBudget.open(budget.path)
    opened.verify()
    receipt = opened.charge(EVENT)
    assert counter_at(budget.counter).read_version()[1] == receipt.digest != digest
    assert budget.spent() == pytest.approx(0.1 * (2 + in_ledger))


def _charged_before_the_counter_moves(path):
    """Let another process charge the ledger at ``path`` before this one moves the counter."""
    move = LedgerCounter.move

    def overtaken(self, known, last):
        with mock.patch.object(LedgerCounter, "move", move):
            PrivacyBudget.open(path).charge(EVENT)
        return move(self, known, last)

    return mock.patch.object(LedgerCounter, "move", overtaken)


def test_of_two_copies_that_are_charged_at_once_one_is_refused(ledger, counter):
    """Both have seen the same counter: the one that moves it first is granted."""
    budget = PrivacyBudget(1.0, path=ledger, counter=counter)
    budget.charge(EVENT)
    other = shutil.copy(ledger, ledger.with_name("other"))
    refused = pytest.raises(LedgerError, match="another copy of it was charged")
    with _charged_before_the_counter_moves(other), refused:
        budget.charge(EVENT)


def test_a_counter_that_another_process_moved_covers_this_charge(ledger, counter):
    budget = PrivacyBudget(1.0, path=ledger, counter=counter)
    with _charged_before_the_counter_moves(ledger):
        budget.charge(EVENT)
    assert counter_at(counter).read_version()[1] == budget.verify()
    assert len(budget.entries()) == 2


def _empty(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM counter")
    connection.close()


@pytest.mark.parametrize("spoil", [Path.unlink, _empty, _damaged])
def test_no_charge_without_a_readable_counter(ledger, counter, spoil):
    budget = PrivacyBudget(1.0, path=ledger, counter=counter)
    spoil(counter)
    for use in (lambda: budget.charge(EVENT), PrivacyBudget.open(ledger).verify):
        with pytest.raises(LedgerError, match=r"The counter .* of a privacy ledger"):
            use()
    assert budget.spent() == 0.0
    assert len(budget.entries()) == 0


def test_a_charge_that_the_counter_cannot_cover_is_not_granted_but_stays(ledger, counter):
    budget = PrivacyBudget(1.0, path=ledger, counter=counter)
    with (
        mock.patch.object(LedgerCounter, "move", side_effect=LedgerError("the disk is full")),
        pytest.raises(LedgerError, match="nothing was released"),
    ):
        budget.charge(EVENT)
    assert budget.spent() == pytest.approx(0.1)
    budget.charge(EVENT)
    assert counter_at(counter).read_version()[1] == budget.verify()


def test_a_deleted_ledger_does_not_begin_anew_beside_its_counter(ledger, counter):
    make = {"epsilon": 1.0, "path": ledger, "counter": counter}
    PrivacyBudget(**make).charge(EVENT)
    assert PrivacyBudget(**make).spent() == pytest.approx(0.1)  # opened by its terms
    assert PrivacyBudget(1.0, path=ledger).counter == str(counter)
    ledger.unlink()
    with pytest.raises(ValueError, match="Restore the ledger, or pass another"):
        PrivacyBudget(**make)
    assert not ledger.exists()
    PrivacyBudget(1.0, path=ledger)
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(**make)
    with pytest.raises(ValueError, match="must not be the ledger"):
        PrivacyBudget(1.0, path=ledger, counter=ledger)
    other = PrivacyBudget(1.0)
    with pytest.raises(LedgerError, match="no such table: counter"):
        PrivacyBudget(1.0, path=counter.with_name("new"), counter=other.path)


def test_a_rehearsal_does_not_move_the_counter(ledger, counter):
    from skprivacy.accounting.budget.snapshot import rehearse_charges

    budget = PrivacyBudget(1.0, path=ledger, counter=counter)
    budget.charge(EVENT)
    before = counter_at(counter).read_version()
    rehearse_charges(budget, [budget.guarantee()] * 3)
    assert counter_at(counter).read_version() == before


IGNORE = "BEGIN SELECT RAISE(IGNORE); END"
TAMPERINGS = {
    "both are dropped": ["DROP TRIGGER no_update", "DROP TRIGGER no_delete"],
    "no_update is dropped": ["DROP TRIGGER no_update"],
    "no_delete is dropped": ["DROP TRIGGER no_delete"],
    "no_delete does nothing": [
        "DROP TRIGGER no_delete",
        "CREATE TRIGGER no_delete BEFORE DELETE ON log BEGIN SELECT 1; END",
    ],
    "an insert is ignored": [f"CREATE TRIGGER other BEFORE INSERT ON log {IGNORE}"],
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_a_ledger_with_other_triggers_refuses_every_charge(ledger, how, budget):
    reservation = budget.reserve(EVENT)
    connection = sqlite3.connect(ledger, isolation_level=None)
    for statement in TAMPERINGS[how]:
        connection.execute(statement)
    connection.close()
    handles = (budget, PrivacyBudget.open(ledger), budget.scope("a"))
    uses = [partial(use, EVENT) for one in handles for use in (one.charge, one.reserve)]
    for use in (*uses, budget.verify):
        with pytest.raises(LedgerError, match="triggers that forbid changes"):
            use()
    with pytest.warns(PrivacyWarning, match="could not be recorded"), reservation:
        pass
    assert len(budget.entries()) == 1
