"""Dominating pair from points on a privacy curve."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .pairs import AtomPair

__all__ = ["pair_from_curve"]

Floats = NDArray[np.float64]


def pair_from_curve(epsilons: Floats, deltas: Floats) -> AtomPair:
    """Return a symmetric pair whose privacy curve lies above the one through the points.

    A privacy curve is convex in e^epsilon, so it lies below the lower convex hull of points above
    it. Zhu, Dong and Wang (2022) show which functions are the curve of a pair.
    """
    x = np.exp(np.r_[-epsilons[::-1], epsilons])
    # The curve at -epsilon follows from symmetry: 1 - e^-epsilon (1 - delta(epsilon)).
    below = 1 - np.exp(-epsilons) * (1 - deltas)
    corners = _lower_hull(np.r_[0.0, x], np.r_[1.0, below[::-1], deltas])
    at, height = np.r_[0.0, x][corners], np.r_[1.0, below[::-1], deltas][corners]
    # The Q-mass at a corner is the change of slope there, and its P-mass e^loss times that.
    slopes = np.r_[np.diff(height) / np.diff(at), 0.0]
    after = at > 1
    q = np.maximum(np.diff(slopes)[after[1:]], 0.0)  # rounding
    p, losses = q * at[after], np.log(at[after])
    infinity = float(height[-1])
    middle = max(0.0, 1 - infinity - float(p.sum() + q.sum()))
    return AtomPair(
        tuple(np.r_[-losses[::-1], 0.0, losses]),
        tuple(np.r_[q[::-1], middle, p]),
        tuple(np.r_[p[::-1], middle, q]),
        infinity,
        loose=True,
    )


def _lower_hull(x: Floats, y: Floats) -> list[int]:
    """Return the indices of the corners of the lower convex hull, for sorted ``x``."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[i] - x[b]) < (y[i] - y[b]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return corners
