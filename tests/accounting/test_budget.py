"""The budget: refusals, copies, scopes, files that fail and processes that die."""

import copy
import itertools
import json
import math
import multiprocessing
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextlib import suppress
from unittest import mock

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skprivacy.accounting import (
    ApproxDP,
    Composed,
    Gaussian,
    GNMaxVote,
    Laplace,
    LedgerError,
    NonPrivate,
    PoissonSampled,
    PrivacyBudget,
    Repeated,
    calibrate_noise_multiplier,
    charge,
    pld,
)
from skprivacy.accounting.budget.ledger import ledger_at
from skprivacy.accounting.budget.rules import Cost, at_orders, renyi_orders
from skprivacy.exceptions import BudgetExceededError, PrivacyWarning


def sgd(epsilon, delta=1e-6):
    def make(z):
        return Repeated(PoissonSampled(0.05, Gaussian(z)), 100)

    return make(calibrate_noise_multiplier(make, epsilon, delta))


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "adult.ledger"


class Charged(ClassifierMixin, BaseEstimator):
    """A classifier that does nothing but pay."""

    def __init__(self, *, scale=10.0, budget=None, fail=False):
        self.scale = scale
        self.budget = budget
        self.fail = fail

    def fit(self, X, y):
        with charge(self.budget, Laplace(self.scale), who="Charged"):
            if self.fail:
                raise RuntimeError("no luck")
            self.classes_ = [0, 1]
        return self

    def predict(self, X):
        return [0] * len(X)


X, Y = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]], [0, 1, 0, 1, 0, 1]


def test_spends_until_one_too_many(ledger):
    budget = PrivacyBudget(epsilon=0.5, path=ledger)
    for _ in range(5):
        Charged(budget=budget).fit(X, Y)
    with pytest.raises(BudgetExceededError, match=r"Charged was refused.*counts epsilon=0\.5,"):
        Charged(budget=budget).fit(X, Y)
    assert len(budget.entries()) == 5  # the refused one is not charged
    assert budget.remaining(Laplace(10.0)) == 0
    assert budget.spent() == pytest.approx(0.5)


def test_a_failed_fit_stays_charged(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    with pytest.raises(RuntimeError, match="no luck"):
        Charged(budget=budget, fail=True).fit(X, Y)
    with pytest.raises(KeyboardInterrupt), budget.charge(Laplace(10.0)):
        raise KeyboardInterrupt
    assert list(budget.entries()["status"]) == ["fail", "fail"]
    assert budget.spent() == pytest.approx(0.2)


def test_composes_tightly_not_epsilons():
    event = sgd(0.5)
    budget = PrivacyBudget(epsilon=1.5, delta=1e-5)
    fits = budget.remaining(event)
    assert fits > 5  # basic composition would allow three
    for _ in range(fits):
        budget.commit(budget.reserve(event))
    assert budget.remaining(event) == 0
    assert budget.spent() <= 1.5
    pld_fits = PrivacyBudget(epsilon=1.5, delta=1e-5, filter="pld").remaining(event)
    assert pld_fits >= fits
    basic = PrivacyBudget(epsilon=1.5, delta=1e-5, filter="basic")
    assert basic.remaining(ApproxDP(0.5, 1e-6)) == 3


def test_one_fit_may_have_it_all_and_nothing_follows():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-6)
    event = sgd(1.0)
    assert budget.remaining(event) == 1
    budget.commit(budget.reserve(event))
    assert budget.remaining(Gaussian(1000.0)) == 0


def test_the_filters_stay_within_the_cap_for_repetitions():
    """What they admit is never more than the tight composition allows."""
    for epsilon, delta in [(0.3, 1e-6), (3.0, 1e-5), (10.0, 1e-8)]:
        orders = renyi_orders(Cost(epsilon, delta))
        assert all(order > 1 for order, _ in orders)
        assert sum(share for _, share in orders) <= 1 + 1e-12
        for event in (Gaussian(4.0), sgd(0.2), Laplace(8.0), ApproxDP(0.05, delta / 1e4)):
            for name in ("adaptive", "renyi"):
                n = PrivacyBudget(epsilon=epsilon, delta=delta, filter=name).remaining(event)
                assert n > 0 or pld(event).epsilon(delta) > epsilon / 2
                if n:
                    assert pld(Repeated(event, n)).epsilon(delta) <= epsilon * (1 + 1e-3)


@pytest.mark.parametrize("cost", [0.01, 0.5, 3.0])
def test_an_order_bounds_the_failure_of_the_guarantee_whatever_the_loss(cost):
    """Against the definition: (1 - e^(epsilon - L))_+ <= delta e^((a-1)(L - cost)) for all L."""
    noise = 3.0
    for order in (1.3, 4.0, 40.0):
        count = round(cost * 2 * noise**2 / order) or 1
        spent = count * order / (2 * noise**2)
        counts, delta = Counter({Gaussian(noise): count}), 1e-5
        epsilon = at_orders(counts, ((order, 1.0),), delta, "add_remove").epsilon
        loss = epsilon + np.geomspace(1e-6, 50, 20_000)
        ratio = np.log(-np.expm1(epsilon - loss)) - (order - 1) * (loss - spent)
        assert ratio.max() == pytest.approx(math.log(delta), abs=1e-3) or epsilon == 0
        assert ratio.max() <= math.log(delta) + 1e-9


