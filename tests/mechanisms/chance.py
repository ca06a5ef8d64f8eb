"""A statistical test of a privacy claim: a lower confidence bound on the hockey-stick divergence.

With S any fixed set of outputs, P(S) - e^epsilon Q(S) is a lower bound on delta(epsilon). S is
chosen on one half of the samples and measured on the other, so the bound holds with confidence.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

CONFIDENCE = 1e-6  # probability that a correct mechanism fails


def measured_delta(p: NDArray, q: NDArray, epsilon: float) -> float:
    """Return a lower confidence bound on delta(epsilon) between the laws of two samples."""
    best = _best_set(p[::2], q[::2], epsilon)
    hits_p, hits_q = best(p[1::2]).sum(), best(q[1::2]).sum()
    n_p, n_q = len(p[1::2]), len(q[1::2])
    low = stats.beta.ppf(CONFIDENCE / 2, hits_p, n_p - hits_p + 1) if hits_p else 0.0
    high = stats.beta.isf(CONFIDENCE / 2, hits_q + 1, n_q - hits_q) if hits_q < n_q else 1.0
    return float(low - np.exp(epsilon) * high)


def _best_set(p: NDArray, q: NDArray, epsilon: float) -> Callable[[NDArray], NDArray]:
    """Choose, by cells of equal mass or by single values, where P outweighs e^epsilon Q."""
    edges = np.unique(np.quantile(np.concatenate([p, q]), np.linspace(0, 1, 65)))
    cells = [np.searchsorted(edges, x) for x in (p, q)]
    counts = [np.bincount(c, minlength=len(edges) + 1) / len(c) for c in cells]
    chosen = counts[0] > np.exp(epsilon) * counts[1]
    return lambda x: chosen[np.searchsorted(edges, x)]


def check_claim(
    sample: Callable[[object, int], NDArray],
    value: object,
    neighbour: object,
    delta: Callable[[float], float],
    epsilons: tuple[float, ...],
    n: int = 200_000,
) -> None:
    """Raise AssertionError if the samples contradict ``delta(epsilon)`` in either direction."""
    p, q = sample(value, n), sample(neighbour, n)
    for epsilon in epsilons:
        for a, b in ((p, q), (q, p)):
            measured = measured_delta(a, b, epsilon)
            assert measured <= delta(epsilon), (
                f"delta({epsilon}) is at least {measured:.4f}, claimed {delta(epsilon):.4f}"
            )


def check_tails(numbers: NDArray, law: Any, edges: tuple[float, ...]) -> None:
    """Raise AssertionError unless numbers have a symmetric law, beyond each edge as well."""
    assert stats.kstest(numbers[: 1 << 20], law.cdf).pvalue > 1e-4
    for edge in edges:
        for beyond in ((numbers > edge).sum(), (numbers < -edge).sum()):
            assert stats.binomtest(int(beyond), numbers.size, law.sf(edge)).pvalue > 1e-4
