"""Private sums, means and variances of bounded columns, with exact sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..._docs import fill_docs
from ..._groups import SHARE_GRID, Groups
from ...accounting import PrivacyBudget
from ...mechanisms import Gaussian, Laplace
from ...mechanisms.base import GRID_BITS, check_bounds, quantize
from ...sums import SumTotal
from ...sums.batch_columns import read_numbers
from ...sums.sources import SumSource
from ...sums.sum_plan import Integers, SumPlan
from .release import (
    RELEASE_DOCS,
    Release,
    Statistic,
    check_release_target,
    open_columns,
    release_statistic,
)


@dataclass(frozen=True)
class MomentPlan(SumPlan):
    """Sums of columns z, scaled to [-1, 1], and of 2 z**2 - 1 if ``degree`` is 2.

    **Guarantees.** Each of the m records of a group adds 1 / m of its numbers, rounded towards 0,
    and the group adds 1 to the count. A group thus changes no sum by more than a record would.
    """

    features: tuple[str, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    middle: tuple[float, ...]  # z = (x - middle) / half
    half: tuple[float, ...]
    degree: int

    @property
    def record_columns(self) -> tuple[str, ...]:
        return self.features

    def column_kinds(self) -> dict[str, str]:
        return dict.fromkeys(self.features, "number")

    @property
    def n_sums(self) -> int:
        return self.degree * len(self.features)

    def facts(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in MomentPlan.__match_args__}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        return (read_numbers(batch, self.features),)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        powers = [self._unit(records[0].reshape(-1, len(self.features)))]
        if self.degree == 2:
            powers.append(_double_squares(powers[0]))
        if sizes is None:  # multiples of the step, whose sums are exact
            sums = [numbers.sum(axis=1) / self._step for numbers in powers]
        else:
            steps = Groups.exact_shares_of(sizes) / self._step
            sums = [np.trunc(numbers * steps).sum(axis=1) for numbers in powers]
        return np.concatenate(sums).astype(np.int64)

    def _unit(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the columns, of shape (n_columns, n), scaled to [-1, 1] on a grid."""
        lower, upper, middle, half = (
            np.asarray(bound)[:, None] for bound in (self.lower, self.upper, self.middle, self.half)
        )
        columns = np.array(rows.T, order="C")  # long loops, with one bound each, are fast
        if (missing := np.isnan(columns)).any():
            np.copyto(columns, (upper + lower) / 2, where=missing)
        np.clip(columns, lower, upper, out=columns)
        columns -= middle
        columns /= np.where(half > 0, half, 1.0)
        return quantize(np.clip(columns, -1.0, 1.0, out=columns), out=columns)

    @property
    def _step(self) -> float:
        """Grid of the summed numbers."""
        return 2.0**-GRID_BITS if self.unit == "record" else SHARE_GRID

    def sums(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private sums as numbers."""
        return total._read_sums() * self._step


def _double_squares(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 2 z**2 - 1 on the grid."""
    doubled = np.square(z)
    doubled *= 2.0
    doubled -= 1.0
    return quantize(doubled, out=doubled)


class BoundedColumns:
    """Columns within public bounds, whose moments are released together."""

    def __init__(self, source: SumSource, features: tuple[str, ...], bounds: Any) -> None:
        self.is_flat = source.rows.ndim == 1
        self.features, self.unit, self.d = features, source.unit, len(features)
        self.lower, self.upper = check_bounds("bounds", bounds, self.d)
        self.half = (self.upper - self.lower) / 2
        self.middle = (self.upper + self.lower) / 2

    def _plan(self, degree: int, middle: NDArray[Any], half: NDArray[Any]) -> MomentPlan:
        return MomentPlan(
            features=self.features,
            lower=tuple(self.lower.tolist()),
            upper=tuple(self.upper.tolist()),
            middle=tuple(middle.tolist()),
            half=tuple(half.tolist()),
            degree=degree,
            unit=self.unit,
        )

    def moments(
        self, degree: int, relation: str, value: Callable[[NDArray[np.float64]], Any]
    ) -> Statistic:
        """Return ``value`` of the mean of z and, if ``degree`` is 2, of the mean of 2 z**2 - 1.

        Both lie in [-1, 1]; z = 1 attains both bounds, so the sensitivities are tight.
        """
        plan = self._plan(degree, self.middle, self.half)
        counts = relation == "add_remove"

        def vector(total: SumTotal) -> NDArray[np.float64]:
            return np.concatenate([plan.sums(total), [float(total.n_units)] if counts else []])

        def read_moments(
            noisy: NDArray[np.float64], mechanism: Laplace | Gaussian, n_units: int
        ) -> Any:
            count = max(1.0, noisy[-1], mechanism.std) if counts else n_units
            means = np.clip(noisy[: degree * self.d] / count, -1.0, 1.0)
            return value(means.reshape(degree, self.d))

        size = float(degree * self.d + counts)
        factor = 2.0 if relation == "replace_one" else 1.0
        return Statistic(plan, factor * size, factor * math.sqrt(size), vector, read_moments)

    def total(self, relation: str) -> Statistic:
        """Return the sum of each column; with groups, the sum of group means.

        Adding or removing a record changes the sum by its value; replacing a record changes it by
        at most the width of the bounds. Columns are scaled so that the largest change is 1 or 2,
        respectively.
        """
        replaces = relation == "replace_one"
        middle, half = np.zeros(self.d), np.maximum(np.abs(self.lower), np.abs(self.upper))
        if replaces:
            middle, half = self.middle, self.half
        plan = self._plan(1, middle, half)

        def read_total(noisy: NDArray[np.float64], _: Any, n_units: int) -> Any:
            return self._shaped((middle * n_units if replaces else 0.0) + half * noisy)

        factor = 2.0 if replaces else 1.0
        return Statistic(plan, factor * self.d, factor * math.sqrt(self.d), plan.sums, read_total)

    def mean(self, relation: str) -> Statistic:
        return self.moments(1, relation, lambda found: self._shaped(self.means(found)))

    def variance(self, relation: str) -> Statistic:
        return self.moments(2, relation, lambda found: self._shaped(self.variances(found)))

    def means(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.middle + self.half * moments[0]

    def variances(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.half**2 * np.clip((moments[1] + 1.0) / 2.0 - moments[0] ** 2, 0.0, 1.0)

    def _shaped(self, values: NDArray[np.float64]) -> Any:
        return float(values[0]) if self.is_flat else values


def _release_moments(
    name: str,
    statistic_of: Callable[[BoundedColumns, str], Statistic],
    X: Any,
    bounds: Any,
    groups: Any,
    **params: Any,
) -> Release:
    """Release a statistic of bounded columns."""
    check_release_target(params["epsilon"], params["delta"], params["relation"])
    source, names = open_columns(X, groups)
    statistic = statistic_of(BoundedColumns(source, names, bounds), params["relation"])
    return release_statistic(statistic, source, name, **params)


@fill_docs(RELEASE_DOCS)
def private_sum(
    X: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private sum of each column.

    Parameters
    ----------
    %(moment_columns)s
    %(release_epsilon)s
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. The noise is proportional to the largest magnitude within the
        bounds; under "replace_one", to their width.
    groups : array-like of shape (n_samples,), default=None
        Group of each record. The guarantee then protects all records of a group together, and the
        result is the sum of group means. To sum all records, pass the total of each group and the
        bounds of a total.
    %(release_budget)s

    Returns
    -------
    Release
        ``value`` of shape () or (n_features,), and ``privacy``.

    Notes
    -----
    %(moment_guarantee)s

    Examples
    --------
    >>> from skprivacy.preprocessing import private_sum
    >>> stays = [2, 5, 11] * 1000
    >>> days, privacy = private_sum(stays, bounds=(0, 30), epsilon=1.0)
    >>> 17_400 < days < 18_600
    True
    """
    return _release_moments(
        "private_sum", BoundedColumns.total, X, bounds, groups, epsilon=epsilon, delta=delta,
        relation=relation, budget=budget, noise_seed=noise_seed,
    )  # fmt: skip


@fill_docs(RELEASE_DOCS)
def private_mean(
    X: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private mean of each column.

    Parameters
    ----------
    %(moment_columns)s
    %(release_epsilon)s
    %(mean_relation)s
    %(release_groups)s
    %(release_budget)s

    Returns
    -------
    Release
        ``value`` of shape () or (n_features,), within the bounds, and ``privacy``.

    Notes
    -----
    %(moment_guarantee)s

    **Edge cases.** If the noise exceeds the number of records, the result is noise around the
    middle of the bounds.

    Examples
    --------
    >>> from skprivacy.preprocessing import private_mean
    >>> ages = [25, 52, 38] * 1000
    >>> mean, privacy = private_mean(ages, bounds=(0, 120), epsilon=1.0)
    >>> 30 < mean < 46
    True
    >>> privacy
    1.00-DP, add-remove, exact noise, proved
    """
    return _release_moments(
        "private_mean", BoundedColumns.mean, X, bounds, groups, epsilon=epsilon, delta=delta,
        relation=relation, budget=budget, noise_seed=noise_seed,
    )  # fmt: skip


@fill_docs(RELEASE_DOCS)
def private_variance(
    X: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private (population) variance of each column.

    Parameters
    ----------
    %(moment_columns)s
    %(release_epsilon)s
    %(mean_relation)s
    %(release_groups)s
    %(release_budget)s

    Returns
    -------
    Release
        ``value`` of shape () or (n_features,), between 0 and a quarter of the squared width of
        the bounds, and ``privacy``.

    Examples
    --------
    >>> from skprivacy.preprocessing import private_variance
    >>> ages = [25, 52, 38] * 1000
    >>> variance, privacy = private_variance(ages, bounds=(0, 120), epsilon=1.0)
    >>> 50 < variance < 250
    True
    """
    return _release_moments(
        "private_variance", BoundedColumns.variance, X, bounds, groups, epsilon=epsilon,
        delta=delta, relation=relation, budget=budget, noise_seed=noise_seed,
    )  # fmt: skip
