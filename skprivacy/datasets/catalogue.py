"""Catalogue of the data sets by name, for the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .adult import fetch_adult, make_adult_like
from .membership_benchmarks import fetch_membership_benchmark, make_membership_benchmark
from .mnist import fetch_mnist, load_demo


@dataclass(frozen=True)
class Entry:
    """Loader and summary of a named data set."""

    load: Callable[..., Any]
    summary: str


def _published(name: str, summary: str) -> Entry:
    return Entry(partial(fetch_membership_benchmark, name), summary)


def _make_seeded(name: str, summary: str) -> Entry:
    """Return the entry of a generated table; a fixed seed gives it the same rows each time."""
    return Entry(partial(make_membership_benchmark, name, random_state=0), f"generated, {summary}")


CATALOGUE = {
    "demo": Entry(
        partial(load_demo, mislabeled=0.2),
        "digits, a fifth mislabelled, 1,797 x 64, 10 classes; embedded",
    ),
    "adult": Entry(fetch_adult, "census, 32,561 x 14, 2 classes"),
    "location30": _published("location30", "places visited, 5,010 x 446, 30 classes"),
    "mnist": Entry(fetch_mnist, "handwritten digits, 60,000 x 784, 10 classes"),
    "purchase100": _published("purchase100", "products bought, 197,324 x 600, 100 classes"),
    "texas100": _published("texas100", "hospital stays, 67,330 x 6,169, 100 classes"),
    "digits": Entry(load_demo, "handwritten digits, 1,797 x 64, 10 classes; embedded"),
    "adult-like": Entry(
        partial(make_adult_like, random_state=0), "generated, 32,561 x 14, 2 classes"
    ),
    "location-like": _make_seeded("location30", "5,010 x 446, 30 classes"),
    "purchase-like": _make_seeded("purchase100", "20,000 x 600, 100 classes"),
    "texas-like": _make_seeded("texas100", "10,000 x 6,169, 100 classes"),
}
