"""Streams under noise that is correlated from step to step: one event for the whole run.

Step t of a run gives a vector x_t, the sum of what the records of its batch contribute. A matrix
factorisation releases C x + z row by row, z being independent Gaussian noise, each row as soon as
the last step that it holds is over. Whatever is computed from it, such as x + C^-1 z, is
post-processing.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ._pairs import GaussianPair
from .accountants import _rho
from .events import Event, positive
from .pld import NoLossDistributionError, pairs
from .rdp import _rdp

__all__ = ["BandedFactorization", "MatrixFactorization", "TreeAggregation", "square_root_band"]


@dataclass(frozen=True)
class MatrixFactorization(Event, tag=None):
    """A stream in which every record takes part at the same public place of every epoch.

    A record of batch i contributes at the steps i, i + steps_per_epoch, ..., ``epochs`` times, a
    vector of norm at most 1 each time.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise, before C is undone, in units of the norm of a contribution.
    steps_per_epoch : int
        Batches of an epoch, at least 1.
    epochs : int
        How often each record takes part, at least 1.

    Notes
    -----
    **Guarantees.** One Gaussian release of noise multiplier ``noise_multiplier / sensitivity``,
    where ``sensitivity`` is the largest norm of C u over all contributions u of one record. The
    entries of C are not negative, so it is reached by contributions that all point the same way
    (the norm is a sum of inner products, none of which a turn could make larger). That
    contributions depend on earlier answers changes nothing: the noise is Gaussian, and no row
    holds a step that is still to come (Denisov et al. 2022, theorem 2.1). Relations: ``zero_out``,
    and ``replace_one`` at twice the sensitivity. Under ``add_remove`` one record more would move
    the others from batch to batch, so nothing is promised.

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
        for name in ("steps_per_epoch", "epochs"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name}={value!r} must be an integer >= 1.")

    @property
    def n_steps(self) -> int:
        """Number of steps of the run."""
        return self.steps_per_epoch * self.epochs

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The largest norm of C u, when no single contribution in u is longer than 1."""

    def effective_noise(self, relation: str) -> float:
        """Return the noise multiplier of the one Gaussian release that the run amounts to."""
        if relation == "add_remove":
            raise NoLossDistributionError(
                f"{type(self).__name__} holds under relation='zero_out' or 'replace_one': with one "
                "record more or less the others would change their places in the stream."
            )
        contributions = 2 if relation == "replace_one" else 1
        return self.noise_multiplier / (contributions * self.sensitivity)


@dataclass(frozen=True)
class BandedFactorization(
    MatrixFactorization,
    tag="BandedFactorization",
    stored=("noise_multiplier", "steps_per_epoch", "epochs", "coefficients"),
):
    """A stream under banded Toeplitz noise: row t of C is ``coefficients``, backwards from t.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the independent noise z divided by the norm of one contribution.
    steps_per_epoch : int
        Batches of which each record is in exactly one.
    epochs : int
        How often the batches are gone through, always in the same order.
    coefficients : tuple of float, default=(1.0,)
        First column of C, from the diagonal down. The first is 1, none is negative.

    Notes
    -----
    Batch 0 has the largest sensitivity: that of batch i is the same sum, cut off i steps earlier.
    If the coefficients fall, the order may even change from epoch to epoch: the sensitivity bounds
    every record that takes part at most ``epochs`` times, at steps that are public and at least
    ``steps_per_epoch`` apart (Kalinin and Lampert 2024, theorem 2).

    Examples
    --------
    >>> from skprivacy.accounting import BandedFactorization
    >>> stream = BandedFactorization(2.0, steps_per_epoch=100, epochs=1, coefficients=(1.0, 0.75))
    >>> stream.sensitivity
    1.25
    """

    coefficients: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coefficients", tuple(self.coefficients))
        usable = all(isinstance(c, float | int) and 0 <= c < math.inf for c in self.coefficients)
        if not usable or not self.coefficients or self.coefficients[0] != 1:
            raise ValueError(
                f"coefficients={self.coefficients!r} must be finite numbers >= 0, the first 1."
            )

    @property
    def sensitivity(self) -> float:
        return _banded_sensitivity(self.coefficients, self.steps_per_epoch, self.epochs)


@dataclass(frozen=True)
class TreeAggregation(
    MatrixFactorization,
    tag="TreeAggregation",
    stored=("noise_multiplier", "steps_per_epoch", "epochs"),
):
    """A stream whose running sums are put together from noisy sums over 2^l steps.

    Row (l, m) of C sums the steps m 2^l to (m + 1) 2^l - 1. Only even m are ever needed: the sum
    of the first t steps has one such row for each binary digit of t.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise of each row divided by the norm of one contribution.
    steps_per_epoch : int
        Batches of which each record is in exactly one.
    epochs : int
        How often the batches are gone through, always in the same order.

    References
    ----------
    P. Kairouz et al., "Practical and private (deep) learning without sampling or shuffling",
    ICML 2021.

    Examples
    --------
    >>> from skprivacy.accounting import TreeAggregation
    >>> TreeAggregation(2.0, steps_per_epoch=8, epochs=1).sensitivity
    2.0
    """

    @property
    def sensitivity(self) -> float:
        return _tree_sensitivity(self.steps_per_epoch, self.epochs)


@lru_cache(maxsize=256)
def _banded_sensitivity(
    coefficients: tuple[float, ...], steps_per_epoch: int, epochs: int
) -> float:
    row = np.zeros(steps_per_epoch * epochs)
    band = np.asarray(coefficients[: len(row)])
    for start in range(0, len(row), steps_per_epoch):
        part = row[start : start + len(band)]
        part += band[: len(part)]
    return float(np.linalg.norm(row))


@lru_cache(maxsize=256)
def _tree_sensitivity(steps_per_epoch: int, epochs: int) -> float:
    steps = np.arange(steps_per_epoch * epochs)
    batch = steps % steps_per_epoch
    squared = np.zeros(steps_per_epoch)
    for level in range(len(steps).bit_length()):
        node = steps >> level
        used = (node % 2 == 0) & ((node + 1) << level <= len(steps))
        if 2**level <= steps_per_epoch:  # no batch occurs twice in a node
            squared += np.bincount(batch[used], minlength=steps_per_epoch)
        else:
            places = node[used] * steps_per_epoch + batch[used]
            counts = np.bincount(places, minlength=steps_per_epoch * (node[-1] + 1))
            squared += (counts.reshape(-1, steps_per_epoch) ** 2).sum(0)
    return math.sqrt(squared.max())


@lru_cache(maxsize=64)
def square_root_band(steps_per_epoch: int, epochs: int, most: int = 64) -> tuple[float, ...]:
    """Return the coefficients of the band that serves running sums best.

    The square root of the matrix of running sums has the first column binom(2j, j) / 4^j. It is cut
    off after 1, 2, 4, ... up to ``most`` coefficients, wherever the mean squared error of the
    running sums, at the sensitivity of the run, is smallest.

    Parameters
    ----------
    steps_per_epoch, epochs : int
    most : int, default=64
        The noise of as many steps is kept in memory.

    Returns
    -------
    coefficients : tuple of float
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
    n = steps_per_epoch * epochs
    j = np.arange(1, min(most, n))
    whole = np.cumprod(np.r_[1.0, (2 * j - 1) / (2 * j)])
    widths = sorted({min(2**k, len(whole)) for k in range(len(whole).bit_length() + 1)})
    bands = [tuple(whole[:width].tolist()) for width in widths]
    return min(
        bands,
        key=lambda band: (
            running_sum_error(np.asarray(band), n)
            * _banded_sensitivity(band, steps_per_epoch, epochs)
        ),
    )


