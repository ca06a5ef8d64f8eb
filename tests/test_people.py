"""Every private estimator that takes groups keeps what it owes to people."""

from __future__ import annotations

import pytest

from skprivacy.accounting import PrivacyBudget

from . import contracts_groups
from .contracts import fitted
from .private_estimators import CASES, LABELS

REFUSES = {
    "PATEClassifier-index": "groups are given with partition='index'",
    "ALMFineTuner-dpsgd": "takes no groups. Use another head",
}
TAKERS = {k: v for k, v in CASES.items() if contracts_groups.takes_groups(v) and k not in REFUSES}
ANY = {**TAKERS, **{k: v for k, v in LABELS.items() if contracts_groups.takes_groups(v)}}
# With groups PATE deals records to teachers by their group's name, without by their contents.
BY_NAME = [k for k in TAKERS if k.startswith("PATE")]


@pytest.mark.parametrize("name", REFUSES)
def test_whoever_cannot_take_groups_says_so_before_a_charge(name):
    budget = PrivacyBudget(1e6, 0.9)
    model = CASES[name].make(budget=budget)
    with pytest.raises(ValueError, match=REFUSES[name]):
        fitted(model, *CASES[name].data(contracts_groups.N), contracts_groups.PEOPLE)
    assert not len(budget.entries())


@pytest.mark.parametrize("name", [k for k, v in TAKERS.items() if v.once])
def test_replay(name):
    contracts_groups.check_people_replay(TAKERS[name])


@pytest.mark.parametrize("name", [k for k in ANY if k in LABELS])
def test_replay_of_labels(name):
    contracts_groups.check_people_label_replay(LABELS[name])


@pytest.mark.parametrize(
    "check",
    [
        contracts_groups.check_unit,
        contracts_groups.check_bad_groups,
        contracts_groups.check_delta_counts_people,
    ],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("name", ANY)
def test_contract(name, check):
    check(ANY[name])


@pytest.mark.parametrize("name", [k for k in ANY if k not in BY_NAME])
def test_people_with_one_record_each_are_records(name):
    contracts_groups.check_each_by_itself(ANY[name])


@pytest.mark.parametrize("name", [k for k, v in ANY.items() if k not in BY_NAME and v.once])
def test_names_do_not_matter(name):
    contracts_groups.check_order_and_names(ANY[name])
