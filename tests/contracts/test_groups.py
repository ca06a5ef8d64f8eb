"""Every private estimator that takes groups keeps what it owes to people."""

import pytest

from skprivacy.accounting import PrivacyBudget

from . import groups as contracts_people
from .cases import CASES, LABELS, in_forms
from .neighbors import GROUPS, N, takes_groups
from .replay import fitted

pytestmark = pytest.mark.filterwarnings("ignore:The scores")  # of a few people, with noise

REFUSES = {"PATEClassifier-index": "groups are given with partition='index'"}
TAKERS = {k: v for k, v in CASES.items() if takes_groups(v) and k not in REFUSES}
ANY = {**TAKERS, **{k: v for k, v in LABELS.items() if takes_groups(v)}}
# With groups PATE deals records to teachers by their group's name, without by their contents.
BY_NAME = [k for k in TAKERS if k.startswith("PATE")]
NEW_NOISE = ["PrivateSearchCV"]  # in each trial, whatever the seed of the tests


@pytest.mark.parametrize("name", REFUSES)
def test_whoever_cannot_take_groups_says_so_before_a_charge(name):
    budget = PrivacyBudget(1e6, 0.9)
    model = CASES[name].make(budget=budget)
    with pytest.raises(ValueError, match=REFUSES[name]):
        fitted(model, *CASES[name].data(N), GROUPS)
    assert not len(budget.entries())


@pytest.mark.everyday(8)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [k for k, v in TAKERS.items() if v.once])
def test_replay(name):
    contracts_people.check_people_replay(TAKERS[name])


@pytest.mark.everyday(3)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [k for k in ANY if k in LABELS])
def test_replay_of_labels(name):
    contracts_people.check_people_label_replay(LABELS[name])


CHECKS = [
    contracts_people.check_unit, contracts_people.check_another_order,
    contracts_people.check_bad_groups, contracts_people.check_delta_counts_people,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", in_forms(ANY))
def test_contract(name, check):
    check(ANY[name])


@pytest.mark.everyday(12)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [k for k in ANY if k not in (*BY_NAME, *NEW_NOISE)])
def test_groups_of_one_record_change_nothing(name):
    contracts_people.check_each_by_itself(ANY[name])


# The participants of a network's step are drawn anew each time.
@pytest.mark.everyday(10)
@pytest.mark.heavy
@pytest.mark.parametrize("name", [k for k, v in ANY.items() if v.once and k not in BY_NAME])
def test_names_do_not_matter(name):
    contracts_people.check_order_and_names(ANY[name])
