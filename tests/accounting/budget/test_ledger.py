"""Ledgers that are damaged, altered, locked or full."""

import json
import os
import pickle
import shutil
import sqlite3
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from skprivacy._files import write_file
from skprivacy.accounting import LaplaceEvent, LedgerError, PrivacyBudget
from skprivacy.accounting.budget.ledger import Log
from skprivacy.accounting.budget.stores import SQLiteLedger
from skprivacy.certificates import create_key
from skprivacy.exceptions import BudgetExceededError, PrivacyWarning

from .budgets import run_script


def test_lines_are_neither_changed_nor_deleted(ledger):
    PrivacyBudget(epsilon=1.0, path=ledger).reserve(LaplaceEvent(10.0))
    connection = sqlite3.connect(ledger)
    for statement in ("UPDATE log SET body = '' WHERE seq = 3", "DELETE FROM log WHERE seq = 3"):
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            connection.execute(statement)
    connection.close()


def _spoiled(budget):
    """Assert that nothing can be charged, with an error that says what is wrong."""
    ran = []
    with pytest.raises(LedgerError), budget.reserve(LaplaceEvent(10.0)):
        ran.append("the data was touched")
    assert not ran


LIMITED = """
        import resource, sqlite3, sys, warnings
        from skprivacy.accounting import LaplaceEvent, LedgerError, PrivacyBudget

        def limit():
            if sys.argv[2] == "read-only":
                real = sqlite3.connect
                sqlite3.connect = lambda u, **k: real(u.replace("mode=rw", "mode=ro"), **k)
            else:
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        budget = PrivacyBudget.open(sys.argv[1])
"""


def under_limits(test):
    for mark in (
        pytest.mark.everyday(1),
        pytest.mark.heavy,
        pytest.mark.skipif(os.name != "posix", reason="limits are POSIX"),
        pytest.mark.parametrize("limit", ["full disk", "read-only"]),
    ):
        test = mark(test)
    return test


@under_limits
def test_files_that_cannot_be_written(ledger, limit, budget):
    budget.reserve(LaplaceEvent(10.0))
    code = """
        limit()
        for _ in range(2):
            try:
                with budget.reserve(LaplaceEvent(10.0)):
                    print("RELEASED")
            except LedgerError as error:
                print("refused", error)
    """
    done = run_script(LIMITED + code, ledger, limit)
    assert "RELEASED" not in done.stdout, done
    assert done.stdout.count("refused") == 2, done
    assert "nothing was released" in done.stdout
    assert budget.spent() == pytest.approx(0.1)


@pytest.mark.slow
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
    done = run_script(code, tmp_path / "adult.ledger")
    assert "adult.ledger cannot be used" in done.stdout, done
    assert "/.adult" not in done.stdout
    assert not list(tmp_path.iterdir())


def _removed(path):
    path.rename(path.with_name("away"))


def _replaced(path):
    path.unlink()
    PrivacyBudget(epsilon=1.0, path=path)


def _overwritten(content):
    """Return a function that leaves of a file what ``content`` makes of its bytes."""
    return lambda path: path.write_bytes(content(path.read_bytes()))


_damaged = _overwritten(lambda _: b"not a database at all" * 300)
_truncated = _overwritten(lambda before: before[:5000])
_blank = _overwritten(lambda _: b"")


def _emptied(path):
    log = sqlite3.connect(path, isolation_level=None)
    log.execute("DROP TRIGGER no_delete")
    log.execute("DELETE FROM log")
    log.close()


def _release(budget, spoil, error=None):
    with budget.reserve(LaplaceEvent(10.0)):
        spoil(budget._ledger.path)
        if error is not None:
            raise error
        return 7


def _another_beside(path):
    other = path.with_name("other")
    PrivacyBudget(epsilon=1.0, path=other)
    other.rename(f"{path}-wal")


SPOILT = [_removed, _replaced, _emptied, _damaged, _truncated, _blank, _another_beside]


@pytest.mark.parametrize("spoil", [*SPOILT, lambda path: PrivacyBudget.open(path).fail(3)])
def test_a_release_is_not_lost_if_its_outcome_cannot_be_noted(ledger, spoil, budget):
    message = r"Charge 3 of .* was charged, but its outcome \(commit\) could not be recorded"
    with pytest.warns(PrivacyWarning, match=message) as warned:
        assert _release(budget, spoil) == 7
    assert [w.filename for w in warned] == [__file__]
    assert "nothing was released" not in str(warned[0].message)  # it was, and is returned
    if spoil is _removed:
        ledger.with_name("away").rename(ledger)
        assert budget.spent() == pytest.approx(0.1)  # the charge stands


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_charge_that_fails_says_that_nothing_was_released(ledger, spoil, budget):
    assert budget.spent() == 0.0  # a budget that has read a ledger knows it from another one
    spoil(ledger)
    with pytest.raises(LedgerError, match="nothing was released") as refused:  # noqa: SIM117
        with budget.reserve(LaplaceEvent(10.0)):
            raise AssertionError("the data is read without a charge")
    assert str(refused.value).count("nothing was released") == 1
    assert ledger.exists() == (spoil is not _removed)  # never quietly begun anew


