"""Private counts of the records that meet a condition, or are in each bin or category."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

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
    **Guarantees.** (``epsilon``, ``delta``)-differential privacy with a row as the unit: under each
    relation, a record changes the count by at most 1. The noise is exact on a grid.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.preprocessing import private_count
    >>> count, privacy = private_count(np.arange(1000) < 300, epsilon=1.0)
    >>> 250 < count < 350
    True
    """
    check_target(epsilon, delta, relation)
    values = one_column(x)
    values = values[~pd.isna(values)]
    if values.dtype.kind not in "biufO" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"x holds values of type {values.dtype}; expected booleans, or zeros and ones. Pass a "
            "condition on each record, such as frame['age'] > 65."
        )
    mechanism = additive(epsilon, delta, 1.0, 1.0)
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, who="private_count", budget=budget,
        noise_seed=noise_seed,
    ) as privacy:  # fmt: skip
        count = np.array([np.count_nonzero(values)], np.float64)
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
    values = one_column(x)
    values = values[~pd.isna(values)]  # pandas.NA cannot be compared
    if bins is not None:
        edges = np.array(numbers("bins", bins))
        if edges.ndim != 1 or len(edges) < 2 or not (np.diff(edges) > 0).all():
            raise ValueError(
                f"bins={bins!r} must be at least two increasing edges, such as [0, 18, 65, 120]."
            )
        check_numbers(values, "x")
        counts = np.histogram(values.astype(np.float64), edges)[0]
    else:
        known = np.asarray(categories)
        if known.ndim != 1 or not known.size or len(np.unique(known)) != known.size:
            raise ValueError(
                f"categories={categories!r} must be a flat list of at least one value, without "
                "duplicates. Pass all public categories once."
            )
        counts = _counted_once(values, known)
    changed = 2.0 if relation == "replace_one" else 1.0
    mechanism = additive(epsilon, delta, changed, math.sqrt(changed))
    with private_release(
        mechanism.event, relation=relation, at_delta=delta, who="private_histogram", budget=budget,
        noise_seed=noise_seed,
    ) as privacy:  # fmt: skip
        noisy = mechanism.release(counts, SecureRandom(noise_seed))
    return Release(noisy, privacy)


def _counted_once(values: NDArray, known: NDArray) -> NDArray[np.int64]:
    """Count each value in the first category that it equals, and in no other.

    Two different categories may both equal a value of another type: for example, two integers
    beyond 2**53 may both equal a float.
    """
    counts = np.zeros(len(known), np.int64)
    for i, category in enumerate(known):
        found = values == category
        counts[i] = found.sum()
        values = values[~found]
    return counts
