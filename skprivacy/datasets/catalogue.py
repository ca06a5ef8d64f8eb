"""The data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .adult import fetch_adult
from .demo import load_demo

__all__ = ["CATALOGUE", "Entry"]


@dataclass(frozen=True)
class Entry:
    """A named data set: how to load it and what it is."""

    load: Callable[..., Any]
    summary: str


CATALOGUE = {
    "adult": Entry(fetch_adult, "census, 32,561 x 14, 2 classes; needs its files or a network"),
    "digits": Entry(load_demo, "handwritten digits, 1,797 x 64, 10 classes; embedded"),
}