def test_outright_failure_has_a_share_of_delta():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5, filter="renyi")
    assert budget.remaining(ApproxDP(1e-4, 2e-6)) == 1  # one charge may have it all
    assert budget.remaining(ApproxDP(1e-4, 1e-7)) == 10  # a tenth of delta is theirs
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    budget.reserve(Gaussian(100.0))
    assert budget.remaining(ApproxDP(1e-4, 1e-7)) == 10


def test_plain_addition_is_never_refused():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    budget.reserve(Laplace(2.0))
    budget.reserve(ApproxDP(0.3, 1e-7))
    assert budget.remaining(ApproxDP(0.1, 1e-6)) == 2
    assert PrivacyBudget(epsilon=1.0, delta=1e-5).remaining(ApproxDP(0.1, 1e-6)) == 10
    budget.verify()


def test_what_addition_cannot_take_is_composed_within_what_is_left():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    scope = budget.scope("sgd", epsilon=2.5, delta=9e-6)
    budget.reserve(ApproxDP(0.5, 1e-6))
    fits = budget.remaining(sgd(0.5))
    assert fits == PrivacyBudget(epsilon=2.5, delta=9e-6).remaining(sgd(0.5)) > 15
    for n in range(fits):
        assert scope.remaining(sgd(0.5)) == fits - n
        budget.reserve(sgd(0.5))
        scope = budget  # the rest outside of the scope
    budget.verify()
    assert budget.remaining(ApproxDP(0.01)) == 0


@pytest.mark.parametrize("seed", range(3))
def test_whatever_addition_admits_anywhere_the_default_admits_there(seed, tmp_path):
    random = np.random.RandomState(seed)
    basic, default = (
        PrivacyBudget(1.0, 1e-5, tmp_path / name, filter=name) for name in ("basic", "adaptive")
    )
    for budget in (basic, default):
        budget.scope("a", 0.7, 6e-6)
    places = [place._scope for place in _places(basic, 2)]
    for _ in range(60):
        place = places[random.randint(len(places))]
        event = ApproxDP(0.05 * random.randint(1, 8), 1e-6 * random.randint(3))
        try:
            PrivacyBudget.open(basic.path, place).reserve(event)
        except BudgetExceededError:
            continue
        PrivacyBudget.open(default.path, place).reserve(event)
    assert len(default.entries()) == len(basic.entries()) > 10


def test_one_opening_serves_all_partitions():
    """A record is charged in its own part and in the whole; both must count it alike."""
    budget = PrivacyBudget(epsilon=2.0, delta=1e-5)
    budget.partition("ann").reserve(ApproxDP(0.5, 1e-6))
    budget.partition("bob").reserve(Gaussian(20.0))  # opens; for ann 1.5 is left, for bob 2
    left = [budget.partition(name).remaining(Gaussian(20.0)) for name in ("ann", "bob", "new")]
    assert 0 < left[0] < left[1] == left[2] - 1
    assert budget.remaining(Gaussian(20.0)) == left[0] - 1  # ann's epsilon and bob's noise
    assert budget.partition("new").remaining(Laplace(2.0)) == 4
    budget.verify()


@pytest.mark.parametrize("seed", range(3))
def test_no_record_spends_more_than_its_cap_by_the_default(seed):
    """Against the tight composition of what each record was charged, wherever it lies."""
    random, budget = np.random.RandomState(seed), PrivacyBudget(1.0, 1e-5)
    places, charged = _places(budget, 1), []
    kinds = (ApproxDP(0.1), ApproxDP(0.2, 1e-6), Gaussian(20.0), Gaussian(35.0))
    for _ in range(60):
        place, event = places[random.randint(len(places))], kinds[random.randint(len(kinds))]
        with suppress(BudgetExceededError):
            place.reserve(event)
            charged.append((place._scope, event))
    divided = sorted({s[: s.rindex("/", 0, i) + 1] for s, _ in charged for i in _parts_of(s)})
    worst = 0.0
    for parts in itertools.product("12", repeat=len(divided)):
        mine = dict(zip(divided, parts, strict=True))
        events = tuple(event for scope, event in charged if _lies_in(scope, mine))
        worst = max(worst, pld(Composed(events)).epsilon(1e-5))
    assert 0.4 < worst <= 1.0 + 1e-9


def test_a_refusal_shows_the_figures_it_decides_by():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    for _ in range(9):
        budget.reserve(ApproxDP(0.10123456789, 1e-6))
    with pytest.raises(BudgetExceededError) as refused:
        budget.reserve(ApproxDP(0.10123456789, 1e-6), who="A model")
    message = str(refused.value)
    assert message.startswith(
        "A model was refused: the budget of epsilon=1, delta=1e-05 of scope '/' would be "
        "overspent. The filter 'adaptive' counts epsilon=0.9111, delta=9e-06 as spent, and "
        "epsilon=1.012, delta=1e-05 with ApproxDP(epsilon=0.1012, delta=1e-06). "
    )
    assert budget.spent() < 0.9111  # which is not what the filter decides by
    assert "Call budget.remaining(event) to see how many more such releases fit" in message
    just = PrivacyBudget(epsilon=1.0)
    with pytest.raises(BudgetExceededError, match=r"epsilon=just above 1, delta=0 with"):
        just.reserve(ApproxDP(1.0000001))


