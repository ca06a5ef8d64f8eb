"""A federation keeps what it owes to its parties."""

import numpy as np
import pytest

from . import parties as contracts
from .tape import Tape, recording


@pytest.mark.everyday(1)
@pytest.mark.heavy
@pytest.mark.parametrize("params", [{}, {"local_steps": 3, "local_learning_rate": 0.3}])
def test_a_party_is_hidden(params):
    contracts.check_party_replay(**params)


@pytest.mark.heavy
def test_a_record_is_hidden():
    contracts.check_record_replay()


@pytest.mark.parametrize(
    "check",
    [contracts.check_shares, contracts.check_sums, contracts.check_secrecy],
    ids=lambda check: check.__name__,
)
def test_contract_of_sums(check):
    check()


@pytest.mark.heavy
@pytest.mark.parametrize("unit", ["party", "record"])
def test_a_run_has_the_noise_that_was_accounted_for(unit):
    """Without records a round releases noise alone: of all parties, and of those counted on."""
    X, y, parties = contracts.records()
    tape = Tape()
    with recording(tape):
        model = contracts.federation(unit, n_rounds=200, n_untrusted=2).fit(
            X * np.nan, y, groups=parties
        )
    assert not np.any(tape.inputs)
    event = model.privacy_event_
    assert event.count == len(tape.outputs) == model.n_rounds_
    unit_noise = np.array(tape.outputs) / (event.event.event.noise_multiplier * contracts.STEPS)
    spread = (unit_noise**2).sum() / 2  # four add noise, and two are counted on
    assert 1e-9 < contracts.stats.chi2(unit_noise.size).cdf(spread) < 1 - 1e-9
