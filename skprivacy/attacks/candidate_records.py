"""Synthetic records for attackers without data, to train shadow models (Shokri et al. 2017, V-C).

:func:`from_model` searches for records of high confidence and needs only the possible values of the
features. :func:`from_marginals` needs the marginal distribution of each feature. :func:`noisy`
needs real records, some of whose features may be wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .._input_data import check_consistent_length
from .._validation import check_random_state
from .model_answers import predict_aligned
from .record_tables import as_records

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
    """Synthesise records the target is confident about (Shokri et al. 2017, Algorithm 1).

    All searches run together, with one query for all searches in each round. A round redraws random
    features of each record, and keeps the change if the class becomes more probable. After
    ``patience`` rejections in a row, fewer features are redrawn.

    Parameters
    ----------
    target : fitted classifier with ``predict_proba``
        The model that is attacked.
    values : list of array-like, one for each feature
        Values that the feature may take, drawn with equal probability; a grid for a
        continuous feature.
    n_per_class : int
        Number of searches for each class. Fewer records are returned for classes that are hard to
        reach.
    confidence : float, default=0.2
        A record may be accepted if its class is predicted, with a probability above this value. It
        is then accepted with that probability.
    max_queries : int, default=1000
        Number of rounds after which a search is abandoned.
    patience : int, default=10
        Number of rejections in a row after which half as many features are redrawn.
    least_changed : int, default=4
        Minimum number of features redrawn.
    random_state : int, RandomState instance or None, default=None
        Seed of the searches.

    Returns
    -------
    X : ndarray of shape (n_records, n_features)
        The accepted records.
    y : ndarray of shape (n_records,)
        The class of each record's search.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skprivacy.attacks import candidate_records
    >>> rng = np.random.default_rng(0)
    >>> real = rng.integers(0, 2, (200, 8))
    >>> target = LogisticRegression().fit(real, real[:, 0])
    >>> X, y = candidate_records.from_model(target, [[0, 1]] * 8, 5, random_state=0)
    >>> bool((target.predict(X) == y).all())
    True
    """
    rng = check_random_state(random_state)
    choices = [np.asarray(choice, dtype=float) for choice in values]
    classes = np.asarray(target.classes_)
    goal = np.repeat(np.arange(len(classes)), n_per_class)
    n_features = len(choices)
    best = _draw_features(choices, len(goal), rng)  # Algorithm 1, line 2
    reached = np.full(len(goal), -1.0)
    changed = np.full(len(goal), n_features)
    rejected = np.zeros(len(goal), dtype=int)
    searching, accepted = np.ones(len(goal), dtype=bool), np.zeros(len(goal), dtype=bool)
    trial = best.copy()
    for _ in range(max_queries):  # Algorithm 1, line 6
        here = np.flatnonzero(searching)
        if not here.size:
            break
        proba = predict_aligned(target, trial[here], classes)  # Algorithm 1, line 7: query
        of_goal = proba[np.arange(len(here)), goal[here]]
        better = of_goal >= reached[here]
        up, down = here[better], here[~better]
        # Algorithm 1, lines 14 to 16: keep the record if it is not worse
        best[up], reached[up], rejected[up] = trial[up], of_goal[better], 0
        # Algorithm 1, lines 9 to 11: accept with the probability of the class
        sure = better & (of_goal > confidence) & (proba.argmax(axis=1) == goal[here])
        taken = here[sure & (rng.uniform(size=len(here)) < of_goal)]
        accepted[taken], searching[taken] = True, False
        rejected[down] += 1
        stuck = down[rejected[down] > patience]
        floor = min(least_changed, n_features)
        # Algorithm 1, lines 19 to 21: redraw half as many features, rounded up
        changed[stuck], rejected[stuck] = np.maximum((changed[stuck] + 1) // 2, floor), 0
        # Algorithm 1, line 24: redraw some features of the best record so far
        trial[here] = _redraw_features(best[here], changed[here], choices, rng)
    return best[accepted], classes[goal[accepted]]


def from_marginals(
    X: Any, y: ArrayLike, n_per_class: int, *, random_state: Any = None
) -> tuple[Any, NDArray[Any]]:
    """Draw every feature independently from its marginal distribution within the class.

    Parameters
    ----------
    X : {array-like, DataFrame} of shape (n_records, n_features)
        Records whose marginals the attacker knows.
    y : array-like of shape (n_records,)
        Their classes.
    n_per_class : int
        Number of records to draw for each class.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.

    Returns
    -------
    X : {ndarray, DataFrame} of shape (n_classes * n_per_class, n_features)
        Records, in the same container as the input.
    y : ndarray of shape (n_classes * n_per_class,)
        Their classes, sorted.

    Examples
    --------
    >>> from skprivacy.attacks import candidate_records
    >>> X, y = candidate_records.from_marginals([[0, 5], [0, 6], [1, 7]], ["a", "a", "b"], 2)
    >>> y
    array(['a', 'a', 'b', 'b'], dtype='<U1')
    """
    rng = check_random_state(random_state)
    known, labels = as_records(X), np.asarray(y)
    check_consistent_length(known, labels)
    parts = []
    classes = np.unique(labels)
    for c in classes:
        rows = np.flatnonzero(labels == c)
        parts.append(rows[rng.randint(len(rows), size=(n_per_class, known.shape[1]))])
    return _gather_features(known, np.concatenate(parts)), np.repeat(classes, n_per_class)


def noisy(X: Any, share: float = 0.1, *, random_state: Any = None) -> Any:
    """Replace a share of every record's features by values of other records.

    Binary features are flipped, as in the paper. Other features take the value of a random record.

    Parameters
    ----------
    X : {array-like, DataFrame} of shape (n_records, n_features)
        Records of the target's training set.
    share : float, default=0.1
        Share of features replaced, in [0, 1]; the paper uses 0.1 and 0.2.
    random_state : int, RandomState instance or None, default=None
        Seed of the choice of features and of replacement records.

    Returns
    -------
    {ndarray, DataFrame} of shape (n_records, n_features)
        A perturbed copy, in the same container as the input.

    Examples
    --------
    >>> import numpy as np
    >>> from skprivacy.attacks import candidate_records
    >>> X = np.array([[0, 1], [1, 0]])
    >>> candidate_records.noisy(X, 1.0)
    array([[1, 0],
           [0, 1]])
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share!r} must lie in [0, 1]. The paper uses 0.1 and 0.2.")
    rng = check_random_state(random_state)
    known = as_records(X)
    n_records, n_features = known.shape
    order = rng.uniform(size=known.shape).argsort(axis=1)
    replaced = order < round(share * n_features)
    other = rng.randint(n_records, size=known.shape)
    for i in range(n_features):
        column = known.iloc[:, i] if isinstance(known, pd.DataFrame) else known[:, i]
        codes, values = pd.factorize(column, use_na_sentinel=False)
        if len(values) == 2:  # flip: take the value of a record with the other value
            other[:, i] = np.array([codes.argmax(), codes.argmin()])[codes]
    return _gather_features(known, np.where(replaced, other, np.arange(n_records)[:, None]))


def _gather_features(known: Any, rows: NDArray[np.intp]) -> Any:
    """Return records whose feature j comes from record ``rows[i, j]``."""
    if not isinstance(known, pd.DataFrame):
        return np.take_along_axis(known, rows, axis=0)
    columns = [
        known.iloc[:, i].take(rows[:, i]).reset_index(drop=True) for i in range(known.shape[1])
    ]
    return pd.concat(columns, axis=1)


def _draw_features(choices: list[NDArray[Any]], n: int, rng: Any) -> NDArray[np.float64]:
    return np.column_stack([choice[rng.randint(len(choice), size=n)] for choice in choices])


def _redraw_features(
    best: NDArray[np.float64], changed: NDArray[np.intp], choices: list[Any], rng: Any
) -> NDArray[np.float64]:
    """Redraw ``changed`` random features of each record."""
    order = rng.uniform(size=best.shape).argsort(axis=1)
    return np.where(order < changed[:, None], _draw_features(choices, len(best), rng), best)
