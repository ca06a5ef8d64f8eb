"""PoissonSampler: the random sample of records of a DP-SGD step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..accounting._checks import number
from .entropy import SecureRandom, check_count

__all__ = ["PoissonSampler"]


@dataclass(frozen=True)
class PoissonSampler:
    """Poisson sampling: include each record independently with probability ``rate``.

    Parameters
    ----------
    rate : float
        Inclusion probability, in (0, 1].

    Notes
    -----
    The gaps between included records are geometric, so a draw costs O(rate * n), not O(n). The
    probabilities are exact up to the 2**-53 grid of the uniforms.

    Examples
    --------
    >>> from skprivacy.mechanisms import PoissonSampler, SecureRandom
    >>> PoissonSampler(1.0).draw(4, SecureRandom())
    array([0, 1, 2, 3])
    """

    rate: float

    def __post_init__(self) -> None:
        number("rate", self.rate, "in (0, 1]")
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(f"rate={self.rate!r} must be in (0, 1], such as 0.01.")

    def draw(self, n: int, random: SecureRandom) -> NDArray[np.int64]:
        """Return the sorted indices, from 0 to ``n - 1``, of the included records.

        Parameters
        ----------
        n : int
            Number of records.
        random : SecureRandom
            The source of randomness.

        Returns
        -------
        ndarray of int of shape (n_drawn,)
            Each record is included by itself, so ``n_drawn`` varies.
        """
        check_count("n", n)
        if not isinstance(random, SecureRandom):
            raise TypeError(f"random={random!r} must be a SecureRandom. Pass SecureRandom().")
        if self.rate == 1.0:
            return np.arange(n)
        log_miss = math.log1p(-self.rate)
        expected = n * self.rate
        block = int(expected + 5.0 * math.sqrt(expected) + 16.0)
        found: list[NDArray[np.int64]] = []
        last = -1
        while last < n:
            gaps = random.uniform(block)
            np.log(gaps, out=gaps)
            gaps /= log_miss
            # A gap beyond n ends the draw at any size; capping it avoids int64 overflow.
            steps = np.minimum(gaps, n, out=gaps).astype(np.int64)  # rounds down
            steps += 1
            steps[0] += last
            found.append(steps.cumsum())
            last = int(found[-1][-1])
        indices = found[0] if len(found) == 1 else np.concatenate(found)
        return indices[: indices.searchsorted(n)]
