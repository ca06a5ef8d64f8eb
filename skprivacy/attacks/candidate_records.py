"""Synthetic records for attackers without data, to train shadow models (Shokri et al. 2017, V-C).

The methods of :class:`~skprivacy.attacks.LabeledRecords` describe the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .._input_data import check_consistent_length, column_or_1d
from .._validation import check_random_state, is_number, probability, sequence, whole
from ..metrics.rates import as_numbers
from .model_answers import predict_aligned
from .record_tables import as_records


def synthesize_records(
    target: Any,
    values: Sequence[ArrayLike],
    n_per_class: int,
    confidence: float,
    max_queries: int,
    patience: int,
    least_changed: int,
    random_state: Any,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return records that the target is confident about (Shokri et al. 2017, Algorithm 1)."""
    if not hasattr(target, "classes_"):
        raise TypeError(f"target={target!r} must be a fitted classifier.")
    counts = {"n_per_class": n_per_class, "max_queries": max_queries, "patience": patience}
    for name, count in {**counts, "least_changed": least_changed}.items():
        whole(name, count, least=0)
    probability("confidence", confidence)
    rng = check_random_state(random_state)
    choices = [_check_choices(i, choice) for i, choice in enumerate(sequence("values", values))]
    classes = np.asarray(target.classes_)
    goal = np.repeat(np.arange(len(classes)), n_per_class)
    n_features = len(choices)
    if n_features != getattr(target, "n_features_in_", n_features):
        raise ValueError(
            f"values lists {n_features} features; expected {target.n_features_in_}, as the target "
            "takes."
        )
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


def resample_marginals(
    X: Any, y: ArrayLike, n_per_class: int, random_state: Any
) -> tuple[Any, NDArray[Any]]:
    """Draw every feature independently from its marginal distribution within the class."""
    whole("n_per_class", n_per_class)
    rng = check_random_state(random_state)
    known, labels = as_records(X), np.asarray(column_or_1d(y))
    _check_features(known)
    check_consistent_length(known, labels)
    parts = []
    classes = np.unique(labels)
    for c in classes:
        rows = np.flatnonzero(labels == c)
        parts.append(rows[rng.randint(len(rows), size=(n_per_class, known.shape[1]))])
    return _gather_features(known, np.concatenate(parts)), np.repeat(classes, n_per_class)


def replace_features(X: Any, share: float, random_state: Any) -> Any:
    """Replace a share of every record's features by values of other records."""
    if not (is_number(share) and 0 <= share <= 1):
        raise ValueError(f"share={share!r} must lie in [0, 1]. The paper uses 0.1 and 0.2.")
    rng = check_random_state(random_state)
    known = as_records(X)
    _check_features(known)
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


def _check_choices(i: int, values: ArrayLike) -> NDArray[np.float64]:
    found = as_numbers(f"values[{i}]", values, "those that the feature may take")
    if found.ndim != 1 or not found.size or not np.isfinite(found).all():
        raise ValueError(f"values[{i}] must be a non-empty list of finite numbers.")
    return found


def _check_features(X: Any) -> None:
    if sparse.issparse(X) or X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}; expected a dense table, (n_records, n_features).")


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
