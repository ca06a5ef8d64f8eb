"""Losses of an additive model: derivatives of each record by its score, with proved bounds.

A record enters a release as one row of numbers of L2 norm at most 1: :meth:`Loss.start_row` before
there is a model, :meth:`Loss.derivative_row` afterwards. A regression begins with
:meth:`SquaredLoss.total_row`. :class:`NewtonSums` are sums of these rows over cells in the units of
the loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from ..synthesis.marginal_tables import project_to_counts

Floats = NDArray[np.float64]

_LEAST_RATE = 1e-3  # of a class in the constant model
# Where scores are far off, second derivatives vanish and Newton steps diverge: Friedman, Hastie and
# Tibshirani 2000, implementation issues of LogitBoost.
_MAX_LOGIT_STEP = 4.0
_COUNT_WEIGHT = 0.5  # of a count beside a residual in [-1, 1]
_CLIP_IN_STDS = 2.0  # at which residuals are clipped, in standard deviations of residuals
_LEAST_VARIANCE = 0.01  # of residuals, in units of the target's
_TAIL = 0.1  # shift of a mean by clipping, in standard deviations of the target


@dataclass(frozen=True)
class NewtonSums:
    """Noisy first and second derivatives of the loss, summed over the records of each cell."""

    gradient: Floats  # (..., n_outputs)
    hessian: Floats  # the same shape
    std: Floats  # standard deviation of the noise of the gradient, which broadcasts to its shape

    def sampling_variance(self, loss: Loss) -> float:
        """Return the variance of the sum of all rows' gradients, by sampling, of one output."""
        hessian = max(float(self.hessian.sum()), 0.0) / self.hessian.shape[-1]
        return loss.dispersion * hessian / loss.scale**2


class Loss(ABC):
    """A loss of scores (n, n_outputs), and the rows through which records enter releases."""

    n_outputs: int
    dispersion: float  # variance of a record's first derivative, in units of the second one
    scale: float = 1.0  # number by which derivatives are divided in a row
    step: float = 1.0  # change of the score for a Newton step of 1
    max_step: float = math.inf  # longest Newton step

    def after(self, sums: NewtonSums, step: Floats) -> Loss:
        """Return the loss after a step that was computed from these sums."""
        return self

    @abstractmethod
    def start_row(self, target: NDArray) -> Floats:
        """Return statistics of each target, of norm at most 1 and with inner products >= 0."""

    @abstractmethod
    def start(self, totals: Floats, std: float) -> tuple[Loss, Floats, float]:
        """Return loss, constant scores and number of records from totals with noise ``std``."""

    @abstractmethod
    def counts(self, table: Floats) -> Floats:
        """Return the number of records in each cell of a noisy table of start rows."""

    @abstractmethod
    def start_sums(self, table: Floats, constant: Floats, std: Any) -> NewtonSums:
        """Return the derivatives at the constant scores from a table with noise ``std`` a cell."""

    @abstractmethod
    def derivative_row(self, scores: Floats, target: NDArray) -> Floats:
        """Return derivatives (n, n_outputs + n_second), each row of norm at most 1."""

    @abstractmethod
    def sums(self, table: Floats, std: float) -> NewtonSums:
        """Return the derivatives in the units of the loss from a noisy table of derivative rows."""


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """Logistic loss of the log-odds of the second of two classes.

    Let p be the probability of the class that a record does not have. Then abs(g) = p and
    h = p (1 - p), and the squared norm of (g, 3 h) is p^2 (1 + 9 (1 - p)^2). It is at most 1:

    1 - p^2 (1 + 9 (1 - p)^2) = (1 - p) (9 p^3 - 9 p^2 + p + 1).

    The second factor is 1 at p = 0. Its derivative, 27 p^2 - 18 p + 1, has its larger root at
    p = (3 + sqrt(6)) / 9 = 0.6055. There the factor is 0.304, its least value on [0, 1]. So the
    second derivative costs no further noise.
    """

    n_outputs = 1
    dispersion = 1.0
    max_step = _MAX_LOGIT_STEP
    hessian_weight = 3.0

    def start_row(self, target: NDArray) -> Floats:
        return np.eye(2)[target]

    def start(self, totals: Floats, std: float) -> tuple[Loss, Floats, float]:
        rates = _class_rates(totals)
        return self, logit(rates[1:]), max(float(totals.sum()), 1.0)

    def counts(self, table: Floats) -> Floats:
        return table.sum(axis=1)

    def start_sums(self, table: Floats, constant: Floats, std: Any) -> NewtonSums:
        p = expit(constant[0])
        gradient = p * table[:, :1] - (1 - p) * table[:, 1:]
        hessian = p * (1 - p) * table.sum(axis=1, keepdims=True)
        return NewtonSums(gradient, hessian, np.atleast_1d(std * math.hypot(p, 1 - p)))

    def derivative_row(self, scores: Floats, target: NDArray) -> Floats:
        # of the other class, without cancellation: expit(-s) for the second class
        other = expit(np.where(target == 1, -scores[:, 0], scores[:, 0]))
        gradient = np.where(target == 1, -other, other)
        return np.column_stack([gradient, self.hessian_weight * other * (1 - other)])

    def sums(self, table: Floats, std: float) -> NewtonSums:
        return NewtonSums(table[..., :1], table[..., 1:] / self.hessian_weight, np.array([std]))


