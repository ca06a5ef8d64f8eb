"""Statistics and their release; moments of bounded columns, with exact sums.

A :class:`Statistic` holds its sensitivities, so that no release can be calibrated for another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..._groups import SHARE_GRID, Groups, check_order
from ..._input_data import (
    check_array,
    check_cells,
    check_numbers,
    holds_collections,
    resolve_groups,
)
from ..._validation import as_array, check_unmasked, is_number
from ...accounting import PrivacyBudget, PrivacyGuarantee
from ...accounting.calibration import analytic_noise_multiplier
from ...base import private_release
from ...mechanisms import (
    Exponential,
    Gaussian,
    Laplace,
    Mechanism,
    SecureRandom,
)
from ...mechanisms.bounds import GRID_BITS, check_bounds, quantize
from ...sums import SumTotal
from ...sums.batch_columns import read_numbers
from ...sums.sources import ArraySource, SumRelease, SumSource, TableSource, is_table, open_table
from ...sums.sum_estimator import check_table_names
from ...sums.sum_plan import Integers, SumPlan

# Paragraphs of docstrings that the package shares, see skprivacy/_docs.py.
RELEASE_DOCS = {
    "release_epsilon": """\
epsilon : float
    Privacy loss, in nats, of all numbers together.
delta : float, default=0.0
    0 for Laplace noise, above 0 for Gaussian noise.""",
    "release_relation": """\
relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
    Neighbouring relation.""",
    "mean_relation": """\
relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
    Neighbouring relation. Under "add_remove" the number of records is private, and its release is
    part of the cost. Otherwise it is public.""",
    "release_groups": """\
groups : array-like of shape (n_samples,) or str, default=None
    Group of each record, or the column of a table that holds it. The guarantee then protects all
    records of a group together. Each of the m records of a group counts 1 / m.""",
    "release_budget": """\
budget : PrivacyBudget, default=None
    Budget that is charged before the data is read. A release that it cannot afford is refused.
noise_seed : int, default=None
    Makes the noise reproducible **and the guarantee void**. For tests only.""",
    "moment_guarantee": """\
**Guarantees.** (``epsilon``, ``delta``)-differential privacy of a row or, with ``groups``, of a
group. Values are scaled to [-1, 1]. Values and the shares of records in groups are rounded towards
0 to a grid on which sums are exact. The noise is exact.""",
    "moment_columns": """\
X : array-like of shape (n_samples,) or (n_samples, n_features), or table
    Private values. NaN counts as the middle of the bounds; infinity is clipped. A table in an
    engine is summed there: see :mod:`skprivacy.sums`.
