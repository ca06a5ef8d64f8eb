"""Private statistics of tables: counts, histograms, sums, means, variances and quantiles.

Each function makes a ``Statistic`` (``bounded_moments``) and releases it once, with one charge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..._docs import fill_docs
from ..._groups import check_groups
from ..._input_data import check_numbers
from ..._validation import is_number, is_whole, num_samples
from ...accounting import PrivacyBudget
from ...accounting.event import numbers
from ...mechanisms.base import check_bounds
from ...sums import SumTotal
from ...sums.sources import SumSource, TableSource, is_table, open_table
from ...sums.sum_estimator import check_table_names
from ...sums.sum_plan import SumPlan
from .bounded_moments import (
    RELEASE_DOCS,
    BoundedColumns,
    Release,
    Statistic,
    check_release_target,
    open_column,
    open_columns,
    release_statistic,
)
from .cell_counts import Bins, Candidates, Categories, CellPlan, Condition, GroupSizePlan


@fill_docs(RELEASE_DOCS)
def private_count(
    x: ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private count of the records that meet a condition.

    Parameters
    ----------
    x : array-like of bool, shape (n_samples,)
        Whether the condition holds for each record, such as ``frame["age"] > 65``. Missing values
        are not counted. ``numpy.ones(n, bool)`` counts all records.
    %(release_epsilon)s
    %(release_relation)s
    %(release_groups)s
    %(release_budget)s

    Returns
    -------
    Release
        ``value`` is a float, which can be fractional or negative. Clipping or rounding it costs
        no privacy.

    Raises
    ------
    ValueError
        If ``x`` holds anything but True, False, 0, 1 and missing values, or a parameter is wrong.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy of a row or, with ``groups``, of a
    group: it changes the count by at most 1 under each relation. Shares of groups are rounded down
    to a grid on which sums are exact. The noise is exact on a grid.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.preprocessing import private_count
    >>> count, privacy = private_count(np.arange(1000) < 300, epsilon=1.0)
    >>> 250 < count < 350
    True
    """
    check_release_target(epsilon, delta, relation)
    source, name = open_column(x, groups)
    _check_conditions(source.rows)
    return _release_counts(
        source, CellPlan(name, Condition(), unit=source.unit), "private_count",
        lambda noisy: float(noisy[0]), epsilon=epsilon, delta=delta, relation=relation,
        budget=budget, noise_seed=noise_seed, changed=1.0,
    )  # fmt: skip


def _check_conditions(values: NDArray[Any]) -> None:
    """Refuse values in memory that are neither true nor false."""
    known = values[~pd.isna(values)]
    if known.dtype.kind not in "biufO" or not np.isin(known, (0, 1)).all():
        raise ValueError(
            f"x holds values of type {values.dtype}; expected booleans, or zeros and ones. Pass a "
            "condition on each record, such as frame['age'] > 65."
        )


def _release_counts(
    source: SumSource,
    plan: CellPlan,
    name: str,
    read: Callable[[NDArray[np.float64]], Any],
    *,
    changed: float,
    **params: Any,
) -> Release:
    """Release the counts of cells, of which a unit changes ``changed`` by 1 at most."""
    statistic = Statistic(
        plan, changed, math.sqrt(changed), plan.counts, lambda noisy, *_: read(noisy)
    )
    return release_statistic(statistic, source, name, **params)


@fill_docs(RELEASE_DOCS)
def private_histogram(
    x: ArrayLike,
    *,
    bins: ArrayLike | None = None,
    categories: ArrayLike | None = None,
    epsilon: float,
    delta: float = 0.0,
    relation: str = "add_remove",
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a private histogram: the number of records in each public bin or category.

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        Values outside all bins, unknown categories and NaN are not counted.
    bins : array-like of shape (n_bins + 1,), default=None
        Public edges, increasing. The last bin includes its right edge.
    categories : array-like of shape (n_categories,), default=None
        Public categories, instead of ``bins``.
    %(release_epsilon)s
    %(release_relation)s
    %(release_groups)s
    %(release_budget)s

    Returns
    -------
    Release
        ``value`` of shape (n_bins,) or (n_categories,): counts that can be fractional or negative.
        Clipping and rounding them costs no privacy.

    Examples
    --------
    >>> from skprivacy.preprocessing import private_histogram
    >>> counts, privacy = private_histogram(["a", "b", "a"], categories=["a", "b"], epsilon=1.0)
    >>> counts.shape
    (2,)
    """
    check_release_target(epsilon, delta, relation)
    if (bins is None) == (categories is None):
        raise ValueError(
            f"bins={bins!r} and categories={categories!r}: exactly one of them must be given. Pass "
            "bins=edges or categories=values, from public knowledge."
        )
    cells = _make_cells(bins, categories)
    source, name = open_column(x, groups)
    if bins is not None:
        check_numbers(source.rows[~pd.isna(source.rows)], "x")
    return _release_counts(
        source, CellPlan(name, cells, unit=source.unit), "private_histogram",
        lambda noisy: noisy, epsilon=epsilon, delta=delta, relation=relation, budget=budget,
        noise_seed=noise_seed, changed=2.0 if relation == "replace_one" else 1.0,
    )  # fmt: skip


def _make_cells(bins: ArrayLike | None, categories: ArrayLike | None) -> Bins | Categories:
    """Return public bins or categories."""
    if bins is not None:
        edges = np.array(numbers("bins", bins))
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(
                f"bins={bins!r} must be at least two increasing edges, such as [0, 18, 65, 120]."
            )
        return Bins(tuple(edges.tolist()))
    named = np.asarray(categories)
    if named.ndim != 1 or not named.size or len(np.unique(named)) != named.size:
        raise ValueError(
            f"categories={categories!r} must be a flat list of at least one value, without "
            "duplicates. Pass all public categories once."
        )
    return Categories(tuple(named.tolist()))


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


MAX_CANDIDATES = 10_000_000


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
