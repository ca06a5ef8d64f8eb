"""Contracts fail with each planted bug, and pass without."""

import pytest

from ..contracts.cases import CASES, LABELS
from ..mechanisms.noise_cases import CASES as NOISE_CASES
from . import (
    account_bugs,
    audit_bugs,
    mechanism_bugs,
    single_release_bugs,
    stranger_bugs,
    training_bugs,
    unit_bugs,
)

BUGS = [
    bug
    for table in (
        mechanism_bugs, training_bugs, single_release_bugs, unit_bugs, account_bugs, audit_bugs,
        stranger_bugs,
    )
    for bug in table.BUGS
    if bug.caught_by
]  # fmt: skip
ALL_CASES = {**NOISE_CASES, **CASES, **LABELS, **training_bugs.OWN_CASES}
CAUGHT = [
    pytest.param(
        bug, case, id=f"{bug}-{case}" if case else str(bug),
        marks=pytest.mark.slow if bug.nightly or case not in (None, *bug.cases[:1])
        else pytest.mark.heavy,
    )
    for bug in BUGS
    for case in bug.cases or (None,)
]  # fmt: skip
CONTRACTS = {(bug.caught_by, case): None for bug in BUGS for case in bug.cases or (None,)}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the bugs compute with NaN


def run(contract, case):
    contract() if case is None else contract(ALL_CASES[case])


@pytest.mark.parametrize(("bug", "case"), CAUGHT)
def test_contract_fails_with_the_bug(bug, case):
    estimator = type(ALL_CASES[case].make()) if bug.owner is None else None
    failure = (AssertionError, pytest.fail.Exception)
    with bug.planted(estimator), pytest.raises(failure, match=bug.says or None):
        run(bug.caught_by, case)


@pytest.mark.slow  # every day the tests of the contracts show it
@pytest.mark.parametrize(
    ("contract", "case"), CONTRACTS, ids=[f"{c.__name__}-{case}" for c, case in CONTRACTS]
)
def test_contract_passes_without_a_bug(contract, case):
    run(contract, case)
