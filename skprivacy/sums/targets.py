"""Targets of a batch, encoded by public facts: numbers within bounds, and labels of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.bounds import TargetScale
from .batch_columns import match_labels, read_numbers, read_text


@dataclass(frozen=True)
class TargetRange:
    """Targets within public bounds, scaled to [-1, 1] or as they are."""

    lower: float
    upper: float
    is_scaled: bool = True
    scale: str = "linear"

    kind = "number"

    def read_target(self, batch: Any, name: str) -> NDArray[np.float64]:
        return _read_number(batch, name)

    def encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Clip targets to their bounds and scale them; a missing one stays NaN."""
        if not self.is_scaled:
            return np.clip(y, self.lower, self.upper)
        return TargetScale(self.lower, self.upper, self.scale).to_unit(y)

    def facts(self) -> list[Any]:
        return [self.lower, self.upper, self.is_scaled, self.scale]


@dataclass(frozen=True)
class Labels:
    """Labels of public classes, as their indices."""

    classes: tuple[Any, ...]

    @property
    def kind(self) -> str:
        return "text" if np.asarray(self.classes).dtype.kind == "U" else "number"

    def read_target(self, batch: Any, name: str) -> NDArray[Any]:
        return read_text(batch, name) if self.kind == "text" else _read_number(batch, name)

    def encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Return the index of each label, and NaN for a missing or unknown one."""
        found = match_labels(y, self.classes)
        return np.where(found < 0, np.nan, found)

    def facts(self) -> list[Any]:
        return [np.asarray(label).item() for label in self.classes]


def _read_number(batch: Any, name: str) -> NDArray[np.float64]:
    return read_numbers(batch, (name,))[:, 0]
