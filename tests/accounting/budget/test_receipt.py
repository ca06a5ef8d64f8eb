"""No call that looks like a charge leaves the budget uncharged."""

from dataclasses import FrozenInstanceError

import pytest
from sklearn.base import BaseEstimator

from skprivacy.accounting import LaplaceEvent, PrivacyBudget
from skprivacy.base import PrivateEstimatorMixin, private_release, reserve_release
from skprivacy.exceptions import BudgetExceededError

EVENT = LaplaceEvent(10.0)
STATED = {"relation": "add_remove", "at_delta": 0.0, "source": "mean"}


class Estimator(PrivateEstimatorMixin, BaseEstimator):
    def __init__(self, budget=None, noise_seed=None):
        self.budget = budget
        self.noise_seed = noise_seed


def charge_by_estimator(budget):
    with Estimator(budget)._private_fit() as fit:
        fit.charged(EVENT, relation="add_remove", at_delta=0.0)


CALLS = {
    "charge": lambda budget: budget.charge(EVENT),
    "reserve": lambda budget: budget.reserve(EVENT),
    "reserve_release": lambda budget: reserve_release(budget, EVENT),
    "private_release": lambda budget: private_release(EVENT, budget=budget, **STATED),
    "PrivateFit.charged": charge_by_estimator,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_with_is_charged(name):
    budget = PrivacyBudget(0.25)
    CALLS[name](budget)
    assert budget.spent() == pytest.approx(0.1)
    CALLS[name](budget)
    with pytest.raises(BudgetExceededError):  # silence here would be an uncharged release
        CALLS[name](budget)
    assert len(budget.entries()) == 2


def test_charge_returns_an_immutable_receipt():
    budget = PrivacyBudget(1.0, 1e-5, relation="zero_out", unit="patient")
    receipt = budget.scope("adult").charge(EVENT, "mean age", unit="patient")
    assert (receipt.charge_id, receipt.scope, receipt.source) == (2, "/adult/", "mean age")
    assert (receipt.event, receipt.relation, receipt.unit) == (EVENT, "zero_out", "patient")
    assert receipt.delta == 1e-5
    assert receipt.epsilon == pytest.approx(0.1, rel=1e-3)  # delta 1e-5 pays for the rest
    assert receipt.epsilon == pytest.approx(budget.entries()["cost"].iloc[0])
    assert receipt.digest == budget.verify()
    assert budget.entries()["status"].tolist() == ["commit"]
    assert str(receipt).startswith("charge 2 to scope '/adult/' for 'mean age': epsilon=0.0999")
    with pytest.raises(FrozenInstanceError):
        receipt.charge_id = 7


def test_a_reservation_records_the_outcome_of_its_release(budget):
    with budget.reserve(EVENT) as receipt:
        assert budget.entries()["status"].tolist() == ["reserved"]
    with pytest.raises(ZeroDivisionError), budget.reserve(EVENT):
        raise ZeroDivisionError
    later = budget.reserve(EVENT)
    budget.commit(later.receipt.charge_id)
    assert budget.entries()["status"].tolist() == ["commit", "fail", "commit"]
    assert budget.entries()["charge"].tolist()[0] == receipt.charge_id


@pytest.mark.parametrize("name", ["reserve", "private_release"])
def test_one_reservation_serves_one_release(name, budget):
    """A second release inside the same reservation would be uncharged."""
    reservation = CALLS[name](budget)
    with reservation:
        pass
    with pytest.raises(RuntimeError, match="already"), reservation:
        raise AssertionError("an uncharged release")
    assert len(budget.entries()) == 1


def test_without_a_budget_a_release_needs_no_second_code_path():
    with reserve_release(None, EVENT) as receipt:
        assert receipt is None
