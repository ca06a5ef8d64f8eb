"""Check of an audit's error probability, before any training."""

from __future__ import annotations

from typing import Any

from .._validation import is_number

__all__ = ["check_alpha"]

# Attacks, kinds of evidence, thresholds and groups each get a share, and intervals need shares of
# at least 1e-100.
_LEAST = 1e-80


def check_alpha(alpha: Any) -> None:
    """Raise ValueError unless ``alpha`` is a probability large enough to be shared."""
    if not (is_number(alpha) and _LEAST <= alpha < 1):
        raise ValueError(
            f"alpha={alpha!r} must be a number below 1 and at least {_LEAST:g}, such as 0.05."
        )
