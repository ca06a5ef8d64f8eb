"""Private sums, means, variances and quantiles of bounded columns.

Private counts of the records that meet a condition, or are in each bin or category.

How many records groups have: a private choice of the bound that some releases need.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._groups import check_groups, check_order, resolve_groups
from .._input_data import check_numbers
from .._sklearn import num_samples
from .._validation import is_number, is_whole
from ..accounting import PrivacyBudget
from ..accounting.event import numbers
from ..base import private_release
from ..mechanisms import Exponential, SecureRandom
from ..mechanisms.bounds import check_bounds
from .bounded_moments import Columns, Release, additive, check_target, one_column

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
    """Return the number of records for which a condition holds.

    Parameters
    ----------
    x : array-like of bool, shape (n_samples,)
        Whether the condition holds for each record, such as ``frame["age"] > 65``. Missing values
        are not counted. ``numpy.ones(n, bool)`` counts all records.
    epsilon : float
        Privacy loss, in nats.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation.
    groups : array-like of shape (n_samples,), default=None
        Whom each record belongs to. The guarantee is then a group's, with all of its records. A
        group counts 1, shared out among its records: each of m counts 1 / m.
    budget : PrivacyBudget, default=None
        Charged before the data is touched; refuses a release that it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value`` is a float that can be fractional or negative. Clipping and rounding it costs no
        privacy.

    Raises
    ------
    ValueError
        If ``x`` holds anything but True, False, 0, 1 and missing values, or a parameter is wrong.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with a row as the unit, or a
    group: under each relation it changes the count by at most 1. Shares of groups are rounded down
    to a grid on which sums are exact. The noise is exact on a grid.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.preprocessing import private_count
    >>> count, privacy = private_count(np.arange(1000) < 300, epsilon=1.0)
    >>> 250 < count < 350
    True
    """
    check_target(epsilon, delta, relation)
    check_order(groups, x)
    values = one_column(x)
    who = resolve_groups(groups, values)
    known = ~pd.isna(values)
    values, shares = values[known], who.exact_shares()[known]
    if values.dtype.kind not in "biufO" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"x holds values of type {values.dtype}; expected booleans, or zeros and ones. Pass a "
            "condition on each record, such as frame['age'] > 65."
        )
    mechanism = additive(epsilon, delta, 1.0, 1.0)
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, who="private_count", budget=budget,
        noise_seed=noise_seed, unit=who.unit, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        count = np.array([shares[values.astype(bool)].sum()])
        noisy = mechanism.release(count, SecureRandom(noise_seed))
    return Release(float(noisy[0]), privacy)


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
    """Return the number of records in each public bin or category.

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        Values outside all bins, unknown categories and NaN are not counted.
    bins : array-like of shape (n_bins + 1,), default=None
        Public edges, increasing. The last bin includes its right edge.
    categories : array-like of shape (n_categories,), default=None
        Public categories, instead of ``bins``.
    epsilon : float
        Privacy loss, in nats.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation.
    groups : array-like of shape (n_samples,), default=None
        Whom each record belongs to. The guarantee is then a group's, with all of its records. A
        group counts 1, shared out among its records: each of m counts 1 / m.
    budget : PrivacyBudget, default=None
        Charged before the data is touched; refuses a release that it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

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
    check_target(epsilon, delta, relation)
    if (bins is None) == (categories is None):
        raise ValueError(
            f"bins={bins!r} and categories={categories!r}: exactly one of them must be given. Pass "
            "bins=edges or categories=values, from public knowledge."
        )
    check_order(groups, x)
    values = one_column(x)
    who = resolve_groups(groups, values)
    known = ~pd.isna(values)  # pandas.NA cannot be compared
    values, shares = values[known], who.exact_shares()[known]
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
        counts = _counted_once(values, shares, named)
    changed = 2.0 if relation == "replace_one" else 1.0
    mechanism = additive(epsilon, delta, changed, math.sqrt(changed))
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, who="private_histogram", budget=budget,
        noise_seed=noise_seed, unit=who.unit, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        noisy = mechanism.release(counts, SecureRandom(noise_seed))
    return Release(noisy, privacy)


