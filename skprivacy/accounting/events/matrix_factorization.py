"""Matrix factorisation mechanisms: streams with correlated noise, as one event for the whole run.

Step t of a run yields a vector x_t, the sum of the contributions of the records in its batch. A
matrix factorisation releases C x + z row by row, where z is independent Gaussian noise. Each row is
released as soon as its last step is over. Anything computed from the rows, such as x + C^-1 z, is
post-processing. The functions give a factorisation's sensitivity and the error of its running sums,
and choose the best band. Start reading at :class:`MatrixFactorizationEvent`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..._validation import cached_answer, positive, whole
from ..event import Event, NoLossDistributionError, Orders, Pairs, allows_replacement, numbers
from ..pld.pairs import GaussianPair, symmetric_pairs
from ..work_limit import CLOSED_FORM_WORK

_WORK_PER_STEP = 200  # for the sensitivity: one pass over the steps for each level of a tree


@dataclass(frozen=True)
class MatrixFactorizationEvent(Event, tag=None):
    """Matrix factorisation mechanism: each record is in the same public batch of every epoch.

    Step t yields a vector x_t. The mechanism releases C x + z row by row, for a public matrix C and
    independent Gaussian noise z.

    A record of batch i contributes at the steps i, i + steps_per_epoch, ..., ``epochs`` times. Each
    contribution is a vector of norm at most 1.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of z in units of the norm of a contribution.
    steps_per_epoch : int
        Number of batches per epoch, at least 1.
    epochs : int
        Number of contributions of each record, at least 1.

    Notes
    -----
    **Guarantees.** The run costs as much as one Gaussian release with noise multiplier
    ``noise_multiplier / sensitivity``, where ``sensitivity`` is the largest norm of C u over all
    contributions u of one record. The entries of C are not negative, so contributions that all
    point in the same direction attain the maximum: the squared norm is a sum of inner products, and
    no other direction increases any of them. Contributions may depend on earlier answers, because
    the noise is Gaussian and no row contains a future step (Denisov et al. 2022, theorem 2.1). The
    relation may be ``zero_out``, or ``replace_one`` or ``label`` at twice the sensitivity. Under
    ``add_remove`` there is no guarantee, since one more record would move the others between
    batches.

    References
    ----------
    S. Denisov, B. McMahan, K. Rush, A. Smith and A. Thakurta, "Improved differential privacy for
    SGD via optimal private linear operators on adaptive streams", NeurIPS 2022.
    C. Choquette-Choo et al., "(Amplified) banded matrix factorization: a unified approach to
    private training", NeurIPS 2023.
    """

    noise_multiplier: float
    steps_per_epoch: int
    epochs: int

    def __post_init__(self) -> None:
        positive("noise_multiplier", self.noise_multiplier)
        whole("steps_per_epoch", self.steps_per_epoch)
        whole("epochs", self.epochs)

    @property
    def n_steps(self) -> int:
        """Number of steps of the run."""
        return self.steps_per_epoch * self.epochs

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest norm of C u, if each contribution in u has a norm of at most 1."""

    def effective_noise(self, relation: str) -> float:
        """Return the noise multiplier of the single Gaussian release equivalent to the run."""
        if relation == "add_remove":
            raise NoLossDistributionError(
                f"{type(self).__name__} has no guarantee under relation='add_remove': adding or "
                "removing a record would move the others in the stream. Use relation='zero_out' or "
                "'replace_one'."
            )
        # A replaced contribution moves by up to twice its norm.
        contributions = 2 if allows_replacement(relation) else 1
        return self.noise_multiplier / (contributions * self.sensitivity)

    def work(self) -> float:
        return CLOSED_FORM_WORK + _WORK_PER_STEP * self.n_steps

    def renyi(self, orders: Orders, relation: str) -> Orders:
        # Denisov et al. 2022, theorem 2.1: one Gaussian release, even for adaptive streams
        return orders / (2 * self.effective_noise(relation) ** 2)

    def dominating_pairs(self, relation: str) -> Pairs:
        return symmetric_pairs(GaussianPair(self.effective_noise(relation)))

    def zcdp(self, relation: str) -> float:
        return 1 / (2 * self.effective_noise(relation) ** 2)

    def grouped(self, size: int) -> MatrixFactorizationEvent:
        return replace(self, noise_multiplier=self.noise_multiplier / size)


@dataclass(frozen=True)
class BandedFactorizationEvent(
    MatrixFactorizationEvent, tag="BandedFactorization", knows_label=True
):
    """Banded matrix factorisation: the released matrix C is Toeplitz, with few diagonals.

    Row t of C has ``coefficients`` from the diagonal to the left; all other entries are 0. See
    :class:`MatrixFactorizationEvent` for C and z.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the independent noise z divided by the norm of one contribution.
    steps_per_epoch : int
        Number of batches. Each record is in exactly one batch.
    epochs : int
        Number of passes over the batches, always in the same order.
    coefficients : tuple of float, default=(1.0,)
        First column of C, from the diagonal down. The first is 1 and none is negative.

    Notes
    -----
    Batch 0 has the largest sensitivity: the columns of C for batch i add up to the sum for batch 0,
    moved down by i steps and cut off at the end of the run. If the coefficients decrease, the order
    of batches may even change between epochs. The sensitivity then covers every record that
    contributes at most ``epochs`` times, at public steps at least ``steps_per_epoch`` apart
    (Kalinin and Lampert 2024, theorem 2).

    References
    ----------
    N. Kalinin and C. Lampert, "Banded square root matrix factorization for differentially private
    model training", NeurIPS 2024.
    """

    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coefficients", numbers("coefficients", self.coefficients))
        usable = all(isinstance(c, float | int) and 0 <= c < math.inf for c in self.coefficients)
        if not usable or not self.coefficients or self.coefficients[0] != 1:
            raise ValueError(
                f"coefficients={self.coefficients!r} must be finite numbers >= 0 that begin with "
                "1. Divide all of them by the first."
            )

    @property
    def sensitivity(self) -> float:
        return banded_sensitivity(self.coefficients, self.steps_per_epoch, self.epochs)


@dataclass(frozen=True)
class TreeAggregationEvent(MatrixFactorizationEvent, tag="TreeAggregation", knows_label=True):
    """Tree aggregation: running sums are made of noisy sums over 2^l steps.

    Each noisy sum is a row of the matrix C of :class:`MatrixFactorizationEvent`. Row (l, m) sums
    the steps m 2^l to (m + 1) 2^l - 1. Only even m are needed: the sum of the first t steps uses
    one such row for each binary digit 1 of t.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of each row divided by the norm of one contribution.
    steps_per_epoch : int
        Number of batches. Each record is in exactly one batch.
    epochs : int
        Number of passes over the batches, always in the same order.

    References
    ----------
    P. Kairouz et al., "Practical and private (deep) learning without sampling or shuffling",
    ICML 2021.
    """

    @property
    def sensitivity(self) -> float:
        return tree_sensitivity(self.steps_per_epoch, self.epochs)


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
    """Return the leading coefficients of the square root of the matrix of running sums."""
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