@dataclass(frozen=True)
class SoftmaxLoss(Loss):
    """Cross-entropy of the scores of three or more classes, with the diagonal second derivatives.

    Let q = 1 - p_y, and p_k the probabilities of the other classes, whose sum is q. Let f(p) = p^2
    (1 + 3 (1 - p)^2). The squared norm of (g, sqrt(3) h) is f(q) plus the sum of all f(p_k).

    The derivative of f(p) / p is 1 + 3 (1 - p) (1 - 3 p) = (3 p - 2)^2 >= 0, so the sum is at most
    f(q). f increases from 0 to f(1) = 1. So the squared norm is at most 2, and rows are divided by
    sqrt(2).
    """

    n_classes: int
    dispersion = 1.0
    max_step = _MAX_LOGIT_STEP
    hessian_weight = math.sqrt(3.0)
    scale = math.sqrt(2.0)

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return self.n_classes

    @property
    def step(self) -> float:  # type: ignore[override]
        # Friedman, Hastie and Tibshirani 2000, Algorithm 6: all classes move together
        return (self.n_classes - 1) / self.n_classes

    def start_row(self, target: NDArray) -> Floats:
        return np.eye(self.n_classes)[target]

    def start(self, totals: Floats, std: float) -> tuple[Loss, Floats, float]:
        return self, np.log(_class_rates(totals)), max(float(totals.sum()), 1.0)

    def counts(self, table: Floats) -> Floats:
        return table.sum(axis=1)

    def start_sums(self, table: Floats, constant: Floats, std: Any) -> NewtonSums:
        p = softmax(constant)
        count = table.sum(axis=1, keepdims=True)
        spread = std * np.sqrt((self.n_classes - 1) * p**2 + (1 - p) ** 2)
        return NewtonSums(p * count - table, p * (1 - p) * count, spread)

    def derivative_row(self, scores: Floats, target: NDArray) -> Floats:
        p = softmax(scores, axis=1)
        hessian = p * (1 - p)
        p[np.arange(len(p)), target] -= 1
        return np.hstack([p, self.hessian_weight * hessian]) / self.scale

    def sums(self, table: Floats, std: float) -> NewtonSums:
        k = self.n_classes
        hessian = table[..., k:] * (self.scale / self.hessian_weight)
        return NewtonSums(table[..., :k] * self.scale, hessian, np.full(k, std * self.scale))


