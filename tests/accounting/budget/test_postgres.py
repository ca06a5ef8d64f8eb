"""The same ledger in PostgreSQL, against a server of our own."""

import gc
import math
import os
from unittest import mock

import joblib
import pytest

from skprivacy.accounting import GaussianEvent, LaplaceEvent, LedgerError, PrivacyBudget
from skprivacy.exceptions import BudgetExceededError, PrivacyWarning

from .test_budget import _hammer
from .test_ledger import settings_of_lines
from .test_rollback import KILLS, charge_all, check_kill, check_rollback_is_refused

pytestmark = pytest.mark.heavy

psycopg = pytest.importorskip("psycopg", reason="the postgres extra is not installed")


@pytest.fixture(scope="module")
def server():
    from .postgres_server import Server, is_installed

    if not is_installed():
        pytest.skip("no PostgreSQL server on this machine")
    running = Server()
    running.start()
    yield running.url
    running.stop()


def test_budget_lifecycle(server):
    budget = PrivacyBudget(1.0, 1e-6, f"{server}#adult")
    with budget.reserve(LaplaceEvent(10.0), source="mean"):
        pass
    budget.scope("sweep").reserve(GaussianEvent(50.0))
    with pytest.raises(BudgetExceededError):
        budget.reserve(LaplaceEvent(1.0))
    again = PrivacyBudget(1.0, 1e-6, f"{server}#adult")
    assert list(again.entries()["status"]) == ["commit", "reserved"]
    assert again.verify(budget.digest) == budget.verify()
    assert again.spent() == budget.spent() > 0.1
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(2.0, 1e-6, f"{server}#adult")
    assert PrivacyBudget(2.0, 1e-6, f"{server}#other").spent() == 0


def test_processes_never_overspend(server):
    assert _hammer(f"{server}#hammered", 4, math.inf, 0.05) == 50


def test_lines_cannot_be_altered(server):
    budget = PrivacyBudget(1.0, path=f"{server}#guarded", relation="add_remove", unit="record")
    budget.reserve(LaplaceEvent(10.0))
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in ("UPDATE {} SET source = 'x'", "DELETE FROM {}", "TRUNCATE {}"):
            with pytest.raises(psycopg.errors.RaiseException, match="append only"):
                connection.execute(statement.format("skprivacy_guarded.log"))
        connection.execute("DROP TRIGGER guard ON skprivacy_guarded.log")
        connection.execute("UPDATE skprivacy_guarded.log SET body = '{}' WHERE seq = 2")
    with pytest.raises(LedgerError, match="altered"):
        budget.reserve(LaplaceEvent(10.0))


TAMPERINGS = {
    "a trigger is dropped": "DROP TRIGGER guard ON log",
    "a trigger is disabled": "ALTER TABLE log DISABLE TRIGGER guard",
    "all triggers are disabled": "ALTER TABLE log DISABLE TRIGGER ALL",
    "a trigger is off for replicas": "ALTER TABLE log ENABLE TRIGGER whole",
    "the function does nothing": (
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RETURN OLD; END $$"
    ),
    "a trigger has a condition": (
        "DROP TRIGGER guard ON log; CREATE TRIGGER guard BEFORE UPDATE OR DELETE ON log FOR EACH "
        "ROW WHEN (false) EXECUTE FUNCTION refuse(); ALTER TABLE log ENABLE ALWAYS TRIGGER guard"
    ),
    "a trigger guards one column": (
        "DROP TRIGGER guard ON log; CREATE TRIGGER guard BEFORE UPDATE OF source OR DELETE ON log "
        "FOR EACH ROW EXECUTE FUNCTION refuse(); ALTER TABLE log ENABLE ALWAYS TRIGGER guard"
    ),
    "a rule ignores inserts": "CREATE RULE other AS ON INSERT TO log DO INSTEAD NOTHING",
}


def test_a_ledger_with_other_triggers_refuses_every_charge(server):
    for number, (how, statement) in enumerate(TAMPERINGS.items()):
        budget = PrivacyBudget(1.0, path=f"{server}#tampered{number}")
        budget.charge(LaplaceEvent(10.0))
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"SET search_path TO skprivacy_tampered{number}")
            connection.execute(statement)
        for use in (lambda one=budget: one.charge(LaplaceEvent(10.0)), budget.verify):
            with pytest.raises(LedgerError, match="triggers that forbid changes"):
                use()
        assert len(budget.entries()) == 1, how


def _roll_back(server, name, last):
    """Bring a ledger back to an older state, with its triggers; return how to undo that."""
    table = f"skprivacy_{name}.log"

    def without_triggers(statement):
        with psycopg.connect(server) as connection:
            connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
            connection.execute(statement)
            connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER guard")
            connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER whole")

    without_triggers(f"CREATE TABLE latest_{name} AS SELECT * FROM {table} WHERE seq > {last}")
    without_triggers(f"DELETE FROM {table} WHERE seq > {last}")
    return lambda: without_triggers(f"INSERT INTO {table} SELECT * FROM latest_{name}")


@pytest.mark.parametrize("place", ["file", "server"])
def test_an_older_copy_is_refused_with_a_counter(server, place, tmp_path):
    counter = tmp_path / "counter" if place == "file" else f"{server}#counter_of_older"
    budget = PrivacyBudget(1.0, path=f"{server}#older_{place}", counter=counter)
    for _ in range(3):
        budget.charge(LaplaceEvent(10.0))
    last = budget._ledger.read_log().tail.seq
    assert charge_all(budget) == 7
    restore = _roll_back(server, f"older_{place}", last)
    check_rollback_is_refused(budget.path, restore)


