"""Effects of columns: sums of steps over bins, with their noise, and their lookup for records."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class EffectSum:
    """Sum of the steps for some columns, over their finest bins, and the variance of its noise."""

    scores: Floats  # (n_bins, ..., n_outputs)
    variance: Floats

    def add(self, step: Floats, noise: Floats, axes: list[Integers]) -> Floats:
        """Add a step over bins of coarser levels, and return it over the finest bins."""
        fine = np.ix_(*axes)
        self.scores += step[fine]
        self.variance += noise[fine] ** 2
        added: Floats = step[fine]
        return added

    def multiply(self, factor: float, noise: float) -> None:
        """Multiply the effect by a factor with this noise."""
        self.variance = factor**2 * self.variance + (noise * self.scores) ** 2
        self.scores *= factor


@dataclass(frozen=True)
class AdditiveEffect:
    """The effect of one or two columns on the score, in bins, with the noise in it.

    Sampling error of the records is not included in ``noise_std``.
    """

    columns: tuple[str, ...]
    scores: Floats = field(repr=False)  # (n_bins, n_outputs) or (n_bins_1, n_bins_2, n_outputs)
    noise_std: Floats = field(repr=False)  # of the noise that protects records; the same shape

    @property
    def size(self) -> float:
        """Root mean square of the scores over bins."""
        return math.sqrt(float(np.mean(self.scores**2)))

    def lookup(self, codes: tuple[Integers, ...]) -> Floats:
        """Return the scores of records, (n, n_outputs), from their bins; 0 for a bin of -1."""
        padded = np.pad(self.scores, [(0, 1)] * len(codes) + [(0, 0)])
        found: Floats = padded[codes]
        return found


def bin_codes(cells: NDArray[np.integer], bins: Integers) -> Integers:
    """Return the bin of each cell code, or -1 for a value without a cell."""
    found: Integers = np.append(bins, -1)[cells]
    return found
