"""Private selection: exponential mechanism, report noisy max and randomised response.

McSherry and Talwar 2007; permute-and-flip by McKenna and Sheldon 2020; Warner 1965 for local
differential privacy of categories.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import is_number, whole
from ..accounting import Event
from ..accounting.events import ExponentialEvent, RandomizedResponseEvent, ReportNoisyMaxEvent
from .additive import bernoulli_exp
from .base import Mechanism, as_nonexpanding_float64
from .secure_random import SecureRandom

_ONE = 1 << 53
_MOST_CATEGORIES = 1 << 31
_SCALE_BITS = 36


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Randomised response: the true category with probability e^epsilon / (e^epsilon + k - 1).

    Otherwise one of the other k - 1 categories is reported, uniformly.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, from 1e-6 to 700.
    n_categories : int
        Number k of public categories, at least 2. Reports are integers 0 .. k-1.

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` *local* differential privacy for every report, whatever else
    its reader knows. Records are perturbed one by one, so a data set with one report per person is
    ``epsilon``-DP under replace-one. The probability of the coin is a multiple of 2**-53, rounded
    towards privacy, so the coin is exact.

    **Edge cases.** A value outside 0 .. k-1 raises. An empty array returns an empty array.

    References
    ----------
    S. L. Warner, "Randomized response", JASA 60, 1965.
    P. Kairouz, S. Oh and P. Viswanath, "Extremal mechanisms for local differential privacy",
    JMLR 17, 2016.

    Examples
    --------
    >>> from skprivacy.mechanisms import RandomizedResponse, SecureRandom
    >>> RandomizedResponse(epsilon=2.0, n_categories=3).release([0, 2, 1], SecureRandom()).shape
    (3,)
    """

    arithmetic = "exact"

    epsilon: float
    n_categories: int
    sensitivity: float = field(default=1.0, init=False)  # one category may become any other

    def __post_init__(self) -> None:
        if not (is_number(self.epsilon) and 1e-6 <= self.epsilon < 700):
            raise ValueError(
                f"epsilon={self.epsilon!r} must be a number from 1e-6 to 700, for example 1.0."
            )
        whole("n_categories", self.n_categories, least=2)
        if self.n_categories > _MOST_CATEGORIES:
            raise ValueError(
                f"n_categories={self.n_categories!r} must be at most {_MOST_CATEGORIES}. Pass the "
                "number of public categories."
            )

    @property
    def event(self) -> Event:
        """``RandomizedResponseEvent(epsilon, n_categories)``, for one report."""
        return RandomizedResponseEvent(self.epsilon, int(self.n_categories))

    @property
    def truth_probability(self) -> float:
        """Probability, on a grid of 2**-53, that a report is true."""
        # Kairouz et al. 2016: e^epsilon / (e^epsilon + k - 1)
        others = (self.n_categories - 1) * math.exp(-self.epsilon)
        p_true = 1.0 / (1.0 + others)
        # The margin keeps the true category at most e^epsilon times as likely as any other one.
        # False reports must stay possible.
        false = math.ceil((1.0 - p_true) * (1.0 + 2.0**-40) * _ONE + 2.0 * self.n_categories)
        return (_ONE - min(false, _ONE)) / _ONE

    def _release(self, value: ArrayLike, random: SecureRandom) -> NDArray[np.int64]:
        codes, k = as_nonexpanding_float64(value), self.n_categories
        if not ((codes >= 0) & (codes < k) & (codes == np.trunc(codes))).all():
            raise ValueError(
                f"value holds codes outside 0 .. {k - 1}, the codes of n_categories={k}. Encode "
                "categories by the public list first."
            )
        # Kairouz et al. 2016, k-ary randomised response: lie uniformly among the other categories
        true = codes.astype(np.int64).ravel()
        falsify = random.integers(_ONE, true.size) >= int(self.truth_probability * _ONE)
        shift = random.integers(k - 1, true.size) + 1
        return np.where(falsify, (true + shift) % k, true).reshape(codes.shape)


@dataclass(frozen=True)
class RandomizedResponseWithPrior(RandomizedResponse):
    """Randomised response among candidates that need not contain the true category (RRTop-k).

    A holder of a candidate responds as in :class:`RandomizedResponse`; others report each candidate
    with the same probability. The candidates may differ from report to report. The candidates of
    a report must not depend on its true category.

    The parameters of :class:`RandomizedResponse` apply. ``n_categories`` is the number k of
    candidates. Reports are positions 0 .. k-1 in their list.

    Notes
    -----
    **Guarantees.** As for :class:`RandomizedResponse`. Without a candidate, the response is for a
    random candidate. A mixture of responses differs from each of them by at most as much as they
    differ from each other.

    **Edge cases.** -1 stands for a category that is not a candidate; any other value outside
    0 .. k-1 raises.

    References
    ----------
    B. Ghazi, N. Golowich, R. Kumar, P. Manurangsi and C. Zhang, "Deep learning with label
    differential privacy", NeurIPS 2021: RRTop-k.
    """

    arithmetic = "exact"

    def _release(self, value: ArrayLike, random: SecureRandom) -> NDArray[np.int64]:
        codes = as_nonexpanding_float64(value)
        # Ghazi et al. 2021, RRTop-k: a category outside of the list gives a uniform response
        instead = random.integers(self.n_categories, codes.size).reshape(codes.shape)
        return super()._release(np.where(codes == -1, instead, codes), random)