def test_error_inside_a_reservation_is_the_one_raised(budget):
    error = RuntimeError("no luck")
    with pytest.warns(PrivacyWarning, match=r"\(fail\) could not be recorded"):  # noqa: SIM117
        with pytest.raises(RuntimeError, match="no luck"):
            _release(budget, _removed, error)


@under_limits
def test_a_fit_is_not_lost_to_a_disk_that_fills_up_meanwhile(ledger, limit, budget):
    code = """
        with warnings.catch_warnings(record=True) as caught, budget.reserve(LaplaceEvent(10.0)):
            limit()
        print("RELEASED", [str(w.message) for w in caught])
    """
    done = run_script(LIMITED + code, ledger, limit)
    assert "RELEASED" in done.stdout, done
    assert "was charged, but its outcome (commit) could not be recorded" in done.stdout
    assert list(budget.entries()["status"]) == ["reserved"]
    assert budget.spent() == pytest.approx(0.1)


def _edited(path, number, **values):
    """Change a line behind the ledger's back, as a damaged disk or a meddler would."""
    connection = sqlite3.connect(path, isolation_level=None)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
        connection.execute(f"DROP TRIGGER {name}")
    for column, value in values.items():
        connection.execute(f"UPDATE log SET {column} = ? WHERE seq = ?", (value, number))
    connection.close()


@pytest.mark.parametrize(
    "values",
    [
        {"body": json.dumps(LaplaceEvent(1e9).to_dict(), sort_keys=True)},
        {"scope": "/elsewhere/"},
        {"source": "somebody else"},
        {"at": 0.0},
        {"digest": "0" * 64},
        {"kind": "fail", "ref": 1},
        {"source": b"\xff"},
    ],
    ids=lambda values: next(iter(values)),
)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_nothing_is_charged_to_a_ledger_with_an_altered_line(ledger, number, values, budget):
    for _ in range(2):
        budget.reserve(LaplaceEvent(10.0))
    budget.verify()
    _edited(ledger, number, **values)
    with pytest.raises(LedgerError, match=f"altered: line {number} does not match its digest"):
        PrivacyBudget.open(ledger)
    _spoiled(budget)
    for asked in (budget.verify, budget.spent, lambda: budget.remaining(LaplaceEvent(10.0))):
        with pytest.raises(LedgerError, match="altered"):
            asked()


@pytest.mark.parametrize("how", ["larger", "older", "cut"])
def test_a_ledger_that_was_replaced_is_refused(ledger, how, tmp_path, budget):
    budget.reserve(LaplaceEvent(10.0))
    older = ledger.read_bytes()
    budget.reserve(LaplaceEvent(2.0))
    pickled = pickle.dumps(budget)
    if how == "larger":
        other = tmp_path / "other.ledger"
        PrivacyBudget(epsilon=100.0, path=other)
        ledger.write_bytes(other.read_bytes())
    elif how == "older":
        ledger.write_bytes(older)
    else:
        _cut(ledger)
    for one in (budget, pickle.loads(pickled)):
        _spoiled(one)
        with pytest.raises(LedgerError, match="not the one that this budget has used"):
            one.spent()
    assert PrivacyBudget.open(ledger).spent() < 0.2  # whoever means it may go on


def test_seen_line_never_moves_back_between_threads(ledger, tmp_path, budget):
    """A thread that was slow to read must not take an older copy for the latest."""
    budget.reserve(LaplaceEvent(10.0))
    older = shutil.copy(ledger, tmp_path / "older")
    original = SQLiteLedger._read_log

    def overtaken(self, connection):
        log = original(self, connection)
        with mock.patch.object(SQLiteLedger, "_read_log", original):
            other = threading.Thread(target=budget.reserve, args=[LaplaceEvent(10.0)])
            other.start()
            other.join()
        return log

    with mock.patch.object(SQLiteLedger, "_read_log", overtaken):
        assert budget.relation is not None  # whatever it reads
    shutil.copy(older, ledger)
    with pytest.raises(LedgerError, match="is not the one that this budget has used"):
        budget.reserve(LaplaceEvent(10.0))


