"""What is guessed right of records without any gradient: null models, and the most that can be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._row_layout import RowLayout

__all__ = ["blind_ceiling", "blind_guesses"]

Float64Array = NDArray[np.float64]


def blind_guesses(
    layout: RowLayout,
    reference: Float64Array,
    of_reference: NDArray[Any],
    shape: tuple[int, ...],
    labels: NDArray[Any] | None,
    rng: np.random.Generator,
) -> dict[str, Float64Array]:
    """Return what null models guess: arrays of shape (batches, n, n_features).

    **Guarantees.** They are told what the attack is told besides the gradient: the reference, and
    the labels if given.

    Parameters
    ----------
    of_reference : ndarray of shape (n_reference,)
        The labels of the attacker's records.
    shape : (batches, n)
    labels : ndarray of that shape or None
        Those of the records that are attacked.
    """
    middle = (layout.low + layout.high) / 2
    for features in layout.one_hot:
        middle[features] = layout.low[features]
        middle[features[0]] = layout.high[features[0]]
    mode, drawn = np.empty((2, *shape, len(middle)))
    told = np.zeros(shape, dtype=int) if labels is None else labels
    for label in np.unique(told):
        pool = reference if labels is None else reference[of_reference == label]
        pool = pool if len(pool) else reference
        here = told == label
        mode[here] = layout.commonest(pool)
        drawn[here] = pool[rng.integers(len(pool), size=int(here.sum()))]
    return {
        "middle": np.broadcast_to(middle, mode.shape),
        "mode": mode,
        "random rows": drawn,
    }


def blind_ceiling(
    layout: RowLayout, truth: Float64Array, labels: NDArray[Any] | None
) -> Float64Array:
    """Return, for each column, the most that guesses chosen by these very rows recover.

    A batch has n guesses, any of which may be matched with a row: at most n times the best single
    guess. The rest of a batch tells which of N rows are left, at most N / (N - n + 1) times.

    Parameters
    ----------
    truth : ndarray of shape (batches, n, n_features)
    labels : ndarray of shape (batches, n) or None
        If the attack was told them.
    """
    n = truth.shape[1]
    rows = truth.reshape(-1, truth.shape[2])
    told = np.zeros(len(rows)) if labels is None else np.ravel(labels)
    ceiling = np.zeros(len(layout.columns))
    for label in np.unique(told):
        share = layout.most_common_share(rows[told == label])
        left = len(rows) / (len(rows) - n + 1)
        ceiling += np.mean(told == label) * np.minimum(1.0, n * left * share)
    return ceiling
