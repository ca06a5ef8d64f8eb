"""Lower bound on epsilon over many random splits of the records."""

from __future__ import annotations

from numpy.typing import ArrayLike

from .._docs import fill_docs
from .._validation import generator, open_unit, whole
from .evidence import Evidence, bound_area, bound_split_rates
from .rates import RATE_DOCS, check_delta, check_scores


@fill_docs(RATE_DOCS)
def multi_split_bound(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    n_splits: int = 20,
    random_state: int = 0,
) -> float:
    """Return a lower confidence bound on epsilon that does not depend on one split of the records.

    :func:`epsilon_lower_bound` chooses a threshold on one random half of the records and tests it
    on the other half. This function repeats it for many splits, each with half the error
    probability, and takes the median.

    Parameters
    ----------
    %(scores)s
    %(tested_delta)s
    %(bound_alpha)s
    n_splits : int, default=20
        Number of splits, at least 1.
    random_state : int, default=0
        Seed of the splits.

    Returns
    -------
    float
        At least 0. The AUC, which needs no split, is tested in addition.

    Notes
    -----
    **Guarantees.** Let each of ``n`` bounds exceed the truth with probability ``a``. However the
    bounds depend on each other, at least ``n / 2`` of them exceed it with probability at most
    ``2 a``, by Markov's inequality. The result varies less than the bound of one split, but is not
    larger on average.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.metrics.resampling import multi_split_bound
    >>> rng = np.random.default_rng(0)
    >>> members, others = rng.normal(size=1000) + 2, rng.normal(size=1000)
    >>> 2 < multi_split_bound(members, others, delta=1e-5) < 10
    True
    """
    delta = check_delta(delta)
    alpha = open_unit("alpha", alpha)
    whole("n_splits", n_splits)
    members, others = check_scores(scores_in, scores_out)
    if min(len(members), len(others)) < 2:
        return 0.0
    rng = generator("random_state", random_state)
    found = []
    for _ in range(n_splits):
        points = bound_split_rates(members, others, delta=delta, alpha=alpha / 4, rng=rng)
        found.append(Evidence(points, 0.0).epsilon(delta))
    # Markov: half of the bounds exceed the truth with at most twice their error probability
    split_epsilon = sorted(found, reverse=True)[(n_splits + 1) // 2 - 1]
    area_epsilon = Evidence((), bound_area(members, others, alpha / 2)).epsilon(delta)
    return max(split_epsilon, area_epsilon)