@dataclass(frozen=True)
class _Selection(Mechanism):
    """Selection by scores on a grid, in integer arithmetic."""

    epsilon: float
    sensitivity: float
    monotonic: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon", "sensitivity"):
            value = getattr(self, name)
            if not (is_number(value) and 1e-6 <= value < 1e50):
                raise ValueError(
                    f"{name}={value!r} must be a number from 1e-6 to 1e50. Rescale the scores."
                )
        # Any other truthy value, such as a string, would halve the noise by mistake.
        if not isinstance(self.monotonic, bool | np.bool_):
            raise ValueError(f"monotonic={self.monotonic!r} must be True or False.")

    def _release(self, value: ArrayLike, random: SecureRandom) -> int:
        scores = as_nonexpanding_float64(value)
        if scores.ndim != 1 or scores.size == 0:
            raise ValueError(
                f"value has shape {scores.shape}; expected a flat array of at least one score. "
                "Pass one score per candidate."
            )
        if np.isnan(scores).any():
            raise ValueError(
                "value holds NaN; expected numbers. Give every candidate a score, or leave it out."
            )
        grid = math.ldexp(1.0, math.frexp(self.sensitivity)[1] - _SCALE_BITS)
        steps = np.rint(np.clip(scores, -1e150, 1e150) / grid)
        # Up to 2**53 differences are exact. Beyond, probabilities are below exp(-2**15 epsilon).
        behind = np.minimum(steps.max() - steps, 2.0**53).astype(np.int64)
        moved = math.ceil(self.sensitivity / grid) + 1  # rounding of scores adds a step
        scale = math.ceil((1 if self.monotonic else 2) * moved / self.epsilon * (1.0 + 2.0**-40))
        return self._select(behind, scale, random)

    @abstractmethod
    def _select(self, behind: NDArray[np.int64], scale: int, random: SecureRandom) -> int: ...


@dataclass(frozen=True)
class Exponential(_Selection):
    """Exponential mechanism: choose r with probability proportional to exp(epsilon u_r / (2 s)).

    u_r is the score of candidate r, and s the sensitivity of the scores.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one choice, at least 1e-6.
    sensitivity : float
        Largest difference of any single score between neighbouring data sets.
    monotonic : bool, default=False
        Whether a record changes all scores in the same direction (counts under add/remove). The
        factor 2 is then unnecessary.

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` differential privacy. The scores are rounded to a grid, the
    rounding is added to the sensitivity, and the choice is exact: a candidate drawn uniformly is
    accepted with probability exp(-distance to the best score), in integer arithmetic.

    **Edge cases.** A single candidate is always chosen. NaN raises. An infinite score counts as
    1e150. The duration of rejection sampling depends on the scores: do not let an adversary time
    it.

    References
    ----------
    F. McSherry and K. Talwar, "Mechanism design via differential privacy", FOCS 2007.

    Examples
    --------
    >>> from skprivacy.mechanisms import Exponential, SecureRandom
    >>> Exponential(epsilon=1.0, sensitivity=1.0).release([0, 300, 10], SecureRandom())
    1
    """

    arithmetic = "exact"

    @property
    def event(self) -> Event:
        """``ExponentialEvent(epsilon)``, which composes better than pure privacy."""
        return ExponentialEvent(self.epsilon)

    def _select(self, behind: NDArray[np.int64], scale: int, random: SecureRandom) -> int:
        # McSherry and Talwar 2007, by rejection: exp(epsilon (u_r - max u) / (2 s)) is at most 1
        while True:
            drawn = random.integers(behind.size, behind.size)
            accepted = drawn[bernoulli_exp(behind[drawn], scale, random)]
            if accepted.size:
                return int(accepted[0])


@dataclass(frozen=True)
class ReportNoisyMax(_Selection):
    """Report noisy max with exponential noise: choose the candidate with the largest noisy score.

    It is computed as "permute and flip", which has the same distribution (Ding et al. 2021). The
    candidates are visited in random order, and each is accepted with probability
    exp(-epsilon (best - u_r) / (2 sensitivity)). The expected score is at least the expected score
    of :class:`Exponential`.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one choice, at least 1e-6.
    sensitivity : float
        Largest difference of any single score between neighbouring data sets.
    monotonic : bool, default=False
        Whether a record changes all scores in the same direction (counts under add/remove). The
        factor 2 is then unnecessary.

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` differential privacy, exact on a grid as for
    :class:`Exponential`. Only the index is released: the noisy score would cost more.

    **Edge cases.** As for :class:`Exponential`.

    References
    ----------
    R. McKenna and D. Sheldon, "Permute-and-flip: a new mechanism for differentially private
    selection", NeurIPS 2020.
    Z. Ding et al., "The permute-and-flip mechanism is identical to report-noisy-max with
    exponential noise", arXiv 2105.07260.

    Examples
    --------
    >>> from skprivacy.mechanisms import ReportNoisyMax, SecureRandom
    >>> ReportNoisyMax(epsilon=1.0, sensitivity=1.0).release([0, 300, 10], SecureRandom())
    1
    """

    arithmetic = "exact"

    @property
    def event(self) -> Event:
        """``ReportNoisyMaxEvent(epsilon)``."""
        return ReportNoisyMaxEvent(self.epsilon)

    def _select(self, behind: NDArray[np.int64], scale: int, random: SecureRandom) -> int:
        # McKenna and Sheldon 2020, permute-and-flip: the first accepted candidate in random order
        # is uniform among the accepted ones. The best candidate is always accepted.
        accepted = np.flatnonzero(bernoulli_exp(behind, scale, random))
        return int(accepted[random.integers(accepted.size, 1)[0]])
