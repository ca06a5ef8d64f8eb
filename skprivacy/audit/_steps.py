"""The score of a record that takes part in some steps of a release, nobody knows in which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["in_steps"]

Matrix = NDArray[np.float64]
Score = Callable[[Matrix], NDArray[np.float64]]

# How often a record may take part, and how far it may move a step, in deviations of its noise.
_RATES = np.r_[0.02, 0.05, np.linspace(0.1, 1.0, 19)]
_SHIFTS = np.geomspace(0.2, 12.0, 42)
_ENOUGH = 2_000  # runs from which both are read
_MOST = 30.0  # no power of e beyond this tells more


def in_steps(runs: Matrix, others: Matrix, steps: Sequence[slice]) -> Iterator[Score]:
    """Yield the likelihood ratios of records that take part in each step with some probability.

    Where batches are drawn, the sum over all steps drowns the few in which the record is in the
    noise of the others. Each step is told along the direction in which it moves by itself; and
    along that of all steps, known better, if all are of one size.

    Parameters
    ----------
    runs, others : ndarray of shape (n_runs, n_numbers)
        With the record and without it. Comparable, such as standardised numbers.
    steps : sequence of slice
        Which numbers each step released.
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
            [values[:, step] @ way for step, way in zip(steps, directions, strict=True)]
        )

    without = along(others)
    middle, scale = without.mean(0), without.std(0) + 1e-9

    def told(values: Matrix) -> Matrix:
        return (along(values) - middle) / scale

    seen = told(runs[:_ENOUGH])
    likely = [
        (float(_log_ratio(seen, rate, far).mean()), rate, far) for rate in _RATES for far in _SHIFTS
    ]
    _, rate, far = max(likely)
    return lambda values: _log_ratio(told(values), rate, far)


def _log_ratio(told: Matrix, rate: float, far: float) -> NDArray[np.float64]:
    """Return how much likelier runs are with a record that moves steps so far, so often."""
    power = np.exp(np.minimum(far * told - far**2 / 2, _MOST))
    return np.asarray(np.log(1.0 - rate + rate * power + 1e-300).sum(axis=1))