def _counted_once(
    values: NDArray, shares: NDArray[np.float64], named: NDArray
) -> NDArray[np.float64]:
    """Add up the shares of the values in the first category that it equals, and in no other.

    Two different categories may both equal a value of another type: for example, two integers
    beyond 2**53 may both equal a float.
    """
    counts = np.zeros(len(named))
    for i, category in enumerate(named):
        found = values == category
        counts[i] = shares[found].sum()
        values, shares = values[~found], shares[~found]
    return counts


def private_group_size(
    groups: ArrayLike,
    *,
    most: int,
    epsilon: float,
    q: float = 0.9,
    relation: str = "add_remove",
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a number of records that about a share ``q`` of the groups do not exceed.

    It is the bound for a release whose noise grows with the number of records that a group may
    have, such as ``max_rows`` of :func:`private_summary`. **It bounds nobody's records**: whoever
    uses it has to leave out what a group has beyond it.

    Parameters
    ----------
    groups : array-like of shape (n_samples,)
        Whom each record belongs to. A Series' name is the unit of the guarantee.
    most : int
        Largest number to choose, at least 2; a public guess of how many records a group may have.
    epsilon : float
        Privacy loss, in nats.
    q : float, default=0.9
        Share of the groups that keep all of their records, in [0, 1].
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation, between groups.
    budget : PrivacyBudget, default=None
        Charged before the data is touched; refuses a release that it cannot afford.
    noise_seed : int, default=None
        Makes the choice reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value``, an integer from 1 to ``most``, and ``privacy``, of a group.

    Raises
    ------
    ValueError
        If a parameter is not as described, or a record belongs to nobody. Nothing is charged then.

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` differential privacy with a group as the unit: the quantile of
    one number for each group, see :func:`private_quantile`.

    **Edge cases.** Groups of more than ``most`` records count as of ``most``.

    References
    ----------
    K. Amin, A. Kulesza, A. Munoz Medina and S. Vassilvitskii, "Bounding user contributions: a
    bias-variance trade-off in differential privacy", ICML 2019.

    Examples
    --------
    >>> import pandas as pd
    >>> from skprivacy.preprocessing import private_group_size
    >>> visits = pd.Series([*range(900)] * 2 + [*range(900, 1000)] * 9, name="patient")
    >>> size, privacy = private_group_size(visits, most=50, epsilon=1.0, q=0.8)
    >>> 2 <= size <= 8  # whichever it is, 900 of 1,000 patients have no more
    True
    >>> privacy
    1.00-DP per patient, add-remove, exact noise, proved
    """
    if not (is_whole(most) and 2 <= most < MOST_CANDIDATES):
        raise ValueError(f"most={most!r} must be an integer from 2 to {MOST_CANDIDATES - 1}.")
    most = int(most)
    who = check_groups(groups, np.arange(num_samples(groups, "groups")))
    # One number for each group; between each two, and before the first, lies one candidate.
    sizes = np.minimum(who.sizes(), most)
    of_each: Any = pd.Series(np.arange(who.n), name=who.unit)
    value, privacy = private_quantile(
        sizes, q, bounds=(0.5, most + 0.5), epsilon=epsilon, relation=relation,
        n_candidates=most + 1, groups=of_each, budget=budget, noise_seed=noise_seed,
    )  # fmt: skip
    return Release(max(1, round(value - 0.5)), privacy)


MOST_CANDIDATES = 10_000_000


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
    """Return the sum of each column.

    Parameters
    ----------
    X : array-like of shape (n_samples,) or (n_samples, n_features)
        NaN counts as the middle of the bounds; infinity is clipped.
    bounds : tuple (lower, upper)
        Public bounds: two numbers, or two sequences of length n_features. With two features,
        pass a tuple of two arrays if they could also be one pair per feature.
    epsilon : float
        Privacy loss, in nats, of all columns together.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. The noise is proportional to the largest magnitude within the
        bounds; under "replace_one", to their width.
    groups : array-like of shape (n_samples,), default=None
        Whom each record belongs to. The guarantee is then a group's, with all of its records, and
        the sum is that of the groups' means: each of m records counts 1 / m. For the sum of all
        records add up those of each group first, and give the bounds of such a total.
    budget : PrivacyBudget, default=None
        Charged before the data is touched; refuses a release that it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value`` of shape () or (n_features,), and ``privacy``.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with a row as the unit, or a
    group. Values are scaled to [-1, 1] and rounded towards 0 to a grid on which sums are exact, and
    so are the shares of records in their groups; the noise is exact.

    Examples
    --------
    >>> from skprivacy.preprocessing import private_sum
    >>> stays = [2, 5, 11] * 1000
    >>> days, privacy = private_sum(stays, bounds=(0, 30), epsilon=1.0)
    >>> 17_400 < days < 18_600
    True
    """
    check_target(epsilon, delta, relation)
    columns = Columns(X, bounds, groups)
    mechanism = columns.sums_mechanism(epsilon, delta, relation)
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, who="private_sum", budget=budget,
        noise_seed=noise_seed, unit=columns.unit, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        sums = columns.sums(mechanism, relation, SecureRandom(noise_seed))
    return Release(columns.shaped(sums), privacy)


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
    """Return the mean of each column.

    Parameters
    ----------
    X : array-like of shape (n_samples,) or (n_samples, n_features)
        NaN counts as the middle of the bounds; infinity is clipped.
    bounds : tuple (lower, upper)
        Public bounds: two numbers, or two sequences of length n_features. With two features,
        pass a tuple of two arrays if they could also be one pair per feature.
    epsilon : float
        Privacy loss, in nats, of all columns together.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. Under "add_remove", the number of records is private, and releasing
        it is part of the cost; otherwise it is public.
    groups : array-like of shape (n_samples,), default=None
        Whom each record belongs to. The guarantee is then a group's, with all of its records, and
        each of the m records of a group counts 1 / m: the mean is that of the groups' means.
    budget : PrivacyBudget, default=None
        Charged before the data is touched; refuses a release that it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value`` of shape () or (n_features,), within the bounds, and ``privacy``.

    Notes
    -----
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with a row as the unit, or a
    group. Values are scaled to [-1, 1] and rounded towards 0 to a grid on which sums are exact, and
    so are the shares of records in their groups; the noise is exact.

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
    check_target(epsilon, delta, relation)
    columns = Columns(X, bounds, groups)
    mechanism = columns.mechanism(1, epsilon, delta, relation)
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, who="private_mean", budget=budget,
        noise_seed=noise_seed, unit=columns.unit, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        moments = columns.release(1, mechanism, relation, SecureRandom(noise_seed))
    return Release(columns.shaped(columns.means(moments)), privacy)


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
    """Return the (population) variance of each column.

    Parameters
    ----------
    X : array-like of shape (n_samples,) or (n_samples, n_features)
        NaN counts as the middle of the bounds; infinity is clipped.
    bounds : tuple (lower, upper)
        Public bounds: two numbers, or two sequences of length n_features. With two features,
        pass a tuple of two arrays if they could also be one pair per feature.
    epsilon : float
        Privacy loss, in nats, of all columns together.
    delta : float, default=0.0
        0 for Laplace noise, above 0 for Gaussian noise.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation. Under "add_remove", the number of records is private, and releasing
        it is part of the cost; otherwise it is public.
    groups : array-like of shape (n_samples,), default=None
        Whom each record belongs to. The guarantee is then a group's, with all of its records, and
        each of the m records of a group counts 1 / m.
    budget : PrivacyBudget, default=None
        Charged before the data is touched; refuses a release that it cannot afford.
    noise_seed : int, default=None
        Makes the noise reproducible **and the guarantee void**. For tests only.

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
    check_target(epsilon, delta, relation)
    columns = Columns(X, bounds, groups)
    mechanism = columns.mechanism(2, epsilon, delta, relation)
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, who="private_variance", budget=budget,
        noise_seed=noise_seed, unit=columns.unit, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        moments = columns.release(2, mechanism, relation, SecureRandom(noise_seed))
    return Release(columns.shaped(columns.variances(moments)), privacy)


def private_quantile(
    x: ArrayLike,
    q: float,
    *,
    bounds: tuple[float, float],
    epsilon: float,
    relation: str = "add_remove",
    n_candidates: int = 1024,
    groups: ArrayLike | None = None,
    budget: PrivacyBudget | None = None,
    noise_seed: int | None = None,
) -> Release:
    """Return a quantile of one column, by the exponential mechanism on a public grid.

    Parameters
    ----------
    x : array-like of shape (n_samples,)
        NaN is ignored; infinity is clipped.
    q : float
        Quantile to release, in [0, 1]; 0.5 is the median.
    bounds : tuple (lower, upper)
        Public bounds; the result is one of ``n_candidates`` equally spaced numbers between them.
    epsilon : float
        Privacy loss, in nats.
    relation : {"add_remove", "zero_out", "replace_one"}, default="add_remove"
        Neighbouring relation.
    n_candidates : int, default=1024
        Number of candidates, from 2 to ten million.
    groups : array-like of shape (n_samples,), default=None
        Whom each record belongs to. The guarantee is then a group's, with all of its records, and
        each of the m records of a group counts 1 / m.
    budget : PrivacyBudget, default=None
        Charged before the data is touched; refuses a release that it cannot afford.
    noise_seed : int, default=None
        Makes the choice reproducible **and the guarantee void**. For tests only.

    Returns
    -------
    Release
        ``value``, a number, and ``privacy``.

    Notes
    -----
    **Guarantees.** Pure ``epsilon`` differential privacy. The score of r is
    -abs(#(x < r) - q #(x)); a record changes it by at most max(q, 1 - q), or by 1 if replaced. A
    group that counts a <= 1, of which b below r, changes what is within abs by b - q a, which lies
    between -q and 1 - q as well.

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
    if not (is_number(q) and 0 <= q <= 1):
        raise ValueError(f"q={q!r} must lie in [0, 1]; 0.5 is the median.")
    if not (is_whole(n_candidates) and 2 <= n_candidates <= MOST_CANDIDATES):
        raise ValueError(
            f"n_candidates={n_candidates!r} must be an integer from 2 to {MOST_CANDIDATES}, such "
            "as 1024."
        )
    check_target(epsilon, 0.0, relation)
    lower, upper = check_bounds("bounds", bounds, 1)
    check_numbers(x, "x")
    check_order(groups, x)
    values = one_column(x).astype(np.float64)
    who = resolve_groups(groups, values)
    known = ~np.isnan(values)
    values, shares = np.clip(values[known], lower, upper), who.exact_shares()[known]
    order = np.argsort(values)
    counted = np.concatenate([[0.0], shares[order].cumsum()])
    candidates = np.linspace(lower[0], upper[0], int(n_candidates))
    below = counted[np.searchsorted(values[order], candidates, side="left")]
    sensitivity = 1.0 if relation == "replace_one" else max(q, 1.0 - q)
    mechanism = Exponential(float(epsilon), sensitivity)
    scores = -np.abs(below - q * counted[-1])
    with private_release(
        mechanism.event, relation=relation, at_delta=0.0, who="private_quantile", budget=budget,
        noise_seed=noise_seed, unit=who.unit, arithmetic=mechanism.arithmetic,
    ) as privacy:  # fmt: skip
        chosen = mechanism.release(scores, SecureRandom(noise_seed))
    return Release(float(candidates[chosen]), privacy)