def _cut(path):
    connection = sqlite3.connect(path, isolation_level=None)
    guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    for name, _ in (kept := guards.fetchall()):
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("DELETE FROM log WHERE seq = (SELECT MAX(seq) FROM log)")
    for _, statement in kept:
        connection.execute(statement)
    connection.close()


def test_an_earlier_digest_finds_a_cut_tail(ledger, budget):
    early = budget.verify()
    budget.reserve(LaplaceEvent(10.0))
    late = budget.verify(early)
    assert budget.verify(late) == late
    _cut(ledger)
    cut = PrivacyBudget.open(ledger)
    with pytest.warns(PrivacyWarning, match="rollback .* cannot be noticed"):
        cut.verify()  # nothing in the file itself tells
    cut.verify(early)
    with pytest.raises(LedgerError, match="last lines were cut off"):
        cut.verify(late)


@pytest.mark.slow
@pytest.mark.heavy
def test_the_file_alone_is_the_ledger(ledger):
    """Files left behind by a killed process may be moved or lost without losing a charge."""
    code = """
        import os, signal, sys
        from skprivacy.accounting import LaplaceEvent, PrivacyBudget
        budget = PrivacyBudget(1.0, path=sys.argv[1])
        budget.reserve(LaplaceEvent(10.0))
        with budget._ledger._connection() as connection:  # as if others were at work
            connection.execute("SELECT * FROM log").fetchone()
            budget.reserve(LaplaceEvent(10.0))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(code, ledger)
    assert [file.name for file in ledger.parent.iterdir()] == [ledger.name]
    moved = ledger.rename(ledger.with_name("moved.ledger"))
    assert PrivacyBudget.open(moved).spent() == pytest.approx(0.2)
    PrivacyBudget(5.0, path=ledger).reserve(LaplaceEvent(1.0))
    assert PrivacyBudget.open(ledger).spent() == pytest.approx(1.0)


@pytest.mark.parametrize("rest", ["-wal", "-journal", "-shm"])
def test_no_ledger_begins_beside_what_another_left(ledger, rest):
    left = ledger.with_name(ledger.name + rest)
    left.write_bytes(b"left")
    with pytest.raises(LedgerError, match="left from another ledger"):
        PrivacyBudget(1.0, path=ledger)
    assert [file.name for file in ledger.parent.iterdir()] == [left.name]


@pytest.mark.parametrize("rest", ["-wal", "-journal"])
def test_a_folder_where_sqlite_needs_a_file_is_named(ledger, rest):
    """It was called "disk I/O error", and the ledger suspected."""
    beside = ledger.with_name(ledger.name + rest)
    beside.mkdir()
    with pytest.raises(LedgerError, match=f"The folder .*{rest} has the name .* Rename the folder"):
        PrivacyBudget(1.0, path=ledger)
    beside.rmdir()
    budget = PrivacyBudget(1.0, path=ledger)
    beside.mkdir()
    for use in (budget.spent, lambda: budget.reserve(LaplaceEvent(10.0))):
        with pytest.raises(LedgerError, match=f"The folder .*{rest} has the name"):
            use()
    beside.rmdir()
    assert budget.spent() == 0


@pytest.mark.parametrize("rest", ["-wal", "-journal", "-shm"])
def test_no_ledger_has_the_name_of_a_file_that_sqlite_deletes(ledger, rest, budget):
    """The first charge to one ledger deleted the other, with all that was charged to it."""
    beside = ledger.with_name(ledger.name + rest)
    with pytest.raises(ValueError, match=f"is the name of a file .* ends in none of .*{rest}"):
        PrivacyBudget(1.0, path=beside)
    with pytest.raises(ValueError, match="belongs to the database beside it"):
        write_file(beside, b"x")
    with pytest.raises(ValueError, match="belongs to the database beside it"):
        create_key(beside)
    assert [file.name for file in ledger.parent.iterdir()] == [ledger.name]
    if rest == "-shm":  # which SQLite leaves alone
        return
    other = PrivacyBudget(1.0, path=ledger.with_name("other"))
    other.reserve(LaplaceEvent(10.0))
    Path(other.path).rename(beside)
    for use in (budget.spent, budget.verify, lambda: budget.reserve(LaplaceEvent(10.0))):
        with pytest.raises(LedgerError, match=f"{rest} is a database.*Rename it"):
            use()
    assert PrivacyBudget.open(beside).spent() == pytest.approx(0.1)


def _after_each_line(action):
    append = Log.append

    def meanwhile(*args, **kwargs):
        number = append(*args, **kwargs)
        action()
        return number

    return mock.patch.object(Log, "append", meanwhile)


@pytest.mark.parametrize("how", ["replaced", "deleted"])
def test_a_charge_counts_if_its_file_is_still_there(ledger, how, budget):
    """SQLite sees a file that went before a line is written, not one that goes before the end."""
    earlier = shutil.copy(ledger, ledger.with_name("earlier"))
    said = "was replaced or deleted while it was written"
    with (
        _after_each_line(lambda: earlier.rename(ledger) if how == "replaced" else ledger.unlink()),
        pytest.raises(LedgerError, match=said) as refused,
    ):
        budget.scope("a", 0.5)
    assert "released" not in str(refused.value)
    if how == "replaced":
        assert PrivacyBudget.open(ledger).scope("a").cap is None


def _replacing(ledger, earlier):
    """Put the earlier file back whenever a line has been written."""
    return _after_each_line(
        lambda: os.replace(shutil.copy(earlier, ledger.with_name("away")), ledger)
    )


def test_replaced_file_error_states_what_was_released(ledger):
    """Before the release nothing, after it what the caller is handed."""
    budget = PrivacyBudget(1.0, path=ledger, relation="add_remove", unit="record")
    earlier = shutil.copy(ledger, ledger.with_name("earlier"))
    said = "while it was written.*nothing was released for it"
    with _replacing(ledger, earlier), pytest.raises(LedgerError, match=said):
        budget.reserve(LaplaceEvent(10.0))
    with (
        ExitStack() as until_noted,
        pytest.warns(PrivacyWarning, match="was replaced") as warned,
        budget.reserve(LaplaceEvent(10.0)),
    ):
        until_noted.enter_context(_replacing(ledger, earlier))
    assert "nothing was released" not in str(warned[0].message)


def test_a_ledger_may_be_opened_by_its_terms_while_another_process_writes(ledger):
    """The journal beside it is then no other ledger's."""
    PrivacyBudget(1.0, path=ledger).reserve(LaplaceEvent(10.0))
    writer = sqlite3.connect(ledger, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO log VALUES (9, 'fail', 2, 0.0, '/', '', '', '')")
    assert ledger.with_name(f"{ledger.name}-journal").exists()
    assert PrivacyBudget(1.0, path=ledger).spent() == pytest.approx(0.1)
    writer.execute("ROLLBACK")
    writer.close()


def test_a_ledger_may_be_opened_by_its_terms_after_a_writer_was_killed(ledger):
    """The journal that it left undoes what it had not finished."""
    PrivacyBudget(1.0, path=ledger).reserve(LaplaceEvent(10.0))
    code = """
        import os, signal, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("PRAGMA cache_size=1")  # writes pages before the end
        connection.execute("BEGIN IMMEDIATE")
        for i in range(9, 200):
            line = (i, i, "x" * 999)
            connection.execute("INSERT INTO log VALUES (?, 'fail', ?, 0, '/', '', ?, '')", line)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(code, ledger)
    assert ledger.with_name(f"{ledger.name}-journal").stat().st_size
    budget = PrivacyBudget(1.0, path=ledger)
    budget.reserve(LaplaceEvent(10.0))
    assert budget.spent() == pytest.approx(0.2)
    budget.verify(budget.digest)


def test_a_write_ahead_log_is_merged_into_the_file_with_its_charges(ledger):
    PrivacyBudget(1.0, path=ledger).reserve(LaplaceEvent(10.0))
    connection = sqlite3.connect(ledger, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    budget = PrivacyBudget.open(ledger)
    assert budget.spent() == pytest.approx(0.1)
    connection.close()
    budget.reserve(LaplaceEvent(10.0))
    assert ledger.read_bytes()[18:20] == b"\x01\x01"  # SQLite's mark of a rollback journal
    assert PrivacyBudget.open(ledger).spent() == pytest.approx(0.2)


def test_readers_wait_for_no_writer_and_a_second_writer_gives_up(ledger, budget):
    budget.reserve(LaplaceEvent(10.0))
    budget._ledger.timeout = 0.2
    holder = sqlite3.connect(ledger, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert budget.spent() == pytest.approx(0.1)
    assert budget.remaining(LaplaceEvent(10.0)) == 9
    assert len(budget.entries()) == 1
    budget.verify()
    _spoiled(budget)
    holder.execute("ROLLBACK")
    holder.close()
    budget.reserve(LaplaceEvent(10.0))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX")
def test_read_only_ledger_can_be_audited(ledger):
    budget = PrivacyBudget(1.0, path=ledger)
    budget.reserve(LaplaceEvent(10.0))
    code = """
        import os, sys
        from skprivacy.accounting import LaplaceEvent, LedgerError, PrivacyBudget
        PrivacyBudget(1.0).verify(), PrivacyBudget(1.0).entries()  # imports all that it takes
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        budget = PrivacyBudget.open(sys.argv[1])
        budget.entries()
        print(round(budget.spent(), 6), len(budget.entries()), len(budget.verify()))
        try:
            budget.reserve(LaplaceEvent(10.0))
        except LedgerError as error:
            print("refused", error)
    """
    folder = Path(tempfile.mkdtemp())  # every folder above must be open to others
    place = folder / "adult.ledger"
    shutil.copy(ledger, place)
    place.chmod(0o444)
    folder.chmod(0o555)
    try:
        done = run_script(code, place, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    assert done.stdout.startswith("0.1 1 64\nrefused"), done


@contextmanager
def settings_of_lines(query):
    """Yield the lines that are written, each with the store's answer to ``query``."""
    found, original = [], Log.append

    def watched(self, kind, *values, **named):
        found.append((kind, self._connection.execute(query).fetchone()[0]))
        return original(self, kind, *values, **named)

    with mock.patch.object(Log, "append", watched):
        yield found


def test_every_line_is_on_the_disk_before_it_counts(ledger):
    """EXTRA (3) waits for the end of the journal too, which would undo the line."""
    budget = PrivacyBudget(1.0, path=ledger, relation="add_remove", unit="record")
    with settings_of_lines("PRAGMA synchronous") as waits:
        budget.scope("adult", epsilon=0.5)
        with budget.reserve(LaplaceEvent(10.0)):
            pass
        budget.fail(budget.reserve(LaplaceEvent(10.0)).receipt.charge_id)
    assert waits == [(kind, 3) for kind in ("scope", "reserve", "commit", "reserve", "fail")]


def test_cost_of_a_charge_does_not_grow_with_the_ledger(budget):
    """Without a memory of its lines, a charge would read all earlier ones again."""
    for _ in range(5):
        budget.reserve(LaplaceEvent(100.0))
    real, read = Log.follow, []

    def counting(self, connection):
        before = self.tail.seq
        real(self, connection)
        read.append(self.tail.seq - before)

    with mock.patch.object(Log, "follow", counting):
        budget.reserve(LaplaceEvent(100.0))
        pickle.loads(pickle.dumps(budget)).reserve(LaplaceEvent(100.0))
    assert len(read) >= 2
    assert max(read) == 0
    assert budget.spent() == pytest.approx(0.07)


@pytest.mark.parametrize("make", [PrivacyBudget.open, lambda path: PrivacyBudget(1.0, path=path)])
@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        ([""], LedgerError, r"is a folder, not a ledger.* Pass the path of a"),
        (["x" * 300, "x/" * 3000], LedgerError, "There is no privacy ledger|cannot be used"),
        (["a\0b", "\ud800", b"ledger", 3], (TypeError, ValueError), "path="),
    ],
    ids=["folder", "too long", "no name"],
)
def test_paths_that_hold_no_ledger_are_refused(make, names, error, message, tmp_path):
    for name in names:
        with pytest.raises(error, match=message):
            make(f"{tmp_path}/{name}" if isinstance(name, str) else name)


def test_names_that_would_steer_a_terminal_are_shown_as_escapes(tmp_path):
    steering = "\x1b[2J"
    budget = PrivacyBudget(1.0, path=tmp_path / steering, unit=steering)
    part = budget.scope("adult", epsilon=0.5)
    shown = [repr(budget.guarantee()), str(part.charge(LaplaceEvent(9.0), steering, unit=steering))]
    for refused in (
        lambda: budget.scope(steering, epsilon=0.7),
        lambda: part.reserve(LaplaceEvent(1.0), source=steering, unit=steering),
        lambda: PrivacyBudget(2.0, path=tmp_path / steering),
        lambda: PrivacyBudget.open(tmp_path / f"{steering}!"),
    ):
        with pytest.raises((BudgetExceededError, LedgerError, ValueError)) as caught:
            refused()
        shown.append(str(caught.value))
    Path(budget.path).rename(tmp_path / "away")
    shown.append(repr(budget))
    assert not [text for text in shown if "\x1b" in text]
    assert len([text for text in shown if "\\x1b[2J" in text]) == len(shown)
