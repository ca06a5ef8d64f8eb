"""Targets encoded by public facts, numbers or labels, and plans of sums with a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.bounds import TargetScale
from .batch_columns import match_labels, read_numbers, read_text
from .sum_plan import Integers, SumPlan, SumTotal

_PRODUCT_STEPS = 2.0**32  # products of two numbers on the grid of 2**-16 are multiples of 2**-32


@dataclass(frozen=True)
class TargetRange:
    """Targets within public bounds, scaled to [-1, 1]."""

    lower: float
    upper: float
    scale: str = "linear"

    kind = "number"

    def read_target(self, batch: Any, name: str) -> NDArray[np.float64]:
        return _read_number(batch, name)

    def encode(self, y: NDArray[Any]) -> NDArray[np.float64]:
        """Clip targets to their bounds and scale them; a missing one stays NaN."""
        return TargetScale(self.lower, self.upper, self.scale).to_unit(y)

    def facts(self) -> list[Any]:
        return [self.lower, self.upper, self.scale]


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


@dataclass(frozen=True)
class TargetPlan(SumPlan):
    """Sums of products of two numbers on the grid of 2**-16, from numeric features and a target."""

    features: tuple[str, ...]
    target: str
    encoding: TargetRange | Labels

    @property
    def record_columns(self) -> tuple[str, ...]:
        return (*self.features, self.target)

    @property
    def target_column(self) -> str:
        return self.target

    def column_kinds(self) -> dict[str, str]:
        return {**dict.fromkeys(self.features, "number"), self.target: self.encoding.kind}

    def sums(self, total: SumTotal) -> NDArray[np.float64]:
        """Return the private sums."""
        return total._read_sums() / _PRODUCT_STEPS

    @staticmethod
    def _as_integers(sums: NDArray[np.float64]) -> Integers:
        # 2**14 records add multiples of 2**-32 below 2**15, which float64 holds in any order
        return (sums * _PRODUCT_STEPS).astype(np.int64)
