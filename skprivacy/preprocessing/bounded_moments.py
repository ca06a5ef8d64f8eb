"""Statistics and their release; moments of bounded columns, with exact sums.

A :class:`Statistic` holds its sensitivities, so that no release can be calibrated for another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._groups import Groups, check_order, resolve_groups
from .._input_data import check_array, check_cells, check_numbers, holds_collections
from .._validation import as_array, check_unmasked, is_number
from ..accounting import PrivacyBudget, PrivacyGuarantee
from ..accounting.calibration import analytic_noise_multiplier
from ..base import private_release
from ..mechanisms import Exponential, Gaussian, Laplace, Mechanism, SecureRandom
from ..mechanisms.bounds import check_bounds, exact_product, quantize, row_slices

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
groups : array-like of shape (n_samples,), default=None
    Group of each record. The guarantee then protects all records of a group together. Each of the m
    records of a group counts 1 / m.""",
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
X : array-like of shape (n_samples,) or (n_samples, n_features)
    Private values. NaN counts as the middle of the bounds; infinity is clipped.
bounds : tuple (lower, upper)
    Public bounds: two numbers, or two sequences of length n_features. With two
    features, pass two arrays for bounds per feature.""",
}


RELATIONS = ("add_remove", "zero_out", "replace_one")
_SHARE_GRID = 2.0**-24  # sums of up to 2**29 groups are exact


class Release(NamedTuple):
    """A private number or array of numbers, and its guarantee."""

    value: Any
    privacy: PrivacyGuarantee


@dataclass(frozen=True)
class Statistic:
    """Sums and how their noisy version is read; the sensitivities are of one group.

    If ``selects``, it holds scores of public candidates, of which one is released.
    """

    unit: str
    l1: float
    l2: float
    compute: Callable[[], NDArray[np.float64]]
    read: Callable[[Any, Any], Any]  # arguments: the noisy sums, and the mechanism
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

    def release(self, mechanism: Mechanism, random: SecureRandom) -> Any:
        """Return the value that is read from a noisy version of the vector."""
        return self.read(mechanism.release(self.compute(), random), mechanism)


def release_statistic(
    statistic: Statistic,
    source: str,
    *,
    epsilon: float,
    relation: str,
    budget: PrivacyBudget | None,
    noise_seed: int | None,
    delta: float = 0.0,
    assumptions: tuple[str, ...] = (),
) -> Release:
    """Charge the budget, compute the statistic and release it, once."""
    mechanism = statistic.mechanism(epsilon, delta)
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, source=source, budget=budget,
        noise_seed=noise_seed, assumptions=assumptions, unit=statistic.unit,
        arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        value = statistic.release(mechanism, SecureRandom(noise_seed))
    return Release(value, privacy)


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


def read_column(
    x: ArrayLike, groups: ArrayLike | None, numeric: bool = False
) -> tuple[NDArray[Any], NDArray[np.float64], str]:
    """Return the values of one column that are not missing, their shares of a group, the unit."""
    if numeric:
        check_numbers(x, "x")
    check_order(groups, x)
    values = _check_one_column(x)
    if numeric:
        values = values.astype(np.float64)
    who = resolve_groups(groups, values)
    known = ~pd.isna(values)
    return values[known], who.exact_shares()[known], who.unit


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


def read_columns(X: ArrayLike, bounds: Any, groups: ArrayLike | None) -> BoundedColumns:
    """Return one column, or several, that are checked and converted here."""
    who = resolve_groups(groups, X)
    rows = check_array(X, dtype=np.float64, ensure_all_finite=False, ensure_2d=False)
    return BoundedColumns(rows, bounds, who)


class BoundedColumns:
    """Columns scaled to [-1, 1], whose moments are released together.

    **Guarantees.** Each of the m records of a group adds 1 / m of its numbers, rounded towards 0,
    and the group adds 1 to the count. A group thus changes no sum by more than a record would.
    """

    def __init__(self, rows: NDArray[np.float64], bounds: Any, who: Groups) -> None:
        self.is_flat = rows.ndim == 1
        self._rows = rows[:, None] if self.is_flat else rows
        self.n, self.unit, self.d = who.n, who.unit, self._rows.shape[1]
        self._shares = None if who.unit == "record" else who.exact_shares()
        self.lower, self.upper = check_bounds("bounds", bounds, self.d)
        self.half = (self.upper - self.lower) / 2
        self.middle = (self.upper + self.lower) / 2

    def _unit(self, middle: Any, half: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """Yield slices of the columns, scaled to [-1, 1] on a grid on which sums are exact."""
        for part in row_slices(len(self._rows)):
            rows = self._rows[part]
            clipped = np.where(np.isnan(rows), self.middle, np.clip(rows, self.lower, self.upper))
            scaled = (clipped - middle) / np.where(half > 0, half, 1.0)
            yield quantize(np.clip(scaled, -1.0, 1.0))

    def moments(
        self, degree: int, relation: str, value: Callable[[NDArray[np.float64]], Any]
    ) -> Statistic:
        """Return ``value`` of the mean of z and, if ``degree`` is 2, of the mean of 2 z**2 - 1.

        Both lie in [-1, 1]; z = 1 attains both bounds, so the sensitivities are tight.
        """
        counted = [float(self.n)] if relation == "add_remove" else []

        def compute() -> NDArray[np.float64]:
            sums = np.zeros((degree, self.d))
            for part, z in zip(
                row_slices(len(self._rows)), self._unit(self.middle, self.half), strict=True
            ):
                for total, powers in zip(sums, (z, quantize(2.0 * z**2 - 1.0)), strict=False):
                    total += self._sums(powers, part)
            return np.concatenate([sums.ravel(), counted])

        def read_moments(noisy: NDArray[np.float64], mechanism: Laplace | Gaussian) -> Any:
            count = max(1.0, noisy[-1], mechanism.std) if counted else self.n
            means = np.clip(noisy[: degree * self.d] / count, -1.0, 1.0)
            return value(means.reshape(degree, self.d))

        size = float(degree * self.d + len(counted))
        factor = 2.0 if relation == "replace_one" else 1.0
        return Statistic(self.unit, factor * size, factor * math.sqrt(size), compute, read_moments)

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

        def compute() -> NDArray[np.float64]:
            sums = np.zeros(self.d)
            for part, z in zip(row_slices(len(self._rows)), self._unit(middle, half), strict=True):
                sums += self._sums(z, part)
            return sums

        def read_total(noisy: NDArray[np.float64], _: Any) -> Any:
            return self._shaped((middle * self.n if replaces else 0.0) + half * noisy)

        factor = 2.0 if replaces else 1.0
        return Statistic(
            self.unit, factor * self.d, factor * math.sqrt(self.d), compute, read_total
        )

    def mean(self, relation: str) -> Statistic:
        return self.moments(1, relation, lambda found: self._shaped(self.means(found)))

    def variance(self, relation: str) -> Statistic:
        return self.moments(2, relation, lambda found: self._shaped(self.variances(found)))

    def _sums(self, numbers: NDArray[np.float64], part: slice) -> NDArray[np.float64]:
        """Return the exact sums over some records of numbers on the grid."""
        if self._shares is not None:
            shared = numbers * self._shares[part, None]
            return (np.trunc(shared / _SHARE_GRID) * _SHARE_GRID).sum(axis=0)
        return exact_product(numbers, np.ones((len(numbers), 1)))[:, 0]

    def means(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.middle + self.half * moments[0]

    def variances(self, moments: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.half**2 * np.clip((moments[1] + 1.0) / 2.0 - moments[0] ** 2, 0.0, 1.0)

    def _shaped(self, values: NDArray[np.float64]) -> Any:
        return float(values[0]) if self.is_flat else values