def test_a_refusal_says_why_an_event_cannot_be_counted():
    with pytest.raises(BudgetExceededError, match="at delta=0 it needs pure epsilons"):
        PrivacyBudget(epsilon=1.0).reserve(Gaussian(1e6))
    basic = PrivacyBudget(epsilon=1.5, delta=1e-5, filter="basic")
    with pytest.raises(BudgetExceededError, match=r"no finite epsilon .* adds up epsilons"):
        basic.reserve(sgd(0.5))
    with pytest.raises(
        ValueError, match=r"'basic' adds up epsilons and deltas, .* none of its own"
    ):
        basic.remaining(sgd(0.5))
    assert basic.remaining(ApproxDP(0.5, 1e-6)) == 3


def test_a_refusal_shows_sums_and_what_is_lacking():
    budget = PrivacyBudget(epsilon=1.0, delta=1e-5)
    budget.reserve(ApproxDP(0.5, 1e-5))
    with pytest.raises(BudgetExceededError, match=r"and epsilon=0\.6, delta=1\.1e-05 with Approx"):
        budget.reserve(ApproxDP(0.1, 1e-6))
    with pytest.raises(BudgetExceededError, match=r"no finite epsilon .* all of delta is spent"):
        budget.reserve(Gaussian(1e3))
    with pytest.raises(BudgetExceededError, match="nothing bounds it"):
        PrivacyBudget(epsilon=1.0, delta=1e-5).reserve(NonPrivate())


def test_a_refusal_tells_what_a_filter_for_many_small_releases_would_have_allowed():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    budget.reserve(Repeated(Laplace(100.0), 299))
    budget.reserve(Laplace(100.0))
    with pytest.raises(BudgetExceededError, match="'renyi' would have admitted 20 or more"):
        budget.reserve(Laplace(100.0))


RARE = PoissonSampled(0.01, Gaussian(0.7))  # large losses, but seldom


def test_repetitions_of_the_first_event_have_more_room():
    for event, least in [(sgd(0.5), 1.1), (sgd(0.1), 1.1), (RARE, 50)]:
        counts = [
            PrivacyBudget(epsilon=3.0, delta=1e-5, filter=name).remaining(event)
            for name in ("renyi", "adaptive", "pld")
        ]
        assert least * counts[0] < counts[1] < counts[2]
        assert pld(Repeated(event, counts[1])).epsilon(0.4e-5) <= 3.0
        assert pld(Repeated(event, counts[1] + 1)).epsilon(0.4e-5) > 3.0


def test_the_plan_is_that_of_the_first_charge_and_counts_its_parts():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    budget.reserve(Repeated(RARE, 6))
    whole = 6 + budget.remaining(RARE)
    assert whole == PrivacyBudget(epsilon=3.0, delta=1e-5).remaining(RARE)
    budget.reserve(Composed((RARE, Repeated(RARE, 20))))  # in any portions
    assert budget.remaining(RARE) == whole - 27
    # what is none of its parts is left to the Renyi orders, whose room the plan has used up
    assert budget.remaining(PoissonSampled(0.01, Gaussian(0.71))) == 0
    assert budget.remaining(RARE) == whole - 27
    # something else first, and the same event has the room of the Renyi orders only
    other = PrivacyBudget(epsilon=3.0, delta=1e-5)
    other.reserve(Gaussian(200.0))
    assert other.remaining(RARE) < whole / 20
    budget.verify()


def test_a_plan_of_several_parts_is_billed_by_whole_units():
    other = PoissonSampled(0.02, Gaussian(0.7))

    def fits(units):
        plan = Composed((Repeated(RARE, 2 * units), Repeated(other, units)))
        return pld(plan).epsilon(0.4e-5) <= 3.0

    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    budget.reserve(Composed((Repeated(RARE, 4), Repeated(other, 2))))
    units = 2 + budget.remaining(other)
    assert fits(units)
    assert not fits(units + 1)
    assert 4 + budget.remaining(RARE) == 2 * units


def test_the_first_charge_of_a_scope_is_its_own():
    budget = PrivacyBudget(epsilon=30.0, delta=1e-3)
    budget.reserve(Laplace(10.0))
    scope = budget.scope("rare", epsilon=3.0, delta=1e-5)
    assert scope.remaining(RARE) == PrivacyBudget(epsilon=3.0, delta=1e-5).remaining(RARE)
    again = pickle.loads(pickle.dumps(scope))
    again.reserve(RARE)
    assert scope.remaining(RARE) > 100


def test_a_refusal_tells_what_a_settled_plan_would_have_allowed():
    budget = PrivacyBudget(epsilon=3.0, delta=1e-5)
    fits = budget.remaining(sgd(0.5))
    for _ in range(fits):
        budget.reserve(sgd(0.5))
    more = PrivacyBudget(epsilon=3.0, delta=1e-5, filter="pld").remaining(sgd(0.5)) - fits
    assert more > 0
    with pytest.raises(BudgetExceededError, match=f"filter 'pld' would have admitted {more} "):
        budget.reserve(sgd(0.5))
    with pytest.raises(BudgetExceededError) as refused:
        budget.reserve(Laplace(0.1))  # no filter has room for it
    assert "pld" not in str(refused.value)


