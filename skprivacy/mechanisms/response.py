"""Randomised response: local privacy for categories."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import accounting
from .base import Mechanism
from .entropy import SecureRandom

__all__ = ["RandomizedResponse"]

_ONE = 1 << 53


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Report each category truthfully with probability e^epsilon / (e^epsilon + k - 1).

    Otherwise one of the other k - 1 categories is reported, uniformly.

    Parameters
    ----------
    epsilon : float
        Privacy of one report, from 1e-6 to 700.
    n_categories : int
        k, the number of public categories, at least 2. Reports are integers 0 .. k-1.
    sensitivity : float, default=1.0
        Of no effect: one category may become any other.

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` *local* differential privacy for every report: whoever reads
    it learns no more, whatever else they know. Records are perturbed one by one, so a data set
    with one report a person is ``epsilon``-DP under replace-one. The coin is a multiple of
    2**-53, rounded towards privacy, hence exact.

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

    epsilon: float
    n_categories: int
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        if not 1e-6 <= self.epsilon < 700:
            raise ValueError(f"epsilon={self.epsilon!r} must be a number from 1e-6 to 700.")
        if not (isinstance(self.n_categories, (int, np.integer)) and self.n_categories >= 2):
            raise ValueError(f"n_categories={self.n_categories!r} must be an integer >= 2.")

    @property
    def event(self) -> accounting.Event:
        """``RandomizedResponse(epsilon, n_categories)``, of one report."""
        return accounting.RandomizedResponse(self.epsilon, int(self.n_categories))

    @property
    def truth_probability(self) -> float:
        """Probability, on a grid of 2**-53, that a report is the truth."""
        others = (self.n_categories - 1) * math.exp(-self.epsilon)
        truth = 1.0 / (1.0 + others)
        # The relative margin keeps truth / lie <= e^epsilon; a lie must stay possible.
        lie = math.ceil((1.0 - truth) * (1.0 + 2.0**-40) * _ONE + 2.0 * self.n_categories)
        return (_ONE - min(lie, _ONE)) / _ONE

    def _release(self, value: ArrayLike, random: SecureRandom) -> NDArray[np.int64]:
        codes = np.asarray(value)
        k = self.n_categories
        if codes.size and not np.isin(codes, np.arange(k)).all():
            raise ValueError(
                f"value holds codes outside 0 .. {k - 1}. Encode categories against the public "
                "list first."
            )
        truth = codes.astype(np.int64).ravel()
        lie = random.integers(_ONE, truth.size) >= int(self.truth_probability * _ONE)
        shift = random.integers(k - 1, truth.size) + 1
        return np.where(lie, (truth + shift) % k, truth).reshape(codes.shape)

    def debias(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Turn counts of reports into unbiased estimates of the true counts.

        Parameters
        ----------
        counts : array-like of shape (n_categories,)
            How often each category was reported.

        Returns
        -------
        estimates : ndarray of shape (n_categories,)
            They can be negative; clipping them is post-processing.
        """
        reported = np.asarray(counts, np.float64)
        if reported.shape != (self.n_categories,):
            raise ValueError(f"counts has shape {reported.shape}; expected ({self.n_categories},).")
        truth = self.truth_probability
        lie = (1.0 - truth) / (self.n_categories - 1)
        return (reported - reported.sum() * lie) / (truth - lie)
