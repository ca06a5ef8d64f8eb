"""Planted bugs in the accounts: costs of events, their format, budgets and their ledgers."""

import math
import sqlite3
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import make_dataclass, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from skprivacy.accounting import (
    ApproxDPEvent,
    Event,
    GaussianEvent,
    GNMaxEvent,
    LaplaceEvent,
    event,
)
from skprivacy.accounting import group_privacy as groups
from skprivacy.accounting.budget import PrivacyBudget, admission, budget, filters, ledger, statement
from skprivacy.accounting.budget.filters import Account, Cost, sum_epsilons_and_deltas
from skprivacy.accounting.budget.ledger import Ledger
from skprivacy.accounting.budget.stores import ledger_at
from skprivacy.accounting.events import VoteThresholdEvent, composition, matrix_factorization, noise
from skprivacy.accounting.events.mixtures import MixtureEvent
from skprivacy.accounting.pld import argmax
from skprivacy.accounting.pld.pairs import GaussianPair, MixedPair, symmetric_pairs
from skprivacy.accounting.renyi import binomial_rdp, rdp

from ..accounting import test_group_privacy as group_privacy
from ..accounting import test_renyi
from ..accounting.budget import (
    test_filters,
    test_ledger,
    test_partition_games,
    test_receipt,
    test_rollback,
    test_scope_names,
    test_scopes,
    test_statement,
)
from ..accounting.events import (
    test_labels,
    test_loaded_events,
    test_mixtures,
    test_sampled_discrete_gaussian,
    test_stored_events,
    test_votes,
)
from ..accounting.pld import rounding
from ..accounting.pld.test_argmax import forget
from .bug import Bug, calling, replaced


def pair_of(sensitivity):
    return lambda self, relation: symmetric_pairs(GaussianPair(self.noise_multiplier / sensitivity))


def replace_one_alone(relation):
    return relation == "replace_one"


def mean_of_renyi(self, orders, relation):
    each = np.array([rdp(event, orders, relation) for event in self.events])
    return self.weights @ each


def no_weights(self, edges):
    each = [part.masses(edges) for part in self.parts]
    return tuple(np.mean([masses[i] for masses in each], axis=0) for i in (0, 1))


def small_noise_only(noise, rate, orders, relation):
    """The first term of the series, which is what it tends to for much noise."""
    return orders * rate**2 / (2 * noise**2)


@calling
def nothing_spent(original, account):
    return original(account) if account.opened is None else Cost(0.0, 0.0)


@calling
def no_delta_spent(original, account):
    return original(account)._replace(delta=0.0 if account.opened else original(account).delta)


def the_better_of_two(account):
    """Admit what addition does, and what Renyi orders do, each with all of delta."""
    yield sum_epsilons_and_deltas(account.added + account.counts, account.relation)
    everything = Account(account.cap, "renyi", account.relation, account.added + account.counts)
    yield from filters._renyi_costs(everything)


@calling
def forgets_what_was_added(original, charged, cap, opening, terms):
    account = original(charged, cap, opening, terms)
    return account.with_added(Counter()) if opening else account


def first_of_all_orders(account):
    """What the default was: nothing is added up but pure epsilons."""
    yield from filters._tight_costs(account.with_counts(account.added + account.counts), 0.5, 0.4)


def eagerly(self, state):
    self._attach(ledger_at(state["address"]), state["scope"])
    _ = self._terms


@calling
def made_anew(original, address, **options):
    return original(address.replace("mode=rw", "mode=rwc"), **options)


@calling
@contextmanager
def when_entered(original, self, *terms):
    """What it was: a call without ``with`` charges nothing."""
    with original(self, *terms) as receipt:
        yield receipt


@calling
def tails_only(original, self, line):
    """What it was: only the last line is checked."""
    with mock.patch.object(ledger, "_digest", return_value=line.digest):
        original(self, line)


# -------------------------------------------------------------------------------- what catches them


def afresh(check):
    """Forget what was computed before, and after."""

    @wraps(check)
    def run():
        forget()
        try:
            check()
        finally:
            forget()

    return run


