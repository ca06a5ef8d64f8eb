"""Interface of private heads: public facts and private features in, released weights out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._groups import Groups
from .._validation import PlainNumbers
from ..accounting import Event
from ..accounting.guarantee import UNSPECIFIED
from ..mechanisms import Mechanism, SecureRandom
from ..mechanisms.base import quantize
from .sensitivity import Sensitivity, least_noise_mechanism

# Yields weights, receives sums and returns weights.
SumSteps = Generator["NDArray[np.float64] | None", "NDArray[np.float64]", "NDArray[np.float64]"]


@dataclass(frozen=True)
class Task:
    """Public facts from which a head is chosen and set up."""

    size: int  # columns of a row, with the constant
    n_classes: int
    epsilon: float
    delta: float
    relation: str
    n_records: int  # public, and to be used, except under "add_remove"
    mechanism: str = "auto"  # name of the noise
    sensitivity: Sensitivity | None = None  # of the weights, if given; None to prove it
    noise_seed: int | None = None

    @property
    def n_changed_records(self) -> float:
        """Largest number of records by which a sum changes between neighbours."""
        return 2.0 if self.relation == "replace_one" else 1.0


@dataclass(frozen=True)
class HeadInput:
    """Private records in the form that a head takes.

    The counts of a group add up to at most 1. In a product of ``weighted`` rows
    with each other or with ``indicators``, a record contributes at most its count times the
    contribution of some row in the unit ball. A group thus contributes a convex combination of
    possible single-record contributions and 0. It lies in every ball that contains these, and the
    difference of two groups in every ball that contains the differences of two records.
    """

    rows: NDArray[np.float64]  # in the unit ball, on a grid of 2**-16; 0 if the count is 0
    counts: NDArray[np.float64]  # 1.0, or the share in a group; 0.0 for a record left out
    labels: NDArray[np.int64]  # indices of classes
    n_classes: int
    groups: Groups | None = None  # of the records; a group may have one record

    @property
    def targets(self) -> NDArray[np.float64]:
        """Return 1 in the column of each record's class, shape (n_samples, n_classes)."""
        return np.equal.outer(self.labels, np.arange(self.n_classes)).astype(np.float64)

    @property
    def roots(self) -> NDArray[np.float64]:
        """Return the square roots of the counts, rounded down to the grid of the rows."""
        return quantize(np.sqrt(self.counts))

    @property
    def indicators(self) -> NDArray[np.float64]:
        """Return the targets, each times the square root of its count."""
        return self.targets * self.roots[:, None]

    @property
    def weighted(self) -> NDArray[np.float64]:
        """Return the rows, each times the square root of its count, on their grid."""
        if ((self.counts == 0) | (self.counts == 1)).all():  # rows with count 0 are 0
            return self.rows
        return quantize(self.rows * self.roots[:, None])


class Head(PlainNumbers, ABC):
    """Base class of private heads: training algorithms on features of norm 1, without state.

    Each head has its own proof. Everything that it computes from records passes through
    :meth:`~skprivacy.mechanisms.Mechanism.release`.
    """

    def ready(self, task: Task) -> Head:
        """Return the head with all settings chosen from public facts."""
        return self

    @abstractmethod
    def event(self, task: Task) -> Event:
        """Return the event of :meth:`release`."""

    def arithmetic(self, task: Task) -> str:
        """Return the arithmetic of the noise of :meth:`release`."""
        return UNSPECIFIED

    @abstractmethod
    def release(self, task: Task, records: HeadInput, random: SecureRandom) -> Any:
        """Release the weights."""

    def scores(self, rows: NDArray[np.float64], weights: Any) -> NDArray[np.float64]:
        """Return the logits of rows."""
        return np.asarray(rows @ weights)


class SumHead(Head):
    """Base of heads that need only sums over records, so that they fit to tables in engines."""

    @abstractmethod
    def n_sums(self, size: int, n_classes: int) -> int:
        """Return the number of sums, for rows of ``size`` numbers."""

    @abstractmethod
    def sums(self, records: HeadInput, weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Return the sums over records at released weights, a flat vector, without rounding.

        They are multiples of 2**-32, below 2**15 for 2**14 records.
        """

    @abstractmethod
    def scan(self, task: Task, random: SecureRandom) -> SumSteps:
        """Yield the weights at which sums are needed, receive the sums, return the last weights."""

    def release(self, task: Task, records: HeadInput, random: SecureRandom) -> NDArray[np.float64]:
        steps = self.scan(task, random)
        weights = next(steps)
        try:
            while True:
                weights = steps.send(self.sums(records, weights))
        except StopIteration as end:
            released: NDArray[np.float64] = end.value
            return released


class OneRelease(Head):
    """Base of heads that release one noisy vector, so that one training serves many budgets."""

    @abstractmethod
    def sensitivity(self, task: Task) -> Sensitivity:
        """Return the sensitivity of the statistic."""

    @abstractmethod
    def length(self, task: Task) -> int:
        """Return the length of the statistic."""

    @abstractmethod
    def statistic(self, task: Task, records: HeadInput) -> NDArray[np.float64]:
        """Return the private statistic of the records, a flat vector."""

    @abstractmethod
    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights computed from a noisy statistic."""

    def mechanism(self, task: Task) -> Mechanism:
        """Return the mechanism that releases the statistic."""
        return least_noise_mechanism(
            task.mechanism, task.epsilon, task.delta, self.sensitivity(task), self.length(task)
        )

    def event(self, task: Task) -> Event:
        return self.mechanism(task).event

    def arithmetic(self, task: Task) -> str:
        return self.mechanism(task).arithmetic

    def release(self, task: Task, records: HeadInput, random: SecureRandom) -> NDArray[np.float64]:
        return self.add_noise(task, self.statistic(task, records), random)

    def add_noise(
        self, task: Task, statistic: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        """Add fresh noise to the statistic and return the weights."""
        noisy = self.mechanism(task).release(statistic.copy(), random)
        return self.weights(task, noisy)


class OneSumRelease(SumHead, OneRelease):
    """Base of heads that release one function of sums, once."""

    @abstractmethod
    def vector(self, task: Task, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the statistic of sums."""

    def statistic(self, task: Task, records: HeadInput) -> NDArray[np.float64]:
        return self.vector(task, self.sums(records, None))

    def scan(self, task: Task, random: SecureRandom) -> SumSteps:
        return self.add_noise(task, self.vector(task, (yield None)), random)
