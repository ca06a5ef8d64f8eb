"""Likelihood ratio of a record that takes part in an unknown subset of the steps of a release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["participation_ratios"]

Matrix = NDArray[np.float64]
Score = Callable[[Matrix], NDArray[np.float64]]

# Candidate probabilities of taking part, and shifts of a step in deviations of its noise.
_RATES = np.r_[0.02, 0.05, np.linspace(0.1, 1.0, 19)]
_SHIFTS = np.geomspace(0.2, 12.0, 42)
_ENOUGH = 2_000  # runs from which both are estimated
_MOST = 30.0  # clip of exponents


def participation_ratios(runs: Matrix, others: Matrix, steps: Sequence[slice]) -> Iterator[Score]:
    """Yield likelihood ratios of records that take part in each step with some probability.

    With sampled batches, the sum over all steps drowns the few steps with the record in the noise
    of the others. Each step is projected on the direction in which it moves. If all steps have one
    size, their mean direction, which is known better, is tried first. ``runs`` and ``others``,
    with and without the record, must be standardised; ``steps`` are the columns of each step.
    """
    shift = runs.mean(0) - others.mean(0)
    spread = (runs.var(0) + others.var(0)) / 2 + 1e-9
    if len({step.stop - step.start for step in steps}) == 1:
        same = np.mean([shift[step] for step in steps], axis=0)
        noise = np.mean([spread[step] for step in steps], axis=0)
        yield _likelihood(runs, others, steps, [same / noise] * len(steps))
    yield _likelihood(runs, others, steps, [shift[step] / spread[step] for step in steps])


def _likelihood(
    runs: Matrix, others: Matrix, steps: Sequence[slice], directions: Sequence[NDArray[np.float64]]
) -> Score:
    def along(values: Matrix) -> Matrix:
        return np.column_stack(
            [values[:, step] @ w for step, w in zip(steps, directions, strict=True)]
        )

    without = along(others)
    middle, scale = without.mean(0), without.std(0) + 1e-9

    def standardized(values: Matrix) -> Matrix:
        return (along(values) - middle) / scale

    seen = standardized(runs[:_ENOUGH])
    likely = [
        (float(_log_ratio(seen, rate, far).mean()), rate, far) for rate in _RATES for far in _SHIFTS
    ]
    # Maximum likelihood over the candidates.
    _, rate, far = max(likely)
    return lambda values: _log_ratio(standardized(values), rate, far)


def _log_ratio(steps: Matrix, rate: float, far: float) -> NDArray[np.float64]:
    """Return log-likelihood ratios of the mixture (1 - rate) N(0, 1) + rate N(far, 1) per step."""
    # Abadi et al. 2016, sampled Gaussian mechanism: (1 - q) mu_0 + q mu_1 against mu_0.
    power = np.exp(np.minimum(far * steps - far**2 / 2, _MOST))
    return np.asarray(np.log(1.0 - rate + rate * power + 1e-300).sum(axis=1))