def running_sum_error(coefficients: NDArray[np.float64], n_steps: int) -> float:
    """Return the root of the mean variance of running sums under C^-1 z, z of variance 1."""
    return _root_mean_variance(coefficients, np.ones(n_steps))


def step_spread(coefficients: NDArray[np.float64], n_steps: int) -> float:
    """Return the root of the mean variance of single steps under C^-1 z, z of variance 1."""
    return _root_mean_variance(coefficients, np.eye(1, n_steps)[0])


def last_step_spread(coefficients: NDArray[np.float64], n_steps: int) -> float:
    """Return the standard deviation of the last step under C^-1 z, z of variance 1: the largest."""
    from scipy.signal import lfilter

    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.linalg.norm(lfilter([1.0], coefficients, np.eye(1, n_steps)[0])))


def _root_mean_variance(coefficients: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """``wanted`` is the first column of the Toeplitz matrix that C^-1 z is multiplied by."""
    from scipy.signal import lfilter  # slow to import, and only streams need it

    column = lfilter([1.0], coefficients, wanted)
    return math.sqrt(float(np.cumsum(column**2).mean()))


@pairs.register
def _(event: MatrixFactorization, relation):
    pair = GaussianPair(event.effective_noise(relation))
    return pair, pair


@_rdp.register
def _(event: MatrixFactorization, orders, relation):
    return orders / (2 * event.effective_noise(relation) ** 2)


@_rho.register
def _(event: MatrixFactorization, relation):
    return 1 / (2 * event.effective_noise(relation) ** 2)
