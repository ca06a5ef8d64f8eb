"""Private statistics of tables: counts, histograms, sums, means, variances and quantiles.

Each function makes a :class:`~skprivacy.preprocessing.bounded_moments.Statistic` and releases it,
once, with one charge.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._docs import fill_docs
from .._groups import check_groups
from .._input_data import check_numbers
from .._validation import is_number, is_whole, num_samples
from ..accounting import PrivacyBudget
from ..accounting.event import numbers
from ..mechanisms.bounds import check_bounds
from .bounded_moments import (
    RELEASE_DOCS,
    Release,
    Statistic,
    check_release_target,
    read_column,
    read_columns,
    release_statistic,
)

__all__ = [
    "Release",
    "private_count",
    "private_group_size",
    "private_histogram",
    "private_mean",
    "private_quantile",
    "private_sum",
    "private_variance",
]


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
    values, shares, unit = read_column(x, groups)
    if values.dtype.kind not in "biufO" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"x holds values of type {values.dtype}; expected booleans, or zeros and ones. Pass a "
            "condition on each record, such as frame['age'] > 65."
        )
    count = Statistic(
        unit, 1.0, 1.0, lambda: np.array([shares[values.astype(bool)].sum()]),
        lambda noisy, _: float(noisy[0]),
    )  # fmt: skip
    return release_statistic(
        count, "private_count", epsilon=epsilon, delta=delta, relation=relation, budget=budget,
        noise_seed=noise_seed,
    )  # fmt: skip


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
    values, shares, unit = read_column(x, groups)
    if bins is not None:
        edges = np.array(numbers("bins", bins))
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(
                f"bins={bins!r} must be at least two increasing edges, such as [0, 18, 65, 120]."
            )
        check_numbers(values, "x")
        counts = np.histogram(values.astype(np.float64), edges, weights=shares)[0]
    else:
        named = np.asarray(categories)
        if named.ndim != 1 or not named.size or len(np.unique(named)) != named.size:
            raise ValueError(
                f"categories={categories!r} must be a flat list of at least one value, without "
                "duplicates. Pass all public categories once."
            )
        counts = _count_categories(values, shares, named)
    changed = 2.0 if relation == "replace_one" else 1.0
    histogram = Statistic(unit, changed, math.sqrt(changed), lambda: counts, lambda noisy, _: noisy)
    return release_statistic(
        histogram, "private_histogram", epsilon=epsilon, delta=delta, relation=relation,
        budget=budget, noise_seed=noise_seed,
    )  # fmt: skip


def _count_categories(
    values: NDArray, shares: NDArray[np.float64], named: NDArray
) -> NDArray[np.float64]:
    """Sum the shares of values by the first category that each equals.

    Two categories may equal one value of another type: two integers beyond 2**53 may equal a float.
    """
    counts = np.zeros(len(named))
    for i, category in enumerate(named):
        found = values == category
        counts[i] = shares[found].sum()
        values, shares = values[~found], shares[~found]
    return counts


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
    groups : array-like of shape (n_samples,)
        Group of each record. The name of a Series is the unit of the guarantee.
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
    max_group_size = int(max_group_size)
    who = check_groups(groups, np.arange(num_samples(groups, "groups")))
    # Candidates lie at half-integers, between the possible sizes.
    sizes = np.minimum(who.sizes(), max_group_size)
    of_each: Any = pd.Series(np.arange(who.n), name=who.unit)
    value, privacy = private_quantile(
        sizes, quantile, bounds=(0.5, max_group_size + 0.5), epsilon=epsilon, relation=relation,
        n_candidates=max_group_size + 1, groups=of_each, budget=budget, noise_seed=noise_seed,
    )  # fmt: skip
    return Release(max(1, round(value - 0.5)), privacy)


MAX_CANDIDATES = 10_000_000


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
    check_release_target(epsilon, delta, relation)
    statistic = read_columns(X, bounds, groups).total(relation)
    return release_statistic(
        statistic, "private_sum", epsilon=epsilon, delta=delta, relation=relation, budget=budget,
        noise_seed=noise_seed,
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
    check_release_target(epsilon, delta, relation)
    statistic = read_columns(X, bounds, groups).mean(relation)
    return release_statistic(
        statistic, "private_mean", epsilon=epsilon, delta=delta, relation=relation, budget=budget,
        noise_seed=noise_seed,
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
    check_release_target(epsilon, delta, relation)
    statistic = read_columns(X, bounds, groups).variance(relation)
    return release_statistic(
        statistic, "private_variance", epsilon=epsilon, delta=delta, relation=relation,
        budget=budget, noise_seed=noise_seed,
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
    if not (is_number(quantile) and 0 <= quantile <= 1):
        raise ValueError(f"quantile={quantile!r} must lie in [0, 1]; 0.5 is the median.")
    if not (is_whole(n_candidates) and 2 <= n_candidates <= MAX_CANDIDATES):
        raise ValueError(
            f"n_candidates={n_candidates!r} must be an integer from 2 to {MAX_CANDIDATES}, such "
            "as 1024."
        )
    check_release_target(epsilon, 0.0, relation)
    lower, upper = check_bounds("bounds", bounds, 1)
    values, shares, unit = read_column(x, groups, numeric=True)
    candidates = np.linspace(lower[0], upper[0], int(n_candidates))

    def scores() -> NDArray[np.float64]:
        clipped = np.clip(values, lower, upper)
        order = np.argsort(clipped)
        counted = np.concatenate([[0.0], shares[order].cumsum()])
        below = counted[np.searchsorted(clipped[order], candidates, side="left")]
        # Smith 2011: the utility of a candidate is minus its distance from rank q
        return -np.abs(below - quantile * counted[-1])

    changed = 1.0 if relation == "replace_one" else max(quantile, 1.0 - quantile)
    statistic = Statistic(
        unit, changed, changed, scores, lambda chosen, _: float(candidates[chosen]), selects=True
    )
    return release_statistic(
        statistic, "private_quantile", epsilon=epsilon, relation=relation, budget=budget,
        noise_seed=noise_seed,
    )  # fmt: skip
