"""What every head has in common: public facts in, released weights out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._groups import Groups
from .._validation import PlainNumbers
from ..accounting import Event
from ..accounting.noise_arithmetic import UNSPECIFIED
from ..mechanisms import Mechanism, SecureRandom
from ..mechanisms.bounds import quantize
from .release import Sensitivity, least_noise_mechanism

__all__ = ["Head", "HeadInput", "OneRelease", "Task"]


@dataclass(frozen=True)
class Task:
    """The public facts that a head may be chosen by."""

    size: int
    n_classes: int
    epsilon: float
    delta: float
    relation: str
    n_records: int
    mechanism: str = "auto"
    sensitivity: Sensitivity | None = None
    noise_seed: int | None = None

    @property
    def moved(self) -> float:
        """How many records' worth of a sum a neighbour moves at most."""
        return 2.0 if self.relation == "replace_one" else 1.0


@dataclass(frozen=True)
class HeadInput:
    """Private records as a head sees them.

    **Guarantees.** Shares of a group add up to 1 at most. A product of ``weighted`` rows with each
    other or with ``indicators`` is, of a record, its share or less of one that a row in the unit
    ball might have: a group adds a convex combination of what single records, and none at all, may
    add. It lies in each ball in which they do, and so does the difference of two groups wherever
    that of two records does.
    """

    rows: NDArray[np.float64]
    counts: NDArray[np.float64]
    labels: NDArray[np.int64]
    n_classes: int
    groups: Groups | None = None

    @property
    def targets(self) -> NDArray[np.float64]:
        """Return 1 in the column of each record's class, shape (n_samples, n_classes)."""
        return np.equal.outer(self.labels, np.arange(self.n_classes)).astype(np.float64)

    @property
    def roots(self) -> NDArray[np.float64]:
        """Return the roots of the counts, rounded down to the grid of the rows."""
        return quantize(np.sqrt(self.counts))

    @property
    def indicators(self) -> NDArray[np.float64]:
        """Return the targets, each times its root."""
        return self.targets * self.roots[:, None]

    @property
    def weighted(self) -> NDArray[np.float64]:
        """Return the rows, each times its root, on their grid."""
        if ((self.counts == 0) | (self.counts == 1)).all():  # those of 0 are 0
            return self.rows
        return quantize(self.rows * self.roots[:, None])


class Head(PlainNumbers, ABC):
    """A way to learn a private classifier of features of norm 1: small, frozen, without data.

    Each kind has its own proof. All that it computes from records passes through
    :meth:`~skprivacy.mechanisms.Mechanism.release`.
    """

    def ready(self, task: Task) -> Head:
        """Return the head with all its numbers set, from public facts alone.

        Parameters
        ----------
        task : Task
            Public facts.

        Returns
        -------
        Head
            Of the same kind.
        """
        return self

    @abstractmethod
    def event(self, task: Task) -> Event:
        """Return what :meth:`release` releases.

        Parameters
        ----------
        task : Task
            Public facts.

        Returns
        -------
        Event
            Of one release.

        Raises
        ------
        ValueError
            If the head does not fit the task.
        """

    def arithmetic(self, task: Task) -> str:
        """Return the arithmetic of the noise of :meth:`release`.

        Parameters
        ----------
        task : Task
            Public facts.

        Returns
        -------
        {"exact", "floating_point", "unspecified"}
            "unspecified" unless the head states it.
        """
        return UNSPECIFIED

    @abstractmethod
    def release(self, task: Task, records: HeadInput, random: SecureRandom) -> Any:
        """Return released weights, of shape (size, n_classes), or what :meth:`scores` takes.

        Parameters
        ----------
        task : Task
            Public facts.
        records : Records
            Private.
        random : SecureRandom
            The source of all noise.

        Returns
        -------
        ndarray of shape (size, n_classes)
            Or another form that :meth:`scores` takes.
        """

    def scores(self, rows: NDArray[np.float64], weights: Any) -> NDArray[np.float64]:
        """Return scores of rows, whose softmax are probabilities.

        Parameters
        ----------
        rows : ndarray of shape (n_samples, size)
            In the unit ball.
        weights : ndarray of shape (size, n_classes)
            What :meth:`release` returned.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            The scores.
        """
        return np.asarray(rows @ weights)


class OneRelease(Head):
    """A head that noises one vector, from which the weights follow.

    The vector itself depends on no noise, so that one training serves many budgets.
    """

    @abstractmethod
    def sensitivity(self, task: Task) -> Sensitivity:
        """Return how far neighbours move the statistic."""

    @abstractmethod
    def length(self, task: Task) -> int:
        """Return how many numbers the statistic has."""

    @abstractmethod
    def statistic(self, task: Task, records: HeadInput) -> NDArray[np.float64]:
        """Return what is computed from the records: a flat private vector."""

    @abstractmethod
    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights that a noisy statistic gives."""

    def mechanism(self, task: Task) -> Mechanism:
        """Return the mechanism that the statistic passes through.

        Parameters
        ----------
        task : Task
            Public facts.

        Returns
        -------
        Mechanism
            With the sensitivity of the statistic.
        """
        return least_noise_mechanism(
            task.mechanism, task.epsilon, task.delta, self.sensitivity(task), self.length(task)
        )

    def event(self, task: Task) -> Event:
        return self.mechanism(task).event

    def arithmetic(self, task: Task) -> str:
        return self.mechanism(task).arithmetic

    def release(self, task: Task, records: HeadInput, random: SecureRandom) -> NDArray[np.float64]:
        return self.noised(task, self.statistic(task, records), random)

    def noised(
        self, task: Task, statistic: NDArray[np.float64], random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the weights that the statistic gives with fresh noise.

        Parameters
        ----------
        task : Task
            Public facts.
        statistic : ndarray of shape (length,)
            Private; it is not changed.
        random : SecureRandom
            The source of all noise.

        Returns
        -------
        ndarray of shape (size, n_classes)
            The weights.
        """
        noisy = self.mechanism(task).release(statistic.copy(), random)
        return self.weights(task, noisy)
