"""Values that JSON can represent, and models that a line can hold."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["brief", "plain"]

_LONGEST = 120  # characters; bounds of many columns fill pages


def plain(value: Any) -> Any:
    """Return the value with None for numbers that JSON cannot represent."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def brief(model: str) -> str:
    """Return the text of a model, cut where it is too long for a line."""
    return model if len(model) <= _LONGEST else f"{model[: _LONGEST - 3]}..."
