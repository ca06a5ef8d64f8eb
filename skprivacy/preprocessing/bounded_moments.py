"""Moments of bounded columns with exact sums, and calibrated additive noise for their release."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._groups import check_order, resolve_groups
from .._input_data import check_array, check_cells, check_numbers, holds_collections
from .._validation import as_array, check_unmasked, is_number
from ..accounting import PrivacyGuarantee
from ..mechanisms import Gaussian, Laplace, SecureRandom, analytic_noise_multiplier
from ..mechanisms.bounds import check_bounds, exact_product, quantize, row_slices

__all__ = [
    "RELATIONS",
    "RELEASE_DOCS",
    "BoundedColumns",
    "Release",
    "calibrate_additive",
    "check_one_column",
    "check_release_target",
]

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
    "moment_columns": """\
X : array-like of shape (n_samples,) or (n_samples, n_features)
    Private values. NaN counts as the middle of the bounds; infinity is clipped.
bounds : tuple (lower, upper)
    Public bounds: two numbers, or two sequences of length n_features. With two features, two
    numbers per feature are told apart by passing two arrays.""",
}


_SHARE_GRID = 2.0**-24  # sums of up to 2**29 groups are exact


def check_one_column(x: ArrayLike) -> NDArray:
    """Return a dense column of real values."""
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


class BoundedColumns:
    """Columns scaled to [-1, 1], whose moments are released together.

    Notes
    -----
    **Guarantees.** Each of the m records of a group adds 1 / m of its numbers, rounded towards 0,
    and the group adds 1 to the count. A group thus changes no sum by more than a record would.
    """

    def __init__(self, X: ArrayLike, bounds: Any, groups: Any = None) -> None:
        check_numbers(X)
        check_order(groups, X)
        given: Any = X if sparse.issparse(X) else np.asarray(X)  # sparse is refused below
        self.flat = given.ndim == 1
        rows = np.asarray(check_array(
            given[:, None] if self.flat else given, dtype=np.float64, ensure_all_finite=False,
            input_name="X",
        ))  # fmt: skip
        who = resolve_groups(groups, rows)
        self.n, self.unit, self.d = who.n, who.unit, rows.shape[1]
        self._shares = None if groups is None else who.exact_shares()
        self.lower, self.upper = check_bounds("bounds", bounds, self.d)
        self.half = (self.upper - self.lower) / 2
        self.middle = (self.upper + self.lower) / 2
        self._rows = rows

    def _unit(self, middle: Any, half: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
        """Yield slices of the columns, scaled to [-1, 1] on a grid on which sums are exact."""
        for part in row_slices(len(self._rows)):
            rows = self._rows[part]
            clipped = np.where(np.isnan(rows), self.middle, np.clip(rows, self.lower, self.upper))
            scaled = (clipped - middle) / np.where(half > 0, half, 1.0)
            yield quantize(np.clip(scaled, -1.0, 1.0))

    def mechanism(
        self, degree: int, epsilon: float, delta: float, relation: str
    ) -> Laplace | Gaussian:
        """Return the mechanism that :meth:`release` needs to spend (epsilon, delta)."""
        size = float(degree * self.d + (relation == "add_remove"))
        factor = 2.0 if relation == "replace_one" else 1.0
        return calibrate_additive(epsilon, delta, factor * size, factor * math.sqrt(size))

    def release(
        self, degree: int, mechanism: Laplace | Gaussian, relation: str, random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the mean of z, and that of 2 z**2 - 1 if ``degree`` is 2: (degree, n_features).

        Both lie in [-1, 1]; z = 1 attains both bounds, so the sensitivities are tight.
        """
        sums = np.zeros((degree, self.d))
        for part, z in zip(
            row_slices(len(self._rows)), self._unit(self.middle, self.half), strict=True
        ):
            for total, powers in zip(sums, (z, quantize(2.0 * z**2 - 1.0)), strict=False):
                total += self._sums(powers, part)
        counted = [float(self.n)] if relation == "add_remove" else []
        noisy = mechanism.release(np.concatenate([sums.ravel(), counted]), random)
        count = self.n if relation != "add_remove" else max(1.0, noisy[-1], mechanism.std)
        means = np.clip(noisy[: degree * self.d] / count, -1.0, 1.0)
        return means.reshape(degree, self.d)

    def sums_mechanism(self, epsilon: float, delta: float, relation: str) -> Laplace | Gaussian:
        """Return the mechanism that :meth:`sums` needs to spend (epsilon, delta)."""
        factor = 2.0 if relation == "replace_one" else 1.0
        return calibrate_additive(epsilon, delta, factor * self.d, factor * math.sqrt(self.d))

    def sums(
        self, mechanism: Laplace | Gaussian, relation: str, random: SecureRandom
    ) -> NDArray[np.float64]:
        """Return the noisy sum of each column, (n_features,); with groups, the sum of group means.

        Adding or removing a record changes the sum by its value; replacing a record changes it by
        at most the width of the bounds. Columns are scaled so that the largest change is 1 or 2,
        respectively.
        """
        middle, half = np.zeros(self.d), np.maximum(np.abs(self.lower), np.abs(self.upper))
        if relation == "replace_one":
            middle, half = self.middle, self.half
        sums = np.zeros(self.d)
        for part, z in zip(row_slices(len(self._rows)), self._unit(middle, half), strict=True):
            sums += self._sums(z, part)
        noisy = mechanism.release(sums, random)
        return (middle * self.n if relation == "replace_one" else 0.0) + half * noisy

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

    def shaped(self, values: NDArray[np.float64]) -> Any:
        return float(values[0]) if self.flat else values


RELATIONS = ("add_remove", "zero_out", "replace_one")


class Release(NamedTuple):
    """A private number or array of numbers, and its guarantee."""

    value: Any
    privacy: PrivacyGuarantee


def calibrate_additive(epsilon: float, delta: float, l1: float, l2: float) -> Laplace | Gaussian:
    """Return the mechanism that spends (epsilon, delta) on sums of the given sensitivities.

    **Edge cases.** If epsilon is infinite, there is no noise and no guarantee.
    """
    if math.isinf(epsilon):
        return Laplace(0.0, l1) if delta == 0 else Gaussian(0.0, l2)
    if delta == 0:
        return Laplace.calibrated(float(epsilon), l1)
    return Gaussian(analytic_noise_multiplier(float(epsilon), float(delta)), l2)


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
