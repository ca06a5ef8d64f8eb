"""Input checks of the metrics: two samples of finite scores, delta and guesses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import as_array, check_unmasked, is_number, whole

__all__ = ["Float64Array", "Interval", "as_numbers", "check_delta", "check_guesses", "check_scores"]

Float64Array = NDArray[np.float64]
Interval = tuple[float, float]


def check_scores(scores_in: ArrayLike, scores_out: ArrayLike) -> tuple[Float64Array, Float64Array]:
    return _check_sample("scores_in", scores_in), _check_sample("scores_out", scores_out)


def as_numbers(name: str, values: ArrayLike, expected: str) -> Float64Array:
    """Convert to an array of floats; ValueError if some value is not a number."""
    check_unmasked(values, name)
    found = as_array(name, values)
    try:
        if found.dtype.kind in "biufO" and not (found == None).any():  # noqa: E711 - of each
            return found.astype(float)
    except (TypeError, ValueError, OverflowError):  # objects that are not numbers
        pass
    raise ValueError(
        f"{name} must be numbers, {expected}; got {type(values).__name__}. Convert it to a "
        "numeric array."
    )


def _check_sample(name: str, scores: ArrayLike) -> Float64Array:
    values = as_numbers(name, scores, "one score per record")
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


def check_delta(delta: float) -> float:
    if not (is_number(delta) and 0 <= delta < 1):
        raise ValueError(
            f"delta={delta!r} must lie in [0, 1). Pass the delta of the guarantee that is tested."
        )
    return float(delta)


def check_guesses(right: int, guesses: int, n_coins: int) -> None:
    whole("n_coins", n_coins, least=0)
    whole("guesses", guesses, least=0)
    whole("right", right, least=0)
    if not right <= guesses <= n_coins:
        raise ValueError(
            f"right={right!r}, guesses={guesses!r}, n_coins={n_coins!r} must be in this order and "
            "not negative. Pass the numbers of right guesses, of guesses and of coins."
        )