def test_pure_budget_takes_pure_events_only():
    budget = PrivacyBudget(epsilon=1.0)
    assert budget.remaining(Laplace(10.0)) == 10
    assert budget.remaining(Gaussian(1e6)) == 0
    assert budget.remaining(NonPrivate()) == 0
    with pytest.raises(BudgetExceededError):
        budget.reserve(Gaussian(1e6))


def test_bad_values(ledger):
    for epsilon in (0, -1, float("nan"), float("inf"), "1", None, True):
        with pytest.raises(ValueError, match="epsilon="):
            PrivacyBudget(epsilon=epsilon)
    for delta in (-1e-9, 1.0, float("nan"), "0"):
        with pytest.raises(ValueError, match="delta="):
            PrivacyBudget(epsilon=1.0, delta=delta)
    with pytest.raises(ValueError, match="below 1/n"):
        PrivacyBudget(epsilon=1.0, delta=0.01, n_records=100)
    with pytest.raises(ValueError, match="filter="):
        PrivacyBudget(epsilon=1.0, filter="hope")
    budget = PrivacyBudget(epsilon=1.0, path=ledger, relation="add_remove")
    with pytest.raises(ValueError, match="never mixed"):
        budget.reserve(Laplace(9.0), relation="replace_one")
    with pytest.raises(TypeError, match="must be an Event"):
        budget.reserve(0.5)
    with (
        pytest.raises(ValueError, match="only proved ones"),
        charge(budget, Laplace(9.0), kind="estimate"),
    ):
        pass
    with pytest.raises(TypeError, match="must be a PrivacyBudget"), charge(3.0, Laplace(9.0)):
        pass
    with pytest.raises(ValueError, match="private data"):
        budget.reserve(GNMaxVote(40.0, (10, 0)))
    with pytest.raises(ValueError, match="is not a charge"):
        budget.commit(17)
    number = budget.reserve(Laplace(9.0))
    budget.commit(number)
    with pytest.raises(ValueError, match="already settled"):
        budget.fail(number)
    assert len(budget.entries()) == 1


def test_reopening_keeps_the_cap(ledger):
    PrivacyBudget(epsilon=1.0, path=ledger).reserve(Laplace(2.0))
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
                with budget.charge(Laplace(10.0)):
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


def test_fork_shares_the_ledger_and_does_not_delete_it():
    budget = PrivacyBudget(epsilon=1.0)
    worker = multiprocessing.get_context("fork").Process(
        target=lambda: budget.reserve(Laplace(10.0))
    )
    worker.start()
    worker.join(30)
    assert worker.exitcode == 0
    assert budget.spent() == pytest.approx(0.1)
    assert os.path.exists(budget.path)


def test_a_child_with_its_parents_number_does_not_delete_the_ledger():
    """As the first process of a new pid namespace may have."""
    budget, parent = PrivacyBudget(epsilon=1.0), os.getpid()

    def ends():
        with mock.patch.object(os, "getpid", return_value=parent):
            budget._finalizer()

    worker = multiprocessing.get_context("fork").Process(target=ends)
    worker.start()
    worker.join(30)
    assert worker.exitcode == 0
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
            with budget.charge(Laplace(1000.0)):
                done += 1
        except BudgetExceededError:
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


def test_processes_never_overspend(ledger):
    assert _hammer(ledger, 3, math.inf, 0.1) == 100


@pytest.mark.slow
def test_eight_processes_for_a_minute(ledger):
    assert _hammer(ledger, 8, 60.0, 1000.0) > 500


_FORKER = """
import itertools, os, signal, sys
from skprivacy.accounting import Laplace, PrivacyBudget
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
        with budget.charge(Laplace(1e6)):
            os.write(out, b"x")      # the release
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_kill_9_loses_no_charge(ledger, tmp_path, kills):
    budget, releases = PrivacyBudget(epsilon=1.0, path=ledger), tmp_path / "releases"
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


def _spoiled(budget):
    """Assert that nothing can be charged, with an error that says what is wrong."""
    ran = []
    with pytest.raises(LedgerError), charge(budget, Laplace(10.0)):
        ran.append("the data was touched")
    assert not ran


def test_corrupted_file(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    budget.reserve(Laplace(10.0))
    ledger.write_bytes(b"not a database at all" * 300)
    _spoiled(budget)


def test_truncated_file(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    for _ in range(30):
        budget.reserve(Laplace(1000.0))
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
        budget.reserve(Laplace(10.0))
    digest = budget.verify()
    with sqlite3.connect(ledger) as connection:
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            connection.execute("UPDATE log SET body = '' WHERE seq = 3")
        connection.execute("DROP TRIGGER no_update")
        cheaper = json.dumps(Laplace(1e9).to_dict(), sort_keys=True)
        connection.execute("UPDATE log SET body = ? WHERE seq = 3", (cheaper,))
    connection.close()
    with pytest.raises(LedgerError, match="line 3 does not fit"):
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
    budget.reserve(Laplace(10.0))


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
@pytest.mark.parametrize(
    "limit", ["resource.RLIMIT_FSIZE", "read-only"], ids=["full disk", "read-only"]
)
def test_files_that_cannot_be_written(ledger, limit):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    budget.reserve(Laplace(10.0))
    code = """
        import os, resource, sys
        from skprivacy.accounting import Laplace, LedgerError, PrivacyBudget
        budget = PrivacyBudget.open(sys.argv[1])
        if sys.argv[2] == "read-only":
            import sqlite3
            real = sqlite3.connect
            sqlite3.connect = lambda u, **k: real(u.replace("mode=rw", "mode=ro"), **k)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        for _ in range(2):
            try:
                with budget.charge(Laplace(10.0)):
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
    with charge(budget, Laplace(10.0)):
        spoil(budget._ledger.path)
        if error is not None:
            raise error
        return 7


