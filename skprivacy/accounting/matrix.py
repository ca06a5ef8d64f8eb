"""Matrix factorisations of streams: sensitivity, error of running sums, and the best band."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .._validation import positive, whole
from ._checks import cached_answer

__all__ = [
    "banded_sensitivity",
    "last_step_deviation",
    "running_sum_error",
    "square_root_band",
    "step_deviation",
    "tree_sensitivity",
]


@lru_cache(maxsize=256)
def banded_sensitivity(coefficients: tuple[float, ...], steps_per_epoch: int, epochs: int) -> float:
    """Return the norm of the sum of columns 0, steps_per_epoch, 2 steps_per_epoch, ... of C."""
    row = np.zeros(steps_per_epoch * epochs)
    band = np.asarray(coefficients[: len(row)])
    for start in range(0, len(row), steps_per_epoch):
        part = row[start : start + len(band)]
        part += band[: len(part)]
    return float(np.linalg.norm(row))


@lru_cache(maxsize=256)
def tree_sensitivity(steps_per_epoch: int, epochs: int) -> float:
    """Return the largest norm of C u over all batches, where C has the nodes of a binary tree."""
    steps = np.arange(steps_per_epoch * epochs)
    batch = steps % steps_per_epoch
    squared = np.zeros(steps_per_epoch)
    for level in range(len(steps).bit_length()):
        node = steps >> level
        # A running sum needs even nodes only, and only nodes that are complete.
        used = (node % 2 == 0) & ((node + 1) << level <= len(steps))
        if 2**level <= steps_per_epoch:  # no batch occurs twice in a node
            squared += np.bincount(batch[used], minlength=steps_per_epoch)
        else:
            entries = node[used] * steps_per_epoch + batch[used]
            counts = np.bincount(entries, minlength=steps_per_epoch * (node[-1] + 1))
            squared += (counts.reshape(-1, steps_per_epoch) ** 2).sum(0)
    return math.sqrt(squared.max())


@cached_answer(64)
def square_root_band(steps_per_epoch: int, epochs: int, most: int = 64) -> tuple[float, ...]:
    """Return the coefficients of the band with the smallest error of running sums.

    The square root of the matrix of running sums has the first column binom(2j, j) / 4^j. It is cut
    to 1, 2, 4, ... or ``most`` coefficients. The result is the band with the least mean squared
    error of the running sums times the squared sensitivity of the run.

    Parameters
    ----------
    steps_per_epoch, epochs : int
        The length of the run, each at least 1.
    most : int, default=64
        Largest number of coefficients, which is also the number of noise vectors held in memory.

    Returns
    -------
    tuple of float
        The first column of C, beginning with 1.0.

    References
    ----------
    H. Fichtenberger, M. Henzinger and J. Upadhyay, "Constant matters: fine-grained error bound on
    differentially private continual observation", ICML 2023.
    N. Kalinin and C. Lampert, "Banded square root matrix factorization for differentially private
    model training", NeurIPS 2024.

    Examples
    --------
    >>> from skprivacy.accounting import square_root_band
    >>> square_root_band(100, 1, most=4)
    (1.0, 0.5, 0.375, 0.3125)
    """
    for name, value in {"steps_per_epoch": steps_per_epoch, "epochs": epochs, "most": most}.items():
        whole(name, value)
        positive(name, value)
    steps_per_epoch, epochs, most = int(steps_per_epoch), int(epochs), int(most)
    n = steps_per_epoch * epochs
    j = np.arange(1, min(most, n))
    # Fichtenberger, Henzinger and Upadhyay 2023: the square root of the matrix of ones
    square_root = np.cumprod(np.r_[1.0, (2 * j - 1) / (2 * j)])
    widths = sorted({min(2**k, len(square_root)) for k in range(len(square_root).bit_length() + 1)})
    bands = [tuple(square_root[:width].tolist()) for width in widths]
    return min(
        bands,
        key=lambda band: (
            running_sum_error(np.asarray(band), n)
            * banded_sensitivity(band, steps_per_epoch, epochs)
        ),
    )


def running_sum_error(coefficients: NDArray[np.float64], n_steps: int) -> float:
    """Return the root mean variance of running sums of C^-1 z, for z of variance 1."""
    return _root_mean_variance(coefficients, np.ones(n_steps))


def step_deviation(coefficients: NDArray[np.float64], n_steps: int) -> float:
    """Return the root mean variance of single steps of C^-1 z, for z of variance 1."""
    return _root_mean_variance(coefficients, np.eye(1, n_steps)[0])


def last_step_deviation(coefficients: NDArray[np.float64], n_steps: int) -> float:
    """Return the standard deviation of C^-1 z at the last step, where it is largest."""
    from scipy.signal import lfilter

    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.linalg.norm(lfilter([1.0], coefficients, np.eye(1, n_steps)[0])))


def _root_mean_variance(coefficients: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """Return the root mean variance of W C^-1 z; ``wanted`` is the first column of Toeplitz W."""
    from scipy.signal import lfilter  # slow to import, and only needed for streams

    column = lfilter([1.0], coefficients, wanted)
    return math.sqrt(float(np.cumsum(column**2).mean()))
