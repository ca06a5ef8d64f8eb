"""What a federation owes to its parties, as functions that fail where it is not kept.

``test_parties.py`` runs them, and ``tests/test_mutants_federated.py`` runs them on planted bugs.
Neighbours differ in one record of a party, or in all that a party has; a fit on the one records
what goes through the mechanism, a fit on the other gets the same answers.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from skprivacy.federated import DPFederatedClassifier
from skprivacy.mechanisms import DistributedGaussian, SecureRandom

from ..contracts import RECORDS, Tape, compare, recording

PARTIES = np.array([0, 1, 1, 2, 0, 1, 3, 2, 1, 0, 0, 1, 2, 2, 1, 0])
N = len(PARTIES)
STEPS = 2.0**36
CHANCE = 1e-9


class Federation(DPFederatedClassifier):
    """A federation of four whose first column says whose a record is."""

    def fit(self, X, y, parties=None):
        return super().fit(X[:, 1:], y, parties=X[:, 0].astype(int))


def federation(unit: str = "party", **params: Any) -> Federation:
    """Return a small one that is quickly trained."""
    defaults = {
        "epsilon": 4.0, "delta": 1e-4, "unit": unit, "party_names": range(4), "classes": [0, 1, 2],
        "n_rounds": 8, "max_norm": 0.7, "learning_rate": 0.5,
    }  # fmt: skip
    batch = {} if unit == "party" else {"batch_size": 4}
    return Federation(**{**defaults, **batch, **params})


def records() -> tuple[NDArray, NDArray]:
    rng = np.random.RandomState(0)
    y = np.arange(N) % 3
    return np.column_stack([PARTIES, rng.normal(size=(N, 4)) + y[:, None]]), y


def check_party_replay(**params: Any) -> None:
    """Without a party's records, inputs differ in its own row alone, by the sensitivity at most."""
    reached = []
    for name, change in RECORDS.items():
        for party in (0, 1, 3):
            X, y = records()
            own = X[:, 0] == party
            X[own, 1:] = [change(row) for row in X[own, 1:]]
            y[own] = 2
            silent = X.copy()
            silent[own, 1:] = np.nan
            for neighbour in ((silent, y), (X[~own], y[~own])):
                model = federation(**params)
                reached += compare(model, (X, y), neighbour, f"{name} of party {party}")
                _check_rows(model, (X, y), neighbour, party)
    assert max(reached) > 0.6, "no neighbour comes near the sensitivity: proves nothing"


def check_record_replay(**params: Any) -> None:
    """Without a record, only its party sends something else, and by its sensitivity at most."""
    reached = []
    for name, change in RECORDS.items():
        for place in (3, 6, 8):  # the second is all that its party has
            X, y = records()
            X[place, 1:] = change(X[place, 1:])
            silent = X.copy()
            silent[place, 1:] = np.nan
            model = federation("record", **params)
            reached += compare(model, (X, y), (silent, y), name, always=place)
            _check_rows(model, (X, y), (silent, y), PARTIES[place])
    assert max(reached) > 0.6, "no neighbour comes near the sensitivity: proves nothing"


def _check_rows(model: Federation, data: Any, neighbour: Any, party: int) -> None:
    """Before the first answer, nobody but one party sends anything else."""
    tapes = Tape(), Tape()
    model.set_params(n_rounds=1, **({} if model.unit == "party" else {"batch_size": N}))
    for tape, some in zip(tapes, (data, neighbour), strict=True):
        with recording(tape):
            model.fit(*some)
    one, other = (tape.inputs[0] for tape in tapes)
    assert len(one) == len(other) == 4, "a party is missing"
    others = [p for p in range(4) if p != party]
    assert (one[others] == other[others]).all(), "another party's share depends on the records"


def check_shares() -> None:
    """Whoever of the parties is missing, the noise of the others is what was claimed."""
    for n, untrusted in ((2, 0), (4, 0), (5, 2), (6, 5)):
        mechanism = DistributedGaussian(0.7, n, untrusted)
        for missing in {0, untrusted}:
            value = np.zeros((n - missing, 2000), np.int64)
            noise = mechanism.release(value, SecureRandom()) / (0.7 * STEPS)
            spread = (noise**2).sum() / ((n - missing) / (n - untrusted))
            assert CHANCE < stats.chi2(2000).cdf(spread) < 1 - CHANCE, "noise of another size"


def check_sums() -> None:
    """Sums of both signs, as large as they may be, are those of whole numbers."""
    quiet = DistributedGaussian(0.0, n_parties=4, n_untrusted=1, n_contributions=2**24)
    most = 2**24 * int(STEPS) // 4
    value = np.array([[most, -most, 3], [most, -most, -5], [most, -most, -7], [most, 4, 0]])
    assert quiet.release(value, SecureRandom()).tolist() == value.sum(axis=0).tolist()
    for parameters in ({"n_contributions": 2**27}, {"noise_multiplier": 1e7}):
        try:
            DistributedGaussian(**{"noise_multiplier": 1.0, "n_parties": 4, **parameters})
        except ValueError:
            continue
        raise AssertionError("a sum may overflow")


def check_secrecy() -> None:
    """What reaches the server of each party looks uniform, and is one number for all together."""
    X, y = records()
    seen: list[NDArray] = []
    total = DistributedGaussian.total

    def watched(self: DistributedGaussian, sent: NDArray) -> NDArray:
        seen.append(np.array(sent))
        return total(self, sent)

    with mock.patch.object(DistributedGaussian, "total", watched):
        federation(n_rounds=60).fit(X, y)
    assert len(seen) == 60, "the server adds up more than once in a round"
    for party in np.stack(seen, axis=1):
        place = stats.kstest(party.ravel() / 2.0**64, "uniform").pvalue
        assert place > CHANCE, "the server sees what a single party sends"