@pytest.mark.parametrize("spoil", [_removed, _replaced, _damaged, _settled_inside])
def test_a_release_is_not_lost_if_its_outcome_cannot_be_noted(ledger, spoil):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    message = r"Charge 3 of .* was charged, but its outcome \(commit\) could not be noted"
    with pytest.warns(PrivacyWarning, match=message) as warned:
        assert _release(budget, spoil) == 7
    assert [w.filename for w in warned] == [__file__]
    if spoil is _removed:
        ledger.with_name("away").rename(ledger)
        assert budget.spent() == pytest.approx(0.1)  # the charge stands


def test_the_error_of_a_release_is_the_one_that_is_told(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    error = RuntimeError("no luck")
    with pytest.warns(PrivacyWarning, match=r"\(fail\) could not be noted"):  # noqa: SIM117
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
        from skprivacy.accounting import Laplace, PrivacyBudget
        budget = PrivacyBudget.open(sys.argv[1])
        with warnings.catch_warnings(record=True) as caught, budget.charge(Laplace(10.0)):
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
    assert "was charged, but its outcome (commit) could not be noted" in done.stderr + done.stdout
    assert list(budget.entries()["status"]) == ["reserved"]
    assert budget.spent() == pytest.approx(0.1)


def test_scopes_nest():
    budget = PrivacyBudget(epsilon=1.0)
    adult = budget.scope("adult", epsilon=0.5)
    sweep = adult.scope("sweep")
    sweep.reserve(Laplace(2.5))
    with pytest.raises(BudgetExceededError, match="'/adult/'"):
        sweep.reserve(Laplace(2.5))
    other = budget.scope("texas")
    other.reserve(Laplace(2.0))
    with pytest.raises(BudgetExceededError, match="scope '/'"):
        other.reserve(Laplace(5.0))
    assert budget.spent() == pytest.approx(0.9)
    assert adult.spent() == sweep.spent() == pytest.approx(0.4)
    assert adult.cap == (0.5, 0.0)
    assert sweep.cap is None
    assert list(budget.entries()["scope"]) == ["/adult/sweep/", "/texas/"]
    with pytest.raises(ValueError, match="already has the cap"):
        budget.scope("adult", epsilon=0.6)
    for name in ("", "a/b", "=a"):
        with pytest.raises(ValueError, match="name="):
            budget.scope(name)
    assert pickle.loads(pickle.dumps(sweep)).spent() == pytest.approx(0.4)


@pytest.mark.parametrize("name", ["adult", "/adult", "adult/", "/adult/"])
def test_a_scope_opened_by_name_is_under_every_cap_on_its_path(ledger, name):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    budget.scope("adult", epsilon=0.5)
    opened = PrivacyBudget.open(ledger, scope=name)
    with pytest.raises(BudgetExceededError, match="'/adult/'"):
        Charged(scale=1.9, budget=opened).fit(X, Y)
    with pytest.raises(BudgetExceededError, match="scope '/'"):
        Charged(scale=0.02, budget=PrivacyBudget.open(ledger, scope="a/")).fit(X, Y)
    Charged(scale=2.5, budget=opened).fit(X, Y)
    assert budget.spent() == budget.scope("adult").spent() == pytest.approx(0.4)
    assert list(budget.entries()["scope"]) == ["/adult/"]
    budget.verify()


@pytest.mark.parametrize("name", ["", "//", "a//b", "/a//", "///", "=", "a/=/b", "/="])
def test_what_names_no_scope_is_not_opened(ledger, name):
    PrivacyBudget(epsilon=1.0, path=ledger)
    with pytest.raises(ValueError, match="no name may be empty"):
        PrivacyBudget.open(ledger, scope=name)
    with pytest.raises(TypeError, match="scope=None must be a string"):
        PrivacyBudget.open(ledger, scope=None)


def test_a_partition_opened_by_name_is_one(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    PrivacyBudget.open(ledger, "=ann").reserve(Laplace(2.0))
    assert budget.partition("ann").remaining(Laplace(2.0)) == 1
    assert PrivacyBudget.open(ledger, "/=bob").remaining(Laplace(2.0)) == 2
    other = ledger.with_name("replaced.ledger")
    PrivacyBudget(epsilon=1.0, path=other, relation="replace_one")
    with pytest.raises(ValueError, match="no parallel composition"):
        PrivacyBudget.open(other, "=ann")


@pytest.mark.parametrize("scope", ["a/", "", "//", "/a"])
def test_a_charge_outside_every_cap_is_found(ledger, scope):
    """As an older version wrote it: the line is sound, its scope is not."""
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    body = json.dumps(Laplace(0.02).to_dict(), sort_keys=True)
    with budget._ledger.transaction() as log:
        log.append("reserve", scope, "", body)
    with pytest.raises(LedgerError, match=f"names the scope {scope!r}, which no cap covers"):
        budget.verify()
    with pytest.raises(LedgerError, match="outside every cap"):
        budget.reserve(Laplace(10.0))


def test_a_cap_that_comes_late_must_hold_what_was_charged():
    budget = PrivacyBudget(epsilon=1.0)
    scope = budget.scope("adult")
    scope.scope("sweep").reserve(Laplace(2.5))
    with pytest.raises(ValueError, match=r"epsilon=0\.3.*'/adult/'.*spent epsilon=0\.4") as error:
        budget.scope("adult", epsilon=0.3)
    assert "at least" in str(error.value)
    assert scope.cap is None
    budget.verify()  # what was refused left no trace
    assert budget.scope("adult", epsilon=0.4).remaining(Laplace(1000.0)) == 0
    budget.verify()
    for part in "12":
        budget.scope("texas").partition(part).reserve(Laplace(5.0))
    with pytest.raises(ValueError, match="'/texas/'"):
        budget.scope("texas", epsilon=0.1)
    budget.scope("texas", epsilon=0.2)  # the parts cost what the dearest of them costs
    with pytest.raises(BudgetExceededError, match="'/texas/'"):
        budget.scope("texas").partition("1").reserve(Laplace(50.0))
    budget.verify()


def test_a_late_cap_is_checked_by_the_filter_that_keeps_it():
    budget = PrivacyBudget(epsilon=9.0, delta=1e-5, filter="basic")
    for _ in range(3):
        budget.scope("a").reserve(ApproxDP(0.5, 1e-6))
    with pytest.raises(ValueError, match="basic"):
        budget.scope("a", epsilon=2.0, delta=2e-6)  # the epsilons fit, the deltas do not
    budget.scope("a", epsilon=1.5, delta=3e-6)
    budget.verify()


def test_partitions_compose_in_parallel():
    budget = PrivacyBudget(epsilon=1.0)
    for user in ("ann", "bob", "eve"):
        for _ in range(3):
            budget.partition(user).reserve(Laplace(5.0))
    assert budget.spent() == pytest.approx(0.6)
    assert budget.partition("ann").remaining(Laplace(5.0)) == 2
    assert budget.partition("new").remaining(Laplace(5.0)) == 5
    assert budget.remaining(Laplace(5.0)) == 2  # on everybody's data: the dearest part counts
    budget.reserve(Laplace(2.5))
    assert budget.partition("new").remaining(Laplace(5.0)) == 3
    assert budget.partition("ann").remaining(Laplace(5.0)) == 0
    with pytest.raises(BudgetExceededError):
        budget.partition("ann").reserve(Laplace(5.0))
    budget.partition("new").reserve(Laplace(5.0))
    budget.verify()


@pytest.mark.parametrize(("first", "second"), [("s", "t"), ("t", "s"), ("s", "longer")])
def test_parts_of_two_scopes_may_hold_the_same_record(first, second):
    budget = PrivacyBudget(1.0)
    budget.scope(first).partition("1").reserve(ApproxDP(0.6))
    with pytest.raises(BudgetExceededError):
        budget.scope(second).partition("2").reserve(ApproxDP(0.6))


def _places(scope, depth):
    """Return the scope with all scopes and partitions in it."""
    inner = [scope.scope("a"), scope.scope("b"), scope.partition("1"), scope.partition("2")]
    return [scope] + [p for i in inner if depth for p in _places(i, depth - 1)]


@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_charged_beyond_the_cap_wherever_it_lies(seed):
    """Against every way in which a record can lie in one part of each division."""
    random, budget = np.random.RandomState(seed), PrivacyBudget(1.0, filter="basic")
    places = _places(budget, 2)
    charged = []
    for _ in range(40):
        place, event = places[random.randint(len(places))], ApproxDP(0.1 * random.randint(1, 5))
        with suppress(BudgetExceededError):
            place.reserve(event)
            charged.append((place._scope, event.epsilon))
    divided = sorted({s[: s.rindex("/", 0, i) + 1] for s, _ in charged for i in _parts_of(s)})
    worst = 0.0
    for parts in itertools.product("12", repeat=len(divided)):
        mine = dict(zip(divided, parts, strict=True))
        worst = max(worst, sum(e for s, e in charged if _lies_in(s, mine)))
    assert 0.7 < worst <= 1.0 + 1e-9


def _parts_of(scope):
    """Return where the keys of partitions are in a path."""
    return [i for i, letter in enumerate(scope) if letter == "="]


def _lies_in(scope, mine):
    return all(mine[scope[: scope.rindex("/", 0, i) + 1]] == scope[i + 1] for i in _parts_of(scope))


def test_partitions_need_a_relation_that_keeps_parts():
    with pytest.raises(ValueError, match="no parallel composition"):
        PrivacyBudget(epsilon=1.0, relation="replace_one").partition("ann")


def test_entries_export_and_plot(ledger, tmp_path):
    budget = PrivacyBudget(epsilon=2.0, delta=1e-6, path=ledger)
    with budget.charge(sgd(0.5), who="<b>first</b>"):
        pass
    budget.reserve(Composed((Laplace(10.0), Gaussian(50.0))))
    entries = budget.entries()
    assert list(entries["status"]) == ["commit", "reserved"]
    assert entries["cost"][0] == pytest.approx(0.5, rel=2e-3)
    assert entries["event"][1] == Composed((Laplace(10.0), Gaussian(50.0)))
    budget.export(tmp_path / "copy.jsonl")
    lines = [json.loads(x) for x in (tmp_path / "copy.jsonl").read_text().splitlines()]
    assert lines[-1]["digest"] == budget.verify()
    import matplotlib

    matplotlib.use("Agg")
    axes = budget.plot()
    assert axes.get_ylabel() == "epsilon at delta = 1e-06"
    drawn = axes.lines[0].get_ydata()
    assert drawn[1] == pytest.approx(0.5, rel=2e-3)
    assert drawn[-1] == pytest.approx(budget.spent())
    matplotlib.pyplot.close(axes.figure)
    assert budget.guarantee().epsilon() == pytest.approx(budget.spent())
    assert PrivacyBudget(epsilon=1.0).entries().empty


def test_the_first_charge_settles_the_relation_for_everybody(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    assert budget.relation is None
    other = PrivacyBudget.open(ledger)
    budget.reserve(Laplace(10.0), relation="zero_out")
    assert budget.relation == other.relation == "zero_out"
    with pytest.raises(ValueError, match="never mixed"):
        other.reserve(Laplace(10.0), relation="add_remove")
    other.reserve(Laplace(10.0))
    assert len(budget.entries()) == 2
    assert budget.guarantee().relation == "zero_out"
    assert PrivacyBudget(epsilon=1.0, path=ledger).relation == "zero_out"
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(epsilon=1.0, path=ledger, relation="zero_out")
    budget.verify()


def test_a_refused_charge_settles_nothing():
    budget = PrivacyBudget(epsilon=1.0)
    with pytest.raises(BudgetExceededError):
        budget.reserve(Laplace(0.1), relation="zero_out", unit="patient")
    assert budget.relation is budget.unit is None


def test_the_first_charge_settles_the_unit_for_everybody(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger, relation="add_remove")
    assert budget.unit is None
    with charge(budget, Laplace(10.0), unit="patient"):
        pass
    other = PrivacyBudget.open(ledger)
    assert budget.unit == other.unit == "patient"
    for attempt in (other.reserve, other.scope("a").reserve, PrivacyBudget.open(ledger).reserve):
        with pytest.raises(ValueError, match="unit='record' and the budget for unit='patient'"):
            attempt(Laplace(10.0))
    with pytest.raises(ValueError, match="never added up"):
        Charged(budget=other).fit(X, Y)
    other.reserve(Laplace(10.0), unit="patient")
    assert list(budget.entries()["unit"]) == ["patient", "patient"]
    assert budget.guarantee().unit == "patient"
    assert repr(budget) == "PrivacyBudget(epsilon=1, delta=0) per patient: 0.2 spent by 2 charges"
    assert PrivacyBudget(epsilon=1.0, path=ledger, relation="add_remove").unit == "patient"
    budget.verify()


def test_the_unit_may_be_settled_by_the_budget(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger, unit="patient")
    with pytest.raises(ValueError, match="unit='patient'"):
        Charged(budget=budget).fit(X, Y)
    assert budget.entries().empty
    budget.reserve(Laplace(10.0), unit="patient", relation="zero_out")
    assert (budget.relation, budget.unit) == ("zero_out", "patient")
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(epsilon=1.0, path=ledger, unit="record")
    budget.verify()
    for unit in ("", 3, None):
        with pytest.raises(ValueError, match=f"unit={unit!r} must be"):
            budget.reserve(Laplace(10.0), unit=unit)
    with pytest.raises(ValueError, match="unit='' must be"):
        PrivacyBudget(epsilon=1.0, unit="")


@pytest.mark.parametrize("relation", [None, "zero_out"])
def test_a_ledger_from_before_there_were_units_is_of_records(ledger, relation):
    ledger_at(ledger).create(
        json.dumps({"epsilon": 1.0, "delta": 0.0, "relation": relation, "filter": "adaptive"})
    )
    budget = PrivacyBudget.open(ledger)
    body = json.dumps(Laplace(10.0).to_dict(), sort_keys=True)
    with budget._ledger.transaction() as log:
        if relation is None:
            log.append("relation", "/", "", "zero_out")
        log.append("reserve", "/", "old", body)
    assert (budget.relation, budget.unit) == ("zero_out", "record")
    with pytest.raises(ValueError, match="unit='patient'"):
        budget.reserve(Laplace(10.0), unit="patient")
    Charged(budget=PrivacyBudget(1.0, path=ledger, relation=relation))
    budget.reserve(Laplace(10.0), relation="zero_out")
    assert budget.spent() == pytest.approx(0.2)
    assert repr(budget) == "PrivacyBudget(epsilon=1, delta=0): 0.2 spent by 2 charges"
    budget.verify()


def _from_before(path, event, count, delta=1e-5):
    """Write a ledger as the default filter of old did, which did not add up first."""
    ledger_at(path).create(
        json.dumps({"epsilon": 3.0, "delta": delta, "relation": "add_remove", "filter": "adaptive"})
    )
    budget, body = PrivacyBudget.open(path), json.dumps(event.to_dict(), sort_keys=True)
    with budget._ledger.transaction() as log:
        for _ in range(count):
            log.append("reserve", "/", "old", body)
    return budget


def test_a_ledger_from_before_goes_on_under_the_present_filter(tmp_path):
    fresh = PrivacyBudget(3.0, 1e-5)
    old = _from_before(tmp_path / "sgd", sgd(0.5), 5)
    assert old.remaining(sgd(0.5)) == fresh.remaining(sgd(0.5)) - 5
    old.verify()
    for event, count in ((Laplace(100.0), 310), (ApproxDP(1e-3, 4e-7), 26)):
        spent = _from_before(tmp_path / str(count), event, count)  # more than adding up allows
        assert spent.remaining(Laplace(1e4)) == 0
        assert spent.partition("new").remaining(Laplace(1e4)) == 0
        with pytest.raises(BudgetExceededError):
            spent.reserve(Gaussian(1e4))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([("reserve", None)], "before the first charge"),
        ([("relation", "add_remove"), ("relation", "zero_out")], "settled once"),
        ([("reserve", None), ("relation", "add_remove")], "before the first charge"),
        ([("relation", "sideways")], "relation='sideways'"),
        ([("relation", '{"relation": "zero_out", "unit": ""}')], "unit=''"),
        ([("relation", '{"relation": "zero_out"}')], "was altered: it is for"),
    ],
)
def test_a_ledger_of_mixed_relations_or_units_fails(ledger, lines, message):
    budget = PrivacyBudget(epsilon=1.0, path=ledger)
    with budget._ledger.transaction() as log:
        for kind, body in lines:
            log.append(kind, "/", "", body or json.dumps(Laplace(10.0).to_dict(), sort_keys=True))
    with pytest.raises(LedgerError, match=message):
        budget.verify()


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ('{"epsilon": 1.0, "delta": 0.0, "relation": null, "filter": "hope"}', "filter='hope'"),
        ('{"epsilon": 1.0}', "is not the ledger"),
        ("[]", "is not the ledger"),
    ],
)
def test_a_ledger_that_begins_otherwise_is_refused(ledger, first, message):
    ledger_at(ledger).create(first)
    with pytest.raises(LedgerError, match=message):
        PrivacyBudget.open(ledger)


