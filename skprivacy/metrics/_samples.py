"""Checks of the input that all metrics share: two samples of finite scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Float64Array", "Interval", "check_delta", "check_open_unit", "check_scores"]

Float64Array = NDArray[np.float64]
Interval = tuple[float, float]


def check_scores(scores_in: ArrayLike, scores_out: ArrayLike) -> tuple[Float64Array, Float64Array]:
    return _check_sample("scores_in", scores_in), _check_sample("scores_out", scores_out)


def _check_sample(name: str, scores: ArrayLike) -> Float64Array:
    try:
        values = np.asarray(scores, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be numbers, one score per record; got {type(scores).__name__}. Convert "
            "it to a numeric array."
        ) from None
    if values.ndim != 1 or not values.size:
        raise ValueError(
            f"{name} has shape {values.shape}; expected a non-empty 1-dimensional array. Pass one "
            "score per record."
        )
    wrong = int(np.sum(~np.isfinite(values)))
    if wrong:
        raise ValueError(
            f"{name} holds {wrong} NaN or infinite values; expected finite scores. Give records "
            "that could not be scored a finite score, or leave them out of both samples."
        )
    return values


def check_open_unit(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name}={value!r} must lie strictly between 0 and 1, for example 0.05.")
    return float(value)


def check_delta(delta: float) -> None:
    if not 0 <= delta < 1:
        raise ValueError(
            f"delta={delta!r} must lie in [0, 1). Pass the delta of the guarantee that is tested."
        )
