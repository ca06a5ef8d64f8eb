"""Private selection: the exponential mechanism, and report noisy max (permute-and-flip)."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import accounting
from ..accounting import Event
from ..accounting._checks import number
from .base import Mechanism
from .bounds import as_nonexpanding_float64
from .discrete import bernoulli_exp
from .entropy import SecureRandom

__all__ = ["Exponential", "ReportNoisyMax"]

_SCALE_BITS = 36


@dataclass(frozen=True)
class _Selection(Mechanism):
    """Selection by scores on a grid, in integer arithmetic."""

    epsilon: float
    sensitivity: float
    monotonic: bool = False

    def __post_init__(self) -> None:
        for name in ("epsilon", "sensitivity"):
            value = getattr(self, name)
            number(name, value, "a number from 1e-6 to 1e50")
            if not 1e-6 <= value < 1e50:
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
        """``ExponentialEvent(epsilon)``, which composes better than pure privacy alone."""
        return accounting.ExponentialEvent(self.epsilon)

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
    exp(-epsilon (best - u_r) / (2 sensitivity)). The expected score is never below that of
    :class:`Exponential`.

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
        return accounting.ReportNoisyMaxEvent(self.epsilon)

    def _select(self, behind: NDArray[np.int64], scale: int, random: SecureRandom) -> int:
        # McKenna and Sheldon 2020, permute-and-flip: the first accepted candidate in random order
        # is uniform among the accepted ones. The best candidate is always accepted.
        accepted = np.flatnonzero(bernoulli_exp(behind, scale, random))
        return int(accepted[random.integers(accepted.size, 1)[0]])
