"""Ledgers that are damaged, altered, locked or full."""

import json
import os
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from skprivacy.accounting import (
    LaplaceEvent,
    LedgerError,
    PrivacyBudget,
    charge,
)
from skprivacy.exceptions import PrivacyWarning


def _spoiled(budget):
    """Assert that nothing can be charged, with an error that says what is wrong."""
    ran = []
    with pytest.raises(LedgerError), charge(budget, LaplaceEvent(10.0)):
        ran.append("the data was touched")
    assert not ran


def test_corrupted_file(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    budget.reserve(LaplaceEvent(10.0))
    ledger.write_bytes(b"not a database at all" * 300)
    _spoiled(budget)


def test_truncated_file(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    for _ in range(30):
        budget.reserve(LaplaceEvent(1000.0))
    ledger.write_bytes(ledger.read_bytes()[:5000])
    _spoiled(budget)


def test_emptied_and_deleted_files(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    ledger.write_bytes(b"")
    _spoiled(budget)
    ledger.unlink()
    _spoiled(budget)
    assert not ledger.exists()  # never quietly begun anew


def test_altered_lines(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger, relation="add_remove", unit="record")
    for _ in range(3):
        budget.reserve(LaplaceEvent(10.0))
    digest = budget.verify()
    with sqlite3.connect(ledger) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            connection.execute("UPDATE log SET body = '' WHERE seq = 3")
        connection.execute("DROP TRIGGER no_update")
        cheaper = json.dumps(LaplaceEvent(1e9).to_dict(), sort_keys=True)
        connection.execute("UPDATE log SET body = ? WHERE seq = 3", (cheaper,))
    connection.close()
    with pytest.raises(LedgerError, match="line 3 does not match its digest"):
        budget.verify()
    with sqlite3.connect(ledger) as connection:
        connection.execute("UPDATE log SET body = ? WHERE seq = 4", (cheaper,))
    connection.close()
    _spoiled(budget)
    assert digest


def test_locked_file(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    budget._ledger.timeout = 0.2
    holder = sqlite3.connect(ledger, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    _spoiled(budget)
    holder.execute("ROLLBACK")
    holder.close()
    budget.reserve(LaplaceEvent(10.0))


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
@pytest.mark.parametrize(
    "limit", ["resource.RLIMIT_FSIZE", "read-only"], ids=["full disk", "read-only"]
)
def test_files_that_cannot_be_written(ledger, limit):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    budget.reserve(LaplaceEvent(10.0))
    code = """
        import os, resource, sys
        from skprivacy.accounting import LaplaceEvent, LedgerError, PrivacyBudget
        budget = PrivacyBudget.open(sys.argv[1])
        if sys.argv[2] == "read-only":
            import sqlite3
            real = sqlite3.connect
            sqlite3.connect = lambda u, **k: real(u.replace("mode=rw", "mode=ro"), **k)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for _ in range(2):
            try:
                with budget.charge(LaplaceEvent(10.0)):
                    print("RELEASED")
            except LedgerError as error:
                print("refused", error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(ledger), limit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "RELEASED" not in done.stdout, done
    assert done.stdout.count("refused") == 2, done
    assert "nothing was released" in done.stdout
    assert budget.spent() == pytest.approx(0.1)


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
def test_a_ledger_that_does_not_fit_the_disk_leaves_nothing_behind(tmp_path):
    code = """
        import resource, sys
        from skprivacy.accounting import LedgerError, PrivacyBudget
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        try:
            PrivacyBudget(epsilon=1.0, path=sys.argv[1])
        except LedgerError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "adult.ledger")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "adult.ledger cannot be used" in done.stdout, done
    assert "/.adult" not in done.stdout
    assert not list(tmp_path.iterdir())


def _removed(path):
    path.rename(path.with_name("away"))


def _replaced(path):
    path.unlink()
    PrivacyBudget(epsilon=1.0, path=path)


def _damaged(path):
    path.write_bytes(b"not a database at all" * 300)


def _settled_inside(path):
    PrivacyBudget.open(path).fail(3)


def _release(budget, spoil, error=None):
    with charge(budget, LaplaceEvent(10.0)):
        spoil(budget._ledger.path)
        if error is not None:
            raise error
        return 7


@pytest.mark.parametrize("spoil", [_removed, _replaced, _damaged, _settled_inside])
def test_a_release_is_not_lost_if_its_outcome_cannot_be_noted(ledger, spoil):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    message = r"Charge 3 of .* was charged, but its outcome \(commit\) could not be recorded"
    with pytest.warns(PrivacyWarning, match=message) as warned:
        assert _release(budget, spoil) == 7
    assert [w.filename for w in warned] == [__file__]
    if spoil is _removed:
        ledger.with_name("away").rename(ledger)
        assert budget.spent() == pytest.approx(0.1)  # the charge stands


def test_the_error_of_a_release_is_the_one_that_is_told(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    error = RuntimeError("no luck")
    with pytest.warns(PrivacyWarning, match=r"\(fail\) could not be recorded"):  # noqa: SIM117
        with pytest.raises(RuntimeError, match="no luck"):
            _release(budget, _removed, error)


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
@pytest.mark.parametrize(
    "limit", ["resource.RLIMIT_FSIZE", "read-only"], ids=["full disk", "read-only"]
)
def test_a_fit_is_not_lost_to_a_disk_that_fills_up_meanwhile(ledger, limit):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    code = """
        import resource, sys, warnings
        from skprivacy.accounting import LaplaceEvent, PrivacyBudget
        budget = PrivacyBudget.open(sys.argv[1])
        with warnings.catch_warnings(record=True) as caught, budget.charge(LaplaceEvent(10.0)):
            if sys.argv[2] == "read-only":
                import sqlite3
                real = sqlite3.connect
                sqlite3.connect = lambda u, **k: real(u.replace("mode=rw", "mode=ro"), **k)
            else:
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        print("RELEASED", [str(w.message) for w in caught])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(ledger), limit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "RELEASED" in done.stdout, done
    assert (
        "was charged, but its outcome (commit) could not be recorded" in done.stderr + done.stdout
    )
    assert list(budget.entries()["status"]) == ["reserved"]
    assert budget.spent() == pytest.approx(0.1)
