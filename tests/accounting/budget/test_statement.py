"""Terms shared by all charges of a ledger: relation, unit and first line."""

import json

import pytest

from skprivacy.accounting import (
    ApproxDPEvent,
    GaussianEvent,
    LaplaceEvent,
    LedgerError,
    PrivacyBudget,
)
from skprivacy.accounting.budget.stores import ledger_at
from skprivacy.exceptions import BudgetExceededError

from .budgets import Charged, X, Y, sgd


def test_the_first_charge_settles_the_relation_for_everybody(ledger, budget):
    assert budget.relation is None
    other = PrivacyBudget.open(ledger)
    budget.reserve(LaplaceEvent(10.0), relation="zero_out")
    assert budget.relation == other.relation == "zero_out"
    with pytest.raises(ValueError, match="never mixed"):
        other.reserve(LaplaceEvent(10.0), relation="add_remove")
    other.reserve(LaplaceEvent(10.0))
    assert len(budget.entries()) == 2
    assert budget.guarantee().relation == "zero_out"
    assert PrivacyBudget(epsilon=1.0, path=ledger).relation == "zero_out"
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(epsilon=1.0, path=ledger, relation="zero_out")
    budget.verify()


def test_a_refused_charge_settles_nothing(budget):
    with pytest.raises(BudgetExceededError):
        budget.reserve(LaplaceEvent(0.1), relation="zero_out", unit="patient")
    assert budget.relation is budget.unit is None


def test_labels_are_never_advised_to_become_another_relation(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger, relation="label")
    with pytest.raises(ValueError, match=r"Create a budget with relation='zero_out'\.$"):
        budget.reserve(LaplaceEvent(10.0), relation="zero_out")
    other = PrivacyBudget(epsilon=1.0, relation="add_remove")
    with pytest.raises(ValueError, match="or set the estimator's relation"):
        other.reserve(LaplaceEvent(10.0), relation="zero_out")


def test_unnamed_unit_error_suggests_a_series_name():
    budget = PrivacyBudget(epsilon=1.0, unit="patient")
    with pytest.raises(ValueError, match=r"groups=pandas\.Series\(\.\.\., name='patient'\)"):
        budget.reserve(LaplaceEvent(10.0), unit="group")
    records = PrivacyBudget(epsilon=1.0, unit="record")
    with pytest.raises(ValueError, match=r"with unit='group'\.$"):
        records.reserve(LaplaceEvent(10.0), unit="group")


def test_the_first_charge_settles_the_unit_for_everybody(ledger):
    budget = PrivacyBudget(epsilon=1.0, path=ledger, relation="add_remove")
    assert budget.unit is None
    budget.charge(LaplaceEvent(10.0), unit="patient")
    other = PrivacyBudget.open(ledger)
    assert budget.unit == other.unit == "patient"
    for attempt in (other.reserve, other.scope("a").reserve, PrivacyBudget.open(ledger).reserve):
        with pytest.raises(ValueError, match="unit='record' and the budget for unit='patient'"):
            attempt(LaplaceEvent(10.0))
    with pytest.raises(ValueError, match="never added up"):
        Charged(budget=other).fit(X, Y)
    other.reserve(LaplaceEvent(10.0), unit="patient")
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
    budget.reserve(LaplaceEvent(10.0), unit="patient", relation="zero_out")
    assert (budget.relation, budget.unit) == ("zero_out", "patient")
    with pytest.raises(ValueError, match="holds the budget"):
        PrivacyBudget(epsilon=1.0, path=ledger, unit="record")
    budget.verify()


def _first_line(**terms):
    known = {"epsilon": 3.0, "delta": 1e-5, "relation": "add_remove", "unit": "record"}
    return json.dumps({**known, "filter": "adaptive", "counter": None, "format": 1, **terms})


def _overspent(path, event, count):
    """Write charges into a ledger that its filter would not have admitted."""
    ledger_at(path).create(_first_line())
    budget, body = PrivacyBudget.open(path), json.dumps(event.to_dict(), sort_keys=True)
    with budget._ledger.transaction() as log:
        for _ in range(count):
            log.append("reserve", "/", "old", body)
    return budget


def test_charges_written_by_another_rule_count_under_the_filter(tmp_path):
    fresh = PrivacyBudget(3.0, 1e-5)
    old = _overspent(tmp_path / "sgd", sgd(0.5), 5)
    assert old.remaining(sgd(0.5)) == fresh.remaining(sgd(0.5)) - 5
    old.verify(old.digest)
    for event, count in ((LaplaceEvent(100.0), 310), (ApproxDPEvent(1e-3, 4e-7), 26)):
        spent = _overspent(tmp_path / str(count), event, count)  # more than adding up allows
        assert spent.remaining(LaplaceEvent(1e4)) == 0
        assert spent.partition("new").remaining(LaplaceEvent(1e4)) == 0
        with pytest.raises(BudgetExceededError):
            spent.reserve(GaussianEvent(1e4))


def _settled(relation, unit="record"):
    return "relation", json.dumps({"relation": relation, "unit": unit})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([("reserve", None)], "before the first charge"),
        ([_settled("add_remove"), _settled("zero_out")], "fixed once"),
        ([("reserve", None), _settled("add_remove")], "before the first charge"),
        ([_settled("sideways")], "relation='sideways'"),
        ([_settled("zero_out", "")], "unit=''"),
        ([("relation", "zero_out")], "was altered: its relation line reads 'zero_out'"),
        ([("relation", '{"relation": "zero_out"}')], "was altered: its relation line reads"),
    ],
)
def test_a_ledger_of_mixed_relations_or_units_fails(budget, lines, message):
    with budget._ledger.transaction() as log:
        for kind, body in lines:
            log.append(
                kind, "/", "", body or json.dumps(LaplaceEvent(10.0).to_dict(), sort_keys=True)
            )
    with pytest.raises(LedgerError, match=message):
        budget.verify()


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (_first_line(filter="hope"), "filter='hope'"),
        (_first_line(format=9), "later version of skprivacy"),
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
    with pytest.raises(LedgerError, match="fixes unit='record', but its first line 'patient'"):
        budget.verify()
