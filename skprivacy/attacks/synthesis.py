"""Records for an attacker who has none: inputs of any attack that trains shadow models.

Three attackers of Shokri et al. 2017, section V-C. :func:`from_model` climbs the target's
confidence and knows nothing but the features' ranges. :func:`from_marginals` knows the marginal
distribution of each feature. :func:`noisy` has real records of which some features are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_consistent_length, check_random_state

from ._predictions import predict_aligned
from ._records import as_records

__all__ = ["from_marginals", "from_model", "noisy"]


def from_model(
    target: Any,
    values: Sequence[ArrayLike],
    n_per_class: int,
    *,
    confidence: float = 0.2,
    max_queries: int = 1000,
    patience: int = 10,
    least_changed: int = 4,
    random_state: Any = None,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Synthesise records that the target is sure about (Algorithm 1 of Shokri et al. 2017).

    Many records climb at once, one query for all of them a round: random features are redrawn,
    fewer after ``patience`` rejections in a row, and kept if the class becomes more probable.

    Parameters
    ----------
    target : fitted classifier with ``predict_proba``
    values : list of array-like, one for each feature
        Values that the feature may take, drawn with equal probability; a grid for a
        continuous feature.
    n_per_class : int
        Climbs for each class. Fewer records come back for classes that are hard to reach.
    confidence : float, default=0.2
        Probability of the class from which on a record may be accepted: if the class is then the
        predicted one, it is accepted with its probability.
    max_queries : int, default=1000
        Rounds before a climb is given up.
    patience : int, default=10
        Rejections in a row after which half as many features are redrawn.
    least_changed : int, default=4
        Features redrawn at the least.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_records, n_features)
    y : ndarray of shape (n_records,)

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.attacks import synthesis
    >>> rng = np.random.default_rng(0)
    >>> real = rng.integers(0, 2, (200, 8))
    >>> target = LogisticRegression().fit(real, real[:, 0])
    >>> X, y = synthesis.from_model(target, [[0, 1]] * 8, 5, random_state=0)
    >>> bool((target.predict(X) == y).all())
    True
    """
    rng = check_random_state(random_state)
    choices = [np.asarray(choice, dtype=float) for choice in values]
    classes = np.asarray(target.classes_)
    goal = np.repeat(np.arange(len(classes)), n_per_class)
    n_features = len(choices)
    best = _draw(choices, len(goal), rng)
    reached = np.full(len(goal), -1.0)
    changed = np.full(len(goal), n_features)
    rejected = np.zeros(len(goal), dtype=int)
    climbing, accepted = np.ones(len(goal), dtype=bool), np.zeros(len(goal), dtype=bool)
    trial = best.copy()
    for _ in range(max_queries):
        here = np.flatnonzero(climbing)
        if not here.size:
            break
        proba = predict_aligned(target, trial[here], classes)
        of_goal = proba[np.arange(len(here)), goal[here]]
        better = of_goal >= reached[here]
        up, down = here[better], here[~better]
        best[up], reached[up], rejected[up] = trial[up], of_goal[better], 0
        sure = better & (of_goal > confidence) & (proba.argmax(axis=1) == goal[here])
        taken = here[sure & (rng.uniform(size=len(here)) < of_goal)]
        accepted[taken], climbing[taken] = True, False
        rejected[down] += 1
        tired = down[rejected[down] > patience]
        floor = min(least_changed, n_features)
        changed[tired], rejected[tired] = np.maximum(changed[tired] // 2, floor), 0
        trial[here] = _redraw(best[here], changed[here], choices, rng)
    return best[accepted], classes[goal[accepted]]


def from_marginals(
    X: Any, y: ArrayLike, n_per_class: int, *, random_state: Any = None
) -> tuple[Any, NDArray[Any]]:
    """Draw every feature by itself from its distribution within the class.

    Parameters
    ----------
    X : {array-like, DataFrame} of shape (n_records, n_features)
        Records whose marginals the attacker knows.
    y : array-like of shape (n_records,)
    n_per_class : int
        Records to draw for each class.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : {ndarray, DataFrame} of shape (n_classes * n_per_class, n_features)
        In the form of the ``X`` given.
    y : ndarray of shape (n_classes * n_per_class,)

    Examples
    --------
    >>> from skprivacy.attacks import synthesis
    >>> X, y = synthesis.from_marginals([[0, 5], [0, 6], [1, 7]], ["a", "a", "b"], 2)
    >>> y
    array(['a', 'a', 'b', 'b'], dtype='<U1')
    """
    rng = check_random_state(random_state)
    known, labels = as_records(X), np.asarray(y)
    check_consistent_length(known, labels)
    parts = []
    classes = np.unique(labels)
    for c in classes:
        own = np.flatnonzero(labels == c)
        parts.append(own[rng.randint(len(own), size=(n_per_class, known.shape[1]))])
    return _gather(known, np.concatenate(parts)), np.repeat(classes, n_per_class)


def noisy(X: Any, share: float = 0.1, *, random_state: Any = None) -> Any:
    """Reset a share of the features of every record to values of other records.

    Binary features are flipped, as in the paper; others take the value of a random record.

    Parameters
    ----------
    X : {array-like, DataFrame} of shape (n_records, n_features)
    share : float, default=0.1
        Share of features reset, in [0, 1]; the paper takes 0.1 and 0.2.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : {ndarray, DataFrame} of shape (n_records, n_features)
        A changed copy, in the form of the ``X`` given.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import synthesis
    >>> X = np.array([[0, 1], [1, 0]])
    >>> synthesis.noisy(X, 1.0)
    array([[1, 0],
           [0, 1]])
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share!r} must lie in [0, 1].")
    rng = check_random_state(random_state)
    known = as_records(X)
    n_records, n_features = known.shape
    order = rng.uniform(size=known.shape).argsort(axis=1)
    reset = order < round(share * n_features)
    other = rng.randint(n_records, size=known.shape)
    for place in range(n_features):
        column = known.iloc[:, place] if isinstance(known, pd.DataFrame) else known[:, place]
        codes, values = pd.factorize(column, use_na_sentinel=False)
        if len(values) == 2:  # some record that has the other value
            other[:, place] = np.array([codes.argmax(), codes.argmin()])[codes]
    return _gather(known, np.where(reset, other, np.arange(n_records)[:, None]))


def _gather(known: Any, rows: NDArray[np.intp]) -> Any:
    """Return records made of each feature's values in the records that ``rows`` names."""
    if not isinstance(known, pd.DataFrame):
        return np.take_along_axis(known, rows, axis=0)
    columns = [
        known.iloc[:, place].take(rows[:, place]).reset_index(drop=True)
        for place in range(known.shape[1])
    ]
    return pd.concat(columns, axis=1)


def _draw(choices: list[NDArray[Any]], n: int, rng: Any) -> NDArray[np.float64]:
    return np.column_stack([choice[rng.randint(len(choice), size=n)] for choice in choices])


def _redraw(
    best: NDArray[np.float64], changed: NDArray[np.intp], choices: list[Any], rng: Any
) -> NDArray[np.float64]:
    """Redraw ``changed`` random features of each record."""
    order = rng.uniform(size=best.shape).argsort(axis=1)
    return np.where(order < changed[:, None], _draw(choices, len(best), rng), best)
