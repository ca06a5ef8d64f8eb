"""Private quantiles by the exponential mechanism: of a column, and of the sizes of groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..._docs import fill_docs
from ..._groups import check_groups
from ..._validation import is_number, is_whole, num_samples
from ...accounting import PrivacyBudget
from ...mechanisms.base import check_bounds
from ...sums import SumTotal
from ...sums.batch_columns import read_group_sizes
from ...sums.sources import TableSource, is_table, open_table
from ...sums.sum_estimator import check_table_names
from ...sums.sum_plan import GROUP_SIZE, Integers, SumPlan
from .counts import Candidates, CellPlan
from .release import (
    RELEASE_DOCS,
    Release,
    Statistic,
    check_release_target,
    open_column,
    release_statistic,
)

MAX_CANDIDATES = 10_000_000


@fill_docs(RELEASE_DOCS)
def private_quantile(
    x: ArrayLike,
    quantile: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    relation: str = "add_remove",
    n_candidates: int = 1024,
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private quantile of one column, by the exponential mechanism (Smith 2011).

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        NaN is ignored; infinity is clipped.
    quantile : float
        Quantile to release, in [0, 1]; 0.5 is the median.
    bounds : tuple (lower, upper)
        Public bounds; the result is one of ``n_candidates`` equally spaced numbers between them.
    epsilon : float
        Privacy loss, in nats.
    %(release_relation)s
    n_candidates : int, default=1024
        Number of candidates, from 2 to ten million.
    %(release_groups)s
    %(release_budget)s

    Returns
    -------
    Release
        ``value``, a number, and ``privacy``.

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` differential privacy. The score of r is
    -abs(#(x < r) - q #(x)). A record changes it by at most max(q, 1 - q), or by 1 if replaced. A
    group with weight a <= 1, of which b lies below r, changes the argument of abs by b - q a, which
    also lies between -q and 1 - q.

    References
    ----------
    A. Smith, "Privacy-preserving statistical estimation with optimal convergence rates",
    STOC 2011.

    Examples
    --------
    >>> from skprivacy.preprocessing import private_quantile
    >>> median, privacy = private_quantile(range(1001), 0.5, bounds=(0, 1000), epsilon=1.0)
    >>> 450 < median < 550
    True
    """
    _check_quantile(quantile)
    if not (is_whole(n_candidates) and 2 <= n_candidates <= MAX_CANDIDATES):
        raise ValueError(
            f"n_candidates={n_candidates!r} must be an integer from 2 to {MAX_CANDIDATES}, such "
            "as 1024."
        )
    check_release_target(epsilon, 0.0, relation)
    lower, upper = check_bounds("bounds", bounds, 1)
    candidates = np.linspace(lower[0], upper[0], int(n_candidates))
    source, name = open_column(x, groups, numeric=True)
    plan = CellPlan(
        name, Candidates(float(lower[0]), float(upper[0]), int(n_candidates)), unit=source.unit
    )

    statistic = _quantile_statistic(
        plan, plan.counts, quantile, relation, lambda chosen: float(candidates[chosen])
    )
    return release_statistic(
        statistic, source, "private_quantile", epsilon=epsilon, relation=relation, budget=budget,
        noise_seed=noise_seed,
    )  # fmt: skip


def _check_quantile(quantile: Any) -> None:
    if not (is_number(quantile) and 0 <= quantile <= 1):
        raise ValueError(f"quantile={quantile!r} must lie in [0, 1]; 0.5 is the median.")


def _quantile_statistic(
    plan: SumPlan,
    counts: Callable[[SumTotal], NDArray[np.float64]],
    quantile: float,
    relation: str,
    read: Callable[[int], Any],
) -> Statistic:
    """Return the choice of a candidate; cell i counts the values at or above i candidates."""

    def scores(total: SumTotal) -> NDArray[np.float64]:
        below = counts(total).cumsum()
        # Smith 2011: the utility of a candidate is minus its distance from rank q
        return -np.abs(below[:-1] - quantile * below[-1])

    changed = 1.0 if relation == "replace_one" else max(quantile, 1.0 - quantile)
    return Statistic(plan, changed, changed, scores, lambda chosen, *_: read(chosen), selects=True)


