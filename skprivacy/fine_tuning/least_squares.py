"""Least-squares head from noisy sufficient statistics (after AdaSSP, Wang 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.bounds import exact_product
from .head import HeadInput, OneRelease, Task
from .release import Sensitivity, noise_std

__all__ = ["LeastSquaresHead"]

_BALANCE = math.sqrt(2.0)  # weight of the class sums relative to the second moments
_LEAST_FLOOR = 1e-3  # least eigenvalue of the second moments
_SHARPNESS = 10.0  # logit, in nats, of a fitted value of 1


@dataclass(frozen=True)
class LeastSquaresHead(OneRelease):
    """Least squares on one-hot labels, from noisy second moments and class sums.

    Eigenvalues of the second moments below the typical spectral norm of their noise are raised to
    it. A ridge would shrink all directions instead.

    Notes
    -----
    **Guarantees.** A record x of norm 1 adds x x' to the second moments and x to the sum of its
    class. Only the upper triangle of the symmetric second moments is released, with factor sqrt(2)
    off the diagonal, so that its L2 norm is the Frobenius norm of the matrix. The class sums have
    factor sqrt(2). Adding a record moves both, as one vector, by at most sqrt(1 + 2). If x is
    replaced by z, with c = <x, z> the squared distance is at most 2 - 2 c**2 + 2 (2 - 2 c). This is
    largest at c = -1, and the sensitivity is sqrt(8). One mechanism releases both. The sums are
    exact, and the solution uses only the released numbers and the size of the noise.

    References
    ----------
    Y.-X. Wang, "Revisiting differentially private linear regression: optimal and adaptive
    prediction and estimation in unbounded domain", UAI 2018.
    """

    def length(self, task: Task) -> int:
        return task.size * (task.size + 1) // 2 + task.size * task.n_classes

    def sensitivity(self, task: Task) -> Sensitivity:
        if task.relation == "replace_one":
            return Sensitivity(2.0 * _BALANCE)  # for a balance of sqrt(2) or more
        return Sensitivity(math.sqrt(1.0 + _BALANCE**2))

    def statistic(self, task: Task, records: HeadInput) -> NDArray[np.float64]:
        rows = records.weighted
        moments = exact_product(rows, rows)
        sums = exact_product(rows, records.indicators)
        upper = np.triu_indices(task.size)
        parts = [moments[upper] * _triangle_scales(upper), _BALANCE * sums.ravel()]
        return np.concatenate(parts)

    def weights(self, task: Task, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        p, upper = task.size, np.triu_indices(task.size)
        moments = np.zeros((p, p))
        moments[upper] = noisy[: len(upper[0])] / _triangle_scales(upper)
        moments += np.triu(moments, 1).T
        sums = noisy[len(upper[0]) :].reshape(p, task.n_classes) / _BALANCE
        # A symmetric matrix whose entries off the diagonal are independent with this standard
        # deviation over sqrt(2) has a spectral norm of about 2 std sqrt(p / 2).
        spread = noise_std(self.mechanism(task), len(noisy)) * math.sqrt(2.0 * p)
        sizes, directions = np.linalg.eigh(moments)
        sizes = np.maximum(sizes, max(spread, _LEAST_FLOOR))
        solution = directions @ ((directions.T @ sums) / sizes[:, None])
        return np.asarray(_SHARPNESS * solution, dtype=np.float64)


def _triangle_scales(upper: tuple[NDArray[np.intp], NDArray[np.intp]]) -> NDArray[np.float64]:
    return np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0))
