"""Release of statistics: one charge, exact sums of the private values, one noisy vector.

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

from ..._groups import check_order
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
from ...mechanisms import Exponential, Gaussian, Laplace, Mechanism, SecureRandom
from ...sums import SumTotal
from ...sums.sources import ArraySource, SumRelease, SumSource, TableSource, is_table, open_table
from ...sums.sum_estimator import check_table_names
from ...sums.sum_plan import SumPlan

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
