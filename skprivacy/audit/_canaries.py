"""Canaries for one-run audits, and the fair coins that insert them into the training records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._sklearn import safe_indexing
from ..accounting import Event
from ..attacks import LabelCanaries
from ..attacks._records import as_records, concat
from ._private import holds_private

__all__ = [
    "CanaryRun",
    "coin_entropy",
    "coin_for",
    "draw_canaries",
    "insert_canaries",
    "training_rows",
]


@dataclass(frozen=True)
class CanaryRun:
    """One fit with canaries, and the score of each canary."""

    canaries: str  # kind, a key of one_run.CANARIES
    coin: str
    fitted: Any
    trained: NDArray[np.bool_]  # the coins
    scores: NDArray[np.float64]
    sampled: bool = True  # whether records were sampled as the claim says, where this is observed
    apart: bool = False  # whether each canary had its own fit
    # Event of the fit at another noise multiplier, where it is known.
    event_at: Callable[[float], Event] | None = None


def coin_for(estimator: Any) -> str:
    """Return the coin that suits the relation announced by the parameters.

    Without an announced relation a coin replaces records: every relation bounds what that shows.
    """
    params = estimator.get_params()
    announced = {value for name, value in params.items() if name.split("__")[-1] == "relation"}
    for name, value in params.items():  # networks have no parameter for the relation
        if name.split("__")[-1] == "n_records" and f"{name[:-9]}relation" not in params:
            announced.add("zero_out" if value is None else "add_remove")
    known = announced == {"add_remove"} or (not announced and not holds_private(estimator))
    return "add_remove" if known else "replace_one"


def coin_entropy(random_state: int | None, of: str = "audit_one_run") -> int | None:
    """Return a seed for canaries and coins that differs from every seed of the model."""
    if random_state is None:
        return None
    text = f"coins of skprivacy.{of}, seed {int(random_state)}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def draw_canaries(
    X: Any, y: NDArray[Any], n: int, given: tuple[Any, Any] | None, random: np.random.Generator
) -> tuple[NDArray[np.intp], Any, NDArray[Any]]:
    """Return the rows that canaries may replace, the canaries, and their labels."""
    if given is not None:
        rows = np.sort(random.permutation(len(y))[:n])
        return rows, as_records(given[0]), np.asarray(given[1])
    # Nasr et al. 2021, "Adversary instantiation": records with wrong labels as canaries.
    drawn = LabelCanaries.drawn(y, n, random_state=int(random.integers(2**31)))
    return drawn.rows, safe_indexing(X, drawn.rows), drawn.other


def insert_canaries(
    X: Any, y: NDArray[Any], rows: NDArray[np.intp], crafted: Any, labels: NDArray[Any],
    trained: NDArray[np.bool_], coin: str,
) -> tuple[Any, NDArray[Any]]:  # fmt: skip
    """Return the training data: canaries whose coin says so replace a record."""
    place = training_rows(len(y), rows, trained, coin)
    return safe_indexing(concat(X, crafted), place), np.concatenate([y, labels])[place]


def training_rows(
    n: int, rows: NDArray[np.intp], trained: NDArray[np.bool_], coin: str
) -> NDArray[np.intp]:
    """Return the rows to train on, of ``n`` records and the canaries appended to them."""
    # Steinke, Nasr and Jagielski 2023: include the canaries whose coin says so.
    place = np.arange(n)
    place[rows[trained]] = n + np.flatnonzero(trained)
    return np.delete(place, rows[~trained]) if coin == "add_remove" else place