def test_a_ledger_that_contradicts_itself_fails(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger, unit="patient")
    with budget._ledger.transaction() as log:
        log.settle("add_remove", "record")
    with pytest.raises(LedgerError, match="settles unit='record'; the ledger is for 'patient'"):
        budget.verify()


def test_replacement_is_never_settled_in_a_partition():
    part = PrivacyBudget(epsilon=1.0).partition("ward A")
    with pytest.raises(ValueError, match="parallel composition"):
        part.reserve(Laplace(10.0), relation="replace_one")


def test_parts_that_cost_different_things_are_no_overdraft():
    """No record is in both parts: a sum over the dearest of each kind would call this 1.1."""
    budget = PrivacyBudget(epsilon=1.0)
    budget.partition("north").reserve(ApproxDP(0.6))
    budget.partition("south").reserve(ApproxDP(0.5))
    budget.verify()


def test_parts_of_another_scope_that_cost_different_things_are_no_overdraft():
    """Found at the end, where nobody was asked: the dearest of each kind would make 1.4."""
    budget = PrivacyBudget(epsilon=1.0)
    budget.scope("texas").reserve(ApproxDP(0.3))
    budget.scope("adult").partition("1").reserve(ApproxDP(0.6))
    budget.scope("adult").partition("2").reserve(ApproxDP(0.5))
    budget.verify()
    body = json.dumps(ApproxDP(0.2).to_dict(), sort_keys=True)
    with budget._ledger.transaction() as log:
        log.append("reserve", "/adult/=1/", "", body)
    with pytest.raises(LedgerError, match="pass its cap"):
        budget.verify()


