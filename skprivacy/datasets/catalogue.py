"""Catalogue of the data sets by name, for the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .adult import fetch_adult
from .lookalikes import (
    make_adult_like,
    make_location_like,
    make_purchase_like,
    make_texas_like,
)
from .membership_benchmarks import fetch_location30, fetch_purchase100, fetch_texas100
from .mnist import fetch_mnist, load_demo


@dataclass(frozen=True)
class Entry:
    """Loader and summary of a named data set."""

    load: Callable[..., Any]
    summary: str


def _fix_seed(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return the generator with a fixed seed, so that a name always means the same rows."""
    return partial(make, random_state=0)


CATALOGUE = {
    "demo": Entry(
        partial(load_demo, mislabeled=0.2),
        "digits, a fifth mislabelled, 1,797 x 64, 10 classes; embedded",
    ),
    "adult": Entry(fetch_adult, "census, 32,561 x 14, 2 classes"),
    "location30": Entry(fetch_location30, "places visited, 5,010 x 446, 30 classes"),
    "mnist": Entry(fetch_mnist, "handwritten digits, 60,000 x 784, 10 classes"),
    "purchase100": Entry(fetch_purchase100, "products bought, 197,324 x 600, 100 classes"),
    "texas100": Entry(fetch_texas100, "hospital stays, 67,330 x 6,169, 100 classes"),
    "digits": Entry(load_demo, "handwritten digits, 1,797 x 64, 10 classes; embedded"),
    "adult-like": Entry(_fix_seed(make_adult_like), "generated, 32,561 x 14, 2 classes"),
    "location-like": Entry(_fix_seed(make_location_like), "generated, 5,010 x 446, 30 classes"),
    "purchase-like": Entry(_fix_seed(make_purchase_like), "generated, 20,000 x 600, 100 classes"),
    "texas-like": Entry(_fix_seed(make_texas_like), "generated, 10,000 x 6,169, 100 classes"),
}
