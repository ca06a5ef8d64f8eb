"""Every private estimator keeps every contract."""

from __future__ import annotations

import pytest

from . import contracts, contracts_once, contracts_refused
from .private_estimators import CASES, OVERFLOWING

EVERYBODY = [
    contracts.check_replay,
    contracts.check_fresh_noise,
    contracts.check_no_traces,
    contracts_refused.check_refused_fit,
    contracts_refused.check_failed_fit,
]
ONCE = [
    contracts_once.check_noise,
    contracts_once.check_accounting,
]
TRAINED = [
    contracts.check_noise,
    contracts.check_accounting,
]
SAMPLERS = [
    contracts.check_inclusion,
    contracts.check_empty_batches,
    contracts.check_public_size,
]
STREAMS = [contracts.check_turns]


@pytest.mark.parametrize("check", EVERYBODY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", CASES)
def test_contract(name, check):
    check(CASES[name])


@pytest.mark.parametrize("check", TRAINED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if not v.once])
def test_contract_of_training(name, check):
    check(CASES[name])


@pytest.mark.parametrize("check", SAMPLERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if v.samples])
def test_sampling_contract(name, check):
    if name.endswith("full-batch") and check is not contracts.check_public_size:
        pytest.skip("a full batch has no sampling to look at")
    check(CASES[name])


@pytest.mark.parametrize("check", STREAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if not v.samples and not v.once])
def test_stream_contract(name, check):
    check(CASES[name])


@pytest.mark.parametrize("check", ONCE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", [k for k, v in CASES.items() if v.once])
def test_contract_of_one_release(name, check):
    check(CASES[name])


def test_a_record_does_not_decide_whether_others_overflow():
    """With one record more, sums are taken in another order: others had a gradient or had none."""
    contracts.check_replay(OVERFLOWING)
