"""A server that is killed loses no charge, and writers from everywhere never pass the cap."""

import subprocess
import sys
import time

import pytest

from skprivacy.accounting import PrivacyBudget
from skprivacy.accounting.budget.stores import counter_at

from .test_budget import _hammer

pytest.importorskip("psycopg", reason="the postgres extra is not installed")
from .postgres_server import Server, is_installed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed(), reason="no PostgreSQL server on this machine"),
]
CHARGES, WRITERS, KILLS = 400, 4, 4
# Releases as long as there is something left, whatever becomes of the server.
WRITER = """
import os, sys, warnings
from skprivacy.accounting import LaplaceEvent, LedgerError, PrivacyBudget
from skprivacy.exceptions import BudgetExceededError
warnings.simplefilter("ignore")      # of outcomes that cannot be noted
path, releases = sys.argv[1:]
out = os.open(releases, os.O_WRONLY | os.O_APPEND)
while True:
    try:
        budget = PrivacyBudget.open(path)
        while True:
            with budget.reserve(LaplaceEvent(1000.0)):
                os.write(out, b"x")  # the release
    except BudgetExceededError:
        break
    except LedgerError:              # the server is gone
        continue
"""


@pytest.fixture
def server():
    running = Server()
    running.start()
    yield running
    running.stop()


def test_eight_processes_for_a_minute(server):
    """Of a tight cap all is spent early on, and for the rest of the minute everybody is refused."""
    assert _hammer(f"{server.url}#hammered", 8, 60.0, 0.1) == 100


@pytest.mark.parametrize("has_counter", [False, True])
def test_a_killed_server_loses_no_charge(server, tmp_path, has_counter):
    releases = tmp_path / "releases"
    releases.touch()
    counter = tmp_path / "counter" if has_counter else None
    budget = PrivacyBudget(CHARGES / 1000, path=f"{server.url}#killed", counter=counter)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, budget.path, str(releases)])
        for _ in range(WRITERS)
    ]
    for number in range(1, KILLS + 1):
        due = time.monotonic() + 300
        while releases.stat().st_size < CHARGES * number // (KILLS + 1):
            assert time.monotonic() < due, "the writers have stopped"
            time.sleep(0.001)
        server.kill()
        assert releases.stat().st_size < CHARGES, "there was nothing left to lose"
        server.start()
    assert [writer.wait(300) for writer in writers] == [0] * WRITERS
    charged = [r for r in budget._ledger.records() if r.kind == "reserve"]
    assert len(charged) == CHARGES
    # A kill loses at most what each writer was about to release; it is charged all the same.
    assert CHARGES - WRITERS * KILLS <= releases.stat().st_size <= CHARGES
    assert budget.spent() == pytest.approx(CHARGES / 1000)
    budget.verify()
    if has_counter:
        line, _ = counter_at(counter).read_version()
        assert releases.stat().st_size <= sum(record.seq <= line for record in charged)