@dataclass(frozen=True)
class SquaredLoss(Loss):
    """Squared loss of a target in [-1, 1], with clipped residuals (Huber's loss).

    A row of the totals is (1, y, y^2) / sqrt(3), of norm at most 1. The inner product of two is (1
    + t + t^2) / 3 >= 1 / 4 with t = y y'. A start row is (r, 1) / sqrt(2), where r in [-1, 1] is
    the clipped residual of the released mean divided by the clip. The inner product of two rows is
    (1 + r r') / 2 >= 0. Later, a row is (r, 1 / 2) / sqrt(5 / 4). The second derivative is
    constant, so a count is enough. The clip follows the variance of the residuals, which is
    estimated from noisy sums: the target's, less what the steps explain.
    """

    variance: float = 0.25  # of the residuals
    start_variance: float = 0.0  # of the target
    mean: float = 0.0  # of the target, as released
    mean_variance: float = 0.0  # of the noise in it
    n_outputs = 1
    hessian_weight = _COUNT_WEIGHT
    scale = math.hypot(1.0, _COUNT_WEIGHT)

    @property
    def clip(self) -> float:
        """Residual at which the loss becomes linear."""
        return min(_CLIP_IN_STDS * math.sqrt(self.variance), 1.0)

    @property
    def dispersion(self) -> float:  # type: ignore[override]
        return self.variance / self.clip**2

    @property
    def step(self) -> float:  # type: ignore[override]
        return self.clip

    def after(self, sums: NewtonSums, step: Floats) -> Loss:
        counts = project_to_counts(sums.hessian, max(float(sums.hessian.sum()), 1.0))
        explained = float((counts * step**2).sum() / counts.sum()) * self.clip**2
        least = _LEAST_VARIANCE * self.start_variance
        return replace(self, variance=max(self.variance - explained, least))

    def mean_weight(self, noise: float) -> float:
        """Return the weight of a mean of clipped residuals, with this noise, in the mean target."""
        other = noise**2 + _TAIL**2 * self.start_variance
        return self.mean_variance / (self.mean_variance + other) if self.mean_variance else 0.0

    def total_row(self, target: NDArray) -> Floats:
        """Return statistics of each target, bounded as start rows are."""
        return np.column_stack([np.ones(len(target)), target, target**2]) / math.sqrt(3.0)

    def start(self, totals: Floats, std: float) -> tuple[SquaredLoss, Floats, float]:
        n, total, squares = totals * math.sqrt(3.0)
        n = max(float(n), 1.0)
        mean, noise = float(np.clip(total / n, -1.0, 1.0)), std * math.sqrt(3.0) / n
        # A variance below its own noise is not known: its clip would be too small.
        least = max(noise * math.sqrt(1 + 4 * mean**2 + mean**4), 0.01**2)
        variance = float(np.clip(squares / n - mean**2, min(least, 1.0), 1.0))
        loss = SquaredLoss(variance, variance, mean, noise**2 * (1 + mean**2))
        return loss, np.array([mean]), n

    def start_row(self, target: NDArray) -> Floats:
        residual = np.clip((self.mean - target) / self.clip, -1.0, 1.0)
        return np.column_stack([residual, np.ones(len(target))]) / math.sqrt(2.0)

    def counts(self, table: Floats) -> Floats:
        return table[:, 1] * math.sqrt(2.0)

    def start_sums(self, table: Floats, constant: Floats, std: Any) -> NewtonSums:
        sums = table * math.sqrt(2.0)
        return NewtonSums(sums[:, :1], sums[:, 1:], np.atleast_1d(std * math.sqrt(2.0)))

    def derivative_row(self, scores: Floats, target: NDArray) -> Floats:
        residual = np.clip((scores[:, 0] - target) / self.clip, -1.0, 1.0)
        count = np.full(len(target), _COUNT_WEIGHT)
        return np.column_stack([residual, count]) / self.scale

    def sums(self, table: Floats, std: float) -> NewtonSums:
        hessian = table[..., 1:] * (self.scale / _COUNT_WEIGHT)
        return NewtonSums(table[..., :1] * self.scale, hessian, np.array([std * self.scale]))


def _class_rates(totals: Floats) -> Floats:
    """Return the rates of the classes from noisy counts, none of them near 0."""
    rates = np.maximum(totals / max(float(totals.sum()), 1.0), _LEAST_RATE)
    normalized: Floats = rates / rates.sum()
    return normalized
