"""Random complementary halves that shadow models are trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["complementary_halves"]

REDRAWS = 20  # of a half, until both halves have two classes


def complementary_halves(
    groups: NDArray[np.intp], y: NDArray[Any] | None, n_shadows: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Draw complementary halves of the groups; with ``y``, each half has at least two classes."""
    n_groups = int(groups.max()) + 1
    masks = np.zeros((n_shadows, n_groups), dtype=bool)
    for pair in range(0, n_shadows, 2):
        for _ in range(REDRAWS):
            half = np.zeros(n_groups, dtype=bool)
            half[rng.permutation(n_groups)[: n_groups // 2]] = True
            taken = half[groups]
            if y is None or min(len(np.unique(y[taken])), len(np.unique(y[~taken]))) > 1:
                break
        else:
            raise ValueError(
                f"y has a class that is too rare: after {REDRAWS} random draws, one half still had "
                "a single class. Pass more records of that class."
            )
        masks[pair], masks[pair + 1] = half, ~half
    return masks
