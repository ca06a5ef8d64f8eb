"""Private prototypes: the noisy mean direction of each class (Wahdany et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.bounds import exact_product
from .head import HeadInput, OneRelease, Task
from .release import Sensitivity
from .whitening import FEATURE_NORM

__all__ = ["PrototypeHead"]

_SHARPNESS = 10.0  # logit, in nats, of a cosine of 1


@dataclass(frozen=True)
class PrototypeHead(OneRelease):
    """Nearest class by angle: the noisy sum of each class's features is its prototype.

    It is the most accurate head where noise is large: a small epsilon, a pure guarantee, or few
    records.

    Notes
    -----
    **Guarantees.** A record adds its features, which have norm .944 in a row of the unit ball, to
    the sum of its class only. The L2 sensitivity is this norm, or twice this norm if the record is
    replaced. The constant is not used. The sums are exact.

    References
    ----------
    P. Wahdany, M. Jagielski, A. Dziedzic and F. Boenisch, "Differentially private prototypes for
    imbalanced transfer learning", AAAI 2025.
    """

    def length(self, task: Task) -> int:
        return (task.size - 1) * task.n_classes

    def sensitivity(self, task: Task) -> Sensitivity:
        return Sensitivity(task.moved * FEATURE_NORM)

    def statistic(self, task: Task, records: HeadInput) -> NDArray[np.float64]:
        return exact_product(records.weighted[:, :-1], records.indicators).ravel()

    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = noisy.reshape(task.size - 1, task.n_classes)
        norms = np.linalg.norm(sums, axis=0)
        directions = _SHARPNESS * sums / np.where(norms > 0, norms, 1.0)
        return np.vstack([directions, np.zeros(task.n_classes)])
