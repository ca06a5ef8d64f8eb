"""Contract of a federation towards its parties; its checks raise AssertionError.

``test_parties.py`` runs them, and ``tests/planted_bugs`` on planted bugs. Neighbours differ in one
record of a party, or in all that a party has.
"""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from skprivacy.accounting.events import NonPrivateEvent
from skprivacy.federated import DPFederatedClassifier
from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian

from .cases import Case
from .neighbors import KINDS, Choice, pairs_of
from .noise_laws import CHANCE
from .replay import Neighbourhood, Pair, of_one_party, replay

PARTIES = np.array([0, 1, 1, 2, 0, 1, 3, 2, 1, 0, 0, 1, 2, 2, 1, 0])
N = len(PARTIES)
STEPS = 2.0**36


class Federation(DPFederatedClassifier):
    """A federation of four parties, which are its groups."""

    def fit(self, X, y, groups=None):
        return super().fit(X, y, parties=np.asarray(groups))


def federation(unit: str = "party", **params: Any) -> Federation:
    """Return a small one that is quickly trained."""
    defaults = {
        "epsilon": 4.0, "delta": 1e-4, "unit": unit, "party_names": range(4), "classes": [0, 1, 2],
        "n_rounds": 8, "max_grad_norm": 0.7, "learning_rate": 0.5,
    }  # fmt: skip
    batch = {} if unit == "party" else {"batch_size": 4}
    return Federation(**{**defaults, **batch, **params})


def records() -> tuple[NDArray, NDArray, NDArray]:
    rng = np.random.RandomState(0)
    y = np.arange(N) % 3
    return rng.normal(size=(N, 4)) + y[:, None], y, PARTIES


def case(unit: str = "party", **params: Any) -> Case:
    """Return a federation as a case of the replay contract."""

    def make(n_records: int | None = None, **others: Any) -> Federation:
        return federation(unit, **{**params, **others})

    # Neighbours of a federation have the same parties, with private numbers of records.
    return Case(make, lambda n: records()[:2], null_label=2, samples=True)


def party_pairs(case: Case, choice: Choice) -> Iterator[Pair]:
    """Yield data sets in which the records of a party are unusual, and blank or missing."""
    X, y, parties = records()
    party = {"first": 0, "middle": 1, "last": 3}[choice.position]
    own = parties == party
    X[own], y[own] = [KINDS[choice.kind](row) for row in X[own]], 2
    if choice.change == "inserted":
        without = X[~own], y[~own], parties[~own]
    else:
        silent = X.copy()
        silent[own] = np.nan
        without = silent, y, parties
    yield Pair(f"party {party}, ", (X, y, parties), without, party=party)


def record_pairs(case: Case, choice: Choice) -> Iterator[Pair]:
    """Yield data sets in which one record of a party is unusual, and contributes nothing."""
    place = {"first": 0, "middle": 6, "last": N - 1}[choice.position]  # 6 is all of its party
    X, y, parties = records()
    X[place] = KINDS[choice.kind](X[place])
    silent = X.copy()
    silent[place] = np.nan
    yield Pair("", (X, y, parties), (silent, y, parties), always=place, party=parties[place])


PARTY = Neighbourhood(pairs_of(party_pairs), of_one_party)
RECORD = Neighbourhood(pairs_of(record_pairs), of_one_party)


def check_party_replay(**params: Any) -> None:
    """Without a party's records, inputs differ in its own row alone, by the sensitivity at most."""
    replay(case(**params), PARTY)


def check_record_replay(**params: Any) -> None:
    """Without a record, only its party sends something else, and by its sensitivity at most."""
    replay(case("record", **params), RECORD)


def check_shares() -> None:
    """Whichever party is missing, the noise of the others is as claimed."""
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
    assert quiet.event == NonPrivateEvent()
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
    """The message of each party to the server is uniform; only their sum is informative."""
    seen: list[NDArray] = []
    total = DistributedGaussian.total

    def watched(self: DistributedGaussian, sent: NDArray) -> NDArray:
        seen.append(np.array(sent))
        return total(self, sent)

    with mock.patch.object(DistributedGaussian, "total", watched):
        federation(n_rounds=60).fit(*records())
    assert len(seen) == 60, "the server adds up more than once in a round"
    for party in np.stack(seen, axis=1):
        place = stats.kstest(party.ravel() / 2.0**64, "uniform").pvalue
        assert place > CHANCE, "the server sees what a single party sends"
