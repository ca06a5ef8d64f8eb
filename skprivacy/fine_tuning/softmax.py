"""Softmax regression with output perturbation: the head of the ALM paper, with a proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space

from .._validation import positive
from ..linear_model._logistic import LogisticLoss, minimize
from ..linear_model.objective import TOLERANCE
from .head import HeadInput, OneRelease, Task
from .release import Sensitivity, least_noise_mechanism, noise_std

__all__ = ["SoftmaxHead"]

_RIDGE = 6.0  # ratio of the ridge to the noise of a weight at sensitivity sqrt(2) and ridge 1
_LEAST_RIDGE = 0.1


@dataclass(frozen=True)
class SoftmaxHead(OneRelease):
    """Softmax regression whose weights get noise once, after training.

    Parameters
    ----------
    ridge : float, default=None
        Strength of the L2 penalty, ``ridge / 2 * norm**2`` added to the sum of the losses. ``None``
        sets it to 6 times the noise that a weight would have at ridge 1. The noise of the weights
        is then about 1 / 6, whatever the number of records.

    Notes
    -----
    **Guarantees.** The loss of a record of norm 1 has a gradient of norm at most sqrt(2), or 1 for
    two classes, and the penalty makes the sum strongly convex. A record therefore moves the exact
    minimiser by at most Lipschitz / ridge in L2. The computed minimiser, whose gradient has norm at
    most tau = 1e-6, is within tau / ridge of the exact one, so the sensitivity is
    (Lipschitz + 2 tau) / ridge. The mean of the losses of a group's records is convex and has the
    same Lipschitz constant. Weights that are equal for all classes have no effect. Only the
    n_classes - 1 contrasts between classes are released, in an orthonormal basis: the L2
    sensitivity is the same, and fewer numbers need noise. A given sensitivity is used as it is.

    References
    ----------
    K. Chaudhuri, C. Monteleoni and A. Sarwate, "Differentially private empirical risk
    minimization", JMLR 12, 2011.
    """

    ridge: float | None = None

    def __post_init__(self) -> None:
        if self.ridge is not None:
            positive("ridge", self.ridge)

    def ready(self, task: Task) -> SoftmaxHead:
        if self.ridge is not None:
            return self
        unit = Sensitivity(_lipschitz(task.n_classes))
        noise = least_noise_mechanism(
            task.mechanism, task.epsilon, task.delta, unit, self.length(task)
        )
        return replace(self, ridge=max(_RIDGE * noise_std(noise, self.length(task)), _LEAST_RIDGE))

    def length(self, task: Task) -> int:
        return task.size * (task.n_classes - 1)

    def sensitivity(self, task: Task) -> Sensitivity:
        if task.sensitivity is not None:
            return task.sensitivity
        # Chaudhuri et al. 2011, output perturbation: the minimiser moves by Lipschitz / ridge
        moved = task.moved * _lipschitz(task.n_classes) + 2.0 * TOLERANCE
        return Sensitivity(moved / _ridge(self))

    def statistic(self, task: Task, records: HeadInput) -> NDArray[np.float64]:
        return self.flattened(task, minimize(self.loss(task, records), TOLERANCE))

    def loss(self, task: Task, records: HeadInput) -> LogisticLoss:
        """Return the loss that the weights minimise; with two classes it has one output.

        Parameters
        ----------
        task : Task
            Public facts.
        records : HeadInput
            Private records.

        Returns
        -------
        LogisticLoss
            The loss as a function of the weights.
        """
        outputs = 1 if task.n_classes == 2 else task.n_classes
        return LogisticLoss(
            records.weighted,
            records.targets[:, -outputs:],
            records.roots,
            _ridge(self),
            np.zeros((task.size, outputs)),
        )

    @property
    def distance(self) -> float:
        """Largest L2 distance of the computed minimiser from the exact one."""
        return TOLERANCE / _ridge(self)

    def flattened(self, task: Task, minimiser: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the statistic of a minimiser of the loss: its contrasts between classes.

        Parameters
        ----------
        task : Task
            Public facts.
        minimiser : ndarray of shape (size, n_outputs)
            Weights that minimise the loss.

        Returns
        -------
        ndarray of shape (length,)
            The flat statistic.
        """
        return np.asarray((minimiser @ _contrasts(task.n_classes)).ravel())

    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        contrasts = noisy.reshape(task.size, task.n_classes - 1)
        if task.n_classes == 2:  # the log-odds of the second class
            return contrasts * np.array([-0.5, 0.5])
        return contrasts @ _contrasts(task.n_classes).T


def _ridge(head: SoftmaxHead) -> float:
    assert head.ridge is not None, "the head is not ready"
    return head.ridge


def _lipschitz(n_classes: int) -> float:
    return 1.0 if n_classes == 2 else math.sqrt(2.0)


def _contrasts(n_classes: int) -> NDArray[np.float64]:
    """Return an orthonormal basis of contrasts between classes, (outputs, n_classes - 1)."""
    if n_classes == 2:
        return np.ones((1, 1))
    return np.asarray(null_space(np.ones((1, n_classes))))
