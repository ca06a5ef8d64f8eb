"""Clones of the target for the attacker to train: seeded, without warnings, never charged."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ._sklearn import safe_indexing

__all__ = ["shadow_clone", "train_clone"]


def shadow_clone(estimator: Any, seed: int) -> Any:
    """Return a clone with its own seeds and no privacy budget.

    A ``noise_seed`` is replaced like a ``random_state``: otherwise all shadow models would get the
    same noise.
    """
    model = clone(estimator)
    changes: dict[str, Any] = {}
    for name, value in model.get_params().items():
        last = name.split("__")[-1]
        if last == "random_state" or (last == "noise_seed" and value is not None):
            changes[name] = int(seed)
        elif last == "budget":
            changes[name] = None
    if changes:  # FrozenEstimator.set_params returns nothing
        model.set_params(**changes)
    return model


def train_clone(estimator: Any, X: Any, y: Any, rows: NDArray[np.intp], seed: int) -> Any:
    """Train a clone on some rows, without warnings, since the target raised the same ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return shadow_clone(estimator, seed).fit(safe_indexing(X, rows), y[rows])
