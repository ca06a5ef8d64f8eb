"""Noisy full-batch gradient descent on frozen features, a head for private fine-tuning."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .._validation import is_number
from ..accounting import Event, GaussianEvent, NonPrivate, Repeated
from ..mechanisms import Gaussian, SecureRandom, analytic_noise_multiplier
from ..mechanisms.bounds import GRID_BITS, exact_map, exact_product, quantize, row_norms
from .head import Head, HeadInput, Task

__all__ = ["GradientHead"]

_TRAVEL = 1.25  # standard deviation of the noise that a weight collects over all steps
_LEAST_NOISE = 0.3  # noise multiplier below which steps no longer grow
_AVERAGED = 0.25  # share of the last steps whose weights are averaged
_INWARDS = 1.0 - 1e-6  # outweighs the rounding of norms, and of sums of more than 2**20 records


@dataclass(frozen=True)
class GradientHead(Head):
    """Softmax regression by noisy gradient descent on all records.

    It is the most accurate head for an epsilon of about .1 or more. Each step adds Gaussian noise
    to the sum of the records' clipped gradients. The step size depends only on the noise: over all
    steps each weight collects noise of standard deviation 1.25.

    Parameters
    ----------
    steps : int, default=30
        Number of steps. The cost is the same for any number, since more steps get more noise.
    clip : float, default=0.2
        L2 norm to which the gradient of each record, for features of norm 1, is clipped.

    Notes
    -----
    **Guarantees.** Each step is a Gaussian mechanism of sensitivity ``clip`` (twice that if a
    record is replaced), with sqrt(steps) times the noise of a single release. The steps are
    adaptive, and their composition is exactly that single release. A record's gradient is its row
    times its residual, so clipping the residual clips the gradient. The gradient of a group is the
    mean of its records' clipped gradients, whose norm is at most ``clip``. Scores are exact
    products with rounded weights, and residuals lie on a grid. A record's gradient is therefore a
    function of that record and of the weights, to the last bit, and sums are exact. It is clipped
    to a millionth less than ``clip``, which outweighs the rounding of its norm.

    References
    ----------
    J. Dong, A. Roth and W. Su, "Gaussian differential privacy", JRSS B 2022.
    """

    steps: int = 30
    clip: float = 0.2

    def __post_init__(self) -> None:
        if not (type(self.steps) is int and 1 <= self.steps <= 10_000):
            raise ValueError(f"steps={self.steps!r} must be a whole number from 1 to 10000.")
        if not (is_number(self.clip) and 1e-3 <= self.clip <= 2):
            raise ValueError(
                f"clip={self.clip!r} must be a number from 0.001 to 2; gradients of rows of norm 1 "
                "are at most sqrt(2)."
            )

    def event(self, task: Task) -> Event:
        multiplier = self._multiplier(task)
        return Repeated(GaussianEvent(multiplier), self.steps) if multiplier else NonPrivate()

    def arithmetic(self, task: Task) -> str:
        return Gaussian.arithmetic

    def _multiplier(self, task: Task) -> float:
        if task.delta == 0:
            raise ValueError(
                "delta=0.0 must be above 0 for head='gradient', whose noise is Gaussian. Use "
                "delta=1e-6, or head='prototypes' for a pure guarantee."
            )
        if task.mechanism not in ("auto", "gaussian"):
            raise ValueError(
                f"mechanism={task.mechanism!r} does not fit head='gradient', which adds Gaussian "
                "noise. Use mechanism='auto', or head='softmax'."
            )
        if math.isinf(task.epsilon):
            return 0.0
        # Dong et al. 2022: T adaptive Gaussian mechanisms of parameter mu compose to sqrt(T) mu
        return math.sqrt(self.steps) * analytic_noise_multiplier(task.epsilon, task.delta)

    def release(self, task: Task, records: HeadInput, random: SecureRandom) -> NDArray[np.float64]:
        multiplier = self._multiplier(task)
        mechanism = Gaussian(multiplier, task.moved * self.clip)
        noise = max(multiplier / math.sqrt(self.steps), _LEAST_NOISE)
        length = _TRAVEL / (noise * task.moved * self.clip * self.steps)
        targets = records.targets
        weights = np.zeros((task.size, task.n_classes))
        averaged, late = np.zeros_like(weights), max(1, round(self.steps * _AVERAGED))
        for step in range(self.steps):
            gradient = exact_product(records.rows, self._residuals(records, targets, weights))
            weights = weights - length * mechanism.release(gradient, random)
            if step >= self.steps - late:
                averaged += weights / late
        return averaged

    def _residuals(
        self, records: HeadInput, targets: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the factors of the rows in the sum of clipped gradients."""
        scores = exact_map(records.rows, weights, GRID_BITS)
        residuals = softmax(scores, axis=1) - targets
        norms = row_norms(records.rows) * row_norms(residuals)
        residuals *= (_INWARDS * self.clip / np.maximum(norms, self.clip))[:, None]
        return quantize(residuals * records.counts[:, None])
