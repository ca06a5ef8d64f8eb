"""Noise in shares: its law, what its proof rests on, and that nobody sees less than the sum."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from skprivacy.mechanisms import SecureRandom
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian

STEPS = 2**36
RANDOM = SecureRandom()


def discrete(tau: float, reach: int) -> np.ndarray:
    """Return the probabilities of a discrete Gaussian from -reach to reach."""
    p = np.exp(-0.5 * (np.arange(-reach, reach + 1) / tau) ** 2)
    return p / p.sum()


@pytest.mark.parametrize("tau", [0.6, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_a_sum_of_discrete_gaussians_is_near_to_one(tau, n):
    """The bound of Kairouz et al. on the ratio of probabilities, on the exact convolution."""
    reach = round(12 * tau)
    total = one = discrete(tau, reach)
    for _ in range(n - 1):
        total = np.convolve(total, one)
    whole = discrete(tau * np.sqrt(n), n * reach)
    middle = slice(n * reach - round(4 * tau), n * reach + round(4 * tau) + 1)
    ratio = np.abs(np.log(total[middle] / whole[middle])).max()
    k = np.arange(1, n)
    bound = 10 * np.exp(-2 * np.pi**2 * tau**2 * k / (k + 1)).sum()
    assert ratio <= bound + 1e-12
    assert bound <= 10 * n * np.exp(-(np.pi**2) * tau**2)  # as the docstring has it
    if (tau, n) == (0.6, 2):
        assert ratio > bound / 10  # not far from it: the formula is of the right size


@pytest.mark.parametrize("sigma", [2.0, 5.0, 16.0])
def test_a_discrete_gaussian_is_near_to_a_rounded_one(sigma):
    k = np.arange(0, round(6 * sigma) + 1)
    rounded = stats.norm.sf((k - 0.5) / sigma) - stats.norm.sf((k + 0.5) / sigma)
    p = discrete(sigma, round(40 * sigma))[round(40 * sigma) :][: len(k)]
    ratio = np.abs(np.log(rounded / p))
    bound = k**2 / (24 * sigma**4) + 1 / (8 * sigma**2)
    assert (ratio <= bound).all()
    assert ratio[-1] > bound[-1] / 3


def test_the_smallest_share_is_covered_by_the_proof():
    """Any accepted setting has shares of 2**16 steps or more, where the bounds are nothing."""
    for noise, n in ((1e-7, 3), (1e-3, 10**7)):
        with pytest.raises(ValueError, match="each would add"):
            DistributedGaussian(noise, n_parties=n)
    assert 10 * 10**7 * np.exp(-(np.pi**2) * 2.0**32) == 0
    for z in (1e-4, 1.0, 1e3):
        sigma = z * STEPS
        assert 40**2 / (24 * sigma**2) + 1 / (8 * sigma**2) < 1e-19 / z**2


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_masks_cancel_out_and_tell_nothing_by_themselves(n):
    masks = DistributedGaussian(1.0, n, n_untrusted=1).masks(n, 2000, RANDOM)
    assert not masks.sum(axis=0, dtype=np.uint64).any()
    for party in masks:  # uniform, whatever is added to it
        assert stats.kstest(party / 2.0**64, "uniform").pvalue > 1e-9
    for first, second in combinations(masks[:-1], 2):
        apart = (first - second) / 2.0**64
        assert stats.kstest(apart, "uniform").pvalue > 1e-9


class Keys(SecureRandom):
    """Stands for chance: the key of each pair is a number of its own."""

    def __init__(self, n):
        super().__init__()
        self.n, self.drawn = n, 0

    def random_bytes(self, size):
        keys = np.zeros((self.n, size // 8 // self.n), np.uint64)
        keys[np.arange(self.n), self.drawn * self.n + np.arange(self.n)] = 1
        self.drawn += 1
        return keys.tobytes()


@pytest.mark.parametrize("n", [2, 5, 6, 9])
def test_keys_of_untrusted_parties_do_not_open_the_others(n):
    """Without any so many parties, the pairs that share keys still connect all others."""
    for untrusted in range(n - 1):
        mechanism = DistributedGaussian(1.0, n, untrusted)
        masks = mechanism.masks(n, n * n, Keys(n)).astype(np.int64)  # a column for each key
        assert not masks.sum(axis=0).any()
        for lost in combinations(range(n), untrusted):
            honest = [party for party in range(n) if party not in lost]
            unknown = masks[honest][:, ~masks[list(lost)].any(axis=0)]
            # As many independent sums of keys as there are parties, less the one that is known.
            assert np.linalg.matrix_rank(unknown) == len(honest) - 1


def test_noise_is_new_for_each_number_of_each_party():
    share = DistributedGaussian(1.0, 3).share(np.zeros((3, 50), np.int64), RANDOM)
    assert len(np.unique(share)) == 150
