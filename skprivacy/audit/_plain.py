"""Conversion of values to JSON, and of a model's text to one line."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["json_safe", "shorten_text"]

_LONGEST = 120  # characters; the bounds of many columns would fill pages


def json_safe(value: Any) -> Any:
    """Return the value with None in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def shorten_text(model: str) -> str:
    """Return the text of a model, cut to the length of a line."""
    return model if len(model) <= _LONGEST else f"{model[: _LONGEST - 3]}..."
