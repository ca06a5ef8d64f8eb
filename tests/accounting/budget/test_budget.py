"""The budget: charges, copies, workers and processes that die."""

import copy
import json
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import joblib
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy.accounting import (
    ComposedEvent,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    LedgerError,
    PrivacyBudget,
)
from skprivacy.accounting.budget.stores import counter_at
from skprivacy.base import reserve_release
from skprivacy.exceptions import BudgetExceededError

from .budgets import Charged, X, Y, sgd


def test_spends_until_one_too_many(ledger):
    budget = PrivacyBudget(epsilon=0.5, path=ledger)
    for _ in range(5):
        Charged(budget=budget).fit(X, Y)
    with pytest.raises(BudgetExceededError, match=r"Charged was refused.*counts epsilon=0\.5,"):
        Charged(budget=budget).fit(X, Y)
    assert len(budget.entries()) == 5  # the refused one is not charged
    assert budget.remaining(LaplaceEvent(10.0)) == 0
    assert budget.spent() == pytest.approx(0.5)


def test_a_failed_fit_stays_charged(budget):
    with pytest.raises(RuntimeError, match="no luck"):
        Charged(budget=budget, fail=True).fit(X, Y)
    with pytest.raises(KeyboardInterrupt), budget.reserve(LaplaceEvent(10.0)):
        raise KeyboardInterrupt
    assert list(budget.entries()["status"]) == ["fail", "fail"]
    assert budget.spent() == pytest.approx(0.2)


def test_refused_events_are_not_charged_and_an_outcome_stays(budget):
    receipt = budget.charge(LaplaceEvent(9.0))
    for bad in (0.5, GNMaxEvent(40.0, (10, 0))):
        with pytest.raises((TypeError, ValueError)):
            budget.reserve(bad)
    with pytest.raises(ValueError, match="only proved ones"):
        reserve_release(budget, LaplaceEvent(9.0), kind="estimate")
    with pytest.raises(ValueError, match="already settled"):
        budget.fail(receipt.charge_id)
    assert len(budget.entries()) == 1


def test_reopening_keeps_the_cap(ledger):
    PrivacyBudget(epsilon=1.0, path=ledger).reserve(LaplaceEvent(2.0))
    assert PrivacyBudget(epsilon=1.0, path=ledger).spent() == 0.5
    assert PrivacyBudget.open(ledger).spent() == 0.5
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(epsilon=2.0, path=ledger)
    with pytest.raises(LedgerError, match="unable to open"):
        PrivacyBudget.open(ledger.with_name("nowhere"))


@pytest.mark.parametrize(
    "how", [copy.copy, copy.deepcopy, clone, lambda b: pickle.loads(pickle.dumps(b))]
)
def test_every_copy_is_the_same_ledger(how):
    budget = PrivacyBudget(epsilon=1.0)
    owner = Charged(budget=budget)
    other = how(owner)
    other.fit(X, Y)
    owner.fit(X, Y)
    assert budget.spent() == other.budget.spent() == pytest.approx(0.2)


@pytest.mark.slow
def test_cross_validation_and_grid_search_in_workers():
    budget = PrivacyBudget(epsilon=3.0)
    model = make_pipeline(StandardScaler(), Charged(budget=budget))
    cross_val_score(model, X, Y, cv=3, n_jobs=2)
    assert len(budget.entries()) == 3
    search = GridSearchCV(model, {"charged__scale": [10.0, 20.0]}, cv=3, n_jobs=2)
    search.fit(X, Y)
    # candidates x folds, and the refit: tuning is not free
    assert len(budget.entries()) == 3 + 2 * 3 + 1


def test_threads_never_overspend():
    budget, refused = PrivacyBudget(epsilon=1.0), []

    def spend():
        for _ in range(5):
            try:
                with budget.reserve(LaplaceEvent(10.0)):
                    pass
            except BudgetExceededError:
                refused.append(1)

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(budget.entries()) == 10
    assert len(refused) == 10