def contract_of(test, **params):
    """Return a test with its parameters as a contract, in a folder of its own if it takes one."""

    @wraps(test)
    def run():
        with TemporaryDirectory() as folder:
            place = Path(folder)
            fixtures = {"tmp_path": place, "ledger": place / "ledger", "counter": place / "counter"}
            taken = signature(test).parameters
            given = {name: v for name, v in fixtures.items() if name in taken} | params
            try:
                if "budget" in taken:
                    given["budget"] = PrivacyBudget(1.0, path=fixtures["ledger"])
                test(**given)
            except OSError as error:
                raise AssertionError("the ledger was lost, or opened too early") from error

    return run


def check_tags():
    with mock.patch.dict(event._TAGS):
        with suppress(TypeError):  # it is refused
            type("Gaussian", (GaussianEvent,), {"__module__": "notebook"}, tag="Gaussian")
        assert Event.from_dict({"type": "Gaussian", "noise_multiplier": 1.0}) == GaussianEvent(1.0)


def check_first_format():
    for row, stored in zip(test_stored_events.STORED, test_stored_events.EVENTS, strict=True):
        try:
            assert Event.from_dict(row["event"]) == stored
        except ValueError as error:
            raise AssertionError("the first format cannot be read") from error


def check_scopes(tmp_path):
    for name in ("a/", "", "//"):
        path = tmp_path / f"{len(name)}.ledger"
        made = PrivacyBudget(epsilon=1.0, path=path)
        made.scope("a", epsilon=0.5)
        try:
            opened = PrivacyBudget.open(path, name)
        except ValueError:
            continue
        with pytest.raises(ValueError, match="overspent"):
            opened.reserve(LaplaceEvent(0.02))


def check_alterations(tmp_path):
    for number in (2, 3):
        path = tmp_path / f"{number}.ledger"
        test_ledger.test_nothing_is_charged_to_a_ledger_with_an_altered_line(
            path, number, {"source": "somebody else"}, PrivacyBudget(1.0, path=path)
        )


def open_account():
    account = Account(Cost(1.0, 0.03), "adaptive", "add_remove")
    events = (test_filters.SMALL, ApproxDPEvent(0.0, 0.03))
    assert test_filters.worst_case(account, 1.0, events)[0] <= 0.03 * (1 + 1e-9)


def omitted(owner, attribute, check, name):
    return replaced(owner, attribute, lambda *_: None, check, name)


WINNERS, TESTS = (
    contract_of(test_votes.test_the_curve_is_that_of_gaussian_noise, make=make, sensitivity=size)
    for make, size in ((GNMaxEvent, math.sqrt(2)), (VoteThresholdEvent, 1.0))
)
NUMPY = SimpleNamespace(**{**vars(np), "floor": np.ceil})