@dataclass(frozen=True)
class GroupSizePlan(SumPlan):
    """Number of rows in groups of 1, 2 ... ``max_size - 1`` rows.

    **Guarantees.** A group of m rows adds m to one of the sums at most, hence 1 to ``counts``.
    """

    _counts_cells = True

    max_size: int

    @property
    def record_columns(self) -> tuple[str, ...]:
        return ()

    def column_kinds(self) -> dict[str, str]:
        return {}

    @property
    def n_sums(self) -> int:
        return self.max_size - 1

    def facts(self) -> dict[str, Any]:
        return {"max_size": self.max_size}

    def _read_batch(self, batch: Any) -> tuple[NDArray[Any], ...]:
        return (read_group_sizes(batch, GROUP_SIZE),)

    def _sum_slice(self, sizes: Integers | None, *records: NDArray[Any]) -> Integers:
        rows = np.minimum(records[0], self.max_size)
        return np.bincount(rows, minlength=self.max_size + 1)[1 : self.max_size]

    def counts(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private number of groups of 0, 1 ... ``max_size`` rows or more, and a 0.

        Cell i is at or above i of the candidates 0.5, 1.5 ... ``max_size`` + 0.5.
        """
        exact = total._read_sums() / np.arange(1, self.max_size)
        return np.array([0.0, *exact, total.n_units - exact.sum(), 0.0])


@fill_docs(RELEASE_DOCS)
def private_group_size(
    groups: ArrayLike,
    *,
    max_group_size: int,
    epsilon: float,
    quantile: float = 0.9,
    relation: str = "add_remove",
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private ``quantile`` quantile of the number of records per group.

    Use it if the noise of a release grows with the number of records per group, such as for
    ``max_group_size`` of :func:`private_summary`. **It does not limit the records**: drop further
    records of a group before the release.

    Parameters
    ----------
    groups : array-like of shape (n_samples,), or table
        Group of each record. The name of a Series is the unit of the guarantee. Of a table, the
        only column.
    max_group_size : int
        Largest possible result, at least 2; a public guess of the largest group size.
    epsilon : float
        Privacy loss, in nats.
    quantile : float, default=0.9
        Share of the groups that keep all their records, in [0, 1].
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation, between groups.
    %(release_budget)s

    Returns
    -------
    Release
        ``value``, an integer from 1 to ``max_group_size``, and ``privacy``, of a group.

    Raises
    ------
    ValueError
        If a parameter is not as described, or a record has no group. Nothing is charged then.

    Notes
    -----
    **Guarantees.** Pure ``epsilon``-differential privacy of a group: the release is a quantile of
    one number per group, see :func:`private_quantile`.

    **Edge cases.** Groups with more than ``max_group_size`` records count as groups of
    ``max_group_size``.

    References
    ----------
    K. Amin, A. Kulesza, A. Munoz Medina and S. Vassilvitskii, "Bounding user contributions: a
    bias-variance trade-off in differential privacy", ICML 2019.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import private_group_size
    >>> visits = pd.Series([*range(900)] * 2 + [*range(900, 1000)] * 9, name="patient")
    >>> size, privacy = private_group_size(visits, max_group_size=50, epsilon=1.0, quantile=0.8)
    >>> 2 <= size <= 8  # whichever it is, 900 of 1,000 patients have no more
    True
    >>> privacy
    1.00-DP per patient, add-remove, exact noise, proved
    """
    if not (is_whole(max_group_size) and 2 <= max_group_size < MAX_CANDIDATES):
        raise ValueError(
            f"max_group_size={max_group_size!r} must be an integer from 2 to {MAX_CANDIDATES - 1}."
        )
    _check_quantile(quantile)
    check_release_target(epsilon, 0.0, relation)
    if not is_table(groups, "by name"):
        units = check_groups(groups, np.arange(num_samples(groups, "groups")))
        groups = pd.DataFrame({units.unit: units.codes})
    table = open_table(groups)
    if len(table.names) != 1:
        raise ValueError(
            f"groups has the columns {table.names}; expected one. Select the column of the groups."
        )
    (unit,) = table.names
    check_table_names(table.names, None, unit)
    plan = GroupSizePlan(int(max_group_size), unit=unit)
    statistic = _quantile_statistic(
        plan, plan.counts, quantile, relation, lambda chosen: max(1, int(chosen))
    )
    return release_statistic(
        statistic, TableSource(table, 0, "", unit), "private_group_size", epsilon=epsilon,
        relation=relation, budget=budget, noise_seed=noise_seed,
    )  # fmt: skip