def run_in_fork(work):
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join(300)
    assert worker.exitcode == 0


def test_fork_shares_the_ledger_and_does_not_delete_it():
    budget = PrivacyBudget(epsilon=1.0)
    run_in_fork(lambda: budget.reserve(LaplaceEvent(10.0)))
    assert budget.spent() == pytest.approx(0.1)
    assert os.path.exists(budget.path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads
def test_a_fork_while_a_thread_charges_shares_the_ledger():
    """The child inherited the thread's lock, which nobody gave up: its charges were refused."""
    budget = PrivacyBudget(epsilon=1.0)
    budget._ledger.timeout = 5.0  # seconds, of the child that finds it locked
    inside = threading.Event()

    def work():
        with budget._ledger.transaction():
            inside.set()
            time.sleep(0.3)  # the fork begins meanwhile

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    run_in_fork(lambda: budget.reserve(LaplaceEvent(10.0)))
    thread.join()
    assert budget.spent() == pytest.approx(0.1)


def test_a_child_with_its_parents_number_does_not_delete_the_ledger():
    """As the first process of a new pid namespace may have."""
    budget, parent = PrivacyBudget(epsilon=1.0), os.getpid()

    def ends():
        with mock.patch.object(os, "getpid", return_value=parent):
            budget._finalizer()

    run_in_fork(ends)
    assert os.path.exists(budget.path)


def test_a_temporary_ledger_is_removed_with_its_budget():
    budget = PrivacyBudget(epsilon=1.0)
    inner, path = budget.scope("part"), budget.path
    del budget
    assert os.path.exists(path)  # a scope keeps it
    del inner
    assert not os.path.exists(path)


def _spend_for(path, seconds):
    budget, done, stop = PrivacyBudget.open(path), 0, time.time() + seconds
    while time.time() < stop:
        try:
            with budget.reserve(LaplaceEvent(1000.0)):
                done += 1
        except BudgetExceededError:
            if math.isinf(seconds):
                break
    return done


def _hammer(path, processes, seconds, epsilon):
    budget = PrivacyBudget(epsilon=epsilon, path=path)
    done = joblib.Parallel(n_jobs=processes)(
        joblib.delayed(_spend_for)(str(path), seconds) for _ in range(processes)
    )
    entries = [r for r in budget._ledger.records() if r.kind == "reserve"]
    assert sum(done) == len(entries)
    assert len(entries) <= round(epsilon * 1000)
    budget.verify()
    return len(entries)


@pytest.mark.heavy
def test_processes_never_overspend(ledger):
    assert _hammer(ledger, 3, math.inf, 0.1) == 100


@pytest.mark.slow
@pytest.mark.parametrize("charges", [100, 10**6], ids=["a tight cap", "a wide cap"])
def test_eight_processes_for_a_minute(ledger, charges):
    """Of a tight cap all is spent early on, and for the rest of the minute everybody is refused."""
    granted = _hammer(ledger, 8, 60.0, charges / 1000)
    assert granted == charges if charges == 100 else granted > 100


_FORKER = """
import itertools, os, signal, sys
from skprivacy.accounting import LaplaceEvent, PrivacyBudget
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the killed leave no zombies
path, releases = sys.argv[1:]
for _ in sys.stdin:
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    out = os.open(releases, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    budget = PrivacyBudget.open(path)
    for _ in itertools.count():
        with budget.reserve(LaplaceEvent(1e6)):
            os.write(out, b"x")      # the release
"""


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("kills", "has_counter"),
    [
        (20, False),
        (6, True),
        pytest.param(300, False, marks=pytest.mark.slow),
        pytest.param(300, True, marks=pytest.mark.slow),
    ],
)
def test_kill_9_loses_no_charge(ledger, tmp_path, kills, has_counter):
    counter = tmp_path / "counter" if has_counter else None
    budget = PrivacyBudget(epsilon=1.0, path=ledger, counter=counter)
    releases = tmp_path / "releases"
    releases.touch()
    command = [sys.executable, "-c", _FORKER, str(ledger), str(releases)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as forker:
        for i in range(kills):
            before = releases.stat().st_size
            forker.stdin.write("another\n")
            victim = int(forker.stdout.readline())
            # However slow the machine: one in three at once, the others some releases later.
            while i % 3 and releases.stat().st_size < before + i % 3:
                time.sleep(0.001)
            time.sleep(0.02 * i / kills)
            os.kill(victim, signal.SIGKILL)
            while True:
                try:
                    os.kill(victim, 0)
                except ProcessLookupError:
                    break
                time.sleep(0.001)
        forker.stdin.close()
    released = releases.stat().st_size
    charged = [r for r in budget._ledger.records() if r.kind == "reserve"]
    assert released >= kills - 2
    # each died with at most one charge that was not released yet; none released uncharged
    assert released <= len(charged) <= released + kills
    assert budget.spent() == pytest.approx(len(charged) * 1e-6)
    budget.verify()
    if has_counter:  # an older copy that it lets pass lacks no charge with a release
        line, _ = counter_at(counter).read_version()
        assert released <= sum(record.seq <= line for record in charged)
        assert budget._ledger.read_log().tail.seq - line <= 2  # of the last one to die


def test_entries_export_and_plot(ledger, tmp_path):
    budget = PrivacyBudget(epsilon=2.0, delta=1e-6, path=ledger)
    with budget.reserve(sgd(0.5), source="<b>first</b>"):
        pass
    budget.reserve(ComposedEvent((LaplaceEvent(10.0), GaussianEvent(50.0))))
    entries = budget.entries()
    assert list(entries["status"]) == ["commit", "reserved"]
    assert entries["cost"][0] == pytest.approx(0.5, rel=2e-3)
    assert entries["event"][1] == ComposedEvent((LaplaceEvent(10.0), GaussianEvent(50.0)))
    budget.export(tmp_path / "copy.jsonl")
    lines = [json.loads(x) for x in (tmp_path / "copy.jsonl").read_text().splitlines()]
    assert lines[-1]["digest"] == budget.verify()
    axes, drawn, _ = _shown(budget)
    assert axes.get_ylabel() == "epsilon at delta = 1e-06"
    assert drawn == [0.0, pytest.approx(0.5, rel=2e-3), pytest.approx(budget.spent())]
    assert budget.guarantee().epsilon() == pytest.approx(budget.spent())
    assert PrivacyBudget(epsilon=1.0).entries().empty


def _shown(budget):
    mpl = pytest.importorskip("matplotlib")
    mpl.use("agg")
    axes = budget.plot()
    line = axes.get_lines()[0]
    low, high = (mpl.dates.num2date(x) for x in axes.get_xlim())
    return axes, [float(y) for y in line.get_ydata()], (high - low).total_seconds()


@pytest.mark.parametrize("n_charges", [0, 1, 2])
def test_a_plot_begins_with_the_budget_and_spans_no_years(n_charges):
    pytest.importorskip("matplotlib.dates")
    budget = PrivacyBudget(epsilon=1.0)
    for _ in range(n_charges):
        budget.reserve(LaplaceEvent(5.0))
    _, spent, seconds = _shown(budget)
    assert spent == pytest.approx([0.0, 0.2, 0.4][: n_charges + 1])
    assert 5 < seconds < 600


def test_a_scope_is_drawn_at_the_delta_of_its_cap():
    pytest.importorskip("matplotlib.dates")
    scope = PrivacyBudget(epsilon=3.0, delta=1e-5).scope("adult", 1.0, 1e-7)
    scope.reserve(GaussianEvent(20.0))
    axes, spent, _ = _shown(scope)
    assert spent[-1] == pytest.approx(scope.spent())
    assert "1e-07" in axes.get_ylabel()
