"""Group privacy of Poisson-sampled Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from .._checks import allows_replacement, positive, whole
from .._event import Event, Orders, Pairs
from .._renyi import mixed_gaussian_rdp
from ..pld.mixed_gaussians import MixedGaussians
from ..pld.pairs import GaussianPair, symmetric_pairs
from .gaussian import GaussianEvent

__all__ = ["SampledGroup"]

_MAX_COUNTS = 64  # largest number of distinct counts of sampled records
_NEGLIGIBLE = 1e-40  # tail probability beyond which counts are merged
_WORK_PER_COUNT = 1e7


@dataclass(frozen=True)
class SampledGroup(
    Event, tag="SampledGroup", stored=("sampling_rate", "event", "size"), knows_label=True
):
    """Poisson-sampled Gaussian mechanism for groups of at most ``size`` records.

    It bounds the cost of ``PoissonSampled(sampling_rate, event)`` if ``size`` records are added,
    removed or replaced together. :meth:`PrivacyGuarantee.group` makes it.

    Parameters
    ----------
    sampling_rate : float
        The probability of inclusion of each record, independently, in (0, 1].
    event : GaussianEvent
        Its sensitivity bounds the norm of one record's contribution, under every relation.
    size : int
        Largest number of records in a group.

    Notes
    -----
    **Guarantees.** With probability w_j = Binomial(k, q)(j), j of a group's k records are in the
    sample. Their contributions then add up to a vector of norm at most j. In any dimension these
    pairs dominate:

    - removing: sum_j w_j N(j, z^2) from N(0, z^2); adding: the reverse;
    - replacing: sum_j w_j N(j, z^2) from sum_j w_j N(-j, z^2).

    Proof. Let S be the set of sampled records of the group, of probability w_S. Let u_S and v_S be
    the sums of their contributions in the two data sets (zero for absent records). The rest of the
    sample and its noise are the same in both. Let x be drawn from N(0, z^2 I), and A_S and B_S be
    the likelihood ratios of N(u_S) and N(v_S) to it. The hockey-stick divergence at alpha is then
    E (sum_S w_S A_S - alpha sum_S w_S B_S)_+. All ln A_S and ln B_S are jointly normal, and all
    A_S and B_S have mean 1. Their covariances are the inner products of the u_S and v_S, divided by
    z^2.

    Take a convex f, any numbers c_i, and the mean of f(sum_i c_i e^(X_i - Var X_i / 2)) over normal
    X. Along the path between two covariances its derivative is
    sum_ij c_i c_j (change of Cov_ij) E[f'' e^(...) e^(...)] / 2 (Kahane 1985). So the mean grows
    with every covariance of two terms of the same sign, and falls with every covariance of two
    terms of opposite signs. Let s and t be the numbers of records in S and T. Then
    <u_S, u_T> <= s t, <v_S, v_T> <= s t and <u_S, v_T> >= -s t. All three are attained at once by
    u_S = s and v_S = -s on a line, which proves replacing. With v_S = 0 this proves removing, and
    with u_S = 0 adding.

    By the same argument more, or larger, contributions never cost less, so smaller groups are
    covered. Steps compose as dominating pairs do. The bound is tight: contributions along one
    direction attain the pairs. Above 63 records, the counts j are rounded up to 64 values in all.

    References
    ----------
    J.-P. Kahane, "Sur le chaos multiplicatif", Annales des sciences mathematiques du Quebec 9
    (1985).
    C. Choquette-Choo, A. Ganesh, T. Steinke and A. Thakurta, "Privacy amplification for matrix
    mechanisms", ICLR 2024: mixtures of Gaussians as dominating pairs.

    Examples
    --------
    >>> from skprivacy.accounting import GaussianEvent, Repeated, SampledGroup, epsilon_of
    >>> [round(epsilon_of(Repeated(SampledGroup(0.01, GaussianEvent(2.0), k), 1000), 1e-5), 2)
    ...  for k in (1, 2, 5)]
    [0.62, 1.33, 3.73]
    """

    sampling_rate: float
    event: GaussianEvent
    size: int

    def __post_init__(self) -> None:
        positive("sampling_rate", self.sampling_rate)
        if self.sampling_rate > 1:
            raise ValueError(f"sampling_rate={self.sampling_rate!r} must be in (0, 1].")
        if not isinstance(self.event, GaussianEvent):
            raise TypeError(
                f"event={self.event!r} must be a GaussianEvent: nothing is proved for groups in "
                "samples with other noise. Use the curve of the records' guarantee."
            )
        whole("size", self.size)

    def work(self) -> float:
        # Quadratures over one Gaussian for each count, and exact binomials, whose digits grow with
        # the size: 0.01 s for 1,000 records, 5 s for 10,000.
        return _WORK_PER_COUNT * min(self.size, _MAX_COUNTS) + self.size**3 / 1000

    def renyi(self, orders: Orders, relation: str) -> Orders:
        weights, up, down = self._shifts(relation)
        noise = self.event.noise_multiplier
        each = [mixed_gaussian_rdp(noise, weights, up, down, orders)]
        if not allows_replacement(relation):
            away = tuple(-c for c in up)
            each.append(mixed_gaussian_rdp(noise, weights, down, away, orders))
        divergence: Orders = np.max(each, axis=0)
        return divergence

    def dominating_pairs(self, relation: str) -> Pairs:
        weights, up, down = self._shifts(relation)
        noise = self.event.noise_multiplier
        if len(weights) == 1:
            return symmetric_pairs(GaussianPair(noise / (up[0] - down[0])))
        # Choquette-Choo et al. 2024: mixtures of Gaussians; see Notes of the class
        remove = MixedGaussians(noise, weights, up, down)
        if allows_replacement(relation):
            return symmetric_pairs(remove)
        return remove, MixedGaussians(noise, weights, down, tuple(-c for c in up))

    def zcdp(self, relation: str) -> float:
        # As for one record, zCDP has no amplification by sampling.
        distance = self.size * (2 if allows_replacement(relation) else 1)
        return distance**2 / (2 * self.event.noise_multiplier**2)

    def grouped(self, size: int) -> SampledGroup:
        return SampledGroup(self.sampling_rate, self.event, size * self.size)

    def _shifts(self, relation: str) -> tuple[tuple[float, ...], ...]:
        """Return the weights and the shifts of P and of Q, for removing or replacing a group."""
        weights, up = _count_probabilities(self.sampling_rate, self.size)
        return weights, up, tuple(-c if allows_replacement(relation) else 0.0 for c in up)


@lru_cache(maxsize=64)
def _count_probabilities(rate: float, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the probabilities of the counts of sampled records; many counts are rounded up."""
    if rate == 1:
        return (1.0,), (float(size),)
    j = np.arange(size + 1)
    weights = np.array([_binomial_probability(int(i), size, rate) for i in j])
    bound = j
    if size >= _MAX_COUNTS:
        likely = j[
            (binom.sf(j, size, rate) > _NEGLIGIBLE) & (binom.cdf(j, size, rate) > _NEGLIGIBLE)
        ]
        kept = np.unique(np.linspace(likely[0], likely[-1], _MAX_COUNTS - 1).round().astype(int))
        bound = np.r_[kept, size][np.searchsorted(np.r_[kept, size], j)]
    shifts, where = np.unique(bound, return_inverse=True)
    total = np.bincount(where, weights)
    here = total > 0
    return tuple((total / math.fsum(total))[here].tolist()), tuple(shifts[here].astype(float))


def _binomial_probability(j: int, n: int, q: float) -> float:
    """Return a binomial probability, accurate to a few ulps (``scipy.stats.binom``: ten)."""
    choose = math.comb(n, j)
    log = j * math.log(q) + (n - j) * math.log1p(-q)
    if choose < 2**1000 and log > -700:
        return choose * math.exp(log)
    return math.exp(math.log(choose) + log)