bounds : tuple (lower, upper)
    Public bounds: two numbers, or two sequences of length n_features. With two
    features, pass two arrays for bounds per feature.""",
}


RELATIONS = ("add_remove", "zero_out", "replace_one")


class Release(NamedTuple):
    """A private number or array of numbers, and its guarantee."""

    value: Any
    privacy: PrivacyGuarantee


@dataclass(frozen=True)
class Statistic:
    """Sums and how their noisy version is read; the sensitivities are of one unit.

    If ``selects``, the vector holds scores of public candidates, of which one is released.
    """

    plan: SumPlan
    l1: float
    l2: float
    vector: Callable[[SumTotal], NDArray[np.float64]]
    # arguments: the noisy vector, the mechanism, and the public number of units
    read: Callable[[Any, Any, int], Any]
    selects: bool = False

    def mechanism(self, epsilon: float, delta: float) -> Mechanism:
        """Return the mechanism that spends (epsilon, delta); without noise if epsilon is inf."""
        if self.selects:
            return Exponential(float(epsilon), self.l1)
        if math.isinf(epsilon):
            return Laplace(0.0, self.l1) if delta == 0 else Gaussian(0.0, self.l2)
        if delta == 0:
            return Laplace.calibrated(float(epsilon), self.l1)
        return Gaussian(analytic_noise_multiplier(float(epsilon), float(delta)), self.l2)

    def calibrated(self, epsilon: float, delta: float) -> SumRelease:
        """Return the release that spends (epsilon, delta)."""
        mechanism = self.mechanism(epsilon, delta)
        return SumRelease(
            self.plan, mechanism, self.vector, lambda noisy, n: self.read(noisy, mechanism, n)
        )


def release_statistic(
    statistic: Statistic,
    source: SumSource,
    name: str,
    *,
    epsilon: float,
    relation: str,
    budget: PrivacyBudget | None,
    noise_seed: int | None,
    delta: float = 0.0,
    assumptions: tuple[str, ...] = (),
) -> Release:
    """Charge the budget, compute the statistic and release it, once."""
    source.check(statistic.plan)
    n_units = 0 if relation == "add_remove" else source.n_units
    release = statistic.calibrated(epsilon, delta)
    with private_release(
        release.mechanism.event, relation=relation, at_delta=delta, source=name, budget=budget,
        noise_seed=noise_seed, assumptions=assumptions, unit=source.unit,
        arithmetic=release.mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        noisy = release.release(source, SecureRandom(noise_seed))
    return Release(release.read(noisy, n_units), privacy)


def check_release_target(epsilon: float, delta: float, relation: str) -> None:
    if not (is_number(epsilon) and 1e-6 <= epsilon < math.inf):
        raise ValueError(f"epsilon={epsilon!r} must be a finite number >= 1e-6, for example 1.0.")
    if not (is_number(delta) and 0 <= delta < 1):
        raise ValueError(f"delta={delta!r} must be a number in [0, 1); 0 means Laplace noise.")
    if not isinstance(relation, str) or relation not in RELATIONS:
        raise ValueError(
            f"relation={relation!r} must be one of {RELATIONS}. Statistics protect whole "
            "records, which 'label' does not."
        )


def open_column(x: Any, groups: Any, numeric: bool = False) -> tuple[SumSource, str]:
    """Return one column, in memory or of a table, and its name."""
    if is_table(x, groups):
        source, names = open_columns(x, groups)
        if len(names) != 1:
            raise ValueError(
                f"x has the columns {list(names)}; expected one, beside the groups. Release each "
                "column separately, at separate cost."
            )
        return source, names[0]
    if numeric:
        check_numbers(x, "x")
    check_order(groups, x)
    values = _check_one_column(x)
    if numeric:
        values = values.astype(np.float64)
    return ArraySource(values, None, resolve_groups(groups, values)), "x"


def _check_one_column(x: ArrayLike) -> NDArray[Any]:
    if sparse.issparse(x):
        raise TypeError("x is sparse; expected a dense column. Pass x.toarray().ravel().")
    check_unmasked(x, "x")
    values = as_array("x", x)
    if values.dtype.kind == "O" and holds_collections(values):
        raise ValueError("x holds sequences; expected one column, (n_samples,).")
    check_cells(values, "x")
    if values.ndim != 1:
        raise ValueError(
            f"x has shape {values.shape}; expected one column, (n_samples,): a record must "
            "not count several times. Release each column separately, at separate cost."
        )
    if values.dtype.kind == "c":
        raise ValueError(
            "x holds complex numbers; expected real ones. Pass real and imaginary part separately."
        )
    return values


def open_columns(X: Any, groups: Any) -> tuple[SumSource, tuple[str, ...]]:
    """Return columns of numbers, in memory or of a table, and their names."""
    if not is_table(X, groups):
        units = resolve_groups(groups, X)
        rows = check_array(X, dtype=np.float64, ensure_all_finite=False, ensure_2d=False)
        return ArraySource(rows, None, units), tuple(f"x{i}" for i in range(_width(rows)))
    table = open_table(X)
    names = check_table_names(table.names, None, groups)
    return TableSource(table, len(names), "", groups), tuple(names)


def _width(rows: NDArray[Any]) -> int:
    return 1 if rows.ndim == 1 else rows.shape[1]


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
