"""Null models of reconstruction, which see no gradient, and an upper bound on any such guess."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._row_layout import ColumnLayout

__all__ = ["null_model_ceiling", "null_model_rows"]

Float64Array = NDArray[np.float64]


def null_model_rows(
    layout: ColumnLayout,
    reference: Float64Array,
    of_reference: NDArray[Any],
    shape: tuple[int, ...],
    labels: NDArray[Any] | None,
    rng: np.random.Generator,
) -> dict[str, Float64Array]:
    """Return the guesses of each null model, arrays of shape (batches, n, n_features).

    Null models get the attack's inputs except for the gradient: the reference records with their
    labels ``of_reference``, and the ``labels`` of the attacked records, (batches, n), if given.
    """
    middle = (layout.low + layout.high) / 2
    for features in layout.one_hot:
        middle[features] = layout.low[features]
        middle[features[0]] = layout.high[features[0]]
    mode, drawn = np.empty((2, *shape, len(middle)))
    known = np.zeros(shape, dtype=int) if labels is None else labels
    for label in np.unique(known):
        pool = reference if labels is None else reference[of_reference == label]
        pool = pool if len(pool) else reference
        here = known == label
        mode[here] = layout.most_frequent_row(pool)
        drawn[here] = pool[rng.integers(len(pool), size=int(here.sum()))]
    return {
        "middle": np.broadcast_to(middle, mode.shape),
        "mode": mode,
        "random rows": drawn,
    }


def null_model_ceiling(
    layout: ColumnLayout, truth: Float64Array, labels: NDArray[Any] | None
) -> Float64Array:
    """Bound, for each column, the share that guesses without a gradient recover.

    The bound also holds for guesses that were chosen knowing these rows. A batch has n guesses, any
    of which may be matched with a row: at most n times the best single guess. The rest of a batch
    reveals which of the N rows are left, a factor of at most N / (N - n + 1). ``labels`` are those
    that the attack was given, (batches, n).
    """
    n = truth.shape[1]
    rows = truth.reshape(-1, truth.shape[2])
    known = np.zeros(len(rows)) if labels is None else np.ravel(labels)
    ceiling = np.zeros(len(layout.columns))
    for label in np.unique(known):
        share = layout.most_common_share(rows[known == label])
        left = len(rows) / (len(rows) - n + 1)
        ceiling += np.mean(known == label) * np.minimum(1.0, n * left * share)
    return ceiling
