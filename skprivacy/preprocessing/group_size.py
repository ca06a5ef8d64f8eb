"""How many records groups have: a private choice of the bound that some releases need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._groups import check_groups
from .._sklearn import num_samples
from .._validation import is_whole
from ..accounting import PrivacyBudget
from ._release import Release
from .statistics import MOST_CANDIDATES, private_quantile

__all__ = ["private_group_size"]


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