@pytest.mark.parametrize("name", ["adaptive", "renyi", "pld", "basic"])
def test_what_was_admitted_is_verified(name):
    random, budget = np.random.RandomState(7), PrivacyBudget(1.0, 1e-5, filter=name)
    places = _places(budget, 1)
    kinds = [ApproxDP(0.1), ApproxDP(0.2, 1e-6), Laplace(4.0), ApproxDP(0.3)]
    kinds += [] if name == "basic" else [Gaussian(20.0), Gaussian(35.0)]
    for _ in range(50):
        with suppress(BudgetExceededError):
            places[random.randint(len(places))].reserve(kinds[random.randint(len(kinds))])
        budget.verify()


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
        budget.reserve(Laplace(5.0))
    _, spent, seconds = _shown(budget)
    assert spent == pytest.approx([0.0, 0.2, 0.4][: n_charges + 1])
    assert 5 < seconds < 600


def test_a_scope_is_drawn_at_the_delta_of_its_cap():
    pytest.importorskip("matplotlib.dates")
    scope = PrivacyBudget(epsilon=3.0, delta=1e-5).scope("adult", 1.0, 1e-7)
    scope.reserve(Gaussian(20.0))
    axes, spent, _ = _shown(scope)
    assert spent[-1] == pytest.approx(scope.spent())
    assert "1e-07" in axes.get_ylabel()
