"""The laws that events claim of their noise, and exact tests of noise against them.

``standardised`` turns noise into independent standard normal numbers if its law is the claimed one;
``check_standard_normal`` and ``check_independent`` test that. ``tests/mechanisms/test_noise.py``
holds every class that releases anything to it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg import toeplitz
from scipy.special import expit, ndtri

from skprivacy.accounting import ApproxDPEvent, Event, GaussianEvent, LaplaceEvent, VoteBlockEvent
from skprivacy.accounting.calibration import analytic_noise_multiplier
from skprivacy.accounting.events import (
    BandedFactorizationEvent,
    ExponentialEvent,
    LogisticEvent,
    TreeAggregationEvent,
)
from skprivacy.linear_model.logistic_regression import LogisticLoss
from skprivacy.linear_model.perturbation import ObjectivePerturbation
from skprivacy.mechanisms import Exponential, Mechanism
from skprivacy.mechanisms.distributed_gaussian import DistributedGaussian

# Probability that correct noise fails one comparison; all tests make a few thousand.
CHANCE = 1e-9
_BINS = 256
_SHAPED = 100_000, 1_000_000  # numbers whose shape is tested, one by one and in cells


def standardised(event: Event, noise: NDArray[Any]) -> NDArray[np.float64]:
    """Return standard normal numbers, if ``noise`` has the law that ``event`` claims.

    ``noise`` has shape (times, size) and is in units of the sensitivity; votes are counted singly.
    """
    if isinstance(event, VoteBlockEvent):
        return _of_votes(event, noise)
    if isinstance(event, LaplaceEvent):
        return laplace_as_normal(noise / event.noise_multiplier)
    if isinstance(event, LogisticEvent):
        noise = noise / event.noise_multiplier
        return -np.sign(noise) * ndtri(expit(-np.abs(noise)))
    if isinstance(event, ApproxDPEvent):
        return k_norm_as_normal(noise * event.epsilon)
    if isinstance(event, ExponentialEvent):  # a choice: noise_of has made it normal
        return noise
    if isinstance(event, BandedFactorizationEvent):
        column = np.zeros(len(noise))
        column[: len(event.coefficients)] = event.coefficients[: len(noise)]
        return toeplitz(column, np.zeros(len(noise))) @ noise / event.noise_multiplier
    if isinstance(event, TreeAggregationEvent):
        sums = np.concatenate([np.zeros((1, noise.shape[1])), noise.cumsum(0)])
        steps = np.arange(1, len(sums))
        parts = sums[steps] - sums[steps - (steps & -steps)]  # without the last binary digit
        return parts / event.noise_multiplier
    assert isinstance(event, GaussianEvent), f"no law is known for {event!r}"
    return noise / event.noise_multiplier


def _of_votes(event: VoteBlockEvent, noise: NDArray[Any]) -> NDArray[np.float64]:
    unit = noise / event.noise_multiplier
    return laplace_as_normal(unit) if event.kind == "lnmax" else unit


def laplace_as_normal(noise: NDArray[Any]) -> NDArray[np.float64]:
    """Return standard normal numbers for Laplace numbers of scale 1."""
    return -np.sign(noise) * ndtri(np.exp(-np.abs(noise)) / 2)


def k_norm_as_normal(noise: NDArray[Any]) -> NDArray[np.float64]:
    """Return standard normal rows for rows of density proportional to exp(-norm).

    Their direction is uniform and their norm has the law Gamma(size).
    """
    size = noise.shape[1]
    norms = np.linalg.norm(noise, axis=1, keepdims=True)
    return noise / norms * stats.chi(size).isf(stats.gamma(size).sf(norms))


def claim_of(mechanism: Mechanism, value: Any) -> Event:
    """Return the event that claims the law of the noise which :func:`noise_of` returns.

    The event of an objective perturbation covers the Jacobian of its minimiser as well. What the
    ridge leaves for the noise follows from the bounds of the class, without its own arithmetic.
    """
    if not isinstance(mechanism, ObjectivePerturbation):
        return mechanism.event
    k, ridge = mechanism.n_classes, mechanism.ridge(value[0].shape[1])
    trace, rank = (0.25, 1) if k == 2 else (1 - 1 / k, k - 1)
    left = mechanism.epsilon - rank * np.log1p(trace / (rank * ridge))
    if mechanism.delta == 0:
        return ApproxDPEvent(left)
    return GaussianEvent(analytic_noise_multiplier(left, mechanism.delta / (k - 1)))


def noise_of(mechanism: Mechanism, value: Any, output: Any) -> NDArray[np.float64]:
    """Return the noise that led from a mechanism's input to its output.

    The noise of an objective perturbation is the random linear term for which ``output`` is the
    minimiser. A choice has no visible noise: see :func:`choice_as_normal`.
    """
    if isinstance(mechanism, Exponential):
        odds = mechanism.epsilon * (value - value.max()) / (2 * mechanism.sensitivity)
        law = np.exp(odds) / np.exp(odds).sum()
        return choice_as_normal(law[None], np.array([int(output)]))
    if isinstance(mechanism, DistributedGaussian):  # only the sum over parties is released
        return output - value.sum(axis=0)
    if not isinstance(mechanism, ObjectivePerturbation):
        return output - value
    rows, targets, weights = value
    ridge = mechanism.ridge(rows.shape[1])
    problem = LogisticLoss(rows, targets, weights, ridge, np.zeros_like(output))
    return -problem.gradient(output, problem.probabilities(output))


def choice_as_normal(laws: NDArray[Any], chosen: NDArray[Any]) -> NDArray[np.float64]:
    """Return a standard normal number for each choice, if row i of ``laws`` is the law of i.

    Each candidate owns an interval of [0, 1] as long as its probability. The number is the normal
    quantile of a point drawn within the interval of the choice.
    """
    ends = np.cumsum(laws, axis=1)
    rows = np.arange(len(chosen))
    width = laws[rows, chosen]
    place = ends[rows, chosen] - np.random.default_rng().uniform(size=len(chosen)) * width
    return ndtri(np.clip(place, 1e-12, 1 - 1e-12))


def check_standard_normal(numbers: NDArray[Any]) -> None:
    """Test numbers for a standard normal law: scale, mean and shape."""
    numbers = numbers.ravel()
    squares = float(np.dot(numbers, numbers))
    assert two_sided(stats.chi2(numbers.size), squares) > CHANCE, "noise of another scale"
    mean = float(numbers.sum()) / np.sqrt(numbers.size)
    assert two_sided(stats.norm, mean) > CHANCE, "noise with another mean"
    some = numbers[: _SHAPED[0]]
    assert stats.kstest(some, "norm").pvalue > CHANCE, "noise of another law"
    if numbers.size > 100 * _BINS:  # in cells of equal probability
        edges = ndtri(np.arange(1, _BINS) / _BINS)
        some = numbers[:: -(-numbers.size // _SHAPED[1])]
        counts = np.bincount(np.searchsorted(edges, some), minlength=_BINS)
        assert stats.chisquare(counts).pvalue > CHANCE, "noise of another law"


def check_independent(noise: NDArray[Any]) -> None:
    """Test standard normal noise of shape (times, size) for repetition in time and place."""
    times, size = noise.shape
    each = stats.chi2(times)
    squares = (noise**2).sum(0)
    least = min(two_sided(each, s) for s in (squares.min(), squares.max()))
    assert least * size > CHANCE, "a number has noise of another scale"
    for rows in (noise, noise.T[:1000]):  # every pair of times, and of a thousand numbers
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        cosines = np.abs(unit @ unit.T)[np.triu_indices(len(rows), 1)]
        half = (rows.shape[1] - 1) / 2
        # Of independent directions (1 + cosine) / 2 is Beta(half, half). In a plane, a cosine that
        # is rounded to 1 is no rare event: angles below 1e-8 have a probability of 1e-8.
        if cosines.size and half >= 1:
            least = 2 * stats.beta(half, half).sf((1 + cosines.max()) / 2)
            assert least * cosines.size > CHANCE, "noise is repeated"


def check_not_repeated(noise: NDArray[Any]) -> None:
    """Test the rows of standard normal noise for repetition at any distance within a row."""
    size = noise.shape[1]
    spectrum = np.abs(np.fft.rfft(noise, 2 * size, axis=1)) ** 2
    lags = np.fft.irfft(spectrum, axis=1).sum(0)[1:size]
    # A lag is normal with a variance of at most noise.size: 8 deviations have a chance of 1e-15.
    assert np.abs(lags).max(initial=0) < 8 * np.sqrt(noise.size), "noise is repeated in a row"


def two_sided(law: Any, value: float) -> float:
    """Return the two-sided p-value of ``value``."""
    return 2 * min(law.cdf(value), law.sf(value))
