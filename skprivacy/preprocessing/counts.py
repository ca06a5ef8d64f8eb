"""Private counts of the records that meet a condition, or are in each bin or category."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._groups import check_order, protected
from .._validation import check_numbers
from ..accounting import PrivacyBudget
from ..accounting._checks import numbers
from ..base import private_release
from ..mechanisms import SecureRandom
from ._columns import one_column
from ._release import Release, additive, check_target

__all__ = ["private_count", "private_histogram"]


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
    who = protected(groups, values)
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
    who = protected(groups, values)
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