def test_without_a_counter_an_older_copy_is_charged_and_verify_says_so(server):
    budget = PrivacyBudget(1.0, path=f"{server}#unwatched")
    last = budget.charge(LaplaceEvent(10.0)).charge_id + 1
    digest = budget.charge(LaplaceEvent(2.0)).digest
    _roll_back(server, "unwatched", last)
    opened = PrivacyBudget.open(budget.path)
    with pytest.warns(PrivacyWarning, match="rollback .* cannot be noticed"):
        opened.verify()
    with pytest.raises(LedgerError, match="restored from an older copy"):
        opened.verify(digest[:16])


@pytest.mark.everyday(1)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("place", ["file", "server"])
def test_a_kill_leaves_a_counter_on_the_server_at_most_one_charge_behind(server, place, ledger):
    for number, when in enumerate(KILLS):
        path = f"{ledger}{number}" if place == "file" else f"{server}#killed{number}"
        counter = f"{server}#counter_of_{place}{number}"
        check_kill(PrivacyBudget(1.0, path=path, counter=counter), when)


def test_unreachable_server_prevents_the_release(server):
    ran = []
    budget = PrivacyBudget(1.0, path=f"{server}#gone")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA skprivacy_gone CASCADE")
    with (
        pytest.raises(LedgerError, match="nothing was released"),
        budget.reserve(LaplaceEvent(10.0)),
    ):
        ran.append(1)
    with pytest.raises(LedgerError, match="cannot be used"):
        PrivacyBudget(1.0, path="postgresql://tester@127.0.0.1:9/postgres#x")
    with pytest.raises(ValueError, match="must end in"):
        PrivacyBudget(1.0, path=server)
    budget = PrivacyBudget(1.0, path=f"{server}#held")
    budget._ledger.timeout = 0.2
    with psycopg.connect(server) as holder:
        holder.execute("LOCK TABLE skprivacy_held.log IN EXCLUSIVE MODE")
        with pytest.raises(LedgerError, match="lock timeout"):
            budget.reserve(LaplaceEvent(10.0))
    assert not ran


def _backends(server):
    """Return the server's processes for other connections."""
    with psycopg.connect(server) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        ).fetchall()
    return {pid for (pid,) in rows}


def test_a_thread_keeps_its_connection(server):
    """One to each server, and each ledger there gets its own lines: also by prepared statements."""
    budgets = [PrivacyBudget(1.0, path=f"{server}#{name}") for name in ("kept", "kept_too")]
    with mock.patch.object(psycopg, "connect") as connect:
        for _ in range(10):
            for budget in budgets:
                _charged(budget, 1)
        assert [budget.remaining(LaplaceEvent(100.0)) for budget in budgets] == [90, 90]
    connect.assert_not_called()
    threads = joblib.Parallel(n_jobs=2, backend="threading")
    assert sum(threads(joblib.delayed(_charged)(budget, 5) for budget in budgets)) == 10
    for budget in budgets:
        assert list(budget.entries()["status"]) == 15 * ["commit"]


def _charged(budget, n):
    for _ in range(n):
        with budget.reserve(LaplaceEvent(100.0)):
            pass
    return n


def test_a_connection_that_was_lost_is_replaced(server):
    budget = PrivacyBudget(1.0, path=f"{server}#lost")
    budget.reserve(LaplaceEvent(10.0))
    others = _backends(server)
    with psycopg.connect(server, autocommit=True) as connection:
        for backend in others:
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", (backend,))
    budget.reserve(LaplaceEvent(10.0))
    assert budget.spent() == pytest.approx(0.2)


def test_a_connection_is_not_kept_after_an_error(server):
    budget = PrivacyBudget(1.0, path=f"{server}#erring")
    before = _backends(server)
    with pytest.raises(ZeroDivisionError), budget._ledger.transaction():
        raise ZeroDivisionError
    budget.reserve(LaplaceEvent(10.0))
    assert len(before - _backends(server)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only POSIX forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_a_connection_of_its_own(server):
    budget = PrivacyBudget(1.0, path=f"{server}#forked")
    budget.reserve(LaplaceEvent(10.0))
    child = os.fork()
    if not child:
        try:
            budget.reserve(LaplaceEvent(10.0))
            gc.collect()
        finally:
            os._exit(0)
    with mock.patch.object(psycopg, "connect") as connect:
        budget.reserve(LaplaceEvent(10.0))
        os.waitpid(child, 0)
        budget.reserve(LaplaceEvent(10.0))  # the child's end has not closed it
    connect.assert_not_called()
    assert budget.spent() == pytest.approx(0.4)


def test_lines_wait_for_the_disk_whatever_the_server_does_by_default(server):
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE ROLE hasty SUPERUSER LOGIN")
        connection.execute("ALTER ROLE hasty SET synchronous_commit TO off")
    address = server.replace("tester@", "hasty@") + "#durable"
    budget = PrivacyBudget(1.0, path=address)
    with settings_of_lines("SHOW synchronous_commit") as waits:
        _charged(budget, 2)
    assert waits == [(kind, "on") for kind in ("relation", *2 * ("reserve", "commit"))]


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:s3cret@127.0.0.1:9/db#x",
        "postgresql://me@127.0.0.1:9/db?password=s3cret#x",
        "postgres://:s3cret@[::1/db#x",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_repeated(address):
    for make in (lambda: PrivacyBudget(1.0, path=address), lambda: PrivacyBudget.open(address)):
        with pytest.raises(ValueError, match="path= ") as refused:
            make()
        assert "s3cret" not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None
