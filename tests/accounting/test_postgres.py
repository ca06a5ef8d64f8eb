"""The same ledger in PostgreSQL, against a server of our own."""

import joblib
import pytest

from skprivacy.accounting import GaussianEvent, LaplaceEvent, LedgerError, PrivacyBudget
from skprivacy.exceptions import BudgetExceededError

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


def test_the_whole_life_of_a_budget(server):
    budget = PrivacyBudget(1.0, 1e-6, f"{server}#adult")
    with budget.charge(LaplaceEvent(10.0), who="mean"):
        pass
    budget.scope("sweep").reserve(GaussianEvent(50.0))
    with pytest.raises(BudgetExceededError):
        budget.reserve(LaplaceEvent(1.0))
    again = PrivacyBudget(1.0, 1e-6, f"{server}#adult")
    assert list(again.entries()["status"]) == ["commit", "reserved"]
    assert again.verify() == budget.verify()
    assert again.spent() == budget.spent() > 0.1
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(2.0, 1e-6, f"{server}#adult")
    assert PrivacyBudget(2.0, 1e-6, f"{server}#other").spent() == 0


def _spend(address):
    budget, done = PrivacyBudget.open(address), 0
    while True:
        try:
            with budget.charge(LaplaceEvent(100.0)):
                done += 1
        except BudgetExceededError:
            return done


def test_processes_never_overspend(server):
    budget = PrivacyBudget(0.5, path=f"{server}#hammered")
    done = joblib.Parallel(n_jobs=4)(joblib.delayed(_spend)(budget.path) for _ in range(4))
    assert sum(done) == len(budget.entries()) == 50
    budget.verify()


def test_lines_cannot_be_altered(server):
    budget = PrivacyBudget(1.0, path=f"{server}#guarded", relation="add_remove", unit="record")
    budget.reserve(LaplaceEvent(10.0))
    with psycopg.connect(server, autocommit=True) as connection:
        for statement in ("UPDATE {} SET who = 'x'", "DELETE FROM {}", "TRUNCATE {}"):
            with pytest.raises(psycopg.errors.RaiseException, match="append only"):
                connection.execute(statement.format("skprivacy_guarded.log"))
        connection.execute("DROP TRIGGER guard ON skprivacy_guarded.log")
        connection.execute("UPDATE skprivacy_guarded.log SET body = '{}' WHERE seq = 2")
    with pytest.raises(LedgerError, match="altered"):
        budget.reserve(LaplaceEvent(10.0))


def test_no_server_no_release(server):
    ran = []
    budget = PrivacyBudget(1.0, path=f"{server}#gone")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA skprivacy_gone CASCADE")
    with (
        pytest.raises(LedgerError, match="nothing was released"),
        budget.charge(LaplaceEvent(10.0)),
    ):
        ran.append(1)
    with pytest.raises(LedgerError, match="nothing was released"):
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
