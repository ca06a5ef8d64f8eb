"""Planted bugs in the budget, its filters and its ledger: their tests catch each."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import contextmanager
from unittest import mock

import pytest

from skprivacy.accounting import ApproxDPEvent, LaplaceEvent
from skprivacy.accounting.budget import (
    PrivacyBudget,
    admission,
    filters,
)
from skprivacy.accounting.budget import (
    budget as privacy_budget,
)
from skprivacy.accounting.budget import (
    ledger as log,
)
from skprivacy.accounting.budget import (
    statement as handle,
)
from skprivacy.accounting.budget import (
    stores as sqlite,
)
from skprivacy.accounting.budget.filters import Account, Cost, sum_epsilons_and_deltas
from skprivacy.accounting.budget.ledger import Ledger
from skprivacy.accounting.budget.stores import ledger_at

from ..accounting.budget import (
    test_filters,
    test_ledger,
    test_receipt,
    test_rollback,
    test_scope_names,
    test_scopes,
)
from ..accounting.budget import (
    test_partition_games as test_games_in_parts,
)
from ..accounting.budget import (
    test_statement as test_terms,
)
from ..accounting.events import test_loaded_events as test_loaded


def game(name, delta):
    return lambda folder: test_filters.test_no_adversary_passes_the_cap(name, "adaptive", delta)


def parts(folder):
    failing = ApproxDPEvent(0.0, 0.009)
    test_games_in_parts.test_no_adversary_passes_the_cap_by_way_of_another_part(0.4, 0.03, failing)


def addition(folder):
    test_filters.test_the_default_admits_whatever_addition_admits(0)


def scopes(folder):
    for name in ("a/", "", "//"):
        path = folder / f"{len(name)}.ledger"
        budget = PrivacyBudget(epsilon=1.0, path=path)
        budget.scope("a", epsilon=0.5)
        try:
            opened = PrivacyBudget.open(path, name)
        except ValueError:
            continue
        with pytest.raises(ValueError, match="overspent"):
            opened.reserve(LaplaceEvent(0.02))


def lines_outside(folder):
    test_scopes.test_a_charge_outside_every_cap_is_found(folder / "ledger", "a/")


def units(folder):
    test_terms.test_the_first_charge_settles_the_unit_for_everybody(folder / "ledger")


def outcomes(folder):
    try:
        test_ledger.test_a_release_is_not_lost_if_its_outcome_cannot_be_noted(
            folder / "ledger", test_ledger._removed
        )
    except OSError as error:
        raise AssertionError("the release was lost") from error


def loading(folder):
    try:
        test_loaded.test_a_handle_that_was_loaded_first_finds_the_ledger_later(folder)
    except OSError as error:
        raise AssertionError("the ledger was opened too early") from error


REAL_SUM, REAL_CONNECT, REAL_ACCOUNT = Account.sum_added, sqlite3.connect, admission._account


def nothing_spent(account):
    return REAL_SUM(account) if account.opened is None else Cost(0.0, 0.0)


def no_delta_spent(account):
    return REAL_SUM(account)._replace(delta=0.0 if account.opened else REAL_SUM(account).delta)


def the_better_of_two(account):
    """Admit what addition does, and what Renyi orders do, each with all of delta."""
    yield sum_epsilons_and_deltas(account.added + account.counts, account.relation)
    everything = Account(account.cap, "renyi", account.relation, account.added + account.counts)
    yield from filters._renyi_costs(everything)


def forgets_what_was_added(charged, cap, opening, terms):
    account = REAL_ACCOUNT(charged, cap, opening, terms)
    return account.with_added(Counter()) if opening else account


def first_of_all_orders(account):
    """What the default was: nothing is added up but pure epsilons."""
    yield from filters._tight_costs(account.with_counts(account.added + account.counts), 0.5, 0.4)


def eagerly(path, scope, seen):
    budget = PrivacyBudget.__new__(PrivacyBudget)
    budget._attach(ledger_at(path), scope)
    _ = budget._terms
    return budget


def made_anew(address, **options):
    return REAL_CONNECT(address.replace("mode=rw", "mode=rwc"), **options)


def alterations(folder):
    for number in (2, 3):
        path = folder / f"{number}.ledger"
        test_ledger.test_nothing_is_charged_to_a_ledger_with_an_altered_line(
            path, number, {"source": "somebody else"}
        )


def older_copies(folder):
    test_rollback.test_an_older_copy_is_refused_with_a_counter(
        folder / "ledger", folder / "counter"
    )


def two_copies(folder):
    test_rollback.test_of_two_copies_that_are_charged_at_once_one_is_refused(
        folder / "ledger", folder / "counter"
    )


def triggers(folder):
    test_rollback.test_a_ledger_with_other_triggers_refuses_every_charge(
        folder / "ledger", "an insert is ignored"
    )


def names(folder):
    test_scope_names.test_names_that_look_like_another_are_refused("zero-width space")


def reservations(folder):
    test_receipt.test_a_call_without_with_is_charged("reserve")


REAL_RESERVE = PrivacyBudget.reserve


@contextmanager
def when_entered(self, *terms):
    """What it was: a call without ``with`` charges nothing."""
    with REAL_RESERVE(self, *terms) as receipt:
        yield receipt


def moves_once(self, counter, covered, last):
    """Ask whoever moved the counter in between for nothing."""
    counter.move(covered, last)


def replacements(folder):
    test_ledger.test_a_ledger_that_was_replaced_is_refused(folder / "ledger", "older", folder)


def tails_only(self, line):
    """What it was: only the last line is checked."""
    with mock.patch.object(log, "_digest", return_value=line.digest):
        REAL_TAKE(self, line)


REAL_TAKE = log.Log._take

MUTANTS = {
    "only the last line is checked": (log.Log, "_take", tails_only, alterations),
    "a reservation is charged when it is entered": (
        PrivacyBudget, "reserve", when_entered, reservations,
    ),
    "the counter is never compared": (Ledger, "_check_covered", lambda *_: None, older_copies),
    "the counter is never moved": (Ledger, "_move_counter", lambda *_: None, older_copies),
    "two copies move one counter": (Ledger, "_move_counter", moves_once, two_copies),
    "nobody looks at the triggers": (Ledger, "_check_guards", lambda *_: None, triggers),
    "any text names a scope": (privacy_budget, "check_scope_name", lambda *_: None, names),
    "another ledger is as good": (Ledger, "_check_identity", lambda *_: None, replacements),
    "the rest gets the whole cap again": (Account, "sum_added", nothing_spent, game("mixed", 0.03)),
    "the rest gets all of delta again": (Account, "sum_added", no_delta_spent, game("mixed", 0.03)),
    "what was added up is read, and forgotten": (
        admission, "_account", forgets_what_was_added, parts,
    ),
    "the default falls behind addition": (
        filters, "_adaptive_costs", first_of_all_orders, addition,
    ),
    "any text is a scope": (handle, "scope_of", str, scopes),
    "a line may name any scope": (
        privacy_budget.Statement, "verify", lambda self: "", lines_outside,
    ),
    "units are added up": (privacy_budget, "check_same_unit", lambda *_: None, units),
    "an outcome must be noted": (PrivacyBudget, "_record_outcome", PrivacyBudget._settle, outcomes),
    "loading opens the ledger": (PrivacyBudget, "_at", eagerly, loading),
    "a missing ledger is made anew": (sqlite.sqlite3, "connect", made_anew, loading),
}  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name, tmp_path):
    owner, attribute, bug, check = MUTANTS[name]
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    check(before)
    table = {filter: bug for filter, rule in filters.FILTERS.items() if rule.__name__ == attribute}
    with (
        mock.patch.object(owner, attribute, bug),
        mock.patch.dict(filters.FILTERS, table),
        pytest.raises((AssertionError, pytest.fail.Exception)),
    ):
        check(after)


def test_the_better_of_two_filters_is_caught(tmp_path):
    start = Account(Cost(1.0, 0.03), "adaptive", "add_remove")
    events = (test_filters.SMALL, ApproxDPEvent(0.0, 0.03))
    assert test_filters.worst_case(start, 1.0, events)[0] <= 0.03 * (1 + 1e-9)
    with mock.patch.dict(filters.FILTERS, adaptive=the_better_of_two):
        always_open = Account(Cost(1.0, 0.03), "adaptive", "add_remove", opened=Cost(1.0, 0.03))
        assert test_filters.worst_case(always_open, 1.0, events)[0] > 1.1 * 0.03
