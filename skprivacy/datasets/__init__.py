"""Data sets with public schemas: published files, checked by checksum, and synthetic ones."""

from .adult import fetch_adult
from .grouped import make_people
from .lookalikes import make_adult_like, make_location_like, make_purchase_like, make_texas_like
from .membership_benchmarks import fetch_location30, fetch_purchase100, fetch_texas100
from .mnist import fetch_mnist, load_demo
from .parquet import open_parquet

__all__ = [
    "fetch_adult",
    "fetch_location30",
    "fetch_mnist",
    "fetch_purchase100",
    "fetch_texas100",
    "load_demo",
    "make_adult_like",
    "make_location_like",
    "make_people",
    "make_purchase_like",
    "make_texas_like",
    "open_parquet",
]
