"""Exact samplers of discrete Laplace, Gaussian and logistic numbers, in integer arithmetic.

The algorithms by Canonne, Kamath and Steinke (2020) are applied to whole arrays. No
logarithm, exponential or other rounded operation is involved, so the distributions are exact,
given uniformly random bits. Scales may reach 2**60.

References
----------
C. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy",
NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .secure_random import SecureRandom

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Fraction = tuple[Integers, int]  # numerators, and the denominator they share

_FEW = 1024  # size of arrays below which several rounds at once are faster
_DIVISIBLE = 840  # divisible by every number from 1 to 8


def _bernoulli_exp_product(fractions: list[Fraction], size: int, random: SecureRandom) -> Booleans:
    """Draw Bernoulli(exp(-g)), where g is the product of ``fractions``, each in [0, 1].

    With A_k ~ Bernoulli(g / k), the first k with A_k = 0 is odd with probability exp(-g). A product
    of probabilities is a conjunction of independent events, so nothing is multiplied and nothing
    overflows.
    """
    # Canonne et al. 2020, Algorithm 1, for gamma in [0, 1]: K = 1
    result = np.empty(size, bool)
    going = np.arange(size)
    k = 1
    if size < _FEW:  # small arrays are faster with eight rounds at once
        result, going = _draw_eight_rounds(fractions, size, random)
        k = 9
    while going.size:
        # Algorithm 1: sample A ~ Bernoulli(gamma / K); while A = 1, increase K
        more = np.ones(going.size, bool) if k == 1 else random.integers(k, going.size) == 0
        for numerator, denominator in fractions:
            more &= random.integers(denominator, going.size) < numerator[going]
        result[going[~more]] = k % 2 == 1  # Algorithm 1: return 1 if K is odd, else 0
        going = going[more]
        k += 1
    return result


def _draw_eight_rounds(
    fractions: list[Fraction], size: int, random: SecureRandom
) -> tuple[Booleans, Integers]:
    """Return the results of rounds 1 to 8, and the indices that they leave undecided."""
    drawn = random.integers(_DIVISIBLE, 8 * size).reshape(8, size)
    more = drawn % np.arange(1, 9)[:, None] == 0  # uniform below each k: they divide 840
    for numerator, denominator in fractions:
        more &= random.integers(denominator, 8 * size).reshape(8, size) < numerator
    return more.argmin(axis=0) % 2 == 0, np.flatnonzero(more.all(axis=0))


def _draw_geometric(size: int, random: SecureRandom) -> Integers:
    """Count Bernoulli(1/e) successes before the first failure: P(count >= k) = exp(-k)."""
    count = np.zeros(size, np.int64)
    going = np.arange(size)
    while going.size:
        trials = 4 if going.size < _FEW else 1
        won = _bernoulli_exp_product([], going.size * trials, random).reshape(-1, trials)
        in_a_row = np.cumprod(won, axis=1).sum(axis=1)
        count[going] += in_a_row
        going = going[in_a_row == trials]
    return count


def bernoulli_exp(numerator: Integers, denominator: int, random: SecureRandom) -> Booleans:
    """Draw Bernoulli(exp(-numerator / denominator)) for every numerator >= 0."""
    # Canonne et al. 2020, Algorithm 1, gamma > 1: floor(gamma) coins of exp(-1), one of the rest
    whole, rest = np.divmod(numerator, denominator)
    result = _bernoulli_exp_product([(rest, denominator)], len(rest), random)
    large = np.flatnonzero(whole)
    result[large] &= _draw_geometric(large.size, random) >= whole[large]
    return result


def _collect_accepted(size: int, yield_: float, propose: Callable[[int], Integers]) -> Integers:
    """Collect ``size`` accepted proposals; ``propose(n)`` makes n and returns the accepted ones."""
    parts: list[Integers] = []
    missing = size
    while missing > 0:
        parts.append(propose(int(missing / yield_) + 8))
        missing -= len(parts[-1])
    return np.concatenate(parts)[:size] if parts else np.empty(0, np.int64)


def discrete_laplace(scale: int, size: int, random: SecureRandom) -> Integers:
    """Draw integers k with probability proportional to exp(-abs(k) / scale)."""

    # Canonne et al. 2020, Algorithm 2, with t = scale and s = 1
    def propose(n: int) -> Integers:
        # U uniform on 0 .. t-1, kept with probability exp(-U / t)
        low = random.integers(scale, n)
        low = low[_bernoulli_exp_product([(low, scale)], n, random)]
        # V geometric: X = U + t V
        magnitude = low + scale * _draw_geometric(len(low), random)
        # a random sign B; B = 1 with X = 0 is rejected, or zero would count twice
        negative = random.integers(2, len(low)) == 1
        keep = ~(negative & (magnitude == 0))
        return np.where(negative, -magnitude, magnitude)[keep]

    return _collect_accepted(size, 0.6, propose)


def discrete_gaussian(sigma: int, size: int, random: SecureRandom) -> Integers:
    """Draw integers k with probability proportional to exp(-k**2 / (2 sigma**2)).

    A discrete Laplace number k of scale sigma is accepted with probability exp(-d**2 / (2
    sigma**2)), where d = abs(abs(k) - sigma). With d = a sigma + r, the exponent is the sum of a**2
    / 2, a r / sigma and (r / sigma) (r / (2 sigma)), hence three independent coins.
    """

    # Canonne et al. 2020, Algorithm 3, with t = sigma, so that sigma**2 / t = sigma
    def propose(n: int) -> Integers:
        k = discrete_laplace(sigma, n, random)
        # accept Y with probability exp(-(|Y| - sigma**2 / t)**2 / (2 sigma**2))
        a, r = np.divmod(np.abs(np.abs(k) - sigma), sigma)
        keep = bernoulli_exp(a * a, 2, random)
        keep &= bernoulli_exp(a * r, sigma, random)
        keep &= _bernoulli_exp_product([(r, sigma), (r, 2 * sigma)], n, random)
        return k[keep]

    return _collect_accepted(size, 0.75, propose)


def discrete_logistic(scale: int, size: int, random: SecureRandom) -> Integers:
    """Draw integers k with probability proportional to 1 / cosh(k / (2 scale))**2.

    The probability is proportional to q / (1 + q)**2 with q = exp(-abs(k) / scale). So a discrete
    Laplace number is accepted if two coins of probability 1 / (1 + q) both succeed.
    """

    def propose(n: int) -> Integers:
        k = discrete_laplace(scale, n, random)
        for _ in range(2):
            k = k[_bernoulli_half_up(np.abs(k), scale, random)]
        return k

    return _collect_accepted(size, 0.5, propose)


def _bernoulli_half_up(numerator: Integers, denominator: int, random: SecureRandom) -> Booleans:
    """Draw Bernoulli(1 / (1 + q)), q = exp(-numerator / denominator).

    A round gives 1 with probability 1/2, 0 with probability q/2, and is repeated otherwise.
    """
    result = np.ones(len(numerator), bool)
    going = np.arange(len(numerator))
    while going.size:
        going = going[random.integers(2, going.size) == 1]
        no = bernoulli_exp(numerator[going], denominator, random)
        result[going[no]] = False
        going = going[~no]
    return result
