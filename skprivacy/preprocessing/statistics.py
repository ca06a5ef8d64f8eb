"""Private sums, means, variances and quantiles of bounded columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .._groups import check_order, protected
from .._validation import check_numbers, is_number, is_whole
from ..accounting import PrivacyBudget
from ..base import private_release
from ..mechanisms import Exponential, SecureRandom
from ..mechanisms.bounds import check_bounds
from ._columns import Columns, one_column
from ._release import Release, check_target

__all__ = [
    "Release",
    "private_mean",
    "private_quantile",
    "private_sum",
    "private_variance",
]

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
    who = protected(groups, values)
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
