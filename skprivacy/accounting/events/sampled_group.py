"""What a Poisson sample with Gaussian noise costs a group of records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import binom

from .._checks import positive, replaces, whole
from .._event import Event, Orders, Pairs
from .._renyi import mixed_gaussian_rdp
from ..pld.mixed_gaussians import MixedGaussians
from ..pld.pairs import GaussianPair, both
from .gaussian import GaussianEvent

__all__ = ["SampledGroup"]

_MOST = 64  # numbers of records that are told apart
_RARE = 1e-40
_WORK_PER_NUMBER = 1e7


@dataclass(frozen=True)
class SampledGroup(
    Event, tag="SampledGroup", stored=("sampling_rate", "event", "size"), knows_label=True
):
    """A step of Poisson-sampled Gaussian noise, for groups of at most ``size`` records.

    It is what ``PoissonSampled(sampling_rate, event)`` costs if ``size`` records are there or not,
    or are replaced, together: what ``PrivacyGuarantee.group`` makes of it.

    Parameters
    ----------
    sampling_rate : float
        The probability of inclusion of each record, independently, in (0, 1].
    event : GaussianEvent
        Its sensitivity bounds the norm of one record's contribution, under every relation.
    size : int
        The most records that a group may have.

    Notes
    -----
    **Guarantees.** With j of a group's k records in the sample, an event of probability
    w_j = Binomial(k, q)(j), their contributions add up to a vector of norm at most j. The pairs are

    - removing: sum_j w_j N(j, z^2) from N(0, z^2); adding: the reverse;
    - replacing: sum_j w_j N(j, z^2) from sum_j w_j N(-j, z^2),

    and they dominate in any dimension. Proof. Let S be the records that are sampled, of probability
    w_S, and u_S and v_S the sums of their contributions in the one and in the other data set (zero
    if they are not there); the rest of the sample and its noise are the same in both. With x drawn
    from N(0, z^2 I), and A_S and B_S the likelihood ratios of N(u_S) and N(v_S) to it, the
    hockey-stick divergence at alpha is E (sum_S w_S A_S - alpha sum_S w_S B_S)_+. The ln A_S and
    ln B_S are jointly normal, all means of A_S and B_S are 1, and the covariances are the inner
    products of u_S and v_S, divided by z^2. For a convex f and any numbers c_i, the mean of
    f(sum_i c_i e^(X_i - Var X_i / 2)) over normal X has, along the path between two covariances,
    the derivative sum_ij c_i c_j (change of Cov_ij) E[f'' e^(...) e^(...)] / 2 (Kahane 1985): it
    grows with every covariance of two terms of the same sign, and falls with that of two terms of
    opposite signs. With s and t the numbers of records in S and T, <u_S, u_T> <= s t, <v_S, v_T> <=
    s t and <u_S, v_T> >= -s t, all of which are attained at once by u_S = s and v_S = -s on a line:
    replacing is proved; with v_S = 0, removing; with u_S = 0, adding. The same argument shows that
    more, or larger, contributions never cost less, so smaller groups are covered. Steps compose as
    dominating pairs do. No step is lost: the pairs are what contributions along one direction
    attain.

    Above 63 records, some numbers j are rounded up to 64 values in all.

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
        # Quadratures over as many Gaussians as numbers are told apart; and exact binomials, whose
        # digits grow with the size: 0.01 s for 1,000 records, 5 s for 10,000.
        return _WORK_PER_NUMBER * min(self.size, _MOST) + self.size**3 / 1000

    def renyi(self, orders: Orders, relation: str) -> Orders:
        weights, up, down = self._shifts(relation)
        noise = self.event.noise_multiplier
        each = [mixed_gaussian_rdp(noise, weights, up, down, orders)]
        if not replaces(relation):
            away = tuple(-c for c in up)
            each.append(mixed_gaussian_rdp(noise, weights, down, away, orders))
        divergence: Orders = np.max(each, axis=0)
        return divergence

    def dominating_pairs(self, relation: str) -> Pairs:
        weights, up, down = self._shifts(relation)
        noise = self.event.noise_multiplier
        if len(weights) == 1:
            return both(GaussianPair(noise / (up[0] - down[0])))
        remove = MixedGaussians(noise, weights, up, down)
        if replaces(relation):
            return both(remove)
        return remove, MixedGaussians(noise, weights, down, tuple(-c for c in up))

    def zcdp(self, relation: str) -> float:
        # As for one record, zCDP has no amplification by sampling.
        distance = self.size * (2 if replaces(relation) else 1)
        return distance**2 / (2 * self.event.noise_multiplier**2)

    def grouped(self, size: int) -> SampledGroup:
        return SampledGroup(self.sampling_rate, self.event, size * self.size)

    def _shifts(self, relation: str) -> tuple[tuple[float, ...], ...]:
        """Return weights, the shifts of P and those of Q, for removing or replacing a group."""
        weights, up = _contributions(self.sampling_rate, self.size)
        return weights, up, tuple(-c if replaces(relation) else 0.0 for c in up)


@lru_cache(maxsize=64)
def _contributions(rate: float, size: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return probabilities of the numbers of sampled records; rare and many ones are rounded up."""
    if rate == 1:
        return (1.0,), (float(size),)
    j = np.arange(size + 1)
    weights = np.array([_binomial(int(i), size, rate) for i in j])
    bound = j
    if size >= _MOST:
        likely = j[(binom.sf(j, size, rate) > _RARE) & (binom.cdf(j, size, rate) > _RARE)]
        kept = np.unique(np.linspace(likely[0], likely[-1], _MOST - 1).round().astype(int))
        bound = np.r_[kept, size][np.searchsorted(np.r_[kept, size], j)]
    shifts, where = np.unique(bound, return_inverse=True)
    total = np.bincount(where, weights)
    here = total > 0
    return tuple((total / math.fsum(total))[here].tolist()), tuple(shifts[here].astype(float))


def _binomial(j: int, n: int, q: float) -> float:
    """Return a binomial probability to a few units in the last place, where ``binom`` has ten."""
    choose = math.comb(n, j)
    log = j * math.log(q) + (n - j) * math.log1p(-q)
    if choose < 2**1000 and log > -700:
        return choose * math.exp(log)
    return math.exp(math.log(choose) + log)
