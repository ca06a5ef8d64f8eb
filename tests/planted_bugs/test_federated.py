"""Planted bugs in federations: the contracts of parties catch each."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

from skprivacy.federated import FederatedPlan
from skprivacy.federated import parties as _parties
from skprivacy.mechanisms import DistributedGaussian
from skprivacy.mechanisms import distributed_gaussian as distributed

from ..contracts import parties as contracts

MECHANISM = DistributedGaussian


def share_of(divisor):
    return lambda self: math.ceil(self.noise_multiplier * 2**36 / divisor(self))


def total_in_32_bits(self, sent):
    return sent.astype(np.uint32).sum(axis=0, dtype=np.uint32).view(np.int32).astype(np.int64)


def total_without_a_sign(self, sent):
    return sent.sum(axis=0, dtype=np.uint64).astype(np.float64)


def unmasked(self, n, size, random):
    return np.zeros((n, size), np.uint64)


def same_mask(self, n, size, random):
    """Uniform, and of a sum that is corrected: but the server sees differences of parties."""
    masks = np.zeros((n, size), np.uint64)
    masks[0] = np.frombuffer(random.random_bytes(8 * size), np.uint64)
    masks[1] -= masks[0]
    return masks


def noise_from_the_first(original):
    """Let the first party alone add noise, as much as all were to."""

    def share(self, values, random):
        noisy = original(self, values, random)
        noisy[1:] = values[1:].astype(np.uint64)
        return noisy

    return share


def unclipped(self, norms):
    return 2.0**36 / self.max_grad_norm * np.ones_like(norms)


def clipped_to_twice(self, norms):
    return 2.0**36 / np.maximum(norms / 2, self.max_grad_norm)


def of_records(self, weights, X, codes):
    """Clip each record of a party, and not the party."""
    return self._record_contribution(weights, X, codes)


def by_size(original):
    """Divide what a party sends by how many records all parties have."""

    def contributions(plan, weights, X, codes, grouped, workers):
        added = original(plan, weights, X, codes, grouped, workers)
        return added * sum(map(len, grouped)) // 20

    return contributions


def only_those_with_records(original):
    def by_party(rows, parties, n):
        return [rows for rows in original(rows, parties, n) if len(rows)]

    return by_party


BUGS = {
    "noise of a party divided by how many there are": (
        MECHANISM, "_share", share_of(lambda m: m.n_parties - m.n_untrusted), contracts.check_shares
    ),
    "noise of those who are missing is not made up for": (
        MECHANISM, "_share", share_of(lambda m: math.sqrt(m.n_parties)), contracts.check_shares
    ),
    "the noise is one party's": (
        MECHANISM, "_share_steps", noise_from_the_first(MECHANISM._share_steps),
        contracts.check_shares,
    ),
    "32 bits": (MECHANISM, "total", total_in_32_bits, contracts.check_sums),
    "sums without a sign": (MECHANISM, "total", total_without_a_sign, contracts.check_sums),
    "overflow is not thought of": (distributed, "_ROOM", math.inf, contracts.check_sums),
    "no masks": (MECHANISM, "masks", unmasked, contracts.check_secrecy),
    "masks of two parties only": (MECHANISM, "masks", same_mask, contracts.check_secrecy),
    "parties are not clipped": (
        FederatedPlan, "_clipping_factors", unclipped, contracts.check_party_replay
    ),
    "parties are clipped to twice the norm": (
        FederatedPlan, "_clipping_factors", clipped_to_twice, contracts.check_party_replay
    ),
    "records are not clipped": (
        FederatedPlan, "_clipping_factors", unclipped, contracts.check_record_replay
    ),
    "the records of a party are clipped": (
        FederatedPlan, "_party_contribution", of_records, contracts.check_party_replay
    ),
    "all depends on how many records there are": (
        _parties, "_party_contributions", by_size(_parties._party_contributions),
        contracts.check_party_replay,
    ),
    "a party without records is left out": (
        _parties, "_group_by_party", only_those_with_records(_parties._group_by_party),
        contracts.check_party_replay,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_planted_bug_is_caught(name):
    place, attribute, bug, check = BUGS[name]
    with mock.patch.object(place, attribute, bug), pytest.raises(AssertionError):
        check()