STEP_OF_FIVE, REPLACED_FIVE = (
    contract_of(
        group_privacy.test_one_step_is_the_mixture_of_gaussians, k=5, q=0.3, z=2.0, relation=each
    )
    for each in ("add_remove", "replace_one")
)
OLDER_COPIES = contract_of(test_rollback.test_an_older_copy_is_refused_with_a_counter)
MIXED_GAME = contract_of(
    test_filters.test_no_adversary_passes_the_cap, game="mixed", name="adaptive", delta=0.03
)
LOADING = contract_of(test_loaded_events.test_a_handle_that_was_loaded_first_finds_the_ledger_later)
COSTS = [
    replaced(GNMaxEvent, "dominating_pairs", pair_of(1.0), WINNERS,
             "a vote moves one count"),
    replaced(VoteThresholdEvent, "dominating_pairs", pair_of(0.5), TESTS,
             "half the sensitivity of the threshold test"),
    replaced(argmax, "np", NUMPY, rounding.check_filter, "rounded to the larger ratio"),
    replaced(MixtureEvent, "renyi", mean_of_renyi, test_mixtures.test_one_choice_is_exact),
    replaced(MixedPair, "masses", no_weights, test_mixtures.test_one_choice_is_exact),
    replaced(noise, "sampled_gaussian_rdp", small_noise_only,
             contract_of(test_renyi.test_never_below_the_quadrature_nor_far_above,
                         order=3.7, q=0.01, z=1.0, relation="add_remove")),
    replaced(noise, "binomial_rdp", lambda a, q, z: binomial_rdp(max(a - 1, 2), q, z),
             contract_of(test_sampled_discrete_gaussian.test_moment_is_the_sum_over_the_grid,
                         rate=0.3, sigma=1.0, move="two integers"),
             "sampled integers at the order below"),
    replaced(matrix_factorization, "allows_replacement", replace_one_alone,
             test_labels.test_sampled_contributions_are_replaced_by_another_label),
    replaced(composition, "allows_replacement", replace_one_alone,
             test_labels.test_sampled_contributions_are_replaced_by_another_label),
    replaced(composition, "_count_probabilities",
             lambda rate, size: ((1 - rate, rate), (0.0, float(size))), STEP_OF_FIVE,
             "a group is in the sample as one record"),
    replaced(composition, "allows_replacement", lambda relation: False, REPLACED_FIVE,
             "a group is replaced as if it left"),
    replaced(groups, "_chain_tpr", lambda fpr, steps, curve: groups._highest_tpr(fpr, curve),
             group_privacy.test_steps_along_a_gaussian_curve_are_exact,
             "steps between neighbours forgotten"),
    replaced(event, "_register", lambda tag, cls: event._TAGS.__setitem__(tag, cls), check_tags,
             "a tag is taken over"),
    replaced(event._TAGS, "Gaussian", make_dataclass("Renamed", ["sigma"], frozen=True),
             check_first_format, "a renamed field"),
]  # fmt: skip
BUGS = [
    *[replace(bug, caught_by=afresh(bug.caught_by)) for bug in COSTS],
    Bug(ledger.Log, "_take", tails_only, contract_of(check_alterations)),
    Bug(PrivacyBudget, "reserve", when_entered,
        contract_of(test_receipt.test_a_call_without_with_is_charged, name="reserve")),
    omitted(Ledger, "_check_covered", OLDER_COPIES, "the counter is never compared"),
    omitted(Ledger, "_move_counter", OLDER_COPIES, "the counter is never moved"),
    # as if nobody could have moved the counter in between
    replaced(Ledger, "_move_counter", lambda self, counter, *lines: counter.move(*lines),
             contract_of(test_rollback.test_of_two_copies_that_are_charged_at_once_one_is_refused),
             "the counter is moved unseen"),
    omitted(Ledger, "_check_guards",
            contract_of(test_rollback.test_a_ledger_with_other_triggers_refuses_every_charge,
                        how="an insert is ignored"), "nobody looks at the triggers"),
    omitted(budget, "check_scope_name",
            contract_of(test_scope_names.test_names_that_look_like_another_are_refused,
                        kind="zero-width space"), "any text names a scope"),
    omitted(Ledger, "_check_identity",
            contract_of(test_ledger.test_a_ledger_that_was_replaced_is_refused, how="older"),
            "another ledger is as good"),
    Bug(Account, "sum_added", nothing_spent, MIXED_GAME),
    Bug(Account, "sum_added", no_delta_spent, MIXED_GAME),
    Bug(admission, "_account", forgets_what_was_added,
        contract_of(test_partition_games.test_no_adversary_passes_the_cap_by_way_of_another_part,
                    epsilon=0.4, delta=0.03, failing=ApproxDPEvent(0.0, 0.009))),
    replaced(filters.FILTERS, "adaptive", first_of_all_orders,
             contract_of(test_filters.test_the_default_admits_whatever_addition_admits, seed=0)),
    replaced(filters.FILTERS, "adaptive", the_better_of_two, open_account),
    replaced(statement, "scope_of", str, contract_of(check_scopes), "any text is a scope"),
    replaced(statement.Statement, "verify", lambda self: "",
             contract_of(test_scopes.test_a_charge_outside_every_cap_is_found, scope="a/"),
             "a line may name any scope"),
    omitted(budget, "check_same_unit",
            contract_of(test_statement.test_the_first_charge_settles_the_unit_for_everybody),
            "units are added up"),
    replaced(PrivacyBudget, "_record_outcome", PrivacyBudget._settle,
             contract_of(test_ledger.test_a_release_is_not_lost_if_its_outcome_cannot_be_noted,
                         spoil=test_ledger._removed), "an outcome must be noted"),
    replaced(PrivacyBudget, "__setstate__", eagerly, LOADING),
    Bug(sqlite3, "connect", made_anew, LOADING),
]  # fmt: skip
