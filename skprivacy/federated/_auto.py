"""Automatic settings of federated training, from public facts alone."""

from __future__ import annotations

import math
from typing import Any

from ..mechanisms import analytic_noise_multiplier

__all__ = ["resolve_auto_settings"]

_FEWEST_ROUNDS, _MOST_ROUNDS = 128, 1536
_BATCH = 1024  # expected size: larger batches cost time, and the noise of a run is the same
_ROUNDS_OF_PARTIES = 64  # more rounds cost the parties time and gain nothing
_LARGEST_RATE = 2.0
_NORM_OF_PARTIES = 0.4


def resolve_auto_settings(
    given: dict[str, Any], *, n: int, n_features: int, epsilon: float, delta: float, parties: bool
) -> dict[str, Any]:
    """Return the settings, with a value in place of each "auto"; ``n`` is public.

    As for DPSGDClassifier, the total noise on a mean of clipped gradients depends on n times the
    Gaussian-DP parameter alone, which therefore determines the length of training.
    """
    signal = math.inf if math.isinf(epsilon) else n / analytic_noise_multiplier(epsilon, delta)
    time = signal / math.sqrt(n_features)
    automatic = _party_settings(n) if parties else _record_settings(n, time)
    settings = {name: automatic[name] if _is_auto(v) else v for name, v in given.items()}
    settings["batch_size"] = min(settings["batch_size"], n)
    if _is_auto(settings["learning_rate"]):
        rate = min(time / settings["n_rounds"], _LARGEST_RATE)
        settings["learning_rate"] = rate / settings["max_norm"]
    return settings


def _record_settings(n: int, time: float) -> dict[str, Any]:
    rounds = _MOST_ROUNDS if math.isinf(time) else 32 * math.sqrt(time)
    return {
        "n_rounds": round(min(max(rounds, _FEWEST_ROUNDS), _MOST_ROUNDS)),
        "batch_size": max(min(n // 4, _BATCH), n // _MOST_ROUNDS, 1),
        "max_norm": 1.0,
        "learning_rate": "auto",
    }


def _party_settings(n: int) -> dict[str, Any]:
    return {
        "n_rounds": _ROUNDS_OF_PARTIES,
        "batch_size": n,
        "max_norm": _NORM_OF_PARTIES,
        "learning_rate": "auto",
    }


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"
