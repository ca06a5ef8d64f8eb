"""Epsilon from resampled records: a bound over many splits, and a bootstrap estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._docs import fill_docs
from .._validation import generator, open_unit, whole
from .evidence import Evidence, bound_area, bound_split_rates, epsilon_of_rates
from .rates import RATE_DOCS, Float64Array, check_delta, check_scores, count_above


@dataclass(frozen=True)
class EpsilonEstimate:
    """Median epsilon over bootstrap samples, NOT a bound: the truth may be below it.

    All but a share ``alpha`` of the samples lie between ``low`` and ``high``.
    """

    epsilon: float
    low: float
    high: float
    delta: float
    alpha: float
    n_draws: int

    def __repr__(self) -> str:
        return (
            f"epsilon is about {self.epsilon:.3g} at delta={self.delta:g} ({self.low:.3g} to "
            f"{self.high:.3g} in {1 - self.alpha:.6g} of {self.n_draws} bootstrap samples): an "
            "estimate, not a bound"
        )


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


def bootstrap_epsilon(
    scores_in: ArrayLike,
    scores_out: ArrayLike,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    n_draws: int = 200,
    random_state: int = 0,
) -> EpsilonEstimate:
    """Estimate epsilon from bootstrap samples of at least 10 records of each kind; NOT a bound.

    A threshold is chosen on the records that a sample leaves out, and its rates are taken from the
    sample, as (count + 1/2) / (n + 1). Without any leakage the estimate is above 0 in many samples,
    since rates differ by chance.
    """
    delta = check_delta(delta)
    alpha = open_unit("alpha", alpha)
    whole("n_draws", n_draws)
    members, others = check_scores(scores_in, scores_out)
    if min(len(members), len(others)) < 10:
        raise ValueError(
            f"scores_in and scores_out have {len(members)} and {len(others)} records; expected at "
            "least 10 of each, so that every sample leaves some out. Pass more records."
        )
    rng = generator("random_state", random_state)
    found = [_epsilon_of_draw(members, others, delta, rng) for _ in range(n_draws)]
    low, middle, high = np.quantile(found, [alpha / 2, 0.5, 1 - alpha / 2]).tolist()
    return EpsilonEstimate(middle, low, high, delta, alpha, n_draws)


def _epsilon_of_draw(
    members: Float64Array, others: Float64Array, delta: float, rng: np.random.Generator
) -> float:
    drawn_in, left_in = _draw(members, rng)
    drawn_out, left_out = _draw(others, rng)
    cuts = np.unique(np.concatenate([left_in, left_out]))
    shown = {
        sign: epsilon_of_rates(*_smooth_rates(left_in, left_out, cuts, sign), delta)
        for sign in (1, -1)
    }
    sign = max(shown, key=lambda s: float(shown[s].max()))
    cut = cuts[[np.argmax(shown[sign])]]
    return float(epsilon_of_rates(*_smooth_rates(drawn_in, drawn_out, cut, sign), delta)[0])


def _draw(values: Float64Array, rng: np.random.Generator) -> tuple[Float64Array, Float64Array]:
    """Return a bootstrap sample and the values that are not in it, at least one."""
    chosen = rng.integers(len(values), size=len(values))
    left = np.setdiff1d(np.arange(len(values)), chosen)
    return values[chosen], values[left] if len(left) else values[:1]


def _smooth_rates(
    members: Float64Array, others: Float64Array, cuts: Float64Array, sign: int
) -> tuple[Float64Array, Float64Array]:
    """Return the rates (count + 1/2) / (n + 1) above each cut; swapped if ``sign`` < 0."""
    tpr, fpr = ((count_above(s, cuts) + 0.5) / (len(s) + 1) for s in (members, others))
    return (tpr, fpr) if sign > 0 else (fpr, tpr)
